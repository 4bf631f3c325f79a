"""Turns an experiment into entries of a history, one for each class of devices."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import msgspec

from gemmetry.dispatches.analysis import mark_kind
from gemmetry.domain.dispatch import TargetKind
from gemmetry.domain.errors import RequestError
from gemmetry.domain.record import Environment, Record, ResultSet
from gemmetry.domain.units import counted, format_memory
from gemmetry.history.folder import SCHEMA, HistoryPoint, HistoryRun, points_digest

_NOT_OF_THE_METHOD = frozenset({
    "tags", "seed", "deadlines_s", "distribution", "regime", "judge_rivals",
    "max_seconds_per_launch",
})  # fmt: skip
"""Settings that no time depends on, and those that each point has of its own."""

_LIMIT_STEP_W = 10
"""Power limits are rounded to this many watts, so that one set as 699.9 W is that of 700 W."""


def runs_of(
    results: ResultSet, *, commit: str = "", label: str = "", time: str = ""
) -> list[HistoryRun]:
    """The entries of an experiment.

    Args:
        commit: of what was measured; "": the one that the environment recorded.
        time: ISO 8601; "": when the experiment was created. Without a zone, UTC.

    Raises:
        RequestError: it has no records, or the time cannot be read.
    """
    classes: dict[str, dict[tuple[str, ...], HistoryPoint]] = {}
    for record in results.records:
        environment = results.environments.get(record.environment_id, Environment())
        point = _point(record)
        # Of a dispatch that merged experiments measured twice the later record counts.
        classes.setdefault(device_class(record, environment), {})[point.key] = point
    if not classes:
        raise RequestError(
            f"{_source(results)} has no results yet",
            hint="Add it when its run has finished at least one dispatch.",
        )
    moment = _utc(time or results.created)
    identity = _identity(results)
    settings = {name: value for name, value in dict(results.document.get("settings", {})).items()
                if name not in _NOT_OF_THE_METHOD}  # fmt: skip
    return [
        _run(results, list(points.values()), device, identity, moment, settings, commit, label)
        for device, points in classes.items()
    ]


def _run(
    results: ResultSet, points: list[HistoryPoint], device: str, identity: str, moment: str,
    settings: Mapping[str, Any], commit: str, label: str,
) -> HistoryRun:  # fmt: skip
    used = {key: results.environments[key] for key in {point.environment for point in points}
            if key in results.environments}  # fmt: skip
    revisions = sorted({one.git_revision for one in used.values()} - {""})
    return HistoryRun(
        schema=SCHEMA,
        id=identity,
        digest=points_digest(points),
        device=device,
        time=moment,
        points=points,
        commit=commit or (revisions[0] if len(revisions) == 1 else ""),
        label=label,
        source=_source(results),
        settings=dict(settings),
        environments={key: asdict(one) for key, one in used.items()},
    )


def device_class(record: Record, environment: Environment) -> str:
    """What decides how fast a device is, and does not change from run to run: model, memory and
    power limit of a GPU, model and number of processors of a CPU. Clocks and versions are not part
    of it: they belong to the environment, so that a series continues when they change."""
    kind = TargetKind(record.target.partition("-")[0])
    if kind is TargetKind.NULL:
        return "simulated device"
    if kind is TargetKind.CPU:
        return f"{environment.cpu or 'CPU'}, {counted(environment.cpu_count, 'processor')}"
    if not environment.devices:
        return record.target
    index = re.search(r":(\d+)$", record.device)
    place = int(index[1]) if index and int(index[1]) < len(environment.devices) else 0
    parts = [environment.devices[place]]
    memory = environment.device_memory_bytes[place : place + 1]
    limit = environment.power_limits_w[place : place + 1]
    parts += [format_memory(round(value, -8)) for value in memory if value]
    parts += [f"{round(value / _LIMIT_STEP_W) * _LIMIT_STEP_W} W" for value in limit if value]
    return ", ".join(parts)


def added_before(run: HistoryRun, known: Iterable[HistoryRun]) -> str | None:
    """How `run` relates to the runs of its device class: "same" if its results are stored,
    "replaced" if fewer or other results of the same experiment are, otherwise None."""
    digests = {one.digest for one in known if one.id == run.id}
    if not digests:
        return None
    return "same" if run.digest in digests else "replaced"


def _point(record: Record) -> HistoryPoint:
    measured = record.measurement
    common: dict[str, Any] = {
        "provider": record.provider,
        "dispatch": record.dispatch,
        "operation": record.operation,
        "target": record.target,
        "distribution": record.distribution,
        "outcome": str(record.outcome),
        "environment": record.environment_id,
    }
    if measured is None:
        return HistoryPoint(**common)
    telemetry = measured.telemetry
    return HistoryPoint(
        **common,
        regime=measured.regime,
        median_ns=measured.median_ns,
        low_ns=measured.ci_low_ns,
        high_ns=measured.ci_high_ns,
        samples=measured.sample_count,
        rounds=measured.rounds,
        method=measured.method,
        sm_clock_hz=telemetry.sm_clock_hz,
        power_w=telemetry.power_w,
        temperature_c=telemetry.temperature_c,
        throttle=telemetry.throttle_reasons,
        load_average=telemetry.load_average,
        marks=tuple(dict.fromkeys(map(mark_kind, measured.marks))),
    )


def _identity(results: ResultSet) -> str:
    """The same for an experiment, a copy of it, and the experiment after it has grown."""
    hosts = sorted({one.hostname for one in results.environments.values()})
    first = next((r for r in results.records if r.measurement is not None), None)
    median = first.measurement.median_ns if first and first.measurement else None
    # Older experiments state only the second; the command distinguishes simulated devices.
    command = first.reproduce if first else ""
    facts = (results.created, hosts, results.title, median, command)
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:12]


def _utc(text: str) -> str:
    if not text:
        return datetime.now(UTC).isoformat(timespec="seconds")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise RequestError(
            f"cannot read the time {text!r}", hint="Write it as 2026-11-23 or 2026-11-23T06:30:00."
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).isoformat(timespec="seconds")


def _source(results: ResultSet) -> str:
    return results.path or results.title
