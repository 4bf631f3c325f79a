"""Sheets of operators grouped by what they compute, with columns, units, and the definitions of
FLOP and bytes."""

from __future__ import annotations

from dataclasses import replace

from gemmetry.domain.tables import Column
from gemmetry.traces.tracelens.columns import (
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
