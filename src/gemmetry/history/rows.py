"""Rows, documents and files of a history: series, points, changes, and the check as JUnit XML and
as Markdown for a pull request.

Changes that many dispatches share are one group for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from gemmetry.domain.errors import listed
from gemmetry.domain.rows import SCHEMA_VERSION, Row, Rows, fact
from gemmetry.domain.tables import grouped
from gemmetry.domain.units import format_ns, format_percent, plural
from gemmetry.history.api import ChangeEvent, History
from gemmetry.history.changes import CAUSES, ENOUGH_RUNS, ChangeCause, HistoryChanges
from gemmetry.history.folder import HistoryRun
from gemmetry.results.emit import JSON, JUNIT, MARKDOWN, Case, Result, junit
from gemmetry.results.json_text import json_file
from gemmetry.results.tables import escape_markdown as escape
from gemmetry.results.tables import table_lines
from gemmetry.statistics.comparison import Difference
from gemmetry.statistics.intervals import median

_LARGE = 5
"""Second change whose detection probability is printed, as a multiple of the first."""

_SHARED = (ChangeCause.HOST, ChangeCause.METHOD, ChangeCause.ENVIRONMENT)
"""Causes that move many dispatches at once."""

_NEAR = 2
"""Runs by which the places of one shared change may differ between dispatches."""


@dataclass(frozen=True, slots=True)
class EventGroup:
    """One change, or one that several dispatches share."""

    members: tuple[ChangeEvent, ...]

    @property
    def first(self) -> ChangeEvent:
        return self.members[0]

    @property
    def name(self) -> str:
        """The dispatch, or the first of several."""
        more = len(self.members) - 1
        return f"{self.first.name} and {more} more" if more else self.first.name

    @property
    def text(self) -> str:
        """``1.083 times as long (1.061–1.104)``, or how it was lost."""
        first = self.first.change
        if first is None:
            return self.first.loss
        shifts = [one.change.shift for one in self.members if one.change and one.change.shift]
        if not shifts:
            return ""
        if len(shifts) > 1:
            ratios = [shift.ratio for shift in shifts]
            spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
            every = plural(len(ratios), "dispatch", "dispatches")
            return f"{median(ratios):.3f} times as long, {spread} over {every}"
        ends = shifts[0].interval
        interval = "n/a" if ends is None else f"{ends[0]:.3f}–{ends[1]:.3f}"
        what = " relative to its reference" if first.is_of_ratio else ""
        return f"{shifts[0].ratio:.3f} times as long{what} ({interval})"

    @property
    def reasons(self) -> tuple[str, ...]:
        return self.first.change.reasons if self.first.change is not None else ()

    @property
    def remarks(self) -> list[str]:
        return [remark.text for remark in self.first.remarks]


def event_groups(events: Iterable[ChangeEvent]) -> list[EventGroup]:
    """A group for each of `events` in their order; those of a shared cause at the same place, in
    one direction and with the same remarks, are one group."""
    groups: list[list[ChangeEvent]] = []
    for one in events:
        fitting = next((group for group in groups if _belongs(one, group[0])), None)
        if fitting is None:
            groups.append([one])
        else:
            fitting.append(one)
    return [EventGroup(tuple(group)) for group in groups]


def _belongs(one: ChangeEvent, first: ChangeEvent) -> bool:
    if one.change is None or first.change is None or one.change.cause not in _SHARED:
        return False
    alike = attrgetter("cause", "change.direction", "remarks", "is_alarm", "is_new")
    return (
        one.found is first.found
        and abs(one.place - first.place) <= _NEAR
        and bool(alike(one) == alike(first))
    )


def undecided_text(found: HistoryChanges, series: int | None = None) -> str:
    """Probability of finding a change where "no change" is no verdict: of one series, or of the
    middle one of a device class; "" otherwise."""
    own = [series] if series in found.undecided else []
    chosen = list(found.undecided) if series is None else own
    if not chosen:
        return ""
    runs = found.runs_known
    size = found.decisive
    shares = [[found.power(one, times * size).share for one in chosen] for times in (1, _LARGE)]
    small, large = (round(100 * median(values)) for values in shares)
    of = f" for {len(chosen)} of {plural(len(found.measured), 'series', 'series')}"
    is_young = series is None and found.is_young
    return (f"too few runs to judge: {runs} of {ENOUGH_RUNS}; " if is_young else "") + (
        f"undecided{of if series is None else ''}: with {plural(runs, 'run')} a change of "
        f"{format_percent(size)} is found in {small} of 100 cases, one of "
        f"{format_percent(_LARGE * size)} in {large}"
    )


def again_text(found: HistoryChanges) -> str:
    """Note about runs left out because they measured an old commit again; "" if none were."""
    history = found.history
    runs = [history.runs[number] for number in sorted(history.measured_again)]
    if not runs:
        return ""
    names = listed([f"{run.id} (commit {run.commit[:10]})" for run in runs], 3)
    what = "a commit" if len(runs) == 1 else "commits"
    return f"left out, as {what} measured before: {plural(len(runs), 'run')}, {names}"


_ratio = "{:.3f}".format
_ns = partial(fact, unit="ns", format=format_ns)


class RunRow(Row):
    """A dispatch in a run."""

    device: str = fact("Device class.")
    dispatch: str = fact("Provider and name of the dispatch.")
    run: str = fact("Id of the run: of a change, the first one after it.")
    time: str = fact("Time of the run.")
    commit: str = fact("Commit that was measured in it.")
    label: str = fact("Label of the run.")


class ChangeRow(RunRow):
    """A change, or a dispatch that is no longer ok."""

    cause: str = fact("What changed.")
    verdict: str = fact("Read from the interval.")
    what: str = fact("What changed: the time, or its ratio to the reference.", key="of")
    ratio: float | None = fact("Level after the change over that before it.", format=_ratio)
    ratio_low: float | None = fact("Lower end of its interval.", format=_ratio)
    ratio_high: float | None = fact("Upper end of its interval.", format=_ratio)
    confidence: float | None = fact("Of the interval.", format="{:.6g}".format)
    p_value: float | None = fact("For any change in the series.", format="{:.2g}".format)
    new: bool = fact("Its first run is among the latest ones.")
    acknowledged: bool = fact("A remark acknowledges it.")
    alarm: bool = fact("history check fails on it.")
    reasons: Sequence[str] = fact("Why this is the cause.")
    remarks: Sequence[str] = fact("What was remarked on it.")


class SeriesRow(Row):
    """A series."""

    device: str = fact("Device class.")
    dispatch: str = fact("Provider and name of the dispatch.")
    provider: str = fact("Provider.")
    operation: str = fact("Operation.")
    distribution: str = fact("Distribution of the inputs.")
    regime: str = fact("burst or sustained.")
    launches: str = fact("apart or back_to_back.")
    reference: str | None = fact("The dispatch that it is compared with.")
    runs: int = fact("Runs that measured it.")
    outcome: str = fact("Its latest outcome.")
    median_ns: float | None = _ns("Its latest median.")
    low_ns: float | None = _ns("Lower end of the interval of that median.")
    high_ns: float | None = _ns("Upper end of the interval of that median.")
    level_ns: float | None = _ns("Median of the medians since its last change.")
    power: float | None = fact(
        "Share of cases in which a change of five times the threshold would be found; below 0.8 "
        "that none was is undecided.",
        format=format_percent,
    )
    changes: int = fact("Changes that are not noise.")
    last_change: str | None = fact("Time of the last of them.")
    last_cause: str | None = fact("Cause of the last of them.")
    last_ratio: float | None = fact("Ratio of the last of them.", format=_ratio)


class PointRow(RunRow):
    """A run of a series."""

    outcome: str = fact("Outcome in that run.")
    median_ns: float | None = _ns("Its median.")
    low_ns: float | None = _ns("Lower end of the interval of that median.")
    high_ns: float | None = _ns("Upper end of the interval of that median.")
    reference: str = fact("The dispatch that it is compared with.")
    reference_ns: float | None = _ns("Median of the reference in the same run.")
    ratio: float | None = fact("Median over that of the reference.", format=_ratio)


POINTS = ("run", "time", "median_ns", "low_ns", "high_ns", "outcome")
"""Facts of a point in the document of a history."""

Chosen = Sequence[tuple[HistoryChanges, int]]
"""Series: of which device class, and their numbers there."""


def change_rows(check: History) -> list[ChangeRow]:
    """A row for each change and for each dispatch that is no longer ok, alarms and new ones
    first."""
    rows = [_change_row(one) for one in (*check.events, *check.lost)]
    return sorted(rows, key=lambda row: (not row.alarm, not row.new))


def check_document(check: History) -> dict[str, Any]:
    """Document that ``history check --json`` prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "has_alarm": check.has_alarm,
        "has_failed": check.has_failed,
        "latest": check.latest,
        "fail_on": list(check.fail_on),
        "devices": [_device(found) for found in check.devices],
        "changes": [row.record() for row in change_rows(check)],
        "problems": list(check.problems),
    }


def point_rows(chosen: Chosen) -> Iterator[PointRow]:
    """A row for each run of each of the `chosen` series."""
    for found, series in chosen:
        history, reference = found.history, found.history.references[series]
        compared = history.points[series if reference is None else reference]
        for run, point, other in zip(history.runs, history.points[series], compared, strict=True):
            if point is None:
                continue
            base = None if reference is None or other is None else other.median_ns
            yield PointRow(
                **_place(found, series, run), outcome=point.outcome, median_ns=point.median_ns,
                low_ns=point.low_ns, high_ns=point.high_ns,
                reference="" if reference is None else history.short_names[reference],
                reference_ns=base,
                ratio=point.median_ns / base if base and point.median_ns else None,
            )  # fmt: skip


def history_document(check: History, chosen: Chosen) -> dict[str, Any]:
    """Document that ``history show --json`` prints: the series with all points and changes."""
    return {
        "schema_version": SCHEMA_VERSION,
        "devices": [_device(found) for found in check.devices],
        "series": [
            {
                **series_row(check, *one).record(),
                "points": [{name: getattr(row, name) for name in POINTS}
                           for row in point_rows([one])],
                "found_changes": [_change_row(event).record() for event in check.changes_of(*one)],
            }
            for one in chosen
        ],
        "problems": list(check.problems),
    }  # fmt: skip


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


def _place(found: HistoryChanges, series: int, run: HistoryRun) -> dict[str, Any]:
    """The facts of :class:`RunRow`."""
    return {
        "device": found.history.device, "dispatch": found.history.short_names[series],
        "run": run.id, "time": run.time, "commit": run.commit, "label": run.label,
    }  # fmt: skip


def _change_row(one: ChangeEvent) -> ChangeRow:
    change = one.change
    shift = None if change is None else change.shift
    low, high = (shift and shift.interval) or (None, None)
    return ChangeRow(
        **_place(one.found, one.series, one.run),
        cause=one.cause,
        verdict=Difference.UNDECIDED if change is None else change.direction,
        what="outcome" if change is None else "ratio" if change.is_of_ratio else "time",
        ratio=None if shift is None else shift.ratio,
        ratio_low=low,
        ratio_high=high,
        confidence=None if change is None else one.found.confidence,
        p_value=None if change is None else change.p_value,
        new=one.is_new,
        acknowledged=any(remark.acknowledged for remark in one.remarks),
        alarm=one.is_alarm,
        reasons=[one.loss] if change is None else change.reasons,
        remarks=[remark.text for remark in one.remarks],
    )


def series_row(check: History, found: HistoryChanges, series: int) -> SeriesRow:
    """The row of a series."""
    history = found.history
    points = [point for point in history.points[series] if point is not None]
    measured = [point for point in points if point.median_ns]
    latest = measured[-1] if measured else None
    reference = history.references[series]
    real = [one for one in check.changes_of(found, series) if not one.is_noise]
    last = real[-1] if real else None
    shift = last.change.shift if last and last.change else None
    since = check.level_of(found, series)
    provider, _, _, distribution, regime, launches = history.keys[series]
    return SeriesRow(
        device=history.device,
        dispatch=history.short_names[series],
        provider=provider,
        operation=history.operations[series],
        distribution=distribution,
        regime=regime,
        launches=launches,
        reference=None if reference is None else history.short_names[reference],
        runs=len(measured),
        outcome=points[-1].outcome,
        **{name: getattr(latest, name, None) for name in ("median_ns", "low_ns", "high_ns")},
        level_ns=median(since) if since.size else None,
        power=found.power(series, found.decisive).share if measured else None,
        changes=len(real),
        last_change=last.run.time if last else None,
        last_cause=last.cause if last else None,
        last_ratio=shift.ratio if shift else None,
    )


_MOST_ROWS = 50
"""Changes in the Markdown of a pull request."""


def check_result(check: History) -> Result:
    """The check with its files: JUnit (.xml), a comment for a pull request (.md), the document, and
    tables of the changes."""
    return Result(
        rows={"changes": Rows(ChangeRow, change_rows(check))},
        forms={
            JUNIT: lambda: check_junit(check),
            MARKDOWN: lambda: check_markdown(check),
            JSON: lambda: json_file(check_document(check)),
        },
    )


def check_junit(check: History) -> bytes:
    """A suite for each device class, with a case for each of its series. Alarms are failures; other
    new changes count as skipped, with the cause as their message. What is undecided is a failure
    where the check fails on it, else skipped."""
    suites = []
    for found in check.devices:
        history = found.history
        new = [one for one in (*check.events, *check.lost)
               if one.found is found and one.is_new and not one.is_noise]  # fmt: skip
        by_series = grouped(new, attrgetter("series"))
        cases = [_case(check, found, series, by_series.get(series, []))
                 for series in range(len(history.keys))]  # fmt: skip
        suites.append((history.device, cases))
    return junit("gemmetry history", suites)


def check_markdown(check: History) -> str:
    """The new changes for a pull request, alarms first; the other ones as a count."""
    alarms = sum(one.is_alarm for one in check.new)
    found = "undecided" if check.undecided else "No regression"
    found = plural(alarms, "regression") if alarms else found
    lines = [f"## GEMM history: {found} within the latest {plural(check.latest, 'run')}", ""]
    rows = event_groups(check.new)
    shown = [row for row in rows if not row.first.is_noise]
    if shown:
        heads = ("", "dispatch", "device", "change", "since", "why")
        cells = map(_markdown_row, shown[:_MOST_ROWS])
        lines += [*table_lines(heads, cells, [False] * len(heads)), ""]
    if len(shown) > _MOST_ROWS:
        lines += [f"And {plural(len(shown) - _MOST_ROWS, 'more change')}.", ""]
    if len(rows) > len(shown):
        lines += [f"{plural(len(rows) - len(shown), 'new change')} judged to be noise.", ""]
    causes = dict.fromkeys(row.first.cause for row in shown)
    lines += [f"- **{cause}**: {text}" for cause, text in CAUSES.items() if cause in causes]
    lines += [""] if causes else []
    lines += [
        f"- {escape(one.history.device)}: {escape(text)}"
        for one in check.devices
        for text in (undecided_text(one), again_text(one))
        if text
    ]
    lines += [f"- skipped: {escape(problem)}" for problem in check.problems]
    failing = ", ".join(check.fail_on) or "nothing"
    lines.append(f"Slower changes of these causes fail: {failing}. Intervals hold with "
                 f"95 % on average over the changes that were found.")  # fmt: skip
    return "\n".join(lines) + "\n"


def _markdown_row(row: EventGroup) -> list[str]:
    remarks = [f"remark: {remark}" for remark in row.remarks]
    since = " ".join(filter(None, (row.first.run.time[:10], row.first.run.commit[:12])))
    return [
        "❌" if row.first.is_alarm else "",
        escape(row.name),
        escape(row.first.found.history.device),
        escape(f"{row.first.cause}: {row.text}"),
        escape(f"{since} (run {row.first.run.id})"),
        escape("; ".join((*row.reasons, *remarks))),
    ]


def _case(check: History, found: HistoryChanges, series: int, new: Sequence[ChangeEvent]) -> Case:
    provider, _, target, *_ = found.history.keys[series]
    group, name = f"{target}.{provider}", found.history.short_names[series]
    if not new:
        undecided = undecided_text(found, series)
        kind = "failure" if check.fails_on(found) else "skipped"
        return Case(group=group, name=name, kind=kind if undecided else "", message=undecided)
    rows = sorted((EventGroup((one,)) for one in new), key=lambda row: not row.first.is_alarm)
    fails = rows[0].first.is_alarm
    return Case(
        group=group,
        name=name,
        kind="failure" if fails else "skipped",
        message=f"{rows[0].first.cause}: {rows[0].text}",
        type=rows[0].first.cause if fails else "",
        text="\n".join(
            f"run {one.run.id} of {one.run.time}: {one.cause}: {row.text}: {'; '.join(row.reasons)}"
            for row in rows
            for one in (row.first,)
        ),
    )
