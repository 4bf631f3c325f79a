"""Sheets of operators grouped by what they compute: columns, units, and definitions of FLOP and
bytes."""

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
    """A sheet of operators of one family.

    Args:
        flops, moved: definitions of the FLOP and bytes of one call.
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
    boolean("causal", "whether what comes later is masked"),
    boolean("flash_impl", "whether the backward pass is taken to make the scores again: True of "
            "flash attention"),
    text("dtype_A_B", "types of Q and K"),
)  # fmt: skip
_CONVOLUTION = (
    text("convNd", "conv1d, conv2d or conv3d"), text("input_shape", "batch, channels, sizes"),
    text("filter_shape", "of the weights"),
    text("dtype_input_weight", "types of input and weights"),
    text("input_stride", "strides of the input, in elements"),
    text("weight_stride", "strides of the weights"),
    boolean("bias", "whether something is added; backward, whether its gradient is made"),
    text("stride", "steps of the window"), text("padding", "on each side"),
    text("dilation", "distance within the window"),
    boolean("transposed_conv", "whether it is transposed"),
    text("output_padding", "of a transposed one"), integer("groups", "groups of channels"),
)  # fmt: skip
_REDUCTION = (
    integer("num_input_elems", "elements that are read"),
    integer("num_output_elems", "elements of the result"),
    text("dtype_in_out", "types of input and result; None: as the input"),
    text("reduce_type", "sum, mean, max, min or norm"),
)  # fmt: skip

PERFORMANCE_SHEETS = (
    _performance(
        "GEMM", "GEMMs by operator and sizes.", "2·B·M·N·K, and B·M·N more for a bias",
        "operands and result, each once",
        (
            integer("M", "rows of the result"), integer("N", "columns of the result"),
            integer("K", "the sum's length"),
            boolean("bias", "whether something is added"),
            text("stride_A", "strides of A, in elements"),
            text("stride_B", "strides of B, in elements"), text("dtype_A_B", "types of A and B"),
            integer("B", "batch"),
            text("transpose", "of the kernel's operands (column-major), where its name shows it"),
        ),
    ),
    _performance(
        "SDPA_fwd", "Attention by operator and sizes.",
        "2·B·H_Q·N_Q·N_KV·(d_h_qk + d_h_v), half of it if causal", "Q, K, V and result, each once",
        _ATTENTION,
    ),
    _performance(
        "SDPA_bwd", "Backward passes of attention, under the forward operator's name.",
        "B·H_Q·N_Q·N_KV·(4·d_h_v + 4·d_h_qk), 2·d_h_qk more in the bracket if flash_impl, and "
        "B·N_KV·(d_h_qk + d_h_v)·(H_Q/H_KV - 1); half of it if causal",
        "Q, K, V, their gradients and the result's, each once", _ATTENTION,
    ),
    _performance(
        "CONV_fwd", "Convolutions by operator and sizes.",
        "2 an element of the result (transposed: of the input) and weight of a channel, and 1 an "
        "element of the result for a bias",
        "input, weights, bias and result, each once", _CONVOLUTION,
    ),
    _performance(
        "CONV_bwd", "Backward passes of convolutions.",
        "for the gradients of input and of weights, if requested, as many each as forward without "
        "bias; 1 an element of the result for the bias'",
        "input, weights and result once for each of the two gradients; result and bias for the "
        "bias'", _CONVOLUTION,
    ),
    _performance(
        "BinaryElementwise", "Sums, products and the like of two tensors.",
        "1 an element of the result, whatever is computed",
        "both inputs and the result, which has the wider type if the call does not record it",
        (
            text("shape_in1", "of the first input"), text("shape_in2", "of the second"),
            text("dtype_in1_in2_out", "types of both and of the result, if recorded"),
            text("stride_input1", "strides of the first, in elements"),
            text("stride_input2", "of the second"),
            text("stride_output", "of the result, if recorded"),
        ),
    ),
    _performance(
        "UnaryElementwise", "Copies and functions of one tensor.",
        "1 an element of the result, copies too",
        "input and result, which has the input's type if the call does not record it",
        (
            text("op_shape", "of the result"),
            text("dtype_in_out", "types of first and second tensor; of copies target and source"),
            text("stride_input", "strides of the first tensor, in elements"),
            text("stride_output", "of the second"),
            text("input_shape", "where the result is larger: of the input"),
            text("output_shape", "there: of the result"),
            text("padding", "there: on both sides of each dimension, from the last on"),
        ),
    ),
    _performance(
        "Normalization", "Normalizations, forward and backward.",
        "of n elements and c channels forward 2·n + 6·c, 3·n more for mean and variance; backward "
        "4·n, 5·n more for the input's gradient (2·n where mean and variance are given, and 3·c). "
        "By the mean square forward 3·n + 2·n/c, n more for weights; backward n, n more for "
        "weights, 6·n for the input's gradient, 2·n for the weights'",
        "forward input, result and, for each channel, mean, variance, weights and bias; backward "
        "both gradients, input and, for each channel, factor, weights and their gradients",
        (
            text("op_shape", "of the input"),
            text("dtype_in_out", "types of input and result; None: as the input"),
            text("stride_input", "strides of the input, in elements"),
            text("stride_output", "empty"),
            integer("num_channels", "c: the second dimension, or the sizes that are normalized"),
            boolean("has_bias", "whether a bias is added; backward, whether its gradient is made"),
            boolean("is_affine", "whether it is multiplied with weights"),
            boolean("is_training", "whether mean and variance are made"),
            text("output_mask", "gradients that were requested; empty for forward passes"),
        ),
    ),
    _performance(
        "Reduce_fwd", "Sums, means, maxima and norms.", "1 an element of the input",
        "input and result", _REDUCTION,
    ),
    _performance(
        "Reduce_bwd", "Their backward passes, under the forward operator's name.",
        "1 an element of the input's gradient", "both gradients", _REDUCTION,
    ),
)  # fmt: skip
"""Sheets of operators grouped by what they compute
(:mod:`~gemmetry.traces.tracelens.performance`)."""
