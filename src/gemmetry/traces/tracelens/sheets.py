"""Sheets and columns that gemmetry's reports share with TraceLens': names, units, meanings.

Names and order are those of AMD-AGI/TraceLens 171dd747, so that scripts and notebooks written for
its workbooks can read gemmetry's. Headings, the reference page and the workbook's ``columns`` sheet
are generated from this table.
"""

from __future__ import annotations

from gemmetry.traces.tracelens.columns import (
    AGGREGATES,
    ARGUMENTS,
    KERNELS,
    PLACE,
    SPEC,
    TIME,
    Column,
    SheetKind,
    aggregated,
)
from gemmetry.traces.tracelens.performance_sheets import PERFORMANCE_SHEETS

_SHARES = (
    Column("Percentage (%)", "%", "share of the sheet's direct kernel time"),
    Column("Cumulative Percentage (%)", "%", "of this row and all above"),
)
_OPERATOR = (
    Column("name", "", "operator, or the runtime call where no operator is around it"),
    Column("op category", "", "GEMM, CONV_fwd, CONV_bwd, NORM_fwd, NORM_bwd, SDPA_fwd, SDPA_bwd, "
           "elementwise, reduce, multi_tensor_apply, triton, record_param_comms, other"),
)  # fmt: skip


def _direct_and_subtree() -> list[Column]:
    direct = "the time in which kernels that it launched itself ran"
    columns = []
    for a in ("mean", "median", "std", "min", "max", "sum"):
        columns += aggregated("total_direct_kernel_time", "µs", direct, a)
        columns += aggregated("total_subtree_kernel_time", "µs", f"{direct}, or called ones", a)
    return columns


_COMM = (
    Column("Process Group Name", "", "as the trace names it; Unknown_Group where it does not"),
    Column("Process Group Ranks", "", "ranks of the group"),
    Column("Collective name", "", "as the trace names it, else by the kernel's name"),
    Column("Group size", "", "ranks of the group"),
    Column("dtype", "", "element type, in PyTorch's words"),
)
_MESSAGE = (
    Column("In msg nelems", "", "elements that a rank puts in"),
    Column("Out msg nelems", "", "elements that a rank gets out"),
)
_SPLITS = (
    Column("In split size", "", "parts by rank of an uneven all-to-all"),
    Column("Out split size", "", "parts by rank of an uneven all-to-all"),
)
_NODE = (
    Column("node_id", "", "rank divided by the devices of a node"),
    Column("node_span", "", "intra_node or inter_node, by the group's ranks; unknown"),
)

_DURATIONS = (
    Column("dur_sum", "µs", "sum of durations"), Column("dur_mean", "µs", "mean"),
    Column("dur_std", "µs", "standard deviation (n - 1)"), Column("dur_min", "µs", "minimum"),
    Column("dur_max", "µs", "maximum"), Column("operation_count", "", "number of kernels"),
)  # fmt: skip

_SUMMARY_LONG = (
    Column("rank", "", "rank of the trace"),
    *_COMM,
    *_MESSAGE,
    *_SPLITS,
    Column("stream", "", "stream of the kernel"),
    Column("In msg size (MB)_first", "MiB", "bytes put in, in 2²⁰"),
    Column("Out msg size (MB)_first", "MiB", "bytes got out, in 2²⁰"),
    *_DURATIONS,
)


def _four(name: str, unit: str, of: str) -> list[Column]:
    return aggregated(name, unit, of, "mean median min max")


SHEETS = (
    SheetKind("gpu_timeline", "How the time of the trace divides.", (
        Column("type", "", "computation_time, exposed_comm_time (not overlapping computation), "
               "exposed_memcpy_time (overlapping neither), busy_time, idle_time, total_time, "
               "total_comm_time, total_memcpy_time"),
        Column("time ms", "ms", "union of the intervals, exact to the nanosecond"),
        Column("percent", "%", "of total_time, the first start to the last end"),
    )),
    SheetKind("ops_summary_by_category", "Kernel time by what operators do.", (
        _OPERATOR[1],
        Column("Count", "", "calls that launched kernels"),
        Column("total_direct_kernel_time_ms", "ms", "time of kernels that they launched"),
        *_SHARES,
    )),
    SheetKind("ops_summary", "Kernel time by operator.", (
        _OPERATOR[0],
        *aggregated("total_direct_kernel_time", "µs", "direct kernel time", "sum"),
        *aggregated("total_subtree_kernel_time", "µs", "time with called operators", "sum"),
        Column("total_direct_kernel_time_ms", "ms", "direct kernel time"),
        Column("total_subtree_kernel_time_ms", "ms", "time with called operators"),
        Column("Count", "", "calls that launched kernels"),
        Column("Categories", "", "a list of the categories"),
        *_SHARES,
    )),
    SheetKind("ops_unique_args", "Kernel time by operator and arguments.", (
        *_OPERATOR, *PLACE, *ARGUMENTS,
        Column("operation_count", "", "calls"),
        *_direct_and_subtree(),
        Column("ex_UID", "", "External id of one of the calls (TraceLens: its own event number)"),
        *KERNELS, *_SHARES,
    )),
    SheetKind("unified_perf_summary", "The same with speeds, where it is known what is computed.", (
        *_OPERATOR, *PLACE, *ARGUMENTS,
        Column("ex_UID", "", "External id of one of the calls"),
        Column("operation_count", "", "calls"),
        Column("total_duration_us", "µs", "sum of the calls' durations on the host"),
        Column("mean_duration_us", "µs", "mean on the host"),
        Column("std_duration_us", "µs", "standard deviation on the host"),
        Column("GFLOPS", "10⁹", "10⁹ FLOP of one call, as in the sheet of the operator's family"),
        Column("Data Moved (MB)", "MiB", "bytes of one call in 2²⁰, as there"),
        Column("FLOPS/Byte", "", "arithmetic intensity"),
        SPEC,
        *aggregated("TB/s", "10¹² B/s", "bytes moved over kernel time", "mean std"),
        *aggregated("TFLOPS/s", "10¹² FLOP/s", "FLOP over kernel time", "mean std"),
        *aggregated("Kernel Time (µs)", "µs", TIME, "mean std sum"),
        *(Column(f"duration_us_{a}", "µs", f"{AGGREGATES[a]} on the host")
          for a in ("median", "min", "max")),
        *aggregated("TB/s", "10¹² B/s", "bytes moved over kernel time", "median min max"),
        *aggregated("TFLOPS/s", "10¹² FLOP/s", "FLOP over kernel time", "median min max"),
        *aggregated("Kernel Time (µs)", "µs", TIME, "median min max"),
        *KERNELS,
        Column("perf_params", "", "the parameters in the sheet of its family as a Python literal"),
        Column("has_perf_model", "", "whether FLOP are known"),
        *_SHARES,
    )),
    *PERFORMANCE_SHEETS,
    SheetKind("kernel_summary", "Kernels by name and the operator that launched them.", (
        Column("Parent op category", "", "of the operator; graph or runtime where only the "
               "runtime call is known; empty where the launch is not in the trace"),
        Column("Parent cpu_op", "", "operator, else runtime call"),
        Column("Kernel name", "", "as the trace has it"),
        Column("Kernel stream", "", "stream"),
        *aggregated("Kernel duration (µs)", "µs", "durations", "sum"),
        Column("Kernel duration (µs)_count", "", "number of kernels"),
        *aggregated("Kernel duration (µs)", "µs", "durations", "mean min max"),
        Column("Percent of kernels time (%)", "%", "of the sum of all kernels' durations"),
        Column("Percent of total time (%)", "%", "of the time from first start to last end"),
    )),
    SheetKind("short_kernel_histogram", "Durations of short kernels.", (
        Column("bin_start", "µs", "of 100 equal parts"),
        Column("bin_end", "µs", "exclusive, but for the last"),
        Column("count", "", "kernels"),
    )),
    SheetKind("short_kernels_summary", "Short kernels by operator, arguments and name.", (
        Column("Parent cpu_op", "", "operator, else runtime call"),
        Column("Input dims", "", "shapes of the operator's arguments"),
        Column("Input strides", "", "their strides"),
        Column("Concrete Inputs", "", "values of scalar arguments"),
        Column("Kernel name", "", "as the trace has it"),
        Column("Short Kernel duration (µs) sum", "µs", "sum of durations"),
        Column("Short Kernel count", "", "kernels"),
        Column("Short Kernel duration (µs) mean", "µs", "mean duration"),
        Column("Short Kernel duration (µs) percent of total time", "%", "of the trace's time"),
    )),
    SheetKind("coll_analysis", "Collectives of one trace.", _SUMMARY_LONG),
    SheetKind("nccl_summary_implicit_sync", "Matched collectives by operation, type and size.", (
        Column("Collective name", "", "as the trace names it"),
        Column("dtype", "", "element type"),
        Column("In msg nelems", "", "elements that a rank puts in"),
        Column("Process Group Name", "", "of the first one"),
        Column("Group size", "", "of the first one"),
        Column("Full msg size (MB)", "MiB", "of the first one: Out of all-gathers, else In"),
        *_four("comm_latency", "µs", "the shortest duration on any rank"),
        *_four("skew in start time", "µs", "latest minus earliest start"),
        *_four("skew in end time", "µs", "latest minus earliest end"),
        *_four("algo bw (GB/s)", "GiB/s", "message over latency, in 2³⁰ bytes/s"),
        *_four("bus bw (GB/s)", "GiB/s", "the same times nccl-tests' factor"),
        Column("count", "", "collectives"),
        Column("Total comm latency (ms)", "ms", "sum of latencies"),
    )),
    SheetKind("nccl_summary_long", "Collectives by rank.", (*_SUMMARY_LONG, *_NODE)),
    SheetKind("nccl_long", "Every communication kernel of every rank.", (
        Column("collective_id", "", "group and number in it"),
        Column("index_in_group", "", "by start, from 0"),
        Column("rank", "", "rank of the trace"),
        *_COMM,
        _MESSAGE[0], Column("In msg size (MB)", "MiB", "bytes put in, in 2²⁰"),
        _MESSAGE[1], Column("Out msg size (MB)", "MiB", "bytes got out, in 2²⁰"),
        *_SPLITS,
        Column("stream", "", "stream of the kernel"),
        Column("ts", "µs", "start, as in the trace file"),
        Column("dur", "µs", "duration"),
        *_NODE,
    )),
    SheetKind("nccl_implicit_sync", "Every matched collective, with all ranks.", (
        Column("collective_id", "", "of the lowest rank"),
        *_COMM, *_MESSAGE,
        Column("In msg size (MB)", "MiB", "bytes put in, in 2²⁰"),
        Column("Out msg size (MB)", "MiB", "bytes got out, in 2²⁰"),
        Column("Full msg size (MB)", "MiB", "Out of all-gathers, else In"),
        Column("comm_latency", "µs", "the shortest duration on any rank"),
        Column("skew in start time", "µs", "latest minus earliest start"),
        Column("earliest arrival rank", "", "rank that waited longest"),
        Column("avg_wait_time", "µs", "mean of latest start minus own start"),
        Column("skew in end time", "µs", "latest minus earliest end"),
        Column("algo bw (GB/s)", "GiB/s", "message over latency, in 2³⁰ bytes/s"),
        Column("bus bw (GB/s)", "GiB/s", "the same times nccl-tests' factor"),
        Column("rank_*_ts", "µs", "start on a rank, from what the first rank's times count from"),
        Column("rank_*_dur", "µs", "duration on a rank"),
        Column("rank_*_wait_time", "µs", "latest start minus its own"),
        Column("node_span", "", "intra_node, inter_node or unknown"),
    )),
    SheetKind("straggler_summary", "Who waited, and who was waited for.", (
        Column("rank", "", "rank"),
        Column("total_wait_time_us", "µs", "sum of latest start minus own start"),
        Column("mean_wait_time_us", "µs", "mean of it"),
        Column("times_arrived_last", "", "collectives that this rank began last"),
        Column("times_arrived_first", "", "collectives that this rank began first"),
        Column("pct_arrived_last", "%", "of the job's matched collectives"),
        Column("num_collectives", "", "matched collectives of the job"),
        Column("total_nccl_dur_us", "µs", "sum of all communication kernels of the rank"),
        Column("node_id", "", "rank divided by the devices of a node"),
    )),
)  # fmt: skip
"""Every sheet with a TraceLens name, in the order of the workbook."""

BY_NAME: dict[str, SheetKind] = {sheet.name: sheet for sheet in SHEETS}
