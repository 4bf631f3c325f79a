"""The first screen of a sweep's analysis on a terminal, at most 80 columns wide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gemmetry.analysis.sweeps.analysis import PointAnalysis, SweepAnalysis
from gemmetry.analysis.sweeps.points.best import Best
from gemmetry.analysis.sweeps.points.pooled import PooledGemm
from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.reports.lines import print_line
from gemmetry.reports.tables.terminal import print_table
from gemmetry.reports.texts import printable

if TYPE_CHECKING:
    from rich.console import Console


def print_sweep(analysis: SweepAnalysis, console: Console, *, top: int = 5) -> None:
    """Print sentences with the answers, then a table of the points and one of the `top` GEMMs that
    cost most."""
    from rich.text import Text

    for sentence in sentences(analysis):
        print_line(Text(printable(sentence)), console, indent=2)
    print_table(_points(analysis.points), console)
    slowed = _slowed(analysis)
    if slowed:
        print_table(_gemms(slowed[:top]), console)


def sentences(analysis: SweepAnalysis) -> list[str]:
    """What the sweep shows, in sentences with numbers."""
    points = [one for one in analysis.points if one.ranks]
    traces = sum(len(one.ranks) for one in points)
    found = [f"{len(points)} of {len(analysis.points)} points have traces: {traces} in all."]
    if analysis.best is not None:
        found.append(_best_sentence(analysis.best))
    found += _overlap_sentences(analysis)
    return found


def _best_sentence(best: Best) -> str:
    first, second = best.first, best.second
    start = f"Shortest step: {first.median_ms:.2f} ms with {first.configuration.label}"
    if second is None or second.comparison is None:
        return f"{start}, the only configuration with steps."
    found = second.comparison
    percent = 100 * (found.ratio - 1)
    rest = f"the next, {second.configuration.label}, takes {percent:+.1f} %"
    if found.interval is not None:
        low, high = (100 * (end - 1) for end in found.interval)
        rest += f" ({low:+.1f} to {high:+.1f} %)"
    verdict = {
        "faster": "which is shown",
        "slower": "which is noise",
        "no difference shown": "no difference is shown",
        "undecided": "which is undecided",
    }[best.verdict]
    note = f": {found.note}" if found.note else ""
    return f"{start}; {rest}, {verdict}{note}."


def _slowed(analysis: SweepAnalysis) -> list[tuple[PointAnalysis, PooledGemm]]:
    """GEMMs that are shown to be slowed, those that cost most per step first."""
    found = [(one, gemm) for one in analysis.points for gemm in one.pooled if gemm.is_slowed]
    return sorted(found, key=lambda item: -(item[1].cost_ms_per_step or 0))


def _overlap_sentences(analysis: SweepAnalysis) -> list[str]:
    slowed = _slowed(analysis)
    judged = sum(gemm.low is not None for one in analysis.points for gemm in one.pooled)
    lost = sum(gemm.verdict == "no control group"
               for one in analysis.points for gemm in one.pooled)  # fmt: skip
    found = []
    if slowed:
        point, gemm = slowed[0]
        cost = gemm.cost_ms_per_step
        found.append(
            f"Communication slows {len(slowed)} of {judged} GEMMs that could be judged. The most "
            f"expensive is {gemm.kind.shape} with {point.point.label}: "
            f"{gemm.alone_median_us:,.0f} µs alone, {gemm.overlapped_median_us:,.0f} µs next to "
            f"communication, {_percent(gemm.slowdown)} ({_percent(gemm.low)} to "
            f"{_percent(gemm.high)})" + ("." if cost is None else f", {cost:.2f} ms of each step.")
        )
    elif judged:
        found.append(f"Communication is shown to slow none of {judged} GEMMs that could be judged.")
    if lost:
        found.append(
            f"{lost} GEMMs always ran next to communication, so there is nothing to compare them "
            "with; the same workload on one rank (gemmetry sweep run … --nproc 1) would show it."
        )
    return found


def _percent(ratio: float | None) -> str:
    return "?" if ratio is None else f"{100 * (ratio - 1):+.1f} %"


def _range(gemm: PooledGemm) -> str:
    """``21 (16 to 27)``."""
    middle, low, high = (100 * ((one or 1) - 1) for one in (gemm.slowdown, gemm.low, gemm.high))
    return f"{middle:.0f} ({low:.0f} to {high:.0f})"


def _us(value: float) -> str:
    return f"{value:,.0f}"


def _ms(value: float | None) -> str:
    return f"{value:.2f}"


def _column(
    name: str, type: ColumnType = ColumnType.NUMBER, format: Callable[[float], str] | None = _ms
) -> Column:
    return Column(name, type, format=format, absent="-")


def _points(points: Sequence[PointAnalysis]) -> Table:
    columns = (
        Column("point"), _column("step ms"), _column("compute"), _column("slowed"),
        _column("exposed"), _column("idle"), _column("n", ColumnType.INTEGER, None),
    )  # fmt: skip
    rows: list[list[object]] = []
    for one in points:
        found = one.summary
        if found is None:
            label = f"{one.point.label} ({one.point.outcome.replace('_', ' ')})"
            rows.append([label, *[None] * 6])
            continue
        rows.append([
            one.point.label, found.median_ms, found.compute_ms, found.slowed_compute_ms,
            found.exposed_comm_ms, found.idle_ms, found.count,
        ])  # fmt: skip
    return Table("points", columns, rows)


def _gemms(found: Sequence[tuple[PointAnalysis, PooledGemm]]) -> Table:
    columns = (
        Column("point"), Column("slowed GEMM"), _column("µs alone", format=_us),
        _column("with comm", format=_us), Column("slower by %"), _column("ms/step"),
    )  # fmt: skip
    rows = [
        [one.point.label, gemm.kind.shape, gemm.alone_median_us, gemm.overlapped_median_us,
         _range(gemm), gemm.cost_ms_per_step]
        for one, gemm in found
    ]  # fmt: skip
    return Table("slowed GEMMs", columns, rows)
