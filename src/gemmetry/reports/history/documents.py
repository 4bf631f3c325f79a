"""The history as tables and JSON documents."""

from __future__ import annotations

from typing import Any

from gemmetry.analysis.history.causes import CAUSES
from gemmetry.analysis.history.changes import HistoryChanges
from gemmetry.analysis.history.checking import LOST, HistoryCheck, JudgedChange, LostDispatch
from gemmetry.domain.columns import SCHEMA_VERSION
from gemmetry.domain.tables import Column, ColumnType, Direction, Table
from gemmetry.domain.units import format_ns, format_percent
from gemmetry.reports.history.rows import undecided_text
from gemmetry.statistics.comparison import Difference
from gemmetry.statistics.quantiles import median

TEXT, TEXTS, NUMBER = ColumnType.TEXT, ColumnType.TEXTS, ColumnType.NUMBER
INTEGER, BOOLEAN = ColumnType.INTEGER, ColumnType.BOOLEAN

_CHANGES = (
    Column("device", TEXT, "", "Device class."),
    Column("dispatch", TEXT, "", "Provider and name of the dispatch."),
    Column("run", TEXT, "", "Id of the first run after the change."),
    Column("time", TEXT, "", "Time of that run."),
    Column("commit", TEXT, "", "Commit that was measured in it."),
    Column("label", TEXT, "", "Label of the run."),
    Column("cause", TEXT, "", "What changed.", choices=(*CAUSES, LOST)),
    Column("verdict", TEXT, "", "Read from the interval.", choices=tuple(Difference)),
    Column("of", TEXT, "", "What changed: the time, or its ratio to the reference."),
    Column("ratio", NUMBER, "", "Level after the change over that before it.",
           Direction.LOWER_IS_BETTER, lambda v: f"{v:.3f}"),
    Column("ratio_low", NUMBER, "", "Lower end of its interval.", Direction.LOWER_IS_BETTER,
           lambda v: f"{v:.3f}"),
    Column("ratio_high", NUMBER, "", "Upper end of its interval.", Direction.LOWER_IS_BETTER,
           lambda v: f"{v:.3f}"),
    Column("confidence", NUMBER, "", "Of the interval.", Direction.NONE, lambda v: f"{v:.6g}"),
    Column("p_value", NUMBER, "", "For any change in the series.", Direction.NONE,
           lambda v: f"{v:.2g}"),
    Column("new", BOOLEAN, "", "Its first run is among the latest ones."),
    Column("acknowledged", BOOLEAN, "", "A remark acknowledges it."),
    Column("alarm", BOOLEAN, "", "history check fails on it."),
    Column("reasons", TEXTS, "", "Why this is the cause."),
    Column("remarks", TEXTS, "", "What was remarked on it."),
)  # fmt: skip

_SERIES = (
    Column("device", TEXT, "", "Device class."),
    Column("dispatch", TEXT, "", "Provider and name of the dispatch."),
    Column("provider", TEXT, "", "Provider."),
    Column("operation", TEXT, "", "Operation."),
    Column("distribution", TEXT, "", "Distribution of the inputs."),
    Column("regime", TEXT, "", "burst or sustained."),
    Column("reference", TEXT, "", "The dispatch that it is compared with."),
    Column("runs", INTEGER, "", "Runs that measured it."),
    Column("outcome", TEXT, "", "Its latest outcome."),
    Column("median_ns", NUMBER, "ns", "Its latest median.", Direction.LOWER_IS_BETTER, format_ns),
    Column("low_ns", NUMBER, "ns", "Lower end of the interval of that median.",
           Direction.LOWER_IS_BETTER, format_ns),
    Column("high_ns", NUMBER, "ns", "Upper end of the interval of that median.",
           Direction.LOWER_IS_BETTER, format_ns),
    Column("level_ns", NUMBER, "ns", "Median of the medians since its last change.",
           Direction.LOWER_IS_BETTER, format_ns),
    Column("power", NUMBER, "", "Share of cases in which a change of five times the threshold would"
           " be found; below 0.8 that none was is undecided.", Direction.NONE, format_percent),
    Column("changes", INTEGER, "", "Changes that are not noise."),
    Column("last_change", TEXT, "", "Time of the last of them."),
    Column("last_cause", TEXT, "", "ChangeCause of the last of them."),
    Column("last_ratio", NUMBER, "", "Ratio of the last of them.", Direction.LOWER_IS_BETTER,
           lambda v: f"{v:.3f}"),
)  # fmt: skip

_POINTS = (
    Column("device", TEXT, "", "Device class."),
    Column("dispatch", TEXT, "", "Provider and name of the dispatch."),
    Column("run", TEXT, "", "Id of the run."),
    Column("time", TEXT, "", "Time of the run."),
    Column("commit", TEXT, "", "Commit that was measured in it."),
    Column("label", TEXT, "", "Label of the run."),
    Column("outcome", TEXT, "", "Outcome in that run."),
    Column("median_ns", NUMBER, "ns", "Its median.", Direction.LOWER_IS_BETTER, format_ns),
    Column("low_ns", NUMBER, "ns", "Lower end of the interval of that median.",
           Direction.LOWER_IS_BETTER, format_ns),
    Column("high_ns", NUMBER, "ns", "Upper end of the interval of that median.",
           Direction.LOWER_IS_BETTER, format_ns),
    Column("reference", TEXT, "", "The dispatch that it is compared with."),
    Column("reference_ns", NUMBER, "ns", "Median of the reference in the same run.",
           Direction.LOWER_IS_BETTER, format_ns),
    Column("ratio", NUMBER, "", "Median over that of the reference.", Direction.LOWER_IS_BETTER,
           lambda v: f"{v:.3f}"),
)  # fmt: skip

POINTS = ("run", "time", "median_ns", "low_ns", "high_ns", "outcome")


def change_table(check: HistoryCheck) -> Table:
    """A row for each change and for each dispatch that is no longer ok, the latest first."""
    rows = [_change_row(one) for one in check.changes] + [_lost_row(one) for one in check.lost]
    rows.sort(key=lambda row: (not row["alarm"], not row["new"]))
    return Table.from_records("changes", _CHANGES, rows)


def check_document(check: HistoryCheck) -> dict[str, Any]:
    """What ``history check --json`` prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "has_alarm": check.has_alarm,
        "has_failed": check.has_failed,
        "latest": check.latest,
        "fail_on": list(check.fail_on),
        "devices": [_device(found) for found in check.devices],
        "changes": change_table(check).records(),
        "problems": list(check.problems),
    }


def series_table(check: HistoryCheck, chosen: list[tuple[HistoryChanges, int]]) -> Table:
    """A row for each of the `chosen` series."""
    rows = [_series_row(check, found, series) for found, series in chosen]
    return Table.from_records("series", _SERIES, rows)


def point_table(chosen: list[tuple[HistoryChanges, int]]) -> Table:
    """A row for each run of each of the `chosen` series."""
    rows = []
    for found, series in chosen:
        history, reference = found.history, found.history.references[series]
        for place, run in enumerate(history.runs):
            point = _point(found, series, place)
            if point is None:
                continue
            base = None if reference is None else _point(found, reference, place)
            base_ns = base and base["median_ns"]
            rows.append({
                **point,
                "device": history.device,
                "dispatch": history.short_names[series],
                "commit": run.commit,
                "label": run.label,
                "reference": "" if reference is None else history.short_names[reference],
                "reference_ns": base_ns,
                "ratio": point["median_ns"] / base_ns if base_ns and point["median_ns"] else None,
            })  # fmt: skip
    return Table.from_records("points", _POINTS, rows)


def history_document(
    check: HistoryCheck, chosen: list[tuple[HistoryChanges, int]]
) -> dict[str, Any]:
    """What ``history show --json`` prints: the series with all of their points and changes."""
    series = []
    for (found, number), row in zip(chosen, series_table(check, chosen).records(), strict=True):
        points = [_point(found, number, run) for run in range(len(found.history.runs))]
        changes = [_change_row(one) for one in changes_of(check, found, number)]
        series.append({**row, "points": [p for p in points if p is not None],
                       "found_changes": changes})  # fmt: skip
    return {
        "schema_version": SCHEMA_VERSION,
        "devices": [_device(found) for found in check.devices],
        "series": series,
        "problems": list(check.problems),
    }


def changes_of(check: HistoryCheck, found: HistoryChanges, series: int) -> list[JudgedChange]:
    """The changes of a series, in the order of time."""
    own = [one for one in check.changes if one.found is found and one.change.series == series]
    return sorted(own, key=lambda one: one.change.run)


def _device(found: HistoryChanges) -> dict[str, Any]:
    runs = found.history.runs
    return {
        "device": found.history.device,
        "runs": len(runs),
        "series": len(found.history.keys),
        "tested": found.tested,
        "too_short": found.is_undecided,
        "undecided_series": len(found.undecided),
        "undecided": undecided_text(found),
        "measured_again": [runs[number].id for number in sorted(found.history.measured_again)],
        "confidence": found.confidence,
        "first": runs[0].time,
        "last": runs[-1].time,
    }


def _point(found: HistoryChanges, series: int, run: int) -> dict[str, Any] | None:
    point = found.history.points[series][run]
    if point is None:
        return None
    entry = found.history.runs[run]
    values = (entry.id, entry.time, point.median_ns, point.low_ns, point.high_ns, point.outcome)
    return dict(zip(POINTS, values, strict=True))


def _place(one: JudgedChange | LostDispatch) -> dict[str, Any]:
    return {
        "device": one.found.history.device,
        "dispatch": one.name,
        "run": one.run.id,
        "time": one.run.time,
        "commit": one.run.commit,
        "label": one.run.label,
        "new": one.is_new,
        "acknowledged": any(remark.acknowledged for remark in one.remarks),
        "alarm": one.is_alarm,
        "remarks": [remark.text for remark in one.remarks],
    }


def _change_row(one: JudgedChange) -> dict[str, Any]:
    change, shift = one.change, one.change.shift
    low, high = (shift and shift.interval) or (None, None)
    return {
        **_place(one),
        "cause": str(change.cause),
        "verdict": str(change.direction),
        "of": "ratio" if change.is_of_ratio else "time",
        "ratio": shift and shift.ratio,
        "ratio_low": low,
        "ratio_high": high,
        "confidence": one.found.confidence,
        "p_value": change.p_value,
        "reasons": list(change.reasons),
    }


def _lost_row(one: LostDispatch) -> dict[str, Any]:
    empty = dict.fromkeys(("ratio", "ratio_low", "ratio_high", "confidence", "p_value"))
    return {
        **_place(one),
        **empty,
        "cause": LOST,
        "verdict": str(Difference.UNDECIDED),
        "of": "outcome",
        "reasons": [f"it was ok and is {one.outcome} now"],
    }


def _series_row(check: HistoryCheck, found: HistoryChanges, series: int) -> dict[str, Any]:
    history = found.history
    points = [point for point in history.points[series] if point is not None]
    measured = [point for point in points if point.median_ns]
    latest = measured[-1] if measured else None
    reference = history.references[series]
    real = [one for one in changes_of(check, found, series) if one.change.cause != "noise"]
    last = real[-1] if real else None
    since = history.level_of(series, last.change.run if last else 0)
    key = history.keys[series]
    return {
        "device": history.device,
        "dispatch": history.short_names[series],
        "provider": key[0],
        "operation": history.operations[series],
        "distribution": key[3],
        "regime": key[4],
        "reference": None if reference is None else history.short_names[reference],
        "runs": len(measured),
        "outcome": points[-1].outcome,
        "median_ns": latest and latest.median_ns,
        "low_ns": latest and latest.low_ns,
        "high_ns": latest and latest.high_ns,
        "level_ns": median(since) if since.size else None,
        "power": found.power(series, found.decisive).share if measured else None,
        "changes": len(real),
        "last_change": last and last.run.time,
        "last_cause": last and str(last.change.cause),
        "last_ratio": last and last.change.shift and last.change.shift.ratio,
    }
