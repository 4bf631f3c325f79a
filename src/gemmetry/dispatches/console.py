"""The sentences that open a report: who is fastest, and what limits confidence in the run.

Results on a terminal: one group per operation, readable at 80 columns.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gemmetry.dispatches import terminal
from gemmetry.dispatches.analysis import (
    DISTURBED,
    RunMarks,
    Speedups,
    baseline_label,
    default_baseline,
    fastest,
    find_run_marks,
    group_by_problem,
)
from gemmetry.dispatches.comparison import Leader, find_leader, judged_speedups
from gemmetry.dispatches.labels import (
    DIFFERENCE_SIGNS,
    VERIFICATION_LEGEND,
    VERIFICATION_MARKS,
    difference_legend,
    difference_sign,
    format_ratio,
    noted_checks,
    operation_title,
    outcome_counts,
    shorten_configurations,
    unapplied_checks,
)
from gemmetry.dispatches.labels import half_width_label as format_half_width_
from gemmetry.dispatches.records import format_block, record_table
from gemmetry.dispatches.terminal import print_failures, ran_and_failed
from gemmetry.domain import units
from gemmetry.domain.errors import Outcome, alternatives
from gemmetry.domain.names import split_dispatch_name
from gemmetry.domain.record import Record, ResultSet
from gemmetry.domain.units import counted, format_half_width
from gemmetry.results.lines import print_line, print_pointer
from gemmetry.results.texts import printable


def verdict_line(records: Sequence[Record], leader: Leader | None, marks: RunMarks) -> str:
    """One sentence: who is fastest on how many operations, on how many of them that is confirmed,
    the geometric mean, and how far to trust it; "" if nothing was measured."""
    measured = [record for record in records if record.measurement is not None]
    if not measured:
        return ""
    if leader is None:
        failed = sum(map(ran_and_failed, records))
        lost = f"; {counted(failed, 'dispatch', 'dispatches')} failed" if failed else ""
        return printable(f"Nothing to compare: {_alone(measured)}{lost}.")
    clauses = [_lead(leader), *_cautions(leader, marks)]
    return printable("; ".join(clauses)) + "."


def _alone(measured: Sequence[Record]) -> str:
    providers = sorted({record.provider for record in measured})
    if len(providers) > 1:
        return f"no operation was measured with two of {', '.join(providers)}"
    return f"only {providers[0]} was measured, with one configuration per operation"


def _lead(leader: Leader) -> str:
    all_of_them = f" that can be compared (of {leader.operations + leader.alone})"
    count_note = all_of_them if leader.alone else ""
    only = f"the only operation{count_note}"
    ratio = f"at {format_ratio(leader.ratio)} the speed of the best alternative"
    if leader.operations == 1:
        if leader.shown:
            return f"{leader.name} is fastest on {only}, {ratio}"
        unshown = _TOO_LITTLE if leader.undecided else _UNSHOWN
        return f"{leader.name} has the shortest time on {only}, {ratio}, {unshown}"
    mean = f"{ratio} by geometric mean"
    count = f"{leader.fastest} of {leader.operations} operations{count_note}"
    if leader.ratio < 1:
        return f"No single {'configuration' if leader.is_configuration else 'provider'} leads: " + (
            f"{leader.name} has the shortest time on {count}, no other on more, but {mean}"
        )
    if not leader.shown:
        unshown = (
            f"{_TOO_LITTLE} on {leader.undecided}" if leader.undecided else f"{_UNSHOWN} on any"
        )
        return f"{leader.name} has the shortest time on {count}, {mean}, {unshown}"
    every = leader.shown == leader.fastest
    shown = "all confirmed" if every else f"confirmed on {leader.shown}"
    if leader.undecided:
        shown += f", {leader.undecided} undecided"
    return f"{leader.name} is fastest on {count} ({shown}), {mean}"


_UNSHOWN = "but no difference is shown"
_TOO_LITTLE = "but too little was measured to decide"


def _cautions(leader: Leader, marks: RunMarks) -> list[str]:
    cautions = []
    if leader.unverified:
        none = leader.unverified == leader.operations
        cautions.append(f"{'none' if none else 'not all'} of its results were verified")
    if leader.imported:
        every = leader.imported == leader.operations
        cautions.append(f"{'' if every else 'some of '}the best alternatives were imported, and "
                        "not verified here")  # fmt: skip
    if leader.marked:
        one = leader.marked == 1
        of_them = "this" if leader.operations == 1 else f"{leader.marked} of them"
        cautions.append(f"{of_them} {'is' if one else 'are'} based on rows marked !")
    common = list(dict.fromkeys(kind for state in marks.states.values() for kind in state.common))
    if common:
        advice = _QUIET if DISTURBED.intersection(common) else "gemmetry show explains them"
        cautions.append(f"most rows are marked {alternatives(common)}: {advice}")
    elif (usual := _usual_width(marks)) is not None:
        cautions.append(f"the usual 95 % interval is {format_half_width(usual)}")
    return cautions


_QUIET = "repeat it on a quiet machine before relying on it"


def _usual_width(marks: RunMarks) -> float | None:
    """The usual relative half width on the device with the widest intervals."""
    widths = (state.usual_half_width for state in marks.states.values())
    return max((width for width in widths if width is not None), default=None)


def run_state_lines(marks: RunMarks, remarks: Sequence[str] = ()) -> list[str]:
    """The `remarks` on what is missing, and one line for each device whose rows share marks, with
    these marks and the usual interval."""
    lines = [printable(remark) for remark in remarks]
    for state in marks.states.values():
        if not state.common:
            continue
        (first, count), *others = state.common.items()
        kinds = "".join(f", {number} {kind}" for kind, number in others)
        place = f" on {state.device or state.target}" if len(marks.states) > 1 else ""
        width = state.usual_half_width
        usual = "" if width is None else f"; usual interval {format_half_width(width)}"
        lines.append(printable(
            f"The run as a whole{place}: {count} of {state.measured} rows {first}{kinds}{usual}; "
            "! marks rows that stand out from this"
        ))  # fmt: skip
    return lines


__all__ = ["format_block", "print_table"]

_RATIO_SIGNS = "".join(sign for sign, _ in DIFFERENCE_SIGNS.values())

_MAXIMUM_BASELINE = 14
"""Characters of the baseline's heading; ``×iree:default`` has 13."""


def print_table(
    result_set: ResultSet,
    console: Console,
    *,
    columns: Sequence[str] | None = None,
    baseline: str | None = None,
) -> None:
    """Print the results to `console`.

    Without `columns`: one sentence with the fastest, a group for each operation with its
    dispatches, fastest first, then what failed and why. `baseline` names the provider, or
    provider:configuration, of the × column (default: torch or numpy, if one was measured along
    with others). With `columns` (names of docs/columns.md or presets): one plain table of these,
    grouped by operation if it is too wide.

    Raises:
        UnknownNameError: no such column, or `baseline` is not a provider of these results.
    """
    if columns:
        _print_columns(result_set, console, columns)
        return
    records = result_set.records
    name = baseline or default_baseline(records)
    relative = judged_speedups(result_set, name) if name else None
    marks = find_run_marks(records)
    verdict = verdict_line(records, find_leader(result_set, marks), marks)
    if verdict:
        print_line(Text(verdict, style="bold"), console)
        console.print()
    _print_groups(records, console, relative, marks)
    print_failures(records, console)
    _print_footer(records, console, relative, marks, result_set)


def _print_columns(result_set: ResultSet, console: Console, names: Sequence[str]) -> None:
    terminal.print_table(record_table(result_set.records, names), console)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Widths and headings that all groups share, so that their columns line up."""

    widths: tuple[int, ...]
    headings: tuple[str, ...]
    speed_divisor: float
    """1 for GFLOP/s, 1000 for TFLOP/s."""
    speed_decimals: int
    marks: RunMarks
    has_signs: tuple[bool, bool]
    """Whether any interval is followed by ``!``, and any ratio by ``≈`` or ``≷``."""


def _layout(
    records: Sequence[Record], console: Console, relative: Speedups | None, marks: RunMarks
) -> _Layout:
    speeds = [record.gflops for record in records if record.gflops is not None]
    top = max(speeds, default=0.0)
    unit, divisor = ("TFLOP/s", 1000.0) if top >= 10_000 else ("GFLOP/s", 1.0)
    provider = min(12, max((len(record.provider) for record in records), default=8))
    baseline = relative.baseline if relative else ""
    has_roof = any(record.roofline_fraction is not None for record in records)
    headings = [
        "", "provider", "configuration", "time", "±", unit, "roof" if has_roof else "",
        f"×{baseline}"[:_MAXIMUM_BASELINE] if baseline else "", "",
    ]  # fmt: skip
    intervals = [_interval(record, marks) for record in records]
    ratios = [_ratio(record, relative) for record in records] if relative else []
    decimals = units.column_decimals(speed / divisor for speed in speeds)
    speed = len(f"{top / divisor:,.{decimals}f}")
    interval, ratio = _width(intervals, "!"), _width(ratios, _RATIO_SIGNS)
    widths = [1, max(8, provider), 0, 8, max(6, interval), max(8, speed), 6 if has_roof else 0,
              max(6, len(headings[7]), ratio) if baseline else 0, 1]  # fmt: skip
    used = sum(widths) + sum(1 for width in widths if width)
    longest = max((len(record.configuration) for record in records), default=13)
    widths[2] = max(13, min(longest, console.width - used - 1))
    signs = (_have_signs(intervals, "!"), _have_signs(ratios, _RATIO_SIGNS))
    return _Layout(tuple(widths), tuple(headings), divisor, decimals, marks, signs)


def _have_signs(texts: Sequence[str], signs: str) -> bool:
    return any(text.endswith(tuple(signs)) for text in texts)


def _width(texts: Sequence[str], signs: str) -> int:
    """The width of a column whose cells may end with one of `signs`, which are set apart."""
    longest = max((len(text.rstrip(signs)) for text in texts), default=0)
    return longest + _have_signs(texts, signs)


def _signed(text: str, signs: str, texts_have_signs: bool) -> str:
    """`text` with a space where others have a sign, so that the numbers line up."""
    return f"{text} " if texts_have_signs and not text.endswith(tuple(signs)) else text


def _grid(layout: _Layout) -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0))
    for index, (width, heading) in enumerate(zip(layout.widths, layout.headings, strict=True)):
        if width:
            right = index in (3, 4, 5, 6, 7)
            grid.add_column(
                heading, width=width, no_wrap=True, justify="right" if right else "left"
            )
    return grid


def _print_groups(
    records: Sequence[Record], console: Console, relative: Speedups | None, marks: RunMarks
) -> None:
    measured = [record for record in records if record.measurement is not None]
    unmeasured = [r for r in records if r.measurement is None and r.outcome is Outcome.OK]
    shown = [*measured, *unmeasured]
    if not shown:
        return
    layout = _layout(shown, console, relative, marks)
    header = _grid(layout)
    header.add_row(*(
        Text(heading, style="dim")
        for heading, width in zip(layout.headings, layout.widths, strict=True)
        if width
    ))  # fmt: skip
    console.print(header)
    devices = {(record.target, record.device) for record in shown}
    for (target, device, name, _), group in group_by_problem(shown).items():
        operation, _ = split_dispatch_name(name)
        title = Text(operation_title(operation), style="bold", no_wrap=True, overflow="ellipsis")
        if len(devices) > 1:
            title.append(f"  on {device or target}", style="dim")
        console.print(title)
        console.print(_group_rows(group, layout, relative))


def _group_rows(group: Sequence[Record], layout: _Layout, relative: Speedups | None) -> Table:
    grid = _grid(layout)
    short = shorten_configurations([r.configuration for r in group], layout.widths[2])
    best = fastest(group)
    ordered = sorted(
        group, key=lambda r: r.measurement.median_ns if r.measurement else float("inf")
    )
    for record in ordered:
        m = record.measurement
        speed = "–"
        if record.gflops is not None:
            speed = f"{record.gflops / layout.speed_divisor:,.{layout.speed_decimals}f}"
        ratio = "" if relative is None else _ratio(record, relative)
        if ratio:
            ratio = _signed(ratio, _RATIO_SIGNS, layout.has_signs[1])
        cells = [
            "▸" if record is best else "",
            record.provider,
            short[record.configuration],
            "–" if m is None else units.format_ns(m.median_ns, even=True),
            _signed(_interval(record, layout.marks), "!", layout.has_signs[0]),
            speed,
            "" if record.roofline_fraction is None else f"{record.roofline_fraction:.0%}",
            ratio,
            VERIFICATION_MARKS[record.verdict.status],
        ]
        style = "bold green" if record is best else ""
        grid.add_row(*(
            Text(printable(cell), style=style, no_wrap=True, overflow="ellipsis")
            for cell, width in zip(cells, layout.widths, strict=True)
            if width
        ))  # fmt: skip
    return grid


def _interval(record: Record, marks: RunMarks) -> str:
    """``±0.5%`` or ``n/a``, with ``!`` where the measurement has marks of its own."""
    m = record.measurement
    if m is None:
        return ""
    return format_half_width_(m) + ("!" if marks.of(record) else "")


def _ratio(record: Record, relative: Speedups) -> str:
    return format_ratio(relative.of(record)) + difference_sign(relative.difference(record))


def _print_verified(records: Sequence[Record], console: Console) -> bool:
    """Print how accurate the results are, and how many checks this provider or device made
    impossible; return whether there are any."""
    classes = Counter(
        record.verdict.accuracy_class
        for record in records
        if record.outcome is Outcome.OK and record.verdict.accuracy_class
    )
    if classes:
        text = ", ".join(f"{count} {name}" for name, count in classes.most_common())
        console.print(Text(f"Accuracy: {text}"))
    checks = unapplied_checks(records)
    if checks:
        most = max(checks.values())
        many = counted(len(checks), "check")
        where = f"on {'up to ' if len(set(checks.values())) > 1 else ''}{most} of {len(records)}"
        console.print(Text(f"Not possible here: {many} {where} dispatches"))
    refused = [record.verdict.refused_shapes for record in records if record.verdict.refused_shapes]
    if refused:
        many = counted(sum(refused), "small shape")
        console.print(Text(f"Refused: {many}, by {len(refused)} of {len(records)} dispatches"))
    noted = [(word, noted_checks(records, word)) for word in ("incomplete", "property")]
    for word, found in noted:
        if found:
            named = ", ".join(f"{check} ({count})" for check, count in found.items())
            what = "Cut short" if word == "incomplete" else "Properties"
            console.print(Text(f"{what}: {named}, of {counted(len(records), 'dispatch')}"))
    return bool(checks or refused or any(found for _, found in noted))


def _print_footer(
    records: Sequence[Record],
    console: Console,
    relative: Speedups | None,
    marks: RunMarks,
    result_set: ResultSet,
) -> None:
    folder = result_set.path
    console.print()
    if relative is not None and relative.means:
        means = ", ".join(
            f"{provider} {format_ratio(mean.ratio)} ({mean.problems}"
            + (f", {mean.marked} based on rows marked !)" if mean.marked else ")")
            for provider, mean in sorted(relative.means.items())
        )
        best = "" if ":" in relative.baseline else "best "
        label = baseline_label(records, relative.baseline)
        console.print(Text(
            f"Speed relative to {best}{label}, geometric mean (operations): {means}"
        ))  # fmt: skip
    for line in run_state_lines(marks, result_set.remarks):
        print_line(Text(line), console)
    kinds = marks.counts(records)
    if kinds:
        count = sum(1 for record in records if marks.of(record))
        listed = ", ".join(f"{number} {printable(kind)}" for kind, number in kinds.items())
        console.print(Text(f"! {count} less trustworthy: {listed}"))
    if _print_verified(records, console) or kinds or marks.has_common:
        place = shlex.quote(printable(folder)) if folder else "EXPERIMENT"
        print_pointer("All marks and checks of a row:", f"gemmetry show {place} DISPATCH", console)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcome_counts(records).items())
    total = counted(len(records), "dispatch", "dispatches")
    console.print(Text(f"{total}: {counts}" if counts else total))
    if any(record.outcome is Outcome.OK for record in records):
        legend = [f"▸ fastest   {VERIFICATION_LEGEND}   ! see marks"]
        found = difference_legend(relative.verdicts.values() if relative else ())
        legend += [f"{sign} {text}" for sign, text in found]
        console.print(Text("\n".join(legend), style="dim"))
