"""What happened, as rows for people: changes that many dispatches share are one row.

The history as tables and JSON documents.

The check of a history as files: JUnit XML, Markdown for a pull request, JSON, and tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from gemmetry.dispatches.writers import set_counts, xml_document, xml_text
from gemmetry.domain.columns import SCHEMA_VERSION
from gemmetry.domain.errors import listed
from gemmetry.domain.tables import Column, ColumnType, Direction, Table
from gemmetry.domain.units import counted, format_ns, format_percent
from gemmetry.history.changes import CAUSES, ENOUGH_RUNS, ChangeCause, HistoryChanges
from gemmetry.history.checking import LOST, HistoryCheck, JudgedChange, LostDispatch
from gemmetry.history.folder import HistoryRun
from gemmetry.results.emit import FORMATS, check_suffix, write_atomically, write_tables
from gemmetry.results.json_text import json_file
from gemmetry.results.tables import escape_markdown as escape
from gemmetry.results.tables import table_lines
from gemmetry.statistics.comparison import Difference
from gemmetry.statistics.intervals import median

Happening = JudgedChange | LostDispatch

_LARGE = 5
"""How many times as large the second change is whose chance of being found is printed."""

_SHARED = (ChangeCause.HOST, ChangeCause.METHOD, ChangeCause.ENVIRONMENT)
"""Causes that move many dispatches at once."""

_NEAR = 2
"""Runs by which the places of one shared change may differ between dispatches."""


@dataclass(frozen=True, slots=True)
class HappeningRow:
    """One change, or one that several dispatches share."""

    members: tuple[Happening, ...]

    @property
    def first(self) -> Happening:
        return self.members[0]

    @property
    def name(self) -> str:
        """The dispatch, or the first of several."""
        more = len(self.members) - 1
        return f"{self.first.name} and {more} more" if more else self.first.name

    @property
    def run(self) -> HistoryRun:
        """The first run after it."""
        return self.first.run

    @property
    def device(self) -> str:
        return self.first.found.history.device

    @property
    def is_alarm(self) -> bool:
        return self.first.is_alarm

    @property
    def is_noise(self) -> bool:
        return self.cause == ChangeCause.NOISE

    @property
    def cause(self) -> str:
        return str(self.first.change.cause) if isinstance(self.first, JudgedChange) else LOST

    @property
    def text(self) -> str:
        """``1.083 times as long (1.061–1.104)``, or how it was lost."""
        if isinstance(self.first, LostDispatch):
            return f"it was ok and is {self.first.outcome} now"
        changes = [one.change for one in self.members if isinstance(one, JudgedChange)]
        shifts = [change.shift for change in changes if change.shift is not None]
        if not shifts:
            return ""
        if len(shifts) > 1:
            ratios = [shift.ratio for shift in shifts]
            spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
            every = counted(len(ratios), "dispatch", "dispatches")
            return f"{median(ratios):.3f} times as long, {spread} over {every}"
        ends = shifts[0].interval
        interval = "n/a" if ends is None else f"{ends[0]:.3f}–{ends[1]:.3f}"
        what = " relative to its reference" if changes[0].is_of_ratio else ""
        return f"{shifts[0].ratio:.3f} times as long{what} ({interval})"

    @property
    def reasons(self) -> tuple[str, ...]:
        return self.first.change.reasons if isinstance(self.first, JudgedChange) else ()

    @property
    def remarks(self) -> list[str]:
        return [remark.text for remark in self.first.remarks]


def happening_rows(happenings: Iterable[Happening]) -> list[HappeningRow]:
    """A row for each of `happenings` in their order; those of a shared cause at the same place, in
    one direction and with the same remarks, are one row."""
    groups: list[list[Happening]] = []
    for one in happenings:
        fitting = next((group for group in groups if _belongs(one, group[0])), None)
        if fitting is None:
            groups.append([one])
        else:
            fitting.append(one)
    return [HappeningRow(tuple(group)) for group in groups]


def _belongs(one: Happening, first: Happening) -> bool:
    if not isinstance(one, JudgedChange) or not isinstance(first, JudgedChange):
        return False
    return (
        one.change.cause in _SHARED
        and one.change.cause is first.change.cause
        and one.found is first.found
        and abs(one.change.run - first.change.run) <= _NEAR
        and one.change.direction is first.change.direction
        and one.remarks == first.remarks
        and one.is_alarm == first.is_alarm
        and one.is_new == first.is_new
    )


def undecided_text(found: HistoryChanges, series: int | None = None) -> str:
    """How often a change would be found where "no change" is no verdict: of one series, or of the
    middle one of those of the device class; "" where it is one."""
    own = [series] if series in found.undecided else []
    chosen = list(found.undecided) if series is None else own
    if not chosen:
        return ""
    runs = found.runs_known
    size = found.decisive
    shares = [[found.power(one, times * size).share for one in chosen] for times in (1, _LARGE)]
    small, large = (round(100 * median(values)) for values in shares)
    of = f" for {len(chosen)} of {counted(len(found.measured), 'series', 'series')}"
    is_young = series is None and found.is_young
    return (f"too few runs to judge: {runs} of {ENOUGH_RUNS}; " if is_young else "") + (
        f"undecided{of if series is None else ''}: with {counted(runs, 'run')} a change of "
        f"{format_percent(size)} is found in {small} of 100 cases, one of "
        f"{format_percent(_LARGE * size)} in {large}"
    )


def again_text(found: HistoryChanges) -> str:
    """Which runs were left out, because they measured an old commit again; "" if none were."""
    history = found.history
    runs = [history.runs[number] for number in sorted(history.measured_again)]
    if not runs:
        return ""
    names = listed([f"{run.id} (commit {run.commit[:10]})" for run in runs], 3)
    what = "a commit" if len(runs) == 1 else "commits"
    return f"left out, as {what} measured before: {counted(len(runs), 'run')}, {names}"


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


_MOST_ROWS = 50
"""Changes in the Markdown of a pull request."""


def check_suffixes() -> list[str]:
    """Suffixes of the files that :func:`write_check` writes."""
    return [*FORMATS, ".xml"]


def write_check(check: HistoryCheck, path: Path) -> None:
    """Write the check in the format of the suffix.

    Raises:
        RequestError: another suffix, or a library is missing. StorageError: not writable.
    """
    match check_suffix(path, check_suffixes()):
        case ".xml":
            write_atomically(path, check_junit(check))
        case ".md":
            write_atomically(path, check_markdown(check).encode())
        case ".json":
            write_atomically(path, json_file(check_document(check)))
        case _:
            write_tables([change_table(check)], path)


def check_junit(check: HistoryCheck) -> bytes:
    """A suite for each device class, with a case for each of its series. Alarms are failures; other
    new changes count as skipped, with the cause as their message. What is undecided is a failure
    where the check fails on it, else skipped."""
    root = ElementTree.Element("testsuites", name="gemmetry history")
    every: list[str] = []
    for found in check.devices:
        history = found.history
        suite = ElementTree.SubElement(root, "testsuite", name=xml_text(history.device))
        new: dict[int, list[JudgedChange | LostDispatch]] = {}
        for change in check.changes:
            if (
                change.found is found
                and change.is_new
                and change.change.cause is not ChangeCause.NOISE
            ):
                new.setdefault(change.change.series, []).append(change)
        for lost in check.lost:
            if lost.found is found and lost.is_new:
                new.setdefault(lost.series, []).append(lost)
        fails = check.fails_on(found)
        counters = [
            _add_case(suite, history.keys[series], history.short_names[series],
                      new.get(series, []), undecided_text(found, series), fails)
            for series in range(len(history.keys))
        ]  # fmt: skip
        set_counts(suite, counters)
        every += counters
    set_counts(root, every)
    return xml_document(root)


def check_markdown(check: HistoryCheck) -> str:
    """The new changes for a pull request, alarms first; the other ones as a count."""
    new = check.new
    alarms = sum(one.is_alarm for one in new)
    headline = (
        f"{counted(alarms, 'regression')} within the latest {counted(check.latest, 'run')}"
        if alarms
        else f"{'undecided' if check.undecided else 'No regression'} within the latest "
        f"{counted(check.latest, 'run')}"
    )
    lines = [f"## GEMM history: {headline}", ""]
    rows = happening_rows(new)
    shown = [row for row in rows if not row.is_noise]
    if shown:
        heads = ("", "dispatch", "device", "change", "since", "why")
        cells = map(_markdown_row, shown[:_MOST_ROWS])
        lines += [*table_lines(heads, cells, [False] * len(heads)), ""]
    if len(shown) > _MOST_ROWS:
        lines += [f"And {counted(len(shown) - _MOST_ROWS, 'more change')}.", ""]
    if len(rows) > len(shown):
        lines += [f"{counted(len(rows) - len(shown), 'new change')} judged to be noise.", ""]
    causes = dict.fromkeys(row.cause for row in shown)
    lines += [f"- **{cause}**: {text}" for cause, text in CAUSES.items() if cause in causes]
    lines += [""] if causes else []
    lines += [
        f"- {escape(found.history.device)}: {escape(text)}"
        for found in check.devices
        for text in (undecided_text(found), again_text(found))
        if text
    ]
    lines += [f"- skipped: {escape(problem)}" for problem in check.problems]
    failing = ", ".join(check.fail_on) or "nothing"
    lines.append(f"Slower changes of these causes fail: {failing}. Intervals hold with "
                 f"95 % on average over the changes that were found.")  # fmt: skip
    return "\n".join(lines) + "\n"


def _markdown_row(row: HappeningRow) -> list[str]:
    remarks = [f"remark: {remark}" for remark in row.remarks]
    since = " ".join(filter(None, (row.run.time[:10], row.run.commit[:12])))
    return [
        "❌" if row.is_alarm else "",
        escape(row.name),
        escape(row.device),
        escape(f"{row.cause}: {row.text}"),
        escape(f"{since} (run {row.run.id})"),
        escape("; ".join((*row.reasons, *remarks))),
    ]


def _add_case(
    suite: ElementTree.Element,
    key: tuple[str, ...],
    name: str,
    new: Sequence[JudgedChange | LostDispatch],
    undecided: str,
    undecided_fails: bool,
) -> str:
    """Add the case of a series; return the counter to which it belongs, "" if it passed."""
    case = ElementTree.SubElement(
        suite, "testcase", classname=xml_text(f"{key[2]}.{key[0]}"), name=xml_text(name)
    )
    if not new and undecided:
        ElementTree.SubElement(
            case, "failure" if undecided_fails else "skipped", message=xml_text(undecided)
        )
        return "failures" if undecided_fails else "skipped"
    if not new:
        return ""
    rows = sorted((HappeningRow((one,)) for one in new), key=lambda row: not row.is_alarm)
    fails = rows[0].is_alarm
    element = ElementTree.SubElement(
        case,
        "failure" if fails else "skipped",
        message=xml_text(f"{rows[0].cause}: {rows[0].text}"),
    )
    if fails:
        element.set("type", rows[0].cause)
    element.text = xml_text(
        "\n".join(
            f"run {row.run.id} of {row.run.time}: {row.cause}: {row.text}: {'; '.join(row.reasons)}"
            for row in rows
        )
    )
    return "failures" if fails else "skipped"
