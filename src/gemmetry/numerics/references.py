"""The reference result of every operation in float64 (exact for integers), with the data that
bounds need.

The matrix product is injected: numpy's BLAS on the host by default, a device's own float64 for
shapes that take too long on the host, never the provider under test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt

from gemmetry.domain.operation import (
    Conv2dShape,
    EpilogueStep,
    Layout,
    Operation,
    Signature,
    TensorSpec,
)
from gemmetry.numerics.block_scaling import dequantized
from gemmetry.numerics.gelu import GELU_LIPSCHITZ, gelu
from gemmetry.numerics.storage import (
    Array,
    Float64Array,
    absolute,
    finite_range,
    to_float32,
    to_float64,
)

REFERENCE_VERSION = 2
"""Incremented whenever the same inputs give another reference; part of the key of cached
references."""

_SCALES = ("scale_a", "scale_b")

Scalar = TypeVar("Scalar", bound=np.generic)

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
    """None where the operands' sizes are not known."""

    def flat(self) -> Reference:
        """The same arrays, reshaped to (-1, last axis)."""
        shape = (-1, self.value.shape[-1])
        extra = self.extra_rounding
        return self._with(
            self.value.reshape(shape),
            self.magnitude.reshape(shape),
            None if extra is None else extra.reshape(shape),
        )

    def part(self, rows: slice) -> Reference:
        """The given rows (of the first axis)."""
        extra = self.extra_rounding
        return self._with(
            self.value[rows], self.magnitude[rows], None if extra is None else extra[rows]
        )

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

    def _with(self, value: Array, magnitude: Float64Array, extra: Float64Array | None) -> Reference:
        if self.magnitude is self.value:
            magnitude = cast(Float64Array, value)
        return Reference(value, magnitude, extra, self.sizes)

    @property
    def nbytes(self) -> int:
        """Bytes of the distinct arrays."""
        extra = 0 if self.extra_rounding is None else self.extra_rounding.nbytes
        shared = self.magnitude is self.value
        return self.value.nbytes + extra + (0 if shared else self.magnitude.nbytes)


def reference_lines(reference: Reference, take: Callable[[Array], Array]) -> Reference:
    """Apply `take` to each of the reference's arrays."""
    extra = reference.extra_rounding
    return replace(
        reference,
        value=take(reference.value),
        magnitude=cast(Float64Array, take(reference.magnitude)),
        extra_rounding=None if extra is None else cast(Float64Array, take(extra)),
    )


def compute_reference(
    operation: Operation, inputs: Sequence[Array], *, matmul: Matmul | None = None
) -> Reference:
    """The reference for `inputs` (host arrays of ``operation.inputs``, in storage shapes).

    Args:
        matmul: ``f(A, B) -> A @ B`` in float64, host arrays of the operands' formats in; None:
            numpy's BLAS, whose own error, at most γ_K(2⁻⁵³)·|A||B|,
            :mod:`gemmetry.numerics.accumulation` accounts for.
    """
    tensors = logical_tensors(operation, inputs)
    lhs, rhs = factors_of_product(operation, tensors)
    if matmul is None:
        product = to_float64(_contract(operation, to_float64(lhs), to_float64(rhs), np.matmul))
    else:
        product = to_float64(_contract(operation, lhs, rhs, matmul))
    s = operation.signature
    if s.lhs.is_integer:
        value = apply_epilogue(operation, product, tensors)
        return Reference(np.rint(value).astype(np.int64), np.abs(value))
    ranges = finite_range(tensors["lhs"]), finite_range(tensors["rhs"])
    sizes = _sizes(s, tensors, *ranges)
    scales = [finite_range(tensors[role]) for role in _SCALES if role in tensors]
    is_nonnegative = min(low for low, _ in (*ranges, *scales)) >= 0
    if s.alpha > 0 and s.beta == 0 and not s.epilogue and is_nonnegative:
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
    """What is multiplied: A and B in logical shape, with the factors of their blocks in float64
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
    lhs, rhs = factors_of_product(operation, logical_tensors(operation, inputs))
    if matmul is np.matmul and operation.signature.blocks is None:
        narrow = operation.signature.accumulator.significand_bits in range(1, 25)
        widen = to_float32 if narrow else to_float64
        lhs, rhs = widen(lhs), widen(rhs)
    return to_float64(_contract(operation, lhs, rhs, matmul))


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
    step: EpilogueStep, value: Float64Array, tensors: Mapping[str, Array]
) -> Float64Array:
    if step is EpilogueStep.RELU:
        return np.maximum(value, 0.0)
    if step is EpilogueStep.GELU:
        return gelu(value)
    return value + to_float64(tensors[str(step)])


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
    operation: Operation, tensors: Mapping[str, Array], matmul: Matmul | None
) -> Float64Array:
    """|A||B|. On the host it is computed in float32, which is accurate enough for a scale of
    bounds; the factor compensates for rounding, γ_K(2⁻²⁴) < 2⁻⁶ for K up to 2¹⁸."""
    lhs, rhs = factors_of_product(operation, tensors)
    if matmul is not None:
        return to_float64(_contract(operation, absolute(lhs), absolute(rhs), matmul))
    # Factors of blocks may exceed the range of float32.
    if lhs.dtype == np.float64 or rhs.dtype == np.float64:
        lhs64, rhs64 = np.abs(to_float64(lhs)), np.abs(to_float64(rhs))
        return to_float64(_contract(operation, lhs64, rhs64, np.matmul))
    lhs32, rhs32 = np.abs(to_float32(lhs)), np.abs(to_float32(rhs))
    product = to_float64(_contract(operation, lhs32, rhs32, np.matmul))
    product *= 1.0 + 2.0**-24 * operation.matmul_shape.k
    return product


def operand_sizes(operation: Operation, inputs: Sequence[Array]) -> OperandSizes:
    """The operand sizes in the reference of `inputs` (in storage shapes)."""
    tensors = logical_tensors(operation, inputs)
    ranges = finite_range(tensors["lhs"]), finite_range(tensors["rhs"])
    return _sizes(operation.signature, tensors, *ranges)


def _sizes(
    signature: Signature,
    tensors: Mapping[str, Array],
    lhs: tuple[float, float],
    rhs: tuple[float, float],
) -> OperandSizes:
    scale = abs(signature.alpha)
    for role in _SCALES:
        if role in tensors:
            scale *= max(abs(end) for end in finite_range(tensors[role]))
    if EpilogueStep.GELU in signature.epilogue:
        scale *= GELU_LIPSCHITZ
    return OperandSizes(max(map(abs, lhs)), max(map(abs, rhs)), scale)


def _contract(operation: Operation, lhs: Array, rhs: Array, multiply: Matmul) -> Array:
    shape = operation.shape
    if isinstance(shape, Conv2dShape):
        return _convolve(shape, lhs, rhs, multiply)
    return multiply(lhs, rhs)


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
