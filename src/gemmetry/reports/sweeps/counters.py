"""What rocprofv3 recorded of a sweep, on a terminal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gemmetry.analysis.sweeps.analysis import SweepAnalysis
from gemmetry.analysis.sweeps.rocprof import RocprofKernel
from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.kernel_names.classify import classify, is_gemm
from gemmetry.reports.lines import print_line
from gemmetry.reports.tables.terminal import print_table
from gemmetry.statistics.quantiles import median

if TYPE_CHECKING:
    from rich.console import Console

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
            *(_middle(one.metrics[name] for one in same) for name in _PERCENT.values()),
            _middle(one.vgprs for one in same), _kib(_middle(one.lds_bytes for one in same)),
        ]
        for (kernel, workgroups), same in found[:top]
    ]  # fmt: skip
    columns = (
        Column("under rocprofv3"), _column("grid", "{:.0f}"), _column("µs", "{:,.1f}"),
        *(_column(name, "{:.1f} %") for name in _PERCENT), _column("VGPR", "{:.0f}"),
        _column("LDS KiB", "{:.0f}"),
    )  # fmt: skip
    return Table("GEMMs under rocprofv3", columns, rows)


def _time(one: RocprofKernel) -> float:
    return one.count * (one.median_us or 0)


def _middle(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return median(found) if found else None


def _kib(size: float | None) -> float | None:
    return None if size is None else size / 1024


def _column(name: str, form: str) -> Column:
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
