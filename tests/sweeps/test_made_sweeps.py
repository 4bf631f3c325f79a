"""Sweeps whose points are lines of ``made_sweeps.txt``, and what their analysis finds.

A line ``point`` has fields of :class:`MadePoint`. A line ``sweep`` begins another sweep. Lines
``folder`` and ``select`` have arguments of ``write_sweep`` and :class:`PointSelection`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gemmetry.domain.errors import RequestError
from gemmetry.sweeps.comparison import LabelledSweep, compare_sweeps
from gemmetry.sweeps.folder import read_sweep
from gemmetry.sweeps.points import PointSelection, analyse_sweep
from gemmetry.sweeps.report import change_sentences
from gemmetry.sweeps.rows import sweep_result
from gemmetry.sweeps.tuner import tuned_collectives, tuned_entry, tuner_lines

Line = str | tuple[object, dict[str, Any]]
KEYS = {"rank", "to", "delay_ns", "rank_factor", "steps_of"}


def flat(record: dict[str, Any]) -> dict[str, Any]:
    """Without versions, folders and what has lists of its own."""
    lists = {key for key, value in record.items() if isinstance(value, list) and key != "ranks"}
    return {
        key: value for key, value in record.items() if key not in {"versions", "folder"} | lists
    }


def points(document: dict[str, Any]) -> Iterator[Line]:
    for one in document["points"]:
        yield ("point", flat(one))
        yield from ((" ", flat(step)) for step in one.get("steps", ()))
    yield ("best", flat(document["best"]))
    for key in ("ranked", "as_good", "left_out"):
        yield from ((key, flat(one)) for one in document["best"].get(key, ()))
    yield from (("effect", flat(one)) for one in document["effects"])
    yield from (f"problem: {text}" for text in document["problems"])


def gemms(document: dict[str, Any]) -> Iterator[Line]:
    for key in ("pooled_gemms", "gemms"):
        for one in document[key]:
            yield (key, {"sum": "", **flat(one), "kernel": one["kernel"][:20]})
            for name in ("by_share", "by_collective"):
                yield from ((f"  {name}", flat(part)) for part in one.get(name) or ())


def of_points(key: str) -> Any:
    def found(document: dict[str, Any]) -> Iterator[Line]:
        for point in document["points"]:
            yield ("point", {name: point[name] for name in ("threads", "channels", "axes")})
            yield from ((" ", flat(one)) for one in point[key])
        yield from (("all", flat(one)) for one in document.get(key, ()))

    return found


TOPICS = {
    "points": points, "gemms": gemms, "stragglers": of_points("stragglers"),
    "settings": of_points("settings"),
    "collectives": lambda document: (("all", flat(one)) for one in document["collectives"]),
}  # fmt: skip


def folder(place: Path) -> Iterator[Line]:
    found = read_sweep(place)
    for one in found.points:
        ranks = [f"{trace.rank} by {'' if trace.rank is None else 'name'}" for trace in one.traces]
        values = {"outcome": one.outcome, "reason": one.reason, "repeat": one.repeat}
        yield (one.label, {**values, "ranks": ranks, "facts": one.facts})
    yield ("sweep", {"repeats": found.repeats, "problems": found.problems})


def tuned(place: Path, selection: PointSelection | None) -> Iterator[Line]:
    found = tuned_collectives(analyse_sweep(place, selection=selection))
    for one, line in zip(found, tuner_lines(found), strict=True):
        yield (one.operation, {**flat(tuned_entry(one)), "obstacle": one.obstacle})
        yield f"line: {line.text if line else 'none'}"


def compared(documents: list[dict[str, Any]]) -> Iterator[Line]:
    labelled = [LabelledSweep(label=n, document=d) for n, d in zip("AB", documents, strict=True)]
    comparison = compare_sweeps(labelled)
    (candidate,) = comparison.candidates
    for row in candidate.rows:
        point = row.configuration and row.configuration.label
        values = {"verdict": row.verdict, "ratio": row.comparison.ratio, "note": row.note}
        ends = {"low": row.comparison.ratio_low, "high": row.comparison.ratio_high}
        yield (f"{row.group} {row.measure}", {"point": point, **values, **ends})
    yield f"regressions: {', '.join(row.measure for row in candidate.regressions)}"
    yield ("lost", {"channels": [one.channels for one in candidate.lost]})
    yield from (f"differs: {text}" for text in candidate.environment_differences)
    yield from change_sentences(comparison, candidate)


def made(case: Any, sweeps: Any, place: Path) -> tuple[list[Path], PointSelection | None]:
    points: list[list[Any]] = [[]]
    options: dict[str, Any] = {}
    selection = None
    for what, _, given in case.calls():
        if what == "sweep":
            points.append([])
        elif what == "folder":
            options = given
        elif what == "select":
            selection = PointSelection(**given)
        else:
            by_rank = {key: {int(rank): value for rank, value in given[key].items()}
                       for key in KEYS & given.keys()}  # fmt: skip
            points[-1].append(sweeps.MadePoint(**{**given, **by_rank}))
    folders = [place / name for name in "ab"[: len(points)]]
    for one, of_one in zip(folders, points, strict=True):
        sweeps.write_sweep(one, of_one, **options)
    return folders, selection


def test_made_sweeps(case, sweeps, tmp_path):
    topic = case.topic
    folders, selection = made(case, sweeps, tmp_path)
    try:
        if topic in ("folder", "tuned"):
            found = list(folder(folders[0]) if topic == "folder" else tuned(folders[0], selection))
        else:
            documents = [sweep_result(analyse_sweep(one, selection=selection)).document()
                         for one in folders]  # fmt: skip
            found = list(
                compared(documents) if topic == "compared" else TOPICS[topic](documents[0])
            )
    except RequestError as error:
        found = [f"error: {error.message}", f"hint: {error.hint}"]
    case.check(found, tmp_path)
