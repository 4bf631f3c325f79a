"""What a comparison of sweeps shows, in sentences with numbers, for terminals and pages."""

from __future__ import annotations

from collections.abc import Sequence

from gemmetry.analysis.sweeps.comparison.model import (
    ComparedSweep,
    RowGroup,
    SweepComparison,
    SweepRow,
)
from gemmetry.analysis.sweeps.model import SweepConfiguration
from gemmetry.domain.units import counted, format_change, noun_for
from gemmetry.reports.sweeps.values import (
    MEASURES,
    PARTS,
    change_text,
    figure_text,
    interval_text,
    left_out_text,
    row_label,
)
from gemmetry.statistics.comparison import Difference

_MOST_LISTED = 4
_WHOLE = "whole trace"

_ENDS = {
    Difference.SLOWER: ", which is shown",
    Difference.FASTER: ", which is shown",
    Difference.NONE_SHOWN: "; no difference is shown",
    Difference.UNDECIDED: ", which is undecided",
}


def change_sentences(comparison: SweepComparison, candidate: ComparedSweep) -> list[str]:
    """What differs between a candidate and the first sweep."""
    return [text for _, text in change_answers(comparison, candidate)]


def change_answers(comparison: SweepComparison, candidate: ComparedSweep) -> list[tuple[str, str]]:
    """The sentences, each with its topic."""
    first, other = comparison.label, candidate.label
    if candidate.is_same:
        return [("Runs", f"{other} holds the same runs as {first}: nothing can differ.")]
    by_topic = {
        "Workbooks": _workbooks(candidate),
        "Points": _points(candidate, first, other),
        "Best point": [_best(row, first, other) for row in candidate.of(RowGroup.WHOLE)
                       if row.configuration],
        "Steps": [_mean(candidate, row, first, other) for row in candidate.of(RowGroup.WHOLE)
                  if not row.configuration]
        + _counts(candidate),
        "Parts of the step": _part(candidate),
        "GEMMs": _most_changed(candidate, RowGroup.GEMMS, "GEMM"),
        "Collectives": _most_changed(candidate, RowGroup.COLLECTIVES, "collective"),
    }  # fmt: skip
    return [(topic, text) for topic, texts in by_topic.items() for text in texts]


def _workbooks(candidate: ComparedSweep) -> list[str]:
    """That there are no steps to compare, where only workbooks are left."""
    if not any(_noun(row) == _WHOLE for row in candidate.of(RowGroup.WHOLE)):
        return []
    return [
        "Workbooks show no steps: whole traces are compared, which may have different numbers of "
        "steps."
    ]


def _points(candidate: ComparedSweep, first: str, other: str) -> list[str]:
    """Those that only one of the sweeps has, or that fail now."""
    if not candidate.has_common_points:
        return [
            f"{first} and {other} have no point in common ({first}: "
            f"{_listed(candidate.only_first)}; {other}: {_listed(candidate.only_candidate)}), so "
            "only their best points are compared."
        ]
    found = []
    if candidate.lost:
        found.append(
            f"Compared in {first}, but failed or incomplete in {other}: {_listed(candidate.lost)}."
        )
    for label, only in ((first, candidate.only_first), (other, candidate.only_candidate)):
        if only:
            found.append(f"Only in {label}: {_listed(only)}.")
    for label in (first, other):
        of_sweep = [one for sweep, one in candidate.left_out if sweep == label]
        if of_sweep:
            found.append(f"Left out in {label}: {left_out_text(of_sweep)}.")
    return found


def _listed(configurations: Sequence[SweepConfiguration]) -> str:
    labels = [one.label for one in configurations[:_MOST_LISTED]]
    more = len(configurations) - len(labels)
    return "; ".join(labels) + (f" and {more} more" if more else "")


def _end(row: SweepRow) -> str:
    return _ENDS[row.verdict] + (f": {row.note}" if row.note else "")


def _mean(candidate: ComparedSweep, row: SweepRow, first: str, other: str) -> str:
    points = candidate.of(RowGroup.STEP)
    is_shown = row.verdict in (Difference.SLOWER, Difference.FASTER)
    end = _end(row)
    if is_shown and not any(one.verdict is row.verdict for one in points):
        end = ", which the points show together, though none of them alone"
    return (
        f"Over all points that both have, the {_noun(row)} changes by {change_text(row)} on "
        f"average from {first} to {other}{end}."
    )


def _noun(row: SweepRow) -> str:
    return _WHOLE if "trace" in row.measure else "step"


def _best(row: SweepRow, first: str, other: str) -> str:
    assert row.configuration is not None  # the best point is one
    where = row.other_configuration.label if row.other_configuration else "the same point"
    return (
        f"The best point takes {row.before:.2f} ms in {first} with {row.configuration.label}, and "
        f"{row.after:.2f} ms in {other} with {where}: {change_text(row)}{_end(row)}."
    )


def _counts(candidate: ComparedSweep) -> list[str]:
    rows = candidate.of(RowGroup.STEP)
    if not rows:
        return []
    counts = [(verdict, [row for row in rows if row.verdict is verdict]) for verdict in Difference]
    texts = [f"{len(of)} {verdict}" for verdict, of in counts if of]
    shown = [row for row in rows if row.verdict in (Difference.SLOWER, Difference.FASTER)]
    text = f"Of {counted(len(rows), 'point')} that both have: {', '.join(texts)}"
    if not shown:
        note = f": {rows[0].note}" if rows[0].verdict is Difference.UNDECIDED else ""
        return [f"{text}{note}."]
    worst = max(shown, key=_size)
    assert worst.configuration is not None  # rows of steps have one
    return [
        f"{text}; the largest change is {change_text(worst)} with {worst.configuration.label}, "
        f"from {worst.before:.2f} to {worst.after:.2f} ms."
    ]


def _part(candidate: ComparedSweep) -> list[str]:
    """The part of the step that changes it most, where one is shown to."""
    rows = [row for row in candidate.of(RowGroup.PARTS)
            if row.verdict in (Difference.SLOWER, Difference.FASTER)]  # fmt: skip
    if not rows:
        return []
    row = max(rows, key=_size)
    assert row.configuration is not None  # rows of parts have one
    changes = "lengthens" if row.verdict is Difference.SLOWER else "shortens"
    found, noun = row.comparison, _noun(candidate.of(RowGroup.WHOLE)[0])
    sizes = sorted(abs(100 * (one - 1)) for one in found.interval or ())
    interval = f" ({sizes[0]:.1f} to {sizes[1]:.1f} %)" if sizes else ""
    return [
        f"The part that changes most is {PARTS[row.measure]}: with {row.configuration.label} it "
        f"{changes} the {noun} by {abs(100 * (found.ratio - 1)):.1f} %{interval}, from "
        f"{row.before:.2f} to {row.after:.2f} ms."
    ]


def _most_changed(candidate: ComparedSweep, group: RowGroup, noun: str) -> list[str]:
    rows = candidate.of(group)
    shown = [row for row in rows if row.verdict in (Difference.SLOWER, Difference.FASTER)]
    if not rows:
        return []
    undecided = sum(row.verdict is Difference.UNDECIDED for row in rows)
    if not shown:
        compared, are = counted(len(rows), "comparison"), noun_for(undecided, "is", "are")
        rest = f"; {undecided} of {compared} {are} undecided" if undecided else ""
        return [f"No {noun} is shown to be slower or faster{rest}."]
    row = max(shown, key=_size)
    assert row.configuration is not None  # rows of GEMMs and collectives have one
    measure = MEASURES[row.measure]
    found = row.comparison
    others = len(shown) - 1
    more = f" {counted(others, 'more comparison shows', 'more comparisons show')} a difference."
    return [
        f"The {noun} that changed most is {row_label(row, rows)} with {row.configuration.label}: "
        f"{measure} {figure_text(row.before, row.unit)} → {figure_text(row.after, row.unit)}, "
        f"{format_change(found.ratio)}{interval_text(found.ratio_low, found.ratio_high)}."
        + (more if others else "")
    ]


def _size(row: SweepRow) -> float:
    ratio = row.comparison.ratio
    return max(ratio, 1 / ratio)
