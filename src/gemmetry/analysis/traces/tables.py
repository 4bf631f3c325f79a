"""Traces, steps, GEMMs, shapes and operators of the host as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from gemmetry.analysis.traces.columns import (
    ItemColumn,
    column,
    integer,
    microseconds,
    number,
    table,
    text,
)
from gemmetry.domain.tables import ColumnType, Table
from gemmetry.traces.gemms.shapes import Workload
from gemmetry.traces.gemms.summary import GemmRow
from gemmetry.traces.operators.host import HostOperator
from gemmetry.traces.summary import Summary

_COUNTS = (
    integer("kernels", "kernels on GPUs"),
    integer("gemm_kernels", "GEMM kernels"),
    integer("comm_kernels", "kernels that communicate"),
    microseconds("gemm_kernel_us", "sum of the durations of GEMM kernels"),
    microseconds("comm_kernel_us", "sum of the durations of kernels that communicate"),
    microseconds("window_us", "from the first start to the last end of work on GPUs"),
    microseconds("busy_us", "time in which anything ran"),
    microseconds("compute_union_us", "time in which anything was computed"),
    microseconds("comm_union_us", "time in which a kernel that communicates ran"),
    microseconds("memcpy_union_us", "time in which a copy ran"),
    microseconds("comm_compute_overlap_us", "time with both communication and computing"),
    microseconds("exposed_comm_us", "time with communication and no computing"),
    microseconds("gemm_comm_overlap_us", "time with both communication and a GEMM"),
    microseconds("idle_us", "time in which nothing ran"),
    integer("launches_without_work",
            "launches whose work is not in the file: it was busy for longer, idle for less"),
)  # fmt: skip
_FILE = text("file", "the trace", lambda item: str(item.file))
_SUMMARY = (
    replace(_FILE, value=attrgetter("source")),
    integer("events", "entries of the file"),
    *_COUNTS,
    column("partial", ColumnType.BOOLEAN, "whether events of the file are missing"),
)


def _of_step(attribute: str) -> Callable[[Summary], Any]:
    return lambda s: getattr(s.step, attribute) if s.step else None


_STEPS = (
    _FILE,
    integer("step", "number of the step", _of_step("number")),
    text("phase", "phase in the step's mark",
         lambda s: s.step.phase or None if s.step else None),
    text("window_from", "source of the step's window", _of_step("source")),
    *_COUNTS,
    microseconds("others_us", "part of the window with only work of other steps, or of no step"),
    number("mark_us", "length of the step's mark on the host",
           lambda s: s.step.mark_ns / 1000 if s.step else None, unit="µs"),
    integer("inferred", "kernels that were assigned without a recorded launch",
            _of_step("inferred")),
)  # fmt: skip


def summary_table(summaries: Iterable[Summary]) -> Table:
    """``trace_summary``: one row per file. Values that a workbook does not record are None."""
    rows = [
        [None if c.name in s.unknown else c.value(s) for c in _SUMMARY] for s in summaries
    ]  # fmt: skip
    return Table("trace_summary", _SUMMARY, rows)


def step_table(steps: Iterable[Summary]) -> Table:
    """``trace_steps``: one row per file and step."""
    return table("trace_steps", _STEPS, steps)


def _shape_columns(product_of: Callable[[Any], Any]) -> tuple[ItemColumn, ...]:
    """Sizes of the matrix product of an item, None where there is none."""

    def size(name: str) -> Callable[[Any], Any]:
        return lambda item: getattr(product_of(item), name, None)

    return (
        integer("m", "rows of the result", size("m")),
        integer("n", "columns of the result", size("n")),
        integer("k", "length of the sums", size("k")),
        integer("batch", "number of products", size("batch")),
        text("dtype", "format of A and B", size("dtype")),
        text("layout", "layouts of A and B: t row-major, n column-major", size("layout")),
    )


_TIMES = (
    microseconds("min_us", "shortest time"),
    microseconds("max_us", "longest time"),
)


def _gemm_columns(total_ns: int) -> tuple[ItemColumn, ...]:
    return (
        text("device", "product name of the GPU"),
        text("kernel", "name of the kernel, or of the operator on the host"),
        text("short_name", "the name without template arguments", "facts.short"),
        text("kind", "what the kernel does", lambda row: str(row.facts.kind)),
        text("family", "the library or generator of the kernel",
             lambda row: row.facts.family or None),
        text("operators", "operators that launched it, the most frequent one first",
             lambda row: ", ".join(row.operators) or None),
        *_shape_columns(attrgetter("shape"))[:4],
        text("dtype", "format of A and B"),
        text("layout", "layouts of A and B: t row-major, n column-major"),
        text("tile", "tile sizes in the name", lambda row: _sizes(row.facts.tile)),
        integer("stages", "pipeline stages in the name", "facts.stages"),
        text("cluster", "cluster sizes in the name", lambda row: _sizes(row.facts.cluster)),
        integer("split_k", "parts of K in the name", "facts.split_k"),
        integer("count", "instances"),
        integer("linked", "instances whose operator records the shape"),
        integer("inferred", "instances with the shape of others"),
        microseconds("sum_us", "total time"),
        number("share", "share of the time of all rows", lambda row: _share(row.sum_ns, total_ns)),
        microseconds("median_us", "median time"),
        microseconds("p5_us", "5th percentile"),
        microseconds("p95_us", "95th percentile"),
        microseconds("mad_us", "median absolute deviation from the median"),
        *_TIMES,
        number("tflops", "speed of the median instance", unit="10¹² FLOP/s"),
        number("peak_fraction", "speed as a share of the device's peak"),
        column("above_peak", ColumnType.BOOLEAN,
               "whether it exceeds the device's peak, so that a time or a shape is wrong"),
        integer("overlapped", "instances during which a kernel communicated"),
        number("overlapped_share", "share of the time with communication at the same time",
               lambda row: _share(row.overlapped_ns, row.sum_ns)),
    )  # fmt: skip


def gemms_table(rows: Sequence[GemmRow]) -> Table:
    """``gemms``: one row per kernel and shape."""
    return table("gemms", _gemm_columns(sum(row.sum_ns for row in rows)), rows)


_SHAPES = (
    *_shape_columns(lambda gemm: gemm),
    text("scaling", "how scaled formats are scaled"),
    integer("count", "calls"),
    microseconds("sum_us", "total time"),
    number("share", "share of the time of all GEMMs"),
    text("operation", "name of the operation that gemmetry profile runs"),
    replace(
        column("kernels", ColumnType.TEXTS, "kernels", lambda gemm: list(gemm.kernels)),
        format="; ".join,
    ),
    text("reason", "why gemmetry profile cannot run it", lambda gemm: gemm.reason or None),
)


def shapes_table(load: Workload) -> Table:
    """``shapes``: one row per distinct GEMM."""
    return table("shapes", _SHAPES, load.gemms)


def host_operators_table(rows: Sequence[HostOperator]) -> Table:
    """``host_operators``: one row per file and operator with the same input sizes and types; shares
    refer to the file's self time."""
    whole: dict[Path | None, int] = {}
    for row in rows:
        whole[row.file] = whole.get(row.file, 0) + row.self_ns
    columns = (
        _FILE,
        text("name", "operator"),
        text("input_dims", "sizes of its inputs", lambda row: row.input_dims or None),
        text("input_types", "types of its inputs", lambda row: row.input_types or None),
        integer("count", "calls"),
        microseconds("total_us", "total time with nested operators"),
        microseconds("self_us", "total time without nested operators"),
        number("self_share", "share of the file's self time",
               lambda row: _share(row.self_ns, whole[row.file])),
        microseconds("median_us", "median time"),
        *_TIMES,
        *_shape_columns(attrgetter("product")),
        number("tflops", "speed of the median call", unit="10¹² FLOP/s"),
    )  # fmt: skip
    return table("host_operators", columns, rows)


def _sizes(sizes: Sequence[int] | None) -> str | None:
    return "x".join(map(str, sizes)) if sizes else None


def _share(part: int | None, whole: int) -> float | None:
    return None if part is None or not whole else part / whole
