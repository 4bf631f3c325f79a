"""The figures of a sweep that are compared, by configuration and run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from gemmetry.analysis.sweeps.model import SweepConfiguration

PARTS = ("compute_ms", "slowed_compute_ms", "exposed_comm_ms", "exposed_copy_ms", "idle_ms")
"""The parts of a step."""

KIND = ("kernel", "m", "n", "k", "batch", "dtype", "layout")
"""Keys that identify a GEMM."""
SHAPE = KIND[1:]
COLLECTIVE = ("op", "dtype", "bytes", "group_size")
"""Keys that identify a collective."""

WORKBOOKS = "workbooks"
"""``source`` of a document of which only workbooks are left, without steps."""

WORKBOOK_MEASURES = {"median_us": "µs"}
"""Those of GEMMs in workbooks."""
GEMM_MEASURES = {"alone_median_us": "µs", "overlapped_median_us": "µs", "slowdown": "×"}
"""Measure -> its unit."""

_COMMON = "identity."
"""Beginning of the facts that all points of a sweep have in common."""

Key: TypeAlias = tuple[Any, ...]
Values: TypeAlias = dict[SweepConfiguration, list[float]]
"""Configuration -> one value per run."""
Facts: TypeAlias = dict[str, tuple[str, ...]]
"""Facts about an environment; most have one member."""


def configuration_of(entry: Mapping[str, Any]) -> SweepConfiguration:
    """The configuration of an entry of ``analysis.json``."""
    return SweepConfiguration(
        entry["threads"], entry["channels"], tuple(sorted(entry["axes"].items()))
    )


def valid_points(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The points whose training ended well, and whose steps are known and comparable."""
    return [
        one
        for one in document["points"]
        if one["outcome"] == "ok" and _time(one) is not None and not one.get("left_out")
    ]


def _time(point: Mapping[str, Any]) -> float | None:
    """The median step; the whole trace where only workbooks are left."""
    found: float | None = point["step_ms"]["median"]
    whole = point.get("whole_trace")
    return found if whole is None else whole["window_ms"]


def step_values(document: Mapping[str, Any]) -> Values:
    """The median step of each run, in ms; of workbooks, the whole trace of the slowest rank."""
    return _positive(_collected((one, _time(one)) for one in valid_points(document)))


def part_values(document: Mapping[str, Any], part: str) -> Values:
    """One part of each run's median step, in ms; runs in which it is not known are left out."""
    return _collected(
        (one, (one.get("whole_trace") or one)[part]) for one in valid_points(document)
    )


def gemm_values(document: Mapping[str, Any], measure: str) -> dict[Key, Values]:
    """GEMM (:data:`KIND`) -> one measure of it in each run."""
    return _by_kind(document, "pooled_gemms", KIND, measure)


def collective_values(document: Mapping[str, Any], measure: str) -> dict[Key, Values]:
    """Collective (:data:`COLLECTIVE`) -> one measure of it in each run."""
    return _by_kind(document, "collectives", COLLECTIVE, measure)


def _by_kind(
    document: Mapping[str, Any], entries: str, keys: tuple[str, ...], measure: str
) -> dict[Key, Values]:
    ran_well = {
        (configuration_of(one), one["repeat"])
        for one in document["points"]
        if one["outcome"] == "ok"
    }
    found: dict[Key, list[tuple[Mapping[str, Any], float | None]]] = {}
    for one in document[entries]:
        if (configuration_of(one), one["repeat"]) in ran_well:
            key = tuple(one[name] for name in keys)
            found.setdefault(key, []).append((one, one[measure]))
    return {key: values for key, of in found.items() if (values := _positive(_collected(of)))}


def _positive(values: Values) -> Values:
    """Without times that are not positive, which clocks that differ by more than a collective takes
    can give it: they have no ratio."""
    found = {one: [value for value in of if value > 0] for one, of in values.items()}
    return {one: of for one, of in found.items() if of}


def _collected(entries: Iterable[tuple[Mapping[str, Any], float | None]]) -> Values:
    found: Values = {}
    for entry, value in entries:
        if value is not None:
            found.setdefault(configuration_of(entry), []).append(value)
    return found


def collective_launches(
    document: Mapping[str, Any],
) -> dict[SweepConfiguration, set[tuple[Any, ...]]]:
    """Configuration -> its collectives (:data:`COLLECTIVE`), each with its launches per run."""
    found: dict[SweepConfiguration, set[tuple[Any, ...]]] = {}
    for one in document["collectives"]:
        launches = (*(one[name] for name in COLLECTIVE), one["count"])
        found.setdefault(configuration_of(one), set()).add(launches)
    return found


def environment_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[str, ...]:
    """``nccl_version: 2.27.3 vs 2.28.9``, one line per fact in which the sweeps differ: devices,
    world sizes, versions that the traces record, and what the manifests record. Of a list, only
    the members that the other sweep lacks are shown."""
    mine, theirs = _environment(first), _environment(second)
    return tuple(
        f"{name}: {_value(mine, theirs, name)} vs {_value(theirs, mine, name)}"
        for name in [*mine, *(name for name in theirs if name not in mine)]
        if mine.get(name) != theirs.get(name)
    )


def _value(facts: Facts, others: Facts, name: str) -> str:
    """The members that the other sweep lacks. A manifest that records what the points have in
    common records all of it."""
    if name not in facts:
        is_recorded = name.startswith(_COMMON) and any(one.startswith(_COMMON) for one in facts)
        return "none" if is_recorded else "not recorded"
    values, theirs = facts[name], others.get(name, ())
    in_another_order = sorted(values) == sorted(theirs)
    return ", ".join(one for one in values if in_another_order or one not in theirs) or "none"


def _environment(document: Mapping[str, Any]) -> Facts:
    found: dict[str, set[str]] = {}
    for point in document["points"]:
        traced, ranks = len(point["ranks"]), point["world_size"]
        is_whole = not traced or ranks in (None, traced)
        known = {
            "GPU": point["device"],
            "ranks": ranks,
            "ranks that are traced": None
            if point.get("left_out")
            else "all"
            if is_whole
            else traced,
            **point["versions"],
        }
        for name, value in known.items():
            if value is not None:
                found.setdefault(name, set()).add(str(value))
    texts = {name: tuple(sorted(values)) for name, values in found.items()}
    of_manifest: Mapping[str, Any] = document.get("environment", {})
    return texts | {
        name: tuple(map(str, value)) if isinstance(value, (list, tuple)) else (str(value),)
        for name, value in of_manifest.items()
    }


def is_same_sweep(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether both hold the same runs: one sweep under two names, or a copy of it."""
    return _runs(first) == _runs(second)


def _runs(document: Mapping[str, Any]) -> object:
    points = [{**one, "folder": ""} for one in document["points"]]
    return points, document["pooled_gemms"], document["collectives"]
