"""Sheets of operators grouped by what they compute, with columns, units, and the definitions of
FLOP and bytes.

Sheets and columns that gemmetry's reports share with TraceLens': names, units, meanings.

Names and order are those of AMD-AGI/TraceLens 171dd747, so that scripts and notebooks written for
its workbooks can read gemmetry's. Headings, the reference page and the workbook's ``columns`` sheet
are generated from this table.
"""

from __future__ import annotations

from dataclasses import replace

from gemmetry.domain.tables import Column
from gemmetry.traces.tracelens.cells import (
    AGGREGATES,
    ARGUMENTS,
    KERNELS,
    PLACE,
    RATES,
    SPEC,
    TIME,
    SheetKind,
    aggregated,
    boolean,
    integer,
    number,
    text,
)


def _performance(
    name: str, what: str, flops: str, moved: str, parameters: tuple[Column, ...]
) -> SheetKind:
    """The sheet of one family of operators.

    Args:
        flops, moved: definitions of the FLOP and the bytes of one call.
        parameters: the columns ``param: ...``.
    """
    return SheetKind(name, what, (
        text("name", "operator"),
        *(replace(c, name=f"param: {c.name}") for c in parameters),
        number("GFLOPS_first", "10⁹", f"10⁹ FLOP of one call: {flops}"),
        number("Data Moved (MB)_first", "MiB", f"bytes of one call in 2²⁰: {moved}"),
        number("FLOPS/Byte_first", "", "arithmetic intensity"),
        *RATES,
        *(replace(c, name=f"{c.name}_first") for c in PLACE),
        SPEC,
        text("kernel_details__summarize_kernel_stats", KERNELS[0].description),
        KERNELS[1],
        *(replace(c, name=f"{c.name}_first") for c in ARGUMENTS),
        *aggregated("Kernel Time (µs)", "µs", TIME, "mean median std min max sum"),
        integer("name_count", "calls"),
        integer("UID_first", "External id of one of the calls"),
    ))  # fmt: skip


_ATTENTION = (
    integer("B", "batch"), integer("N_Q", "length of Q"), integer("H_Q", "heads of Q"),
    integer("N_KV", "length of K and V"),
    integer("H_KV", "heads of K and V"), integer("d_h_qk", "size of a head of Q and K"),
    integer("d_h_v", "size of a head of V"), number("dropout", "", "probability"),
    boolean("causal", "whether later positions are masked"),
    boolean("flash_impl", "whether the backward pass is assumed to recompute the scores: True for "
            "flash attention"),
    text("dtype_A_B", "types of Q and K"),
)  # fmt: skip
_CONVOLUTION = (
    text("convNd", "conv1d, conv2d or conv3d"), text("input_shape", "batch, channels, sizes"),
    text("filter_shape", "shape of the weights"),
    text("dtype_input_weight", "types of input and weights"),
    text("input_stride", "strides of the input, in elements"),
    text("weight_stride", "strides of the weights, in elements"),
    boolean("bias", "whether a bias is added; backward, whether its gradient is computed"),
    text("stride", "step of the window"), text("padding", "padding on each side"),
    text("dilation", "spacing of the elements within the window"),
    boolean("transposed_conv", "whether the convolution is transposed"),
    text("output_padding", "output padding of a transposed convolution"),
    integer("groups", "number of groups of channels"),
)  # fmt: skip
_REDUCTION = (
    integer("num_input_elems", "elements that are read"),
    integer("num_output_elems", "elements of the result"),
    text("dtype_in_out", "types of input and result; None if the result has the input's type"),
    text("reduce_type", "sum, mean, max, min or norm"),
)  # fmt: skip

PERFORMANCE_SHEETS = (
    _performance(
        "GEMM", "GEMMs by operator and sizes.", "2·B·M·N·K, and B·M·N more for a bias",
        "operands and result, each once",
        (
            integer("M", "rows of the result"), integer("N", "columns of the result"),
            integer("K", "length of the sums"),
            boolean("bias", "whether a bias is added"),
            text("stride_A", "strides of A, in elements"),
            text("stride_B", "strides of B, in elements"), text("dtype_A_B", "types of A and B"),
            integer("B", "batch"),
            text("transpose", "transposition of the kernel's operands (column-major), if its name "
                   "shows it"),
        ),
    ),
    _performance(
        "SDPA_fwd", "Attention by operator and sizes.",
        "2·B·H_Q·N_Q·N_KV·(d_h_qk + d_h_v), half of that if causal",
        "Q, K, V and result, each once",
        _ATTENTION,
    ),
    _performance(
        "SDPA_bwd", "Backward passes of attention, under the forward operator's name.",
        "B·H_Q·N_Q·N_KV·(4·d_h_v + 4·d_h_qk), with 2·d_h_qk more in the parentheses if flash_impl, "
        "plus B·N_KV·(d_h_qk + d_h_v)·(H_Q/H_KV - 1); half of that if causal",
        "Q, K, V, their gradients and the gradient of the result, each once", _ATTENTION,
    ),
    _performance(
        "CONV_fwd", "Convolutions by operator and sizes.",
        "2 per element of the result (transposed: of the input) and weight of its channel, and 1 "
        "per element of the result for a bias",
        "input, weights, bias and result, each once", _CONVOLUTION,
    ),
    _performance(
        "CONV_bwd", "Backward passes of convolutions.",
        "for each requested gradient of input and weights, the FLOP of the forward pass without "
        "bias; 1 per element of the result for the gradient of the bias",
        "input, weights and result once for each of these two gradients; result and bias for the "
        "gradient of the bias", _CONVOLUTION,
    ),
    _performance(
        "BinaryElementwise", "Elementwise functions of two tensors, such as sums and products.",
        "1 per element of the result, for any function",
        "both inputs and the result; an unrecorded result is assumed to have the wider type",
        (
            text("shape_in1", "shape of the first input"),
            text("shape_in2", "shape of the second input"),
            text("dtype_in1_in2_out", "types of both inputs, and of the result if recorded"),
            text("stride_input1", "strides of the first input, in elements"),
            text("stride_input2", "strides of the second input, in elements"),
            text("stride_output", "strides of the result, in elements, if recorded"),
        ),
    ),
    _performance(
        "UnaryElementwise", "Copies and functions of one tensor.",
        "1 per element of the result, also for copies",
        "input and result; an unrecorded result is assumed to have the input's type",
        (
            text("op_shape", "shape of the result"),
            text("dtype_in_out", "types of the first and second tensor; of a copy, the target and "
                   "the source"),
            text("stride_input", "strides of the first tensor, in elements"),
            text("stride_output", "strides of the second tensor, in elements"),
            text("input_shape", "shape of the input, if the result is larger"),
            text("output_shape", "shape of the result, if it is larger than the input"),
            text("padding", "if the result is larger, the padding on both sides of each dimension, "
                   "starting with the last"),
        ),
    ),
    _performance(
        "Normalization", "Normalizations, forward and backward.",
        "for n elements and c channels, forward 2·n + 6·c, plus 3·n for mean and variance; "
        "backward 4·n, plus 5·n for the gradient of the input (2·n + 3·c if mean and variance "
        "are given). With the root mean square, forward 3·n + 2·n/c, plus n for weights; backward "
        "n, plus n for weights, 6·n for the gradient of the input and 2·n for that of the weights",
        "forward, the input, the result and, for each channel, mean, variance, weights and bias; "
        "backward, both gradients, the input and, for each channel, factor, weights and their "
        "gradients",
        (
            text("op_shape", "shape of the input"),
            text("dtype_in_out", "types of input and result; None if the result has the input's "
                   "type"),
            text("stride_input", "strides of the input, in elements"),
            text("stride_output", "always empty"),
            integer("num_channels", "c: the second dimension, or the normalized dimensions"),
            boolean("has_bias", "whether a bias is added; backward, whether its gradient is "
                      "computed"),
            boolean("is_affine", "whether the result is multiplied by weights"),
            boolean("is_training", "whether mean and variance are computed"),
            text("output_mask", "gradients that were requested; empty for forward passes"),
        ),
    ),
    _performance(
        "Reduce_fwd", "Sums, means, maxima and norms.", "1 per element of the input",
        "input and result", _REDUCTION,
    ),
    _performance(
        "Reduce_bwd", "Backward passes of reductions, under the forward operator's name.",
        "1 per element of the gradient of the input", "both gradients", _REDUCTION,
    ),
)  # fmt: skip
"""Sheets of operators grouped by what they compute
(:mod:`~gemmetry.traces.tracelens.performance`)."""


_SHARES = (
    number("Percentage (%)", "%", "share of the sheet's direct kernel time"),
    number("Cumulative Percentage (%)", "%", "share of this row and all rows above it"),
)
_OPERATOR = (
    text("name", "operator, or the runtime call if no operator contains it"),
    text("op category", "GEMM, CONV_fwd, CONV_bwd, NORM_fwd, NORM_bwd, SDPA_fwd, SDPA_bwd, "
           "elementwise, reduce, multi_tensor_apply, triton, record_param_comms, other"),
)  # fmt: skip


def _direct_and_subtree() -> list[Column]:
    direct = "the time during which kernels that it launched itself ran"
    columns = []
    for a in ("mean", "median", "std", "min", "max", "sum"):
        columns += aggregated("total_direct_kernel_time", "µs", direct, a)
        columns += aggregated(
            "total_subtree_kernel_time", "µs", f"{direct}, or operators it called launched", a
        )
    return columns


_COMM = (
    text("Process Group Name", "group as named by the trace; Unknown_Group without a name"),
    text("Process Group Ranks", "ranks of the group"),
    text("Collective name", "collective as named by the trace, or else derived from the kernel"),
    integer("Group size", "number of ranks in the group"),
    text("dtype", "element type, as PyTorch names it"),
)
_MESSAGE = (
    integer("In msg nelems", "elements that each rank contributes"),
    integer("Out msg nelems", "elements that each rank receives"),
)
_SPLITS = (
    text("In split size", "elements sent to each rank in an uneven all-to-all"),
    text("Out split size", "elements received from each rank in an uneven all-to-all"),
)
_NODE = (
    integer("node_id", "rank divided by the number of devices per node"),
    text("node_span", "intra_node, inter_node or unknown, from the group's ranks"),
)

_DURATIONS = (
    number("dur_sum", "µs", "sum of durations"), number("dur_mean", "µs", "mean duration"),
    number("dur_std", "µs", "standard deviation of durations (n - 1)"),
    number("dur_min", "µs", "shortest duration"), number("dur_max", "µs", "longest duration"),
    integer("operation_count", "number of kernels"),
)  # fmt: skip

_SUMMARY_LONG = (
    integer("rank", "rank of the trace"),
    *_COMM,
    *_MESSAGE,
    *_SPLITS,
    integer("stream", "stream of the kernel"),
    number("In msg size (MB)_first", "MiB", "contributed bytes, in 2²⁰"),
    number("Out msg size (MB)_first", "MiB", "received bytes, in 2²⁰"),
    *_DURATIONS,
)


def _four(name: str, unit: str, of: str) -> list[Column]:
    return aggregated(name, unit, of, "mean median min max")


SHEETS = (
    SheetKind("gpu_timeline", "How the time of the trace is divided.", (
        text("type", "computation_time, exposed_comm_time (not overlapping computation), "
               "exposed_memcpy_time (overlapping neither), busy_time, idle_time, total_time, "
               "total_comm_time, total_memcpy_time"),
        number("time ms", "ms", "union of the intervals, exact to the nanosecond"),
        number("percent", "%", "share of total_time, from the first start to the last end"),
    )),
    SheetKind("ops_summary_by_category", "Kernel time by what operators do.", (
        _OPERATOR[1],
        integer("Count", "calls that launched kernels"),
        number("total_direct_kernel_time_ms", "ms", "time of the kernels that the calls launched"),
        *_SHARES,
    )),
    SheetKind("ops_summary", "Kernel time by operator.", (
        _OPERATOR[0],
        *aggregated("total_direct_kernel_time", "µs", "direct kernel time", "sum"),
        *aggregated("total_subtree_kernel_time", "µs", "kernel time with called operators", "sum"),
        number("total_direct_kernel_time_ms", "ms", "direct kernel time"),
        number("total_subtree_kernel_time_ms", "ms", "kernel time with called operators"),
        integer("Count", "calls that launched kernels"),
        text("Categories", "list of the operator's categories"),
        *_SHARES,
    )),
    SheetKind("ops_unique_args", "Kernel time by operator and arguments.", (
        *_OPERATOR, *PLACE, *ARGUMENTS,
        integer("operation_count", "calls"),
        *_direct_and_subtree(),
        integer("ex_UID", "External id of one of the calls (in TraceLens its own event number)"),
        *KERNELS, *_SHARES,
    )),
    SheetKind("unified_perf_summary", "The same, with speeds where the computation is known.", (
        *_OPERATOR, *PLACE, *ARGUMENTS,
        integer("ex_UID", "External id of one of the calls"),
        integer("operation_count", "calls"),
        number("total_duration_us", "µs", "sum of the calls' durations on the host"),
        number("mean_duration_us", "µs", "mean duration on the host"),
        number("std_duration_us", "µs", "standard deviation of the durations on the host"),
        number("GFLOPS", "10⁹", "10⁹ FLOP of one call, as in the sheet of the operator's family"),
        number("Data Moved (MB)", "MiB", "bytes of one call in 2²⁰, as in that sheet"),
        number("FLOPS/Byte", "", "arithmetic intensity"),
        SPEC,
        *aggregated("TB/s", "10¹² B/s", "bytes moved divided by kernel time", "mean std"),
        *aggregated("TFLOPS/s", "10¹² FLOP/s", "FLOP divided by kernel time", "mean std"),
        *aggregated("Kernel Time (µs)", "µs", TIME, "mean std sum"),
        *(number(f"duration_us_{a}", "µs", f"{AGGREGATES[a]} of the durations on the host")
          for a in ("median", "min", "max")),
        *aggregated("TB/s", "10¹² B/s", "bytes moved divided by kernel time", "median min max"),
        *aggregated("TFLOPS/s", "10¹² FLOP/s", "FLOP divided by kernel time", "median min max"),
        *aggregated("Kernel Time (µs)", "µs", TIME, "median min max"),
        *KERNELS,
        text("perf_params", "parameters in the sheet of the family, as a Python literal"),
        boolean("has_perf_model", "whether the number of FLOP is known"),
        *_SHARES,
    )),
    *PERFORMANCE_SHEETS,
    SheetKind("kernel_summary", "Kernels by name and the operator that launched them.", (
        text("Parent op category", "category of the operator; graph or runtime where only the "
               "runtime call is known; empty where the launch is not in the trace"),
        text("Parent cpu_op", "operator, or else runtime call"),
        text("Kernel name", "kernel as named by the trace"),
        integer("Kernel stream", "stream of the kernel"),
        *aggregated("Kernel duration (µs)", "µs", "durations", "sum"),
        integer("Kernel duration (µs)_count", "number of kernels"),
        *aggregated("Kernel duration (µs)", "µs", "durations", "mean min max"),
        number("Percent of kernels time (%)", "%", "share of the sum of all kernels' durations"),
        number("Percent of total time (%)", "%", "share of the time from first start to last end"),
    )),
    SheetKind("short_kernel_histogram", "Durations of short kernels.", (
        number("bin_start", "µs", "start of one of 100 equal bins"),
        number("bin_end", "µs", "end of the bin, exclusive except for the last bin"),
        integer("count", "kernels in the bin"),
    )),
    SheetKind("short_kernels_summary", "Short kernels by operator, arguments and name.", (
        text("Parent cpu_op", "operator, or else runtime call"),
        text("Input dims", "shapes of the operator's arguments"),
        text("Input strides", "strides of the operator's arguments"),
        text("Concrete Inputs", "values of scalar arguments"),
        text("Kernel name", "kernel as named by the trace"),
        number("Short Kernel duration (µs) sum", "µs", "sum of durations"),
        integer("Short Kernel count", "number of kernels"),
        number("Short Kernel duration (µs) mean", "µs", "mean duration"),
        number("Short Kernel duration (µs) percent of total time", "%",
               "share of the trace's time"),
    )),
    SheetKind("coll_analysis", "Collectives of one trace.", _SUMMARY_LONG),
    SheetKind("nccl_summary_implicit_sync", "Matched collectives by operation, type and size.", (
        text("Collective name", "collective as named by the trace"),
        text("dtype", "element type"),
        integer("In msg nelems", "elements that each rank contributes"),
        text("Process Group Name", "group of the first collective"),
        integer("Group size", "number of ranks of the first collective"),
        number("Full msg size (MB)", "MiB",
               "message of the first collective: Out for all-gathers, otherwise In"),
        *_four("comm_latency", "µs", "the shortest duration on any rank"),
        *_four("skew in start time", "µs", "latest minus earliest start"),
        *_four("skew in end time", "µs", "latest minus earliest end"),
        *_four("algo bw (GB/s)", "GiB/s", "message divided by latency, in 2³⁰ bytes/s"),
        *_four("bus bw (GB/s)", "GiB/s", "algorithm bandwidth times nccl-tests' factor"),
        integer("count", "number of collectives"),
        number("Total comm latency (ms)", "ms", "sum of latencies"),
    )),
    SheetKind("nccl_summary_long", "Collectives by rank.", (*_SUMMARY_LONG, *_NODE)),
    SheetKind("nccl_long", "Every communication kernel of every rank.", (
        text("collective_id", "group, and number of the collective in the group"),
        integer("index_in_group", "number in the group in the order of starts, from 0"),
        integer("rank", "rank of the trace"),
        *_COMM,
        _MESSAGE[0], number("In msg size (MB)", "MiB", "contributed bytes, in 2²⁰"),
        _MESSAGE[1], number("Out msg size (MB)", "MiB", "received bytes, in 2²⁰"),
        *_SPLITS,
        integer("stream", "stream of the kernel"),
        number("ts", "µs", "start, as in the trace file"),
        number("dur", "µs", "duration"),
        *_NODE,
    )),
    SheetKind("nccl_implicit_sync", "Every matched collective, with all ranks.", (
        text("collective_id", "group and number on the lowest rank"),
        *_COMM, *_MESSAGE,
        number("In msg size (MB)", "MiB", "contributed bytes, in 2²⁰"),
        number("Out msg size (MB)", "MiB", "received bytes, in 2²⁰"),
        number("Full msg size (MB)", "MiB", "Out for all-gathers, otherwise In"),
        number("comm_latency", "µs", "the shortest duration on any rank"),
        number("skew in start time", "µs", "latest minus earliest start"),
        integer("earliest arrival rank", "rank that waited longest"),
        number("avg_wait_time", "µs", "mean of latest start minus own start"),
        number("skew in end time", "µs", "latest minus earliest end"),
        number("algo bw (GB/s)", "GiB/s", "message divided by latency, in 2³⁰ bytes/s"),
        number("bus bw (GB/s)", "GiB/s", "algorithm bandwidth times nccl-tests' factor"),
        number("rank_*_ts", "µs", "start on the rank, from the time origin of the first rank"),
        number("rank_*_dur", "µs", "duration on the rank"),
        number("rank_*_wait_time", "µs", "latest start minus the rank's own start"),
        text("node_span", "intra_node, inter_node or unknown"),
    )),
    SheetKind("straggler_summary", "Which ranks waited, and for which ranks.", (
        integer("rank", "rank"),
        number("total_wait_time_us", "µs", "sum of latest start minus own start"),
        number("mean_wait_time_us", "µs", "mean of latest start minus own start"),
        integer("times_arrived_last", "collectives that this rank began last"),
        integer("times_arrived_first", "collectives that this rank began first"),
        number("pct_arrived_last", "%", "share of the job's matched collectives begun last"),
        integer("num_collectives", "matched collectives of the job"),
        number("total_nccl_dur_us", "µs", "sum of the rank's communication kernels"),
        integer("node_id", "rank divided by the number of devices per node"),
    )),
)  # fmt: skip
"""Every sheet with a TraceLens name, in the order of the workbook."""

BY_NAME: dict[str, SheetKind] = {sheet.name: sheet for sheet in SHEETS}
