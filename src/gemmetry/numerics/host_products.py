"""Operations of every kind in plain numpy, for providers that use host memory.

The product and the epilogue are computed in one dtype; the result is rounded into the output once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gemmetry.domain.operation import (
    Conv2dShape,
    EpilogueStep,
    Layout,
    Operation,
    OperationKind,
    Scaling,
    TensorSpec,
)
from gemmetry.numerics.gelu import gelu
from gemmetry.numerics.references import factors_of_product
from gemmetry.numerics.storage import numpy_dtype, to_float32, to_float64

Array = np.ndarray[Any, np.dtype[Any]]

_BLAS_DTYPES = {np.dtype(np.float32), np.dtype(np.float64)}

# A sum of up to 2^17 - 1 products of two s8 (each at most 2^14) stays below 2^31.
_MAX_S8_TERMS_IN_S32 = 2**17 - 1


def logical_view(array: Array, spec: TensorSpec) -> Array:
    """The stored array in ``spec.shape``; a column-major one becomes a strided view."""
    return array.swapaxes(-1, -2) if spec.layout is Layout.COLUMN else array


def evaluate(
    operation: Operation, inputs: Sequence[Array], output: Array, compute_dtype: np.dtype[Any]
) -> None:
    """Compute `operation` on stored arrays into the stored `output`, in `compute_dtype`.

    Where `compute_dtype` is the output's own, the product is formed in the output itself;
    otherwise in scratch memory of the output's size, allocated here.
    """
    specs = operation.inputs
    views = {spec.role: logical_view(a, spec) for spec, a in zip(specs, inputs, strict=True)}
    # A column-major C is the row-major C' = B' A', so that BLAS writes it without a copy.
    transposed = operation.signature.result_layout is Layout.COLUMN
    scratch = output if output.dtype == compute_dtype else np.empty(output.shape, compute_dtype)
    with np.errstate(all="ignore"):
        lhs, rhs = factors_of_product(operation, views)
        _contract(operation, lhs, rhs, scratch, transposed=transposed)
        _apply_epilogue(operation, scratch.swapaxes(-1, -2) if transposed else scratch, views)
        if scratch is not output:
            _round_into(operation, scratch, output)


def plain_product(
    operation: Operation, compute_dtype: np.dtype[Any]
) -> Callable[[Sequence[Array], Array], None] | None:
    """Like :func:`evaluate`, but with an overhead of 1 to 2 µs instead of 8, which is as long as a
    small product itself takes. None where the operation is more than one product in `compute_dtype`
    of formats that numpy converts exactly."""
    s = operation.signature
    if operation.kind not in (OperationKind.MATMUL, OperationKind.BATCH_MATMUL):
        return None
    if len(operation.inputs) > 2 or s.alpha != 1 or s.epilogue:
        return None
    stored = {numpy_dtype(dtype) for dtype in (s.lhs, s.rhs, s.result)}
    if not stored <= _BLAS_DTYPES or max(d.itemsize for d in stored) > compute_dtype.itemsize:
        return None
    transposed = s.result_layout is Layout.COLUMN
    # B' A' needs no view where A' is stored, and a transposed view where A is stored.
    turn_lhs, turn_rhs = (
        (layout is Layout.COLUMN) != transposed for layout in (s.lhs_layout, s.rhs_layout)
    )

    def launch(inputs: Sequence[Array], output: Array) -> None:
        lhs, rhs = inputs
        lhs = lhs.swapaxes(-1, -2) if turn_lhs else lhs
        rhs = rhs.swapaxes(-1, -2) if turn_rhs else rhs
        with np.errstate(all="ignore"):
            left, right = (rhs, lhs) if transposed else (lhs, rhs)
            np.matmul(left, right, out=output, dtype=compute_dtype)

    return launch


def exact_integer_dtype(operation: Operation) -> np.dtype[Any]:
    """The narrowest float format in which BLAS multiplies s8 without rounding.

    Every partial sum is an integer of magnitude at most K·2^14: exact in float32 up to 2^24 (so
    K ≤ 1024), in float64 up to 2^53 (any K that fits in memory). Terms of s32 need float64.
    """
    only_product = len(operation.inputs) == 2
    fits = operation.matmul_shape.k * 2**14 <= 2**24
    return np.dtype(np.float32 if only_product and fits else np.float64)


def _contract(
    operation: Operation, lhs: Array, rhs: Array, out: Array, *, transposed: bool
) -> None:
    """Write A @ B into `out`, which is C' where `transposed`; converts the operands to out's
    dtype."""
    if isinstance(operation.shape, Conv2dShape):
        columns = _image_columns(_widen(lhs, out.dtype), operation.shape)
        filters = _widen(rhs, out.dtype).reshape(columns.shape[1], -1)
        np.matmul(columns, filters, out=out.reshape(columns.shape[0], -1))
        return
    left, right = _widen(lhs, out.dtype), _widen(rhs, out.dtype)
    if transposed:
        left, right = right.swapaxes(-1, -2), left.swapaxes(-1, -2)
    if operation.kind is not OperationKind.MATMUL_SPLITK:
        np.matmul(left, right, out=out)
        return
    slices = operation.signature.split_k_slices
    depth = operation.matmul_shape.k // slices
    np.matmul(left[:, :depth], right[:depth], out=out)
    partial = np.empty_like(out)
    for start in range(depth, slices * depth, depth):
        reduction = slice(start, start + depth)
        np.matmul(left[:, reduction], right[reduction], out=partial)
        out += partial


def _widen(array: Array, dtype: np.dtype[Any]) -> Array:
    """The array in float32 or float64; the array itself where it already has that dtype."""
    return to_float32(array) if dtype == np.float32 else to_float64(array)


def _image_columns(image: Array, shape: Conv2dShape) -> Array:
    """(n, h, w, c) -> (n·p·q, r·s·c): each row is the window that one output pixel sees."""
    if shape.pad_h or shape.pad_w:
        padded = np.zeros(
            (shape.n, shape.h + 2 * shape.pad_h, shape.w + 2 * shape.pad_w, shape.c), image.dtype
        )
        padded[:, shape.pad_h : shape.pad_h + shape.h, shape.pad_w : shape.pad_w + shape.w] = image
        image = padded
    windows = sliding_window_view(image, (shape.r, shape.s), axis=(1, 2))
    windows = windows[:, :: shape.stride_h, :: shape.stride_w]
    pixels = shape.n * shape.p * shape.q
    return windows.transpose(0, 1, 2, 4, 5, 3).reshape(pixels, shape.r * shape.s * shape.c)


def _apply_epilogue(operation: Operation, product: Array, views: dict[str, Array]) -> None:
    """Scaling, alpha, beta and the fused steps, in place on the logical product."""
    signature, dtype = operation.signature, product.dtype
    if signature.scaling is not Scaling.NONE and signature.blocks is None:
        product *= _widen(views["scale_a"], dtype)
        product *= _widen(views["scale_b"], dtype)
    if signature.alpha != 1:
        product *= dtype.type(signature.alpha)
    if signature.beta != 0:
        product += dtype.type(signature.beta) * _widen(views["addend"], dtype)
    for step in signature.epilogue:
        match step:
            case EpilogueStep.BIAS | EpilogueStep.RESIDUAL:
                product += _widen(views[step.value], dtype)
            case EpilogueStep.RELU:
                np.maximum(product, 0, out=product)
            case EpilogueStep.GELU:
                product[...] = gelu(to_float64(product))


def _round_into(operation: Operation, values: Array, output: Array) -> None:
    """Round to nearest into the output; integers wrap around as s32 arithmetic does."""
    if operation.signature.result.is_integer:
        is_plain = len(operation.inputs) == 2
        if not is_plain or operation.matmul_shape.k > _MAX_S8_TERMS_IN_S32:
            values = values.astype(np.int64)
    np.copyto(output, values, casting="unsafe")


def compute_dtype_of_accumulator(operation: Operation) -> np.dtype[Any]:
    """float64 or float32, depending on the operation's accumulator; for integers the dtype that is
    exact."""
    accumulator = operation.signature.accumulator
    return exact_integer_dtype(operation) if accumulator.is_integer else numpy_dtype(accumulator)
