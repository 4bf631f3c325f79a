"""A sweep's analysis as tables: the columns are the keys of ``analysis.json``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gemmetry.analysis.sweeps.analysis import SweepAnalysis
from gemmetry.analysis.sweeps.document import gemm_entry, point_entry, pooled_entry, rocprof_entry
from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.hardware.amd_metrics import METRICS

_INTEGER, _NUMBER, _TEXT = ColumnType.INTEGER, ColumnType.NUMBER, ColumnType.TEXT


def _whole(name: str, description: str) -> Column:
    return Column(name, _INTEGER, description=description)


def _text(name: str, description: str) -> Column:
    return Column(name, _TEXT, description=description)


def _number(name: str, description: str) -> Column:
    unit = "µs" if name.endswith("_us") else "ms" if "_ms" in name else ""
    return Column(name, _NUMBER, unit, description)


_POINT = (
    _whole("threads", "NCCL threads per block, as requested"),
    _whole("channels", "NCCL channels, as requested"),
    Column("axes", ColumnType.MAPPING, description="further axes with their values"),
    _whole("repeat", "number of the repeat"),
)
_KIND = (
    _text("kernel", "name of the kernel"),
    _whole("m", "rows of the result"),
    _whole("n", "columns of the result"),
    _whole("k", "length of the sums"),
    _whole("batch", "number of products"),
    _text("dtype", "format of A and B"),
    _text("layout", "of A and B: t row-major, n column-major"),
)
_CAUSE = (
    _whole("overlapped_count", "instances during which communication ran"),
    _whole("alone_count", "instances without"),
    _number("overlapped_median_us", "median of the former"),
    _number("alone_median_us", "median of the latter"),
    _number("slowdown", "ratio of the two; over several ranks, the median over the pairs of "
            "instances of one rank"),
    _number("slowdown_ci_low", "lower end of its interval"),
    _number("slowdown_ci_high", "upper end of its interval"),
    _text("verdict", "slower, faster, no difference shown, undecided, no control group or not "
          "overlapped"),
    _number("cost_ms_per_step", "time that overlapped instances took longer, per step"),
    _number("full_overlap_slowdown", "factor from no overlap to full overlap"),
    _number("full_overlap_ci_low", "lower end of its interval"),
    _number("full_overlap_ci_high", "upper end of its interval"),
    _text("full_overlap_note", "why there is no such factor, though enough instances overlap"),
    _number("highest_overlap_share", "highest overlapped share of an instance, 0 to 1"),
    _text("note", "why there is no verdict"),
)  # fmt: skip
_STATISTICS = (
    _whole("count", "instances"),
    _number("sum_us", "total time"),
    _number("median_us", "median time"),
    _number("p5_us", "5th percentile"),
    _number("p95_us", "95th percentile"),
    _number("mad_us", "median absolute deviation from the median"),
    _number("cv", "standard deviation over mean"),
    _number("min_us", "shortest time"),
    _number("max_us", "longest time"),
    _number("max_minus_min_us", "longest less shortest time"),
    _number("first_step_median_us", "median in the first recorded step"),
    _number("later_steps_median_us", "median in later steps"),
    _number("first_step_ratio", "ratio of the two"),
)
_POINTS = (
    *_POINT,
    _whole("world_size", "ranks of the run"),
    _text("outcome", "ok, failed, no_traces or not_run"),
    _text("reason", "why it is not ok"),
    _text("left_out", "why its steps are not compared with those of other points"),
    _number("step_ms", "median step: the longest window of any rank"),
    _number("step_ms_ci_low", "lower end of its interval"),
    _number("step_ms_ci_high", "upper end of its interval"),
    _whole("steps", "steps that all ranks recorded"),
    _number("compute_ms", "computing, as if nothing were slowed"),
    _number("slowed_compute_ms", "by how much communication lengthened GEMMs"),
    _number("exposed_comm_ms", "communication while nothing is computed"),
    _number("exposed_copy_ms", "copies while nothing else runs"),
    _number("idle_ms", "nothing runs"),
)


_ROCPROF = (
    *_POINT,
    _whole("rank", "rank; empty where the files do not state it"),
    _text("rank_source", "file name, environment, command line, trace or gpu"),
    Column("pids", ColumnType.TEXTS, description="its process in each pass"),
    _text("host", "name of the node"),
    _whole("device", "number of the GPU"),
    _text("chip", "such as gfx942"),
    _text("kernel", "name of the kernel"),
    _whole("workgroups", "of the grid"),
    _whole("workgroup_size", "work-items of a workgroup"),
    _whole("count", "dispatches"),
    _whole("passes", "passes that have the kernel"),
    _number("median_us", "median time"),
    Column("is_serialised", ColumnType.BOOLEAN, description="counters were collected: the time is "
           "not comparable with a trace"),
)  # fmt: skip
_RESOURCES = (
    Column("matrix_gflop", _NUMBER, "10⁹ FLOP", "work of the matrix units per dispatch"),
    _whole("vgprs", "vector registers of a work-item"),
    _whole("accum_vgprs", "its accumulation registers"),
    _whole("sgprs", "scalar registers of a wave"),
    _whole("lds_bytes", "LDS of a workgroup"),
    _whole("scratch_bytes", "scratch memory of a work-item"),
    Column("counters", ColumnType.MAPPING, description="medians of all counters, each a sum over "
           "its instances"),
)  # fmt: skip


def points_table(analysis: SweepAnalysis) -> Table:
    """``sweep_points``: one row per point."""
    records = []
    for one in analysis.points:
        entry = point_entry(one)
        step = entry["step_ms"]
        flat = {"step_ms": step["median"], "step_ms_ci_low": step["ci_low"],
                "step_ms_ci_high": step["ci_high"], "steps": step["n"]}  # fmt: skip
        records.append({**entry, **flat})
    return _table("sweep_points", _POINTS, records)


def gemms_table(analysis: SweepAnalysis) -> Table:
    """``sweep_gemms``: one row per kernel and shape of each rank of each point."""
    columns = (*_POINT, _whole("rank", "rank"), *_KIND, *_STATISTICS, *_CAUSE)
    entries = (
        gemm_entry(one.point, rank.facts.rank, gemm)
        for one in analysis.points
        for rank in one.ranks
        for gemm in rank.gemms
    )
    return _table("sweep_gemms", columns, entries)


def pooled_table(analysis: SweepAnalysis) -> Table:
    """``sweep_pooled_gemms``: one row per kernel and shape of each point, over its ranks."""
    columns = (*_POINT, *_KIND, _whole("count", "instances"), _number("sum_us", "total time"),
               *_CAUSE)  # fmt: skip
    entries = (pooled_entry(one.point, gemm) for one in analysis.points for gemm in one.pooled)
    return _table("sweep_pooled_gemms", columns, entries)


def rocprof_table(analysis: SweepAnalysis) -> Table:
    """``sweep_rocprof``: one row per kernel and grid of each rank of each point, as rocprofv3
    recorded them."""
    metrics = (Column(one.name, _NUMBER, one.unit, one.description) for one in METRICS)
    entries = (
        {**rocprof_entry(one.point, kernel), "pids": list(map(str, kernel.pids))}
        for one in analysis.points
        for kernel in one.rocprof.kernels
    )
    return _table("sweep_rocprof", (*_ROCPROF, *metrics, *_RESOURCES), entries)


def _table(name: str, columns: Sequence[Column], records: Iterable[Mapping[str, Any]]) -> Table:
    return Table.from_records(name, columns, records)
