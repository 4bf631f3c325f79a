"""Inputs that are rare in random data: wide ranges, cancelling sums, subnormals, overflow and NaN.

The functions return host arrays of ``operation.inputs`` in storage shapes. Operands other than A
and B follow the default distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from gemmetry.domain.operation import (
    BF16,
    E2M1,
    F32,
    F64,
    TF32,
    Conv2dShape,
    Layout,
    Operation,
    Scaling,
    TensorSpec,
)
from gemmetry.domain.record import Trait
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import logical_tensors, to_logical, to_storage
from gemmetry.numerics.storage import (
    FORMATS_WITHOUT_INFINITY,
    Array,
    Float64Array,
    numpy_dtype,
    quantize,
    smallest_normal,
    smallest_subnormal,
    to_float64,
)
from gemmetry.verification.inputs.contents import Inputs, affected_by

Positions = npt.NDArray[np.int64]

WIDEST = 12
"""Inputs of :func:`wide_range` lie between 2⁻¹² and 2¹² where the formats allow it."""

_NORMAL_RANGE = 3
"""Powers of two that cover almost all standard normal numbers on either side."""


def objection(name: str, operation: Operation, declared: Collection[Trait]) -> str:
    """Why the check `name` does not apply to `operation`; "" if it applies."""
    s = operation.signature
    if s.lhs.is_integer:
        return "integers have no rounding, no NaN and no infinity"
    if s.alpha == 0:
        return "with alpha 0 the product has no effect"
    spreads = name in ("nan_spreads", "inf_spreads")
    if name == "nan_spreads" and s.blocks is None and E2M1 in (s.lhs, s.rhs):
        return "e2m1 has no NaN"
    if spreads and Trait.NORMWISE in declared:
        return "declared normwise: sums over rows and columns spread NaN and infinity"
    if name == "inf_spreads":
        without = [str(d) for d in (s.lhs, s.rhs) if d in FORMATS_WITHOUT_INFINITY]
        if without:
            return f"{without[0]} has no infinity"
    if name == "subnormals":
        wide = {F64, F32, TF32, BF16}
        if not wide.isdisjoint((s.lhs, s.rhs)):
            return "formats with 8 exponent bits or more may flush subnormal numbers to zero"
        if Trait.FLUSHES_SUBNORMALS in declared:
            return "declared to flush subnormal numbers"
    if name in ("wide_range", "overflow", "scaled_along_k") and Trait.NORMWISE in declared:
        return "declared normwise: small elements next to large ones have no relative accuracy"
    return ""


def wide_range(operation: Operation, seed: int) -> Inputs | None:
    """Normal numbers times powers of two, as far apart as the formats allow."""
    s = operation.signature
    room = math.log2(s.result.maximum) - math.log2(operation.matmul_shape.k) / 2
    exponent = min(
        WIDEST,
        int((room - _NORMAL_RANGE) / 2),
        *(int(math.log2(d.maximum)) - _NORMAL_RANGE for d in (s.lhs, s.rhs)),
    )
    if exponent < 1:
        return None

    def change(spec: TensorSpec, values: Float64Array, rng: np.random.Generator) -> Float64Array:
        low = max(-exponent, int(math.log2(smallest_normal(spec.dtype))))
        powers = rng.integers(low, exponent, values.shape, endpoint=True)
        return cast(Float64Array, np.ldexp(values, powers))

    return _changed(operation, seed, "normal", change)


def cancellation(operation: Operation, seed: int) -> Inputs | None:
    """Every product has a counterpart with the opposite sign elsewhere in K: the exact sum is zero
    (or a single product where K is odd) while |A||B| is large."""
    if operation.matmul_shape.k < 2 or isinstance(operation.shape, Conv2dShape):
        return None
    k = operation.matmul_shape.k
    order = np.random.default_rng([seed % 2**64, k])
    shuffled = order.permutation(k)
    ones, others = shuffled[: k // 2], shuffled[k // 2 : k // 2 * 2]
    if operation.signature.blocks is not None:
        # Neighbours have the same scale factors (blocks have an even depth).
        ones, others = np.arange(0, k // 2 * 2, 2), np.arange(1, k // 2 * 2, 2)

    def change(spec: TensorSpec, values: Float64Array, rng: np.random.Generator) -> Float64Array:
        if spec.role == "lhs":
            values[..., others] = values[..., ones]
        else:
            values[..., others, :] = -values[..., ones, :]
        return values

    return _changed(operation, seed, "normal", change)


def subnormals(operation: Operation, seed: int) -> Inputs | None:
    """A is subnormal in its format, and B is large enough that the result does not underflow."""
    s = operation.signature
    step, count = smallest_subnormal(s.lhs), 2 ** (s.lhs.significand_bits - 1) - 1
    if count < 1:
        return None
    # Results of about 1: A's size is at most smallest_normal, and K products add up.
    size = math.log2(smallest_normal(s.lhs)) + math.log2(operation.matmul_shape.k)
    power = max(0, min(-int(size), int(math.log2(s.rhs.maximum)) - 2))

    def change(spec: TensorSpec, values: Float64Array, rng: np.random.Generator) -> Float64Array:
        if spec.role == "lhs":
            codes = rng.integers(1, count, values.shape, endpoint=True)
            return cast(Float64Array, codes * step)
        return cast(Float64Array, np.ldexp(values, power))

    return _changed(operation, seed, "offset_uniform", change)


def overflow(operation: Operation, seed: int) -> Inputs | None:
    """Rows of A alternate between sums far beyond the largest result and far below it."""
    s = operation.signature
    # A float64 reference cannot exceed the range of float64.
    if isinstance(operation.shape, Conv2dShape) or F64 in (s.result, s.accumulator):
        return None
    # With factors and addends, the order of operations determines what overflows.
    if s.alpha != 1 or s.beta != 0 or s.epilogue or s.scaling is not Scaling.NONE:
        return None
    # The mean of a product of two numbers from [0.1, 1.1) is 0.36.
    typical = math.log2(0.36 * operation.matmul_shape.k)
    power = math.ceil(math.log2(s.result.maximum) - typical)
    for_lhs = power // 2
    room_lhs, room_rhs = (int(math.log2(d.maximum)) - 3 for d in (s.lhs, s.rhs))
    if for_lhs > room_lhs or power - for_lhs > room_rhs or for_lhs < -2:
        return None

    def change(spec: TensorSpec, values: Float64Array, rng: np.random.Generator) -> Float64Array:
        if spec.role == "rhs":
            return cast(Float64Array, np.ldexp(values, power - for_lhs))
        rows = np.arange(values.shape[-2])[:, np.newaxis]
        return cast(Float64Array, np.ldexp(values, for_lhs + np.where(rows % 2 == 0, 2, -3)))

    return _changed(operation, seed, "offset_uniform", change)


_Change = Callable[[TensorSpec, Float64Array, np.random.Generator], Float64Array]
"""(A or B, its values in float64 and logical shape, a stream) -> other values."""


def _changed(operation: Operation, seed: int, distribution: str, change: _Change) -> Inputs:
    base = make_inputs(operation, distribution=distribution, seed=seed + 2)
    inputs = []
    for spec, array in zip(operation.inputs, base, strict=True):
        if spec.role in ("lhs", "rhs"):
            rng = np.random.default_rng(
                [seed % 2**64, len(spec.role), spec.role == "lhs", *spec.shape]
            )
            values = np.array(to_float64(to_logical(array, spec)))
            array = to_storage(quantize(change(spec, values, rng), spec.dtype), spec)
        inputs.append(array)
    return tuple(inputs)


@dataclass(frozen=True)
class Spread:
    """Inputs with one special number in A and one in B, and sorted positions in the flattened
    stored result that must or may be affected."""

    inputs: Inputs
    must: Positions
    may: Positions
    """Positions that may be affected; all others must not be."""
    signs: npt.NDArray[np.int8] | None = None
    """Sign of the infinity at each of `must`; 0: NaN, or unknown. None for NaN, and for
    convolutions, where a place may occur in several terms."""


def spread(operation: Operation, inputs: Sequence[Array], value: float) -> Spread:
    """`inputs` with -`value` (NaN or infinity) at one place of A and `value` at one of B.

    Row i of the result is a sum with element (i, k) of A in each of its terms, column j one with
    element (k, j) of B; no other element has either. For a convolution it affects the output pixels
    whose window contains the place, and the filter's channel; where a filter tap lies in the
    padding, kernels may multiply it by zero or skip it. NaN in operands with factors of blocks is
    :func:`_in_factors`.
    """
    if math.isnan(value) and operation.signature.blocks is not None:
        return _in_factors(operation, inputs)
    lhs_at, rhs_at = _places(operation, last_k=math.isinf(value))
    changed = list(inputs)
    # Both signs, so that both infinities are expected even on inputs of one sign.
    places = zip(operation.inputs[:2], (lhs_at, rhs_at), (-value, value), strict=True)
    for i, (spec, at, special) in enumerate(places):
        array = np.array(inputs[i])
        to_logical(array, spec)[at] = numpy_dtype(spec.dtype).type(special)
        changed[i] = array
    if isinstance(operation.shape, Conv2dShape):
        must, may = _conv_positions(operation.shape, lhs_at, rhs_at)
        return Spread(tuple(changed), must, may)
    *lead, m, n = operation.output.shape
    signs = _signs(operation, changed, lhs_at, rhs_at) if math.isinf(value) else None
    row_of, column_of = 0, 0
    for size, in_lhs, in_rhs in zip(lead, lhs_at, rhs_at, strict=False):
        row_of, column_of = row_of * size + in_lhs, column_of * size + in_rhs
    rows, columns = np.arange(m), np.arange(n)
    row = row_of * m * n + lhs_at[-2] * n + columns
    column = column_of * m * n + rows * n + rhs_at[-1]
    if operation.output.layout is Layout.COLUMN:
        row = row_of * m * n + columns * m + lhs_at[-2]
        column = column_of * m * n + rhs_at[-1] * m + rows
    positions, firsts = np.unique(np.concatenate([row, column]), return_index=True)
    if signs is not None:
        signs = signs[firsts]
    return Spread(tuple(changed), positions, positions, signs)


def _in_factors(operation: Operation, inputs: Sequence[Array]) -> Spread:
    """`inputs` with NaN in one factor of A and one of B: the rows and columns of their blocks
    depend on it."""
    blocks, (*lead, m, n) = operation.signature.blocks, operation.output.shape
    assert blocks is not None
    affected = np.zeros(operation.output.shape, np.bool_)
    changed = list(inputs)
    for i, spec in enumerate(operation.inputs):
        if spec.role.startswith("scale_"):
            is_a, where = spec.role == "scale_a", np.zeros(spec.shape, np.bool_)
            group = 2 * m // 3 // blocks.rows if is_a else 2 * n // 3 // blocks.columns
            batch = tuple(size - 1 for size in lead)
            where[(*batch, *((group, 0) if is_a else (0, group)))] = True
            factors = np.array(inputs[i])
            to_logical(factors, spec)[where] = np.nan
            changed[i] = factors
            affected |= affected_by(operation, spec, where)
    positions = np.flatnonzero(to_storage(affected, operation.output))
    return Spread(tuple(changed), positions, positions)


def _signs(
    operation: Operation, inputs: Sequence[Array], lhs_at: tuple[int, ...], rhs_at: tuple[int, ...]
) -> npt.NDArray[np.int8]:
    """Signs of -∞·B[k, :] and A[:, k]·∞, carried through alpha and scale factors: of the row of the
    result, then of its column. The infinities of A and B meet at the same k."""
    tensors = logical_tensors(operation, inputs)
    lead = lhs_at[:-2]
    row = np.sign(to_float64(tensors["rhs"][lead][lhs_at[-1]]))
    row *= np.sign(float(tensors["lhs"][lhs_at]))
    column = np.sign(to_float64(tensors["lhs"][lead][:, rhs_at[-2]]))
    column *= np.sign(float(tensors["rhs"][rhs_at]))
    factor = np.sign(operation.signature.alpha)
    rowwise = operation.signature.scaling is Scaling.ROW
    is_of_result = operation.signature.blocks is None  # Factors of blocks are positive.
    for role, at, line in (("scale_a", lhs_at[-2], column), ("scale_b", rhs_at[-1], row)):
        if is_of_result and role in tensors:
            scale = np.sign(to_float64(tensors[role]))[lead if rowwise else ()].reshape(-1)
            other = row if role == "scale_a" else column
            line *= scale if rowwise else scale[0]
            other *= scale[at] if rowwise else scale[0]
    return cast("npt.NDArray[np.int8]", (factor * np.concatenate([row, column])).astype(np.int8))


def _conv_positions(
    shape: Conv2dShape, lhs_at: tuple[int, ...], rhs_at: tuple[int, ...]
) -> tuple[Positions, Positions]:
    """Positions in the flattened (n, p, q, f) result that the special numbers must or may
    affect."""
    must = np.zeros((shape.n, shape.p, shape.q, shape.f), dtype=np.bool_)
    may = must.copy()
    image, row, column, _ = lhs_at
    tap_r, tap_s, _, channel = rhs_at
    rows, columns = np.arange(shape.p)[:, np.newaxis], np.arange(shape.q)[np.newaxis]
    top, left = rows * shape.stride_h - shape.pad_h, columns * shape.stride_w - shape.pad_w
    sees = (top <= row) & (row < top + shape.r) & (left <= column) & (column < left + shape.s)
    must[image, sees] = may[image, sees] = True
    may[..., channel] = True
    at_h, at_w = top + tap_r, left + tap_s
    inside = (at_h >= 0) & (at_h < shape.h) & (at_w >= 0) & (at_w < shape.w)
    must[:, inside, channel] = True
    return np.flatnonzero(must), np.flatnonzero(may)


def _places(operation: Operation, *, last_k: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Logical indices into A and B: past the middle of M and N, at one end of K. A kernel that
    reads past the end of a row reaches the first k of the next one."""
    lhs, rhs = (spec.shape for spec in operation.inputs[:2])
    end = -1 if last_k else 0
    if isinstance(operation.shape, Conv2dShape):
        middle = (lhs[0] - 1, lhs[1] // 2, lhs[2] // 2, end % lhs[3])
        return middle, (rhs[0] // 2, rhs[1] // 2, end % rhs[2], 2 * rhs[3] // 3)
    lead = tuple(size - 1 for size in lhs[:-2])
    k = end % lhs[-1]
    return (*lead, 2 * lhs[-2] // 3, k), (*lead, k, 2 * rhs[-1] // 3)
