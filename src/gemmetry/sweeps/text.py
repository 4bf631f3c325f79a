"""What a terminal shows of a sweep's analysis, and of a comparison, at most 80 columns wide.

What rocprofv3 recorded of a sweep, on a terminal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gemmetry.dispatches.terminal import print_table
from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.domain.units import format_interval
from gemmetry.results.lines import print_line
from gemmetry.results.texts import printable
from gemmetry.statistics.comparison import Difference
from gemmetry.statistics.intervals import median
from gemmetry.sweeps.analysis import SweepAnalysis
from gemmetry.sweeps.comparison import ComparedSweep, RowGroup, SweepComparison, SweepRow
from gemmetry.sweeps.rows import RocprofKernel
from gemmetry.sweeps.sentences import (
    MEASURES,
    change_sentences,
    figure_text,
    gemm_label,
    marked_label,
    point_label,
    row_label,
    sentences,
    slowed_gemms,
)
from gemmetry.traces.names import classify, is_gemm

if TYPE_CHECKING:
    from rich.console import Console


_POOLED = (
    "Over several ranks, a slowdown is the median over pairs of instances of one rank; it differs "
    "from the quotient of the two medians, which are of all instances, where ranks differ."
)
_MOST_ROWS = 8
"""Changes of GEMMs and collectives that are listed."""


def print_sweep(document: Mapping[str, Any], console: Console, *, top: int = 5) -> None:
    """Print sentences with the answers, then a table of the points and one of the `top` GEMMs that
    cost most.

    Args:
        document: the content of ``analysis.json``.
    """
    _print_sentences(sentences(document), console)
    print_table(_points(document["points"]), console)
    slowed = slowed_gemms(document)
    if slowed:
        print_table(_gemms(slowed[:top], document["pooled_gemms"]), console)
        if any(map(_differs_from_quotient, slowed[:top])):
            _print_sentences([_POOLED], console)


def _differs_from_quotient(gemm: Mapping[str, Any]) -> bool:
    """Whether a reader who divides the medians of a GEMM finds another percentage."""
    quotient: float = gemm["overlapped_median_us"] / gemm["alone_median_us"]
    return f"{quotient:.2f}" != f"{gemm['slowdown']:.2f}"


def print_sweep_comparison(comparison: SweepComparison, console: Console) -> None:
    """Print each candidate: how its environment differs, sentences with the answers, a table of the
    points, and the GEMMs and collectives that are shown to change."""
    from rich.text import Text

    for candidate in comparison.candidates:
        title = f"{candidate.label} = {candidate.title}  against  {comparison.label} = "
        title += comparison.title
        print_line(Text(printable(title), style="bold"), console, indent=4)
        if candidate.environment_differences:
            console.print(Text("! the environments differ:", style="yellow"))
        for line in candidate.environment_differences:
            print_line(Text(f"    {printable(line)}", style="yellow"), console, indent=4)
        _print_sentences(change_sentences(comparison, candidate), console)
        _print_rows(candidate, comparison.label, console)


def _print_sentences(texts: Iterable[str], console: Console) -> None:
    from rich.text import Text

    for text in texts:
        print_line(Text(printable(text)), console, indent=2)


def _print_rows(candidate: ComparedSweep, first: str, console: Console) -> None:
    steps = candidate.of(RowGroup.STEP)
    if steps and not candidate.is_same:
        print_table(_step_changes(steps, first, candidate.label), console)
    shown = [
        row
        for group in (RowGroup.GEMMS, RowGroup.COLLECTIVES)
        for row in candidate.of(group)
        if row.verdict in (Difference.SLOWER, Difference.FASTER)
    ]
    shown.sort(key=lambda row: -max(row.comparison.ratio, 1 / row.comparison.ratio))
    if shown:
        print_table(_changes(shown[:_MOST_ROWS], first, candidate.label, candidate.rows), console)


def _step_changes(rows: Sequence[SweepRow], first: str, other: str) -> Table:
    columns = (
        Column("point"), replace(_column("before"), heading=f"{first} ms"),
        replace(_column("after"), heading=f"{other} ms"), Column("change, %"), Column("verdict"),
    )  # fmt: skip
    return Table("points", columns, [
        [_label(row), row.before, row.after, _change(row), str(row.verdict)] for row in rows
    ])  # fmt: skip


def _changes(rows: Sequence[SweepRow], first: str, other: str, among: Sequence[SweepRow]) -> Table:
    columns = (
        Column("change"), Column("before", heading=first), Column("after", heading=other),
        Column("change, %"), Column("verdict"),
    )  # fmt: skip
    return Table("changes", columns, [
        [_label(row, among), figure_text(row.before, row.unit), figure_text(row.after, row.unit),
         _change(row), str(row.verdict)]
        for row in rows
    ])  # fmt: skip


def _change(row: SweepRow) -> str:
    found = row.comparison
    return _range(found.ratio, found.ratio_low, found.ratio_high, ".1f")


def _label(row: SweepRow, among: Sequence[SweepRow] = ()) -> str:
    point = row.configuration.label if row.configuration else "all points"
    return f"{row_label(row, among)} {MEASURES[row.measure]}, {point}" if row.what else point


def _range(ratio: float, low: float | None, high: float | None, digits: str) -> str:
    """``21 (16 to 27)``, in percent."""
    digits = f"z{digits}"
    middle = format(100 * (ratio - 1), digits)
    if low is None or high is None:
        return middle
    if "%" not in format_interval(low, high):
        return f"{middle} (too few runs)"
    return f"{middle} ({100 * (low - 1):{digits}} to {100 * (high - 1):{digits}})"


def _us(value: float) -> str:
    return f"{value:,.0f}"


def _ms(value: float) -> str:
    return f"{value:.2f}"


def _column(
    name: str, type: ColumnType = ColumnType.NUMBER, format: Callable[[float], str] | None = _ms
) -> Column:
    return Column(name, type, format=format, absent="-")


def _points(points: Sequence[Mapping[str, Any]]) -> Table:
    columns = (
        Column("point"), _column("step ms"), _column("compute"), _column("slowed"),
        _column("exposed"), _column("idle"), _column("n", ColumnType.INTEGER, None),
    )  # fmt: skip
    rows: list[list[object]] = []
    for one in points:
        step = one["step_ms"]
        if step["median"] is None:
            rows.append([marked_label(one), *[None] * 6])
            continue
        rows.append([
            marked_label(one), step["median"], one["compute_ms"], one["slowed_compute_ms"],
            one["exposed_comm_ms"], one["idle_ms"], step["n"],
        ])  # fmt: skip
    return Table("points", columns, rows)


def _gemms(found: Sequence[Mapping[str, Any]], among: Sequence[Mapping[str, Any]]) -> Table:
    columns = (
        Column("point"), Column("slowed GEMM"), _column("µs alone", format=_us),
        _column("with comm", format=_us), Column("slower by %"), _column("ms/step"),
    )  # fmt: skip
    rows = [
        [point_label(one), gemm_label(one, among), one["alone_median_us"],
         one["overlapped_median_us"],
         _range(one["slowdown"], one["slowdown_ci_low"], one["slowdown_ci_high"], ".0f"),
         one["cost_ms_per_step"]]
        for one in found
    ]  # fmt: skip
    return Table("slowed GEMMs", columns, rows)


_LONGEST_NAME = 29
_PERCENT = {"CU busy": "cu_busy_percent", "matrix": "mfma_util_percent",
            "occup.": "occupancy_percent"}  # fmt: skip


def print_rocprof(analysis: SweepAnalysis, console: Console, *, top: int = 5) -> None:
    """Print the `top` GEMMs that took most time under rocprofv3; nothing where it recorded none."""
    from rich.text import Text

    kernels = [
        one
        for point in analysis.points
        for one in point.rocprof.kernels
        if is_gemm(one.kernel)
    ]  # fmt: skip
    if not kernels:
        return
    print_table(rocprof_gemms(kernels, top=top), console)
    note = "Percentages are of the time of a kernel; figures are medians over points and ranks."
    if any(one.is_serialised for one in kernels):
        note += (
            " Kernels run one after the other while rocprofv3 counts: these µs are not those of "
            "the training."
        )
    print_line(Text(note), console, indent=2)


def rocprof_gemms(kernels: Iterable[RocprofKernel], *, top: int) -> Table:
    """The `top` kernels by time, one row per kernel and grid."""
    groups: dict[tuple[str, int | None], list[RocprofKernel]] = defaultdict(list)
    for one in kernels:
        groups[one.kernel, one.workgroups].append(one)
    found = sorted(groups.items(), key=lambda item: -sum(map(_time, item[1])))
    rows = [
        [
            _short(kernel), workgroups, _middle(one.median_us for one in same),
            *(_middle(getattr(one.metrics, name) for one in same) for name in _PERCENT.values()),
            _middle(one.vgprs for one in same), _kib(_middle(one.lds_bytes for one in same)),
        ]
        for (kernel, workgroups), same in found[:top]
    ]  # fmt: skip
    columns = (
        Column("under rocprofv3"), _shown("grid", "{:.0f}"), _shown("µs", "{:,.1f}"),
        *(_shown(name, "{:.1f} %") for name in _PERCENT), _shown("VGPR", "{:.0f}"),
        _shown("LDS KiB", "{:.0f}"),
    )  # fmt: skip
    return Table("GEMMs under rocprofv3", columns, rows)


def _time(one: RocprofKernel) -> float:
    return one.count * (one.median_us or 0)


def _middle(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return median(found) if found else None


def _kib(size: float | None) -> float | None:
    return None if size is None else size / 1024


def _shown(name: str, form: str) -> Column:
    return Column(name, ColumnType.NUMBER, format=form.format, absent="-")


def _short(kernel: str) -> str:
    """``hipblaslt 256x208x64 nn bf16``, else the beginning of the name."""
    facts = classify(kernel)
    if facts.family and facts.tile:
        tile = "x".join(map(str, facts.tile))
        found = (facts.family, tile, facts.layout or "", facts.dtype or "")
        return " ".join(filter(None, found))[:_LONGEST_NAME]
    short = facts.short or kernel
    return short if len(short) <= _LONGEST_NAME else f"{short[: _LONGEST_NAME - 1]}…"
