"""The error function and gelu in float64, vectorised, with numpy alone.

The reference result of every operation in float64 (exact for integers), with the data that
bounds need.

The matrix product is injected: numpy's BLAS on the host by default, a device's own float64 for
shapes that take too long on the host, never the provider under test.

Operations of every kind in plain numpy, for providers that use host memory.

The product and the epilogue are computed in one dtype; the result is rounded into the output once.

Distributes numpy work over threads, as numpy releases the GIL inside its loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from gemmetry.domain.operation import (
    Conv2dShape,
    EpilogueStep,
    Layout,
    Operation,
    OperationKind,
    Scaling,
    Signature,
    TensorSpec,
)
from gemmetry.numerics.storage import (
    Array,
    Float64Array,
    absolute,
    dequantized,
    finite_range,
    numpy_dtype,
    to_float32,
    to_float64,
    widen,
)

GELU_LIPSCHITZ = 1.13
"""Largest slope of gelu: its derivative Φ(x) + x·φ(x) is greatest at x = √2, where it is
0.92135 + 1.41421·0.14676 = 1.1289."""

_STEP = 1.0 / 64.0
_LIMIT = 6.0
"""erf(6) = 1 - 2.2e-17 rounds to 1 in float64."""

_TERMS = 8
_CHUNK = 1 << 16


def erf(values: Float64Array) -> Float64Array:
    """The error function of each element, absolute error below 4e-16 (tested against math.erf).

    Taylor series of 8 terms around the nearest of 385 table points x₀ = i/64, which math.erf
    fills; the derivatives are Hermite polynomials, erf⁽ⁿ⁺¹⁾(x) = (-1)ⁿ·2/√π·Hₙ(x)·exp(-x²)
    (NIST DLMF 7.10.1). With |x - x₀| ≤ 1/128 the first omitted term is below 1e-17.
    """
    flat = values.reshape(-1)
    result = np.empty_like(flat)
    for start in range(0, flat.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        result[part] = _erf_chunk(flat[part])
    return result.reshape(values.shape)


def gelu(values: Float64Array) -> Float64Array:
    """x·Φ(x) with the exact error function; NaN stays NaN, and infinities give the limit."""
    with np.errstate(invalid="ignore"):
        result = 0.5 * values * (1.0 + erf(values * math.sqrt(0.5)))
    return np.where(values == -np.inf, 0.0, result)


def _erf_chunk(values: Float64Array) -> Float64Array:
    magnitude = np.fmin(np.abs(values), _LIMIT)
    index = np.rint(magnitude * (1.0 / _STEP)).astype(np.intp)
    distance = magnitude - index * _STEP
    table = _table()
    result = table[_TERMS][index]
    for term in range(_TERMS - 1, -1, -1):
        result *= distance
        result += table[term][index]
    return np.where(np.isnan(values), np.nan, np.copysign(result, values))


@cache
def _table() -> tuple[Float64Array, ...]:
    """Row n holds erf⁽ⁿ⁾(x₀)/n! at every table point."""
    points = np.arange(int(_LIMIT / _STEP) + 1) * _STEP
    rows = [np.array([math.erf(point) for point in points])]
    hermite_before, hermite = np.zeros_like(points), np.ones_like(points)
    envelope = 2.0 / math.sqrt(math.pi) * np.exp(-points * points)
    for order in range(_TERMS):
        rows.append((-1.0) ** order * envelope * hermite / math.factorial(order + 1))
        following = 2.0 * points * hermite - 2.0 * order * hermite_before
        hermite_before, hermite = hermite, following
    return tuple(rows)


REFERENCE_VERSION = 2
"""Incremented whenever the same inputs give another reference; part of the key of cached
references."""

_SCALES = ("scale_a", "scale_b")

Scalar = TypeVar("Scalar", bound=np.generic)

HostArray = np.ndarray[Any, np.dtype[Any]]

Matmul = Callable[[Array, Array], Array]
"""A (…, M, K) times B (…, K, N), host arrays of any format, in float64; or np.matmul itself, which
receives arrays of the format to multiply in."""


class OperandSizes(NamedTuple):
    """The largest finite magnitudes of the operands, for bounds by norm."""

    lhs: float
    rhs: float
    scale: float
    """|alpha| times the largest scale factors and the slope of gelu, where the operation has
    them."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Reference that a result is compared with; all arrays have the result's *logical* shape."""

    value: Array
    """float64, or int64 for integer operations (exact)."""
    magnitude: Float64Array
    """alpha·scale·|A||B| + |beta·C| + |bias| + |residual|, grown by the slope of gelu where there
    is one: the scale of componentwise error bounds. May be the same array as ``value``."""
    extra_rounding: Float64Array | None = None
    """Sum of the magnitudes that an epilogue kept in the result format, instead of in the
    accumulator, would round on the way; None where there is no such step."""
    sizes: OperandSizes | None = None
    """Sizes of the operands; None where unknown."""

    def flat(self) -> Reference:
        """Arrays reshaped to (-1, last axis)."""
        width = self.value.shape[-1]
        return self.of(lambda array: array.reshape(-1, width))

    def part(self, rows: slice) -> Reference:
        """The given rows (of the first axis)."""
        return self.of(lambda array: array[rows])

    def rows(self, count: int) -> Iterator[tuple[slice, Reference]]:
        """The reference in pieces of at least one row and about `count` elements. Yields slices
        over the first axis of the arrays reshaped to (-1, last axis), with the two-dimensional
        pieces."""
        flat = self.flat()
        height, width = flat.value.shape
        step = max(1, count // max(1, width))
        for start in range(0, height, step):
            part = slice(start, start + step)
            yield part, flat.part(part)

    def of(self, take: Callable[[Array], Array]) -> Reference:
        """`take` of each of the arrays."""
        extra, value = self.extra_rounding, take(self.value)
        is_shared = self.magnitude is self.value
        return replace(
            self,
            value=value,
            magnitude=cast(Float64Array, value if is_shared else take(self.magnitude)),
            extra_rounding=None if extra is None else cast(Float64Array, take(extra)),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the distinct arrays."""
        extra = 0 if self.extra_rounding is None else self.extra_rounding.nbytes
        shared = self.magnitude is self.value
        return self.value.nbytes + extra + (0 if shared else self.magnitude.nbytes)


def compute_reference(
    operation: Operation, inputs: Sequence[Array], *, matmul: Matmul | None = None
) -> Reference:
    """The reference for `inputs` (host arrays of ``operation.inputs``, in storage shapes).

    Args:
        matmul: ``f(A, B) -> A @ B`` in float64, host arrays of the operands' formats in; None:
            numpy's BLAS, whose own error, at most γ_K(2⁻⁵³)·|A||B|,
            :mod:`gemmetry.numerics.bounds` accounts for.
    """
    s, tensors = operation.signature, logical_tensors(operation, inputs)
    matmul = np.matmul if matmul is None else matmul
    product = _contract(operation, *factors_of_product(operation, tensors), matmul)
    if s.lhs.is_integer:
        value = apply_epilogue(operation, product, tensors)
        return Reference(np.rint(value).astype(np.int64), np.abs(value))
    ranges = _ranges(tensors)
    sizes = _sizes(s, ranges)
    if s.alpha > 0 and s.beta == 0 and not s.epilogue and min(low for low, _ in ranges) >= 0:
        value = apply_epilogue(operation, product, tensors)
        return Reference(value, value, sizes=sizes)
    magnitude = _magnitude_product(operation, tensors, matmul)
    return replace(with_epilogue(operation, product, magnitude, tensors), sizes=sizes)


def logical_tensors(operation: Operation, inputs: Sequence[Array]) -> dict[str, Array]:
    """Role -> view of the host array in its logical shape."""
    return {
        spec.role: to_logical(array, spec)
        for spec, array in zip(operation.inputs, inputs, strict=True)
    }


def factors_of_product(operation: Operation, tensors: Mapping[str, Array]) -> tuple[Array, Array]:
    """Factors of the product: A and B in logical shape, with the factors of their blocks in float64
    where they have such factors."""
    if operation.signature.blocks is None:
        return tensors["lhs"], tensors["rhs"]
    return dequantized(operation, tensors)


def scales_of_result(operation: Operation, tensors: Mapping[str, Array]) -> list[Float64Array]:
    """The scale factors that multiply the product, not the elements of A and B."""
    if operation.signature.blocks is not None:
        return []
    return [to_float64(tensors[role]) for role in _SCALES if role in tensors]


def to_logical(array: npt.NDArray[Scalar], spec: TensorSpec) -> npt.NDArray[Scalar]:
    """A view of `array`, which has ``spec.storage_shape``, in ``spec.shape``."""
    return np.swapaxes(array, -1, -2) if spec.layout is Layout.COLUMN else array


def to_storage(array: Array, spec: TensorSpec) -> Array:
    """The inverse of :func:`to_logical`, C-contiguous."""
    return np.ascontiguousarray(to_logical(array, spec))


def exact_product(operation: Operation, inputs: Sequence[Array], matmul: Matmul) -> Float64Array:
    """A·B in float64, with the factors of blocks, for inputs on which no sum rounds in the
    operation's accumulator. np.matmul receives float32 arrays where that accumulator is a float of
    at most 24 bits, which is twice as fast and also exact."""
    s, factors = (
        operation.signature,
        factors_of_product(operation, logical_tensors(operation, inputs)),
    )
    is_narrow = s.blocks is None and s.accumulator.significand_bits in range(1, 25)
    return _contract(operation, *factors, matmul, to_float32 if is_narrow else to_float64)


def apply_epilogue(
    operation: Operation, product: Float64Array, tensors: Mapping[str, Array]
) -> Float64Array:
    """epilogue(alpha·scale_a·scale_b·product + beta·C) in float64."""
    value = _scaled(operation, product, tensors)
    for step in operation.signature.epilogue:
        value = _apply_step(step, value, tensors)
    return value


def _scaled(
    operation: Operation, product: Float64Array, tensors: Mapping[str, Array]
) -> Float64Array:
    s = operation.signature
    value = product
    if s.alpha != 1:
        value = value * s.alpha
    for factor in scales_of_result(operation, tensors):
        value = value * factor
    if "addend" in tensors:
        value = value + s.beta * to_float64(tensors["addend"])
    return value


def _apply_step(
    step: EpilogueStep, value: HostArray, tensors: Mapping[str, Array], out: HostArray | None = None
) -> HostArray:
    """The step in the dtype of `value`; gelu in float64."""
    if step is EpilogueStep.RELU:
        return np.asarray(np.maximum(value, 0, out=out))
    if step is EpilogueStep.GELU:
        return gelu(to_float64(value))
    return np.asarray(np.add(value, widen(tensors[str(step)], value.dtype), out=out))


def with_epilogue(
    operation: Operation,
    product: Float64Array,
    magnitude: Float64Array,
    tensors: Mapping[str, Array],
) -> Reference:
    """The reference from A·B and |A||B|: sums of the epilogue add magnitudes, relu keeps them (its
    slope is at most 1), gelu grows them by :data:`GELU_LIPSCHITZ`."""
    s = operation.signature
    value = _scaled(operation, product, tensors)
    scale = abs(s.alpha) * magnitude
    for factor in scales_of_result(operation, tensors):
        scale = scale * np.abs(factor)
    extra: Float64Array | None = None
    if "addend" in tensors:
        addend = np.abs(s.beta * to_float64(tensors["addend"]))
        scale = scale + addend
        extra = np.abs(value) + addend
    for step in s.epilogue:
        if step is not EpilogueStep.RELU:
            extra = np.abs(value) + (0.0 if extra is None else extra)
        value = _apply_step(step, value, tensors)
        if step is EpilogueStep.GELU:
            scale = scale * GELU_LIPSCHITZ
            extra = None if extra is None else extra * GELU_LIPSCHITZ
        elif step is not EpilogueStep.RELU:
            scale = scale + np.abs(to_float64(tensors[str(step)]))
    return Reference(value, scale, extra)


def _magnitude_product(
    operation: Operation, tensors: Mapping[str, Array], matmul: Matmul
) -> Float64Array:
    """|A||B|. On the host it is computed in float32, which is accurate enough for a scale of
    bounds; the factor compensates for rounding, γ_K(2⁻²⁴) < 2⁻⁶ for K up to 2¹⁸."""
    lhs, rhs = map(absolute, factors_of_product(operation, tensors))
    # Factors of blocks may exceed the range of float32.
    is_wide = lhs.dtype == np.float64 or rhs.dtype == np.float64
    product = _contract(operation, lhs, rhs, matmul, to_float64 if is_wide else to_float32)
    if matmul is np.matmul and not is_wide:
        product *= 1.0 + 2.0**-24 * operation.matmul_shape.k
    return product


def operand_sizes(operation: Operation, inputs: Sequence[Array]) -> OperandSizes:
    """The operand sizes in the reference of `inputs` (in storage shapes)."""
    return _sizes(operation.signature, _ranges(logical_tensors(operation, inputs)))


def _ranges(tensors: Mapping[str, Array]) -> list[tuple[float, float]]:
    """The ranges of A, of B and of the scale factors."""
    return [finite_range(tensors[role]) for role in ("lhs", "rhs", *_SCALES) if role in tensors]


def _sizes(signature: Signature, ranges: Sequence[tuple[float, float]]) -> OperandSizes:
    lhs, rhs, *scales = (max(map(abs, ends)) for ends in ranges)
    scale = math.prod(scales, start=abs(signature.alpha))
    if EpilogueStep.GELU in signature.epilogue:
        scale *= GELU_LIPSCHITZ
    return OperandSizes(lhs, rhs, scale)


def _contract(
    operation: Operation,
    lhs: Array,
    rhs: Array,
    multiply: Matmul,
    wide: Callable[[Array], Array] = to_float64,
) -> Float64Array:
    """A·B in float64; np.matmul multiplies in the format that `wide` returns."""
    if multiply is np.matmul:
        lhs, rhs = wide(lhs), wide(rhs)
    shape = operation.shape
    if isinstance(shape, Conv2dShape):
        return to_float64(_convolve(shape, lhs, rhs, multiply))
    # A BLAS computes with what lies beyond small operands too, and leaves the processor's flag.
    with np.errstate(invalid="ignore"):
        return to_float64(multiply(lhs, rhs))


def _convolve(shape: Conv2dShape, lhs: Array, rhs: Array, multiply: Matmul) -> Array:
    """nhwc × hwcf -> npqf as one product per filter position, so that no im2col matrix (r·s times
    the input) is ever held in memory."""
    padding = ((0, 0), (shape.pad_h, shape.pad_h), (shape.pad_w, shape.pad_w), (0, 0))
    padded = np.pad(lhs, padding)
    result: Array | None = None
    for r in range(shape.r):
        for s in range(shape.s):
            window = padded[
                :,
                r : r + (shape.p - 1) * shape.stride_h + 1 : shape.stride_h,
                s : s + (shape.q - 1) * shape.stride_w + 1 : shape.stride_w,
            ]
            rows = np.ascontiguousarray(window).reshape(-1, shape.c)
            part = multiply(rows, np.ascontiguousarray(rhs[r, s]))
            result = part if result is None else cast(Array, np.add(result, part))
    assert result is not None
    return result.reshape(shape.n, shape.p, shape.q, shape.f)


_BLAS_DTYPES = {np.dtype(np.float32), np.dtype(np.float64)}

# A sum of up to 2^17 - 1 products of two s8 (each at most 2^14) stays below 2^31.
_MAX_S8_TERMS_IN_S32 = 2**17 - 1


def evaluate(
    operation: Operation,
    inputs: Sequence[HostArray],
    output: HostArray,
    compute_dtype: np.dtype[Any],
) -> None:
    """Compute `operation` on stored arrays into the stored `output`, in `compute_dtype`.

    Where `compute_dtype` is the output's own, the product is formed in the output itself;
    otherwise in scratch memory of the output's size, allocated here.
    """
    views = logical_tensors(operation, inputs)
    # A column-major C is the row-major C' = B' A', so that BLAS writes it without a copy.
    transposed = operation.signature.result_layout is Layout.COLUMN
    scratch = output if output.dtype == compute_dtype else np.empty(output.shape, compute_dtype)
    with np.errstate(all="ignore"):
        lhs, rhs = factors_of_product(operation, views)
        _host_products_contract(operation, lhs, rhs, scratch, transposed=transposed)
        _apply_epilogue(operation, scratch.swapaxes(-1, -2) if transposed else scratch, views)
        if scratch is not output:
            _round_into(operation, scratch, output)


def plain_product(
    operation: Operation, compute_dtype: np.dtype[Any]
) -> Callable[[Sequence[HostArray], HostArray], None] | None:
    """Fast form of :func:`evaluate`: its overhead is 1 to 2 µs instead of 8, as long as a small
    product takes. None where the operation is more than one product in `compute_dtype` of formats
    that numpy converts exactly."""
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

    def launch(inputs: Sequence[HostArray], output: HostArray) -> None:
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


def _host_products_contract(
    operation: Operation, lhs: HostArray, rhs: HostArray, out: HostArray, *, transposed: bool
) -> None:
    """Write A @ B into `out`, which is C' where `transposed`; converts the operands to out's
    dtype."""
    if isinstance(operation.shape, Conv2dShape):
        columns = _image_columns(widen(lhs, out.dtype), operation.shape)
        filters = widen(rhs, out.dtype).reshape(columns.shape[1], -1)
        np.matmul(columns, filters, out=out.reshape(columns.shape[0], -1))
        return
    left, right = widen(lhs, out.dtype), widen(rhs, out.dtype)
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


def _image_columns(image: HostArray, shape: Conv2dShape) -> HostArray:
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


def _apply_epilogue(operation: Operation, product: HostArray, views: dict[str, HostArray]) -> None:
    """Scaling, alpha, beta and the fused steps, in place on the logical product."""
    signature, dtype = operation.signature, product.dtype
    if signature.scaling is not Scaling.NONE and signature.blocks is None:
        product *= widen(views["scale_a"], dtype)
        product *= widen(views["scale_b"], dtype)
    if signature.alpha != 1:
        product *= dtype.type(signature.alpha)
    if signature.beta != 0:
        product += dtype.type(signature.beta) * widen(views["addend"], dtype)
    for step in signature.epilogue:
        product[...] = _apply_step(step, product, views, out=product)


def _round_into(operation: Operation, values: HostArray, output: HostArray) -> None:
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


Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_THREADS = 16
"""Maximum threads: the GIL, held between numpy's loops, leaves further threads little to do."""


def in_order(
    function: Callable[[Item], Result], items: Sequence[Item], processors: int = MAX_THREADS
) -> Iterator[Result]:
    """`function` of each item, in order, computed by as many threads as there are items and
    `processors`."""
    threads = min(len(items), processors, MAX_THREADS)
    if threads <= 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="gemmetry-numerics") as pool:
        yield from pool.map(function, items)
