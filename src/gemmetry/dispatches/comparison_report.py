"""A comparison of experiments on a terminal and as files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from gemmetry.dispatches.comparison import CandidateComparison, Change, ExperimentComparison
from gemmetry.dispatches.terminal import GroupedRow, print_grouped
from gemmetry.domain import units
from gemmetry.domain.rows import SCHEMA_VERSION
from gemmetry.domain.rows import value as json_value
from gemmetry.domain.tables import Column, ColumnType, Direction, Table
from gemmetry.results import emit
from gemmetry.results.emit import Case, junit
from gemmetry.results.lines import print_line
from gemmetry.results.tables import escape_markdown as escape
from gemmetry.results.tables import html_page, markdown_table
from gemmetry.results.texts import first_line, printable
from gemmetry.statistics.comparison import Comparison, Difference


@dataclass(frozen=True, slots=True)
class ItemColumn(Column):
    """A column, and how to take its value from what a row describes."""

    value: Callable[[Any], Any] = field(kw_only=True, compare=False)


def column(
    type: ColumnType, name: str, description: str = "", value: str | Callable[[Any], Any] = "",
    *, unit: str = "", direction: Direction = Direction.NONE,
) -> ItemColumn:  # fmt: skip
    """A column; `value` is a function or the name of an attribute (default: `name`)."""
    take = value if callable(value) else attrgetter(value or name)
    return ItemColumn(name, type, unit, description, direction, value=take)


text = partial(column, ColumnType.TEXT)
integer = partial(column, ColumnType.INTEGER)
number = partial(column, ColumnType.NUMBER)


def table(name: str, columns: Sequence[ItemColumn], items: Iterable[Any]) -> Table:
    """The table of `items`, one row each."""
    return Table(name, tuple(columns), [[one.value(item) for one in columns] for item in items])


def comparison_junit(comparison: ExperimentComparison, *, undecided_fails: bool = True) -> bytes:
    """JUnit XML: one suite per candidate, one case per dispatch. A regression is a failure. An
    undecided change is a failure if `undecided_fails` and counts as skipped otherwise. All other
    changes passed."""
    suites = [
        (candidate.title, [_case(change, undecided_fails) for change in candidate.changes])
        for candidate in comparison.candidates
    ]
    return junit(f"against {comparison.title}", suites)


def _case(change: Change, undecided_fails: bool) -> Case:
    after = change.after
    is_undecided = change.difference is Difference.UNDECIDED
    fails = change.is_regression or (is_undecided and undecided_fails)
    ratio = ""
    if change.ratio is not None:
        interval = change.comparison.interval if change.comparison is not None else None
        ends = "n/a" if interval is None else f"{interval[0]:.3f}–{interval[1]:.3f}"
        ratio = f": {change.ratio:.3f} times as long (interval {ends})"
    return Case(
        group=f"{after.target}.{after.provider}",
        name=after.dispatch,
        kind="failure" if fails else "skipped" if is_undecided else "",
        message=f"{change.verdict}{ratio}",
        type="" if not fails else "undecided" if is_undecided else "regression",
        text=change.note,
    )


_SHOWN_UNCHANGED = 20
"""Dispatches without a shown difference that a terminal lists; the rest are counted."""

_REASONS_SHOWN = 5
"""Reasons for undecided changes that a terminal lists; files have all of them."""

_NOTED_DEPARTURE = 0.01
"""Relative difference between a ratio by rounds and that of the medians from which on it is
explained: two medians shown with three digits leave their quotient uncertain by as much."""

_PAIRED = "*"
"""Follows a ratio that is not the quotient of the two times in its row."""

_REGRESSION = "▼"
"""Follows the verdict of a regression; ``!`` marks what weakens a result, as in every table."""


def _of_comparison(attribute: str) -> Callable[[Change], Any]:
    take = attrgetter(attribute)
    return lambda change: None if change.comparison is None else take(change.comparison)


_CHANGES = (
    text("target", "", "after.target"),
    text("device", "", lambda change: change.after.device or None),
    text("provider", "", "after.provider"),
    text("dispatch", "", "after.dispatch"),
    text("outcome_before", "", "before.outcome"),
    text("outcome_after", "", "after.outcome"),
    number("median_ns_before", "", "before.median_ns", unit="ns"),
    number("median_ns_after", "", "after.median_ns", unit="ns"),
    number("ratio", ""),
    number("ratio_low", "", _of_comparison("ratio_low")),
    number("ratio_high", "", _of_comparison("ratio_high")),
    number("effect_size", "", _of_comparison("effect_size")),
    number("p_value", "", _of_comparison("p_value")),
    number("adjusted_p_value", "", _of_comparison("adjusted_p_value")),
    integer("family", "", _of_comparison("family")),
    text("pairing", "", _of_comparison("pairing")),
    integer("observations", "", _of_comparison("observations")),
    number("relevant_difference", "", _of_comparison("relevant")),
    text("verdict", ""),
    column(ColumnType.BOOLEAN, "is_regression"),
    text("note", "", lambda change: change.note or None),
)
"""Columns of a change, in files and in JSON."""

_STYLES = {
    str(Difference.FASTER): "green",
    str(Difference.SLOWER): "red",
    str(Difference.UNDECIDED): "yellow",
}


def print_comparison(comparison: ExperimentComparison, console: Console) -> None:
    """Print each candidate's table, worst first, and how inputs and environments differ."""
    for candidate in comparison.candidates:
        title = f"{candidate.label} = {candidate.title}  against  A = {comparison.title}"
        print_line(Text(printable(title), style="bold"), console, indent=4)
        _print_warnings(candidate, console)
        _print_changes(candidate, console)
        _print_summary(candidate, comparison, console)


def _print_warnings(candidate: CandidateComparison, console: Console) -> None:
    if candidate.is_same:
        print_line(Text(f"! {_same(candidate)}", style="bold yellow"), console, indent=2)
    if candidate.input_differences:
        text = f"! inputs differ: {'; '.join(candidate.input_differences)}"
        print_line(Text(printable(text), style="yellow"), console, indent=4)
    if candidate.environment_differences:
        console.print(Text("! the environments differ:", style="yellow"))
    for line in candidate.environment_differences:
        print_line(Text(f"    {printable(line)}", style="yellow"), console, indent=4)


def _same(candidate: CandidateComparison) -> str:
    return (
        f"{candidate.label} is the same experiment as A: its samples are compared with themselves, "
        "which shows nothing"
    )


def _print_changes(candidate: CandidateComparison, console: Console) -> None:
    rows = []
    unchanged = 0
    ratio = f"{candidate.label}/A"
    headings = ("A", candidate.label, ratio, "95 % interval", "verdict")
    for change in _worst_first(candidate.changes):
        if change.verdict == Difference.NONE_SHOWN:
            unchanged += 1
            if unchanged > _SHOWN_UNCHANGED:
                continue
        after = change.after
        names = {"provider": after.provider, "configuration": after.configuration}
        rows.append(GroupedRow(
            operation=after.operation,
            cells=names | dict(zip(headings, _cells(change)[1:], strict=True)),
            style="bold red" if change.is_regression else _STYLES.get(change.verdict, ""),
        ))  # fmt: skip
    if rows:
        right = ("A", candidate.label, "95 % interval")
        print_grouped(rows, console, right=right, signed={ratio: _PAIRED})


def _worst_first(changes: Sequence[Change]) -> list[Change]:
    def order(change: Change) -> tuple[bool, bool, float]:
        is_undecided = change.difference is Difference.UNDECIDED
        return (not change.is_regression, not is_undecided, -(change.ratio or 0.0))

    return sorted(changes, key=order)


def _cells(change: Change) -> list[str]:
    comparison = change.comparison
    departs = _PAIRED if _departs_from_medians(change) else ""
    interval = "n/a" if change.difference else "–"
    if comparison is not None and comparison.interval is not None:
        interval = "–".join(f"{end:.3f}" for end in comparison.interval)
    return [
        f"{change.after.provider}:{change.after.dispatch}",
        units.format_ns(change.before.median_ns, even=True),
        units.format_ns(change.after.median_ns, even=True),
        "–" if change.ratio is None else f"{change.ratio:.3f}{departs}",
        interval,
        f"{change.verdict}{f' {_REGRESSION}' if change.is_regression else ''}",
    ]


def _print_summary(
    candidate: CandidateComparison, comparison: ExperimentComparison, console: Console
) -> None:
    hidden = candidate.counted(Difference.NONE_SHOWN) - _SHOWN_UNCHANGED
    if hidden > 0:
        console.print(Text(f"… and {hidden} more without a shown difference", style="dim"))
    mean = candidate.geometric_mean
    if mean is not None:
        text = f"geometric mean of {candidate.label}/A: {mean:.3f} (below 1 is faster)"
        console.print(Text(text))
    console.print(Text(candidate.summary))
    if how := how_judged(candidate, comparison.confidence):
        console.print(Text(how, style="dim"))
    for names, side in ((candidate.only_first, "A"), (candidate.only_candidate, candidate.label)):
        if names:
            shown = ", ".join(f"{key[2]}:{key[3]}" for key in names[:3])
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            text = f"only in {side}: {len(names)}: {shown}{more}"
            print_line(Text(printable(text), style="yellow"), console, indent=4)
    if candidate.regressions:
        console.print(Text(_regressions(candidate.regressions), style="bold red"))
    _print_imported(candidate, console)
    _print_undecided(candidate, console)
    console.print()


def _regressions(found: Sequence[Change]) -> str:
    """Number of regressions and the criterion, after the sign that follows their verdicts."""
    slower = [change.comparison for change in found if change.comparison is not None]
    reasons = [f"slower by more than {_relevant(slower)}"] if slower else []
    reasons += ["no longer ok"] if len(slower) < len(found) else []
    return f"{_REGRESSION} {units.plural(len(found), 'regression')}: {', or '.join(reasons)}"


def _relevant(comparisons: Sequence[Comparison]) -> str:
    """The largest differences that count as none: ``2 %``, or ``2 % to 3.4 %``."""
    sizes = sorted(comparison.relevant for comparison in comparisons)
    return " to ".join(dict.fromkeys(map(units.format_percent, (sizes[0], sizes[-1]))))


def _print_imported(candidate: CandidateComparison, console: Console) -> None:
    """Print how many changes rest on results that were not verified here."""
    sides = [(change.before, change.after) for change in candidate.changes]
    imported = [found for pair in sides if (found := {r.provider for r in pair if r.is_imported})]
    if imported:
        names = ", ".join(sorted(set().union(*imported)))
        text = (
            f"? {len(imported)} of {len(sides)} with imported results ({names}), not verified here"
        )
        console.print(Text(printable(text), style="yellow"))


def _print_undecided(candidate: CandidateComparison, console: Console) -> None:
    """Print how many changes are undecided, and the commonest reasons."""
    why = Counter(c.note for c in candidate.changes if c.difference is Difference.UNDECIDED)
    if not why:
        return
    lead = f"≷ {sum(why.values())} undecided: too little was measured to decide"
    console.print(Text(lead, style="bold yellow"))
    for note, many in why.most_common(_REASONS_SHOWN):
        line = Text(printable(f"{many} × {first_line(note)}"), style="yellow")
        console.print(Padding(line, (0, 0, 0, 4), expand=False))
    if len(why) > _REASONS_SHOWN:
        console.print(Text(f"    … and {len(why) - _REASONS_SHOWN} more reasons", style="yellow"))


def how_judged(candidate: CandidateComparison, confidence: float) -> str:
    """Method of the verdicts in one sentence; "" if nothing was tested."""
    found = [change.comparison for change in candidate.changes if change.comparison is not None]
    tested = [comparison for comparison in found if comparison.interval is not None]
    if not tested:
        return ""
    used = Counter(str(comparison.pairing) for comparison in tested)
    by = ", ".join(f"{kind} ({count})" for kind, count in used.items())
    level = units.format_percent(confidence)
    if len(tested) == 1:
        how = f"its interval at {level}"
    elif any(comparison.divisor < comparison.family for comparison in tested):
        how = (f"intervals of which at most {units.format_percent(1 - confidence)} are expected to "
               "be wrong among those that show a difference, and among those that show none "
               "(Benjamini & Yekutieli)")  # fmt: skip
    else:
        how = f"intervals that hold jointly at {level} (Bonferroni)"
    text = (f"{len(tested)} judged by {how}, from {by}; "
            f"differences of up to {_relevant(tested)} count as none")  # fmt: skip
    if any(map(_departs_from_medians, candidate.changes)):
        label = candidate.label
        text += (
            f"; {_PAIRED} {label}/A is the typical ratio of one round of {label} to one of A, "
            f"which is not {label} divided by A where the rounds of a side differ from each other"
        )
    return text


def _departs_from_medians(change: Change) -> bool:
    """Whether the ratio differs from what the shown medians suggest."""
    before, after, found = change.before.median_ns, change.after.median_ns, change.comparison
    if not before or after is None or found is None:
        return False
    return abs(found.ratio - after / before) > _NOTED_DEPARTURE * found.ratio


def comparison_document(comparison: ExperimentComparison) -> dict[str, Any]:
    """The comparison as JSON values: ``schema_version``, ``has_regression``, ``has_undecided``,
    ``candidates``."""
    return {
        "schema_version": SCHEMA_VERSION,
        "title": comparison.title,
        "threshold": comparison.threshold,
        "confidence": comparison.confidence,
        "has_regression": comparison.has_regression,
        "has_undecided": comparison.has_undecided,
        "candidates": [_candidate_document(candidate) for candidate in comparison.candidates],
    }


def _candidate_document(candidate: CandidateComparison) -> dict[str, Any]:
    return {
        "label": candidate.label,
        "title": candidate.title,
        "same_experiment": candidate.is_same,
        "geometric_mean_ratio": candidate.geometric_mean,
        "environment_differences": list(candidate.environment_differences),
        "input_differences": list(candidate.input_differences),
        "only_in_first": [":".join(key[2:]) for key in candidate.only_first],
        "only_in_candidate": [":".join(key[2:]) for key in candidate.only_candidate],
        "changes": [_change_document(change) for change in candidate.changes],
    }


def _change_document(change: Change) -> dict[str, Any]:
    return {one.name: json_value(one.value(change)) for one in _CHANGES}


def _brief_document(comparison: ExperimentComparison) -> dict[str, Any]:
    """The comparison with counts of verdicts, and the decisive fields of the changes, the worst
    first."""
    found = comparison_document(comparison)
    for candidate, shown in zip(comparison.candidates, found["candidates"], strict=True):
        shown["verdicts"] = dict(Counter(change.verdict for change in candidate.changes))
        shown["changes"] = [
            {name: value for name, value in _change_document(change).items() if name in _DECISIVE}
            for change in _worst_first(candidate.changes)
        ]
    return found


_DECISIVE = ("provider", "dispatch", "ratio", "ratio_low", "ratio_high", "verdict", "is_regression")


def comparison_files(
    comparison: ExperimentComparison, *, undecided_fails: bool = True
) -> emit.Result:
    """The comparison with its formats of files.

    Args:
        undecided_fails: in JUnit XML, whether an undecided case is a failure; otherwise it counts
            as skipped.
    """
    return emit.Result(
        rows={"comparison": lambda: _table(comparison, shows_missing=False)},
        whole=lambda: comparison_document(comparison),
        short=lambda: _brief_document(comparison),
        forms={
            emit.MARKDOWN: lambda: _to_markdown(comparison),
            emit.HTML: lambda: html_page([_table(comparison, shows_missing=True)]),
            emit.JUNIT: lambda: comparison_junit(comparison, undecided_fails=undecided_fails),
        },
    )


def _table(comparison: ExperimentComparison, *, shows_missing: bool) -> Table:
    """A row for each change; `shows_missing` writes ``n/a`` for the missing interval of an
    undecided change."""
    rows = [
        {"candidate": candidate.title, **_change_document(change)}
        for candidate in comparison.candidates
        for change in candidate.changes
    ]
    for row in rows:
        row["note"] = first_line(row["note"] or "")
        if shows_missing and row["verdict"] == Difference.UNDECIDED:
            row |= {end: "n/a" for end in ("ratio_low", "ratio_high") if row[end] is None}
    return Table.from_records("comparison", (Column("candidate"), *_CHANGES), rows)


def _to_markdown(comparison: ExperimentComparison) -> str:
    lines = [f"# Comparison with {escape(comparison.title)}", ""]
    for candidate in comparison.candidates:
        lines += [f"## {candidate.label}: {escape(candidate.title)}", ""]
        differences = (*candidate.input_differences, *candidate.environment_differences)
        lines += [f"- {_same(candidate)}"] if candidate.is_same else []
        lines += [f"- {escape(line)}" for line in differences]
        numbers = ("A", candidate.label, f"{candidate.label}/A", "95 % interval")
        columns = (*(Column(name, ColumnType.NUMBER) for name in numbers), Column("verdict"))
        rows = [_cells(change) for change in _worst_first(candidate.changes)]
        lines += ["", *markdown_table(Table("", (Column("dispatch"), *columns), rows))]
        if (mean := candidate.geometric_mean) is not None:
            lines += ["", f"Geometric mean of {candidate.label}/A: {mean:.3f}"]
        if how := how_judged(candidate, comparison.confidence):
            lines += ["", how]
        lines.append("")
    return "\n".join(lines)
