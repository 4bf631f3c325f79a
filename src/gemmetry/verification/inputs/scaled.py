"""Inputs with which a product copies numbers: one operand holds ones, so that the result shows
every bit of the other operand's numbers.

Exact inputs multiplied by powers of two, whose results follow from those of the exact inputs.

(A·D)·(D⁻¹·B) is A·B: with D a diagonal of powers of two no product changes, so that no correct
order of summation gives different bits. This changes every scale that a kernel might derive from
its inputs: the exponent that a block shares, the largest number of a row, the step of a fixed-point
number, the size below which something counts as zero.

Exact inputs that test the steps after a product: scale factors, and an addend that cancels it.

A·B of integers is exact, which exposes errors of an epilogue: a factor or a product of factors kept
in a narrow format, or a product that is rounded before C is added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np
import numpy.typing as npt

from gemmetry.domain.operation import (
    BF16,
    E4M3,
    E5M2,
    E8M0,
    F16,
    F32,
    F64,
    TF32,
    Conv2dShape,
    DType,
    EpilogueStep,
    MatmulShape,
    Operation,
    Scaling,
    TensorSpec,
)
from gemmetry.numerics.bounds import adds_operand, rounds_once
from gemmetry.numerics.inputs import exact_integer_limit, make_inputs
from gemmetry.numerics.references import (
    Matmul,
    exact_product,
    factors_of_product,
    logical_tensors,
    scales_of_result,
    to_logical,
    to_storage,
    with_epilogue,
)
from gemmetry.numerics.storage import (
    Array,
    Float64Array,
    Floats,
    absolute,
    finite_range,
    magnitude_bits,
    numpy_dtype,
    quantize,
    smallest_normal,
    smallest_subnormal,
    to_float32,
    to_float64,
)
from gemmetry.verification.inputs.contents import matrices_of
from gemmetry.verification.inputs.exact import (
    ExactCase,
    case_of,
    exact_case,
    line_axis,
    random_integers,
    with_others,
)

SPREAD = (17, -20)
"""Powers of two, up and down, that lines of a selection are scaled by in formats with 8 exponent
bits or more: 2¹⁷ is beyond float16 (65504), and of a number at 2⁻²⁰ float16 keeps 4 bits. Other
formats are scaled over their whole range, so that every exponent of normal numbers is used."""

_LARGEST_SCALE = 4.0
"""The largest product of two scale factors of :func:`gemmetry.numerics.inputs.make_inputs`."""

_FEWEST_LINES = 4
"""Minimum number of rows of A or columns of B at which one of them is cleared."""

_HIDDEN_BITS = 20
"""Significand bits of a result that remain correct after a few roundings in f32."""

_WIDE_EXPONENTS = frozenset({F64, F32, TF32, BF16})


def selection(
    codes: str,
    nudged_by: int | None,
    operation: Operation,
    seed: int,
    matmul: Matmul,
    round_once: bool = True,
) -> ExactCase | None:
    """B holds one 1 per column, so the result is a copy of elements of A that use every bit of the
    format, which exposes elements that were read from elsewhere or rounded on the way. Where K > N
    a column has ⌈K/N⌉ ones, so that every k is used, and A's integers are smaller by that factor.
    As far as the formats have the range, every third row is large and every third small
    (:data:`SPREAD`), and one row is zero, so that a division by the largest number of a row gives
    NaN there.

    Args:
        codes: "lhs", or "rhs" for the same with the parts of A and B exchanged; for a convolution,
            every pixel of the input then has one channel that is 1.
        nudged_by: 0 or 1: numbers of similar magnitude, which are all a little larger with 1 than
            with 0: by one unit in the last place of the format, or of the result where that has
            fewer bits; by sixteen of f32 where further roundings would hide one.

    Returns:
        None where formats leave no room.
    """
    found = selecting_inputs(operation, seed, codes=codes, nudged_by=nudged_by)
    if found is None:
        return None
    inputs, ones = found
    product = selected(operation, inputs, matmul, codes=codes)

    def sum_of_magnitudes(operation: Operation, given: Sequence[Array]) -> Floats:
        return selected(operation, [absolute(array) for array in given], matmul, codes=codes)

    largest = sum_of_magnitudes if ones > 1 else None
    return exact_case(operation, inputs, product, round_once, largest, ones)


selects_lhs = partial(selection, "lhs", None)
selects_rhs = partial(selection, "rhs", None)


def selecting_inputs(
    operation: Operation, seed: int, *, codes: str, nudged_by: int | None = None
) -> tuple[tuple[Array, ...], int] | None:
    """The inputs of a selection of `codes`, and the number of ones along K that each element of the
    result adds up; None where formats leave no room."""
    s = operation.signature
    m, n, k, _ = operation.matmul_shape
    free = n if codes == "lhs" else m
    ones = -(-k // free)
    if isinstance(operation.shape, Conv2dShape) and codes == "rhs":
        ones = operation.shape.r * operation.shape.s
    if s.accumulator.is_integer:
        limit = 127
    else:
        dtype = s.lhs if codes == "lhs" else s.rhs
        limit = min(2**dtype.significand_bits, 2**s.accumulator.significand_bits // ones)
        limit = min(limit, int(min(s.result.maximum, 2.0**53) / ones))
    if limit < 1:
        return None
    lhs, rhs = operation.inputs[:2]
    spec, selecting = (lhs, rhs) if codes == "lhs" else (rhs, lhs)
    if nudged_by is not None:
        numbers = _close_codes(operation, spec, limit, seed, nudged_by)
        if numbers is None:
            return None
    else:
        numbers = random_integers(spec, limit, seed, _line_scales(operation, spec, limit, ones))
        lines = np.moveaxis(to_logical(numbers, spec), line_axis(spec), 0)
        is_images = isinstance(operation.shape, Conv2dShape) and codes == "lhs"
        if not is_images and len(lines) >= _FEWEST_LINES:
            lines[len(lines) // 2] = 0
    chosen = _ones(operation, selecting)
    factors = (numbers, chosen) if codes == "lhs" else (chosen, numbers)
    return with_others(operation, seed + 1, *factors), ones


def selected(
    operation: Operation,
    inputs: Sequence[Array],
    matmul: Matmul,
    *,
    codes: str,
    rounds: bool = False,
) -> Floats:
    """A·B, with the factors of blocks, for the inputs of a selection; but for convolutions, nothing
    is multiplied by zero.

    Args:
        rounds: whether the factors of blocks use so many bits that sums may round.
    """
    s, shape = operation.signature, operation.shape
    if isinstance(shape, Conv2dShape):
        return exact_product(operation, inputs, matmul)
    # Sums that are exact in the accumulator are exact in float32 where that is no wider.
    is_narrow = s.accumulator.significand_bits in range(1, 25) and not rounds
    widen = to_float32 if is_narrow else to_float64
    tensors = logical_tensors(operation, inputs)
    if s.blocks is None:
        return _gathered(shape, widen(tensors[codes]), codes)
    lhs, rhs = factors_of_product(operation, tensors)
    values, ones = (lhs, rhs) if codes == "lhs" else (rhs, lhs)
    return _gathered(shape, widen(values), codes, widen(ones))


def _close_codes(
    operation: Operation, spec: TensorSpec, limit: int, seed: int, by: int
) -> Array | None:
    """Integers of either sign between a power of two below `limit` and half of it, moved `by` steps
    away from zero; see :func:`nudged`."""
    result = operation.signature.result
    if not result.is_integer:
        limit = min(limit, 2**result.significand_bits)
    top = 1 << (limit.bit_length() - 1)
    step = 1 if rounds_once(operation) else max(1, top >> _HIDDEN_BITS)
    if top < 4 * step:
        return None
    rng = np.random.default_rng([seed % 2**64, *spec.shape])
    steps = rng.integers(top // (4 * step), top // (2 * step), spec.storage_shape)
    values = (2 * steps + by) * step * rng.choice(np.array([-1, 1]), spec.storage_shape)
    return quantize(values.astype(np.float64), spec.dtype)


def _line_scales(
    operation: Operation, spec: TensorSpec, limit: int, ones: int
) -> Float64Array | None:
    """Scales for the lines (rows of A, columns of B), a third of them up and a third down, so that
    no sum has terms of two scales. None where formats or kind do not allow it, or where something
    is added, as that may be the first term of a sum. fp8, whose largest numbers are few powers of
    two above the possible addends, is always scaled up; it is scaled down only where the result is
    the product.

    Args:
        limit: the largest code. ones: number of codes per sum.
    """
    s = operation.signature
    is_line_of_a, is_added_to = spec.role == "lhs", adds_operand(operation)
    if isinstance(operation.shape, Conv2dShape) and is_line_of_a:
        return None
    if _WIDE_EXPONENTS.issuperset((spec.dtype, s.result, s.accumulator)):
        if is_added_to:
            return None
        up, down = SPREAD
    else:
        is_plain = s.alpha == 1 and s.beta == 0 and not s.epilogue and s.scaling is Scaling.NONE
        if s.lhs.is_integer or not (is_plain or spec.dtype.is_fp8):
            return None
        # Headroom of a result for alpha, scales and addends.
        factor = max(1.0, abs(s.alpha)) * (1 if s.scaling is Scaling.NONE else _LARGEST_SCALE)
        factor *= 1 + is_added_to
        sums = min(s.accumulator.maximum / ones, s.result.maximum / ones / factor)
        room = min(spec.dtype.maximum, sums)
        smallest = max(smallest_normal(dtype) for dtype in (spec.dtype, s.accumulator, s.result))
        up = max(0, min(SPREAD[0], math.floor(math.log2(room / limit))))
        down = max(SPREAD[1], round(math.log2(smallest))) if is_plain else 0
    lines = np.arange(spec.shape[line_axis(spec)])
    scales = np.exp2(np.array([0.0, up, down])[lines % 3])
    return cast(Float64Array, scales[:, np.newaxis] if is_line_of_a else scales)


def _ones(operation: Operation, spec: TensorSpec) -> Array:
    """Zeros and ones, one on each diagonal step, such that every row and column has a one."""
    storage = numpy_dtype(spec.dtype)
    logical = np.zeros(spec.shape, dtype=storage)
    one = storage.type(1)
    if isinstance(operation.shape, Conv2dShape) and spec.role == "lhs":
        pixels = np.indices(spec.shape[:-1]).sum(axis=0)
        np.put_along_axis(logical, (pixels % spec.shape[-1])[..., np.newaxis], one, axis=-1)
    else:
        matrices = matrices_of(logical)
        rows, columns = matrices.shape[1:]
        steps = np.arange(max(rows, columns))
        # The shift by the matrix's index distinguishes the matrices of a batch.
        shifts = np.arange(matrices.shape[0])[:, np.newaxis]
        along_m, along_n = (
            (steps + shifts, steps) if spec.role == "rhs" else (steps, steps + shifts)
        )
        matrices[shifts, along_m % rows, along_n % columns] = one
    return to_storage(logical, spec)


def _gathered(shape: MatmulShape, codes: Floats, role: str, ones: Floats | None = None) -> Floats:
    """The product with :func:`_ones`, without multiplying: gather along K, then add in groups.

    Args:
        ones: the matrices of :func:`_ones`, where factors have made other numbers of their ones.
    """
    axis, free = (-1, shape.n) if role == "lhs" else (-2, shape.m)
    steps = np.arange(max(shape.k, free))
    groups = -(-steps.size // free)
    if groups > 1 and role == "rhs":
        transposed = shape._replace(m=shape.n, n=shape.m)
        others = None if ones is None else np.swapaxes(ones, -1, -2)
        product = _gathered(transposed, np.swapaxes(codes, -1, -2), "lhs", others)
        return np.ascontiguousarray(np.swapaxes(product, -1, -2))
    matrices = codes.reshape(-1, *codes.shape[-2:])
    if len(matrices) > 1:
        taken = np.stack(
            [np.take(one, (steps + index) % shape.k, axis) for index, one in enumerate(matrices)]
        )
    elif steps.size == shape.k:
        taken = matrices if ones is None else matrices.copy()  # each is taken once, in order
    else:
        taken = np.take(matrices, steps % shape.k, axis)
    if ones is not None:
        others = ones if role == "lhs" else np.swapaxes(ones, -1, -2)
        others = others.reshape(-1, *others.shape[-2:])
        shifts = np.arange(others.shape[0])[:, np.newaxis]
        found = others[shifts, (steps + shifts) % shape.k, steps % free]
        taken *= np.expand_dims(found, -2 if role == "lhs" else -1)
    if groups > 1:
        summed = np.zeros((*taken.shape[:-1], groups * free), codes.dtype)
        summed[..., : steps.size] = taken
        taken = summed.reshape(*taken.shape[:-1], groups, free).sum(axis=-2)
    return taken.reshape(*codes.shape[:-2], *taken.shape[-2:])


LARGEST_POWER = 100
"""Largest power of two by which a column of A is multiplied or divided: beyond the range of f16, of
fixed-point numbers, and of squares in float32, while numbers of ordinary size stay normal in
formats with 8 exponent bits."""

_MANTISSA_BITS = {F64: 52, F32: 23, TF32: 23, F16: 10, BF16: 7, E4M3: 3, E5M2: 2}
"""Mantissa bits of the formats whose numbers are scaled by adding to the exponent field."""

HONEST_SPAN = 40
"""Powers of two between the largest and the smallest number of a line that scaling by the largest
one keeps: the products of two such numbers stay normal in f32, with 24 bits and a sum to spare."""

_HONEST_SHARE = 0.4
"""HONEST_SPAN as a share of the room of narrower formats."""

_LEAST_SPREAD = 3
"""Minimum range of D, in powers of two, for which the check is meaningful."""

Powers = npt.NDArray[np.int64]


def scaled_along_k(
    operation: Operation, inputs: Sequence[Array], *, end: int | None = None
) -> tuple[Array, ...] | None:
    """`inputs` (in storage shapes) with the columns of A multiplied by powers of two and the rows
    of B divided by them: as far apart as every number stays normal, at most 2^±100. A column that
    holds subnormal numbers, infinity or NaN keeps its scale. None where the formats have no room.

    Args:
        end: 0 or 1: only powers within :data:`HONEST_SPAN` of the lower or the upper end of that
            range.
    """
    (lhs, a), (rhs, b) = (
        (spec, to_logical(array, spec))
        for spec, array in zip(operation.inputs[:2], inputs[:2], strict=True)
    )
    if lhs.dtype not in _MANTISSA_BITS or rhs.dtype not in _MANTISSA_BITS:
        return None
    room_a, room_b = _room(a, lhs.dtype, axis=-1), _room(b, rhs.dtype, axis=-2)
    low = np.maximum.reduce([room_a[0], -room_b[1], np.full_like(room_a[0], -LARGEST_POWER)])
    high = np.minimum.reduce([room_a[1], -room_b[0], np.full_like(room_a[0], LARGEST_POWER)])
    if end is not None:
        span = np.minimum(HONEST_SPAN, _HONEST_SHARE * (high - low)).astype(np.int64)
        low, high = (low, low + span) if end == 0 else (high - span, high)
    powers = _spread(low, high)
    if end is None and powers.max() - powers.min() < _LEAST_SPREAD:
        return None
    scaled_a = _times_power(a, powers, lhs.dtype)
    scaled_b = _times_power(b, -powers[:, np.newaxis], rhs.dtype)
    return (to_storage(scaled_a, lhs), to_storage(scaled_b, rhs), *inputs[2:])


def _room(values: Array, dtype: DType, *, axis: int) -> tuple[Powers, Powers]:
    """The smallest and the largest power of two for each k, so that no number becomes subnormal or
    too large; ``axis`` is that of k."""
    mantissa = _MANTISSA_BITS[dtype]
    bits = magnitude_bits(values)
    others = tuple(i for i in range(values.ndim) if i != values.ndim + axis)
    top = int(magnitude_bits(np.array([dtype.maximum], numpy_dtype(dtype)))[0]) >> mantissa
    # A carry into the top field of e4m3 could meet its NaN.
    top -= dtype is E4M3
    largest = bits.max(axis=others) >> mantissa
    smallest = np.where(bits == 0, np.iinfo(bits.dtype).max, bits).min(axis=others) >> mantissa
    least, most = (1 - smallest.astype(np.int64)), (top - largest.astype(np.int64))
    fixed = (smallest == 0) | (most < 0)
    return np.where(fixed, 0, np.minimum(least, 0)), np.where(fixed, 0, most)


def _spread(low: Powers, high: Powers) -> Powers:
    """A power for each k within its limits, alternating between both ends and values in between, so
    that neighbours are far apart."""
    share = np.resize(np.array([0.0, 1.0, 0.4, 0.9, 0.1, 0.6]), low.shape)
    return cast(Powers, low + np.rint(share * (high - low)).astype(np.int64))


def _times_power(values: Array, powers: Powers, dtype: DType) -> Array:
    """`values` · 2**`powers`, by their exponent fields; zeros stay."""
    bits = values.view(f"u{values.dtype.itemsize}")
    added = (powers << _MANTISSA_BITS[dtype]).astype(bits.dtype)  # Modulo 2**bits: also negative.
    return np.where(magnitude_bits(values) == 0, bits, bits + added).view(values.dtype)


def is_homogeneous(operation: Operation) -> bool:
    """Whether scaling the product by a power of two scales the result by it too."""
    s = operation.signature
    return s.beta == 0 and set(s.epilogue) <= {EpilogueStep.RELU}


def subnormal(operation: Operation, case: ExactCase) -> ExactCase | None:
    """The exact `case` with every second column of A, and the rows of B in between, as far below
    the smallest normal number of the format as possible, and the other factor correspondingly
    large. None where neither side has room, or for formats with 8 exponent bits, which may be
    flushed."""
    s = operation.signature
    lhs, rhs = operation.inputs[:2]
    if not _is_finite(case):
        return None
    if not is_homogeneous(operation) or not {F16, E4M3, E5M2}.issuperset((lhs.dtype, rhs.dtype)):
        return None
    _, up = _sizes_and_room(operation, case)
    # Integers times the smallest subnormal number are exact, whatever their size.
    down = [round(-math.log2(smallest_subnormal(d.dtype))) for d in (lhs, rhs)]
    up = [min(up[0], down[1]), min(up[1], down[0])]
    values = np.abs(to_float64(case.value))
    # Powers of two by which the result may be divided so that it stays normal.
    least = float(np.min(values, where=values > 0, initial=1.0))
    room = math.floor(math.log2(least) - math.log2(smallest_normal(s.result)))
    total = max(up[1] - down[0], up[0] - down[1], -room)
    for_a = (total - up[1], up[0])
    for_b = (up[1], total - up[0])
    below = [round(math.log2(smallest_normal(d.dtype))) for d in (lhs, rhs)]
    if for_a[0] >= below[0] and for_b[1] >= below[1]:
        return None
    a = _scaled(case.inputs[0], lhs, np.array(for_a), axis=-1)
    b = _scaled(case.inputs[1], rhs, np.array(for_b), axis=-2)
    return _shifted(operation, case, (a, b, *case.inputs[2:]), np.float64(total))


def _sizes_and_room(operation: Operation, case: ExactCase) -> tuple[list[float], list[int]]:
    """The largest magnitudes of A and B, and the powers of two by which each may be multiplied."""
    sizes = [max(map(abs, finite_range(array))) for array in case.inputs[:2]]
    pairs = zip(operation.inputs, sizes, strict=False)
    return sizes, [math.floor(math.log2(spec.dtype.maximum / size)) for spec, size in pairs]


def _is_finite(case: ExactCase) -> bool:
    """Whether the result of `case` is finite, where every bit of it is known."""
    return case.expected is None or bool(np.isfinite(to_float64(case.expected)).all())


def overflowing(operation: Operation, case: ExactCase) -> ExactCase | None:
    """The exact `case` with some rows of A so large that their results overflow the format, with
    either sign, between unchanged rows. None where the accumulator's range does not exceed that of
    the result, or where something is added to the product."""
    s = operation.signature
    if not is_homogeneous(operation) or s.scaling is not Scaling.NONE or s.alpha != 1:
        return None
    lhs, rhs = operation.inputs[:2]
    if len(lhs.shape) > 3 or s.result not in (F16, E4M3, E5M2) or not _is_finite(case):
        return None
    sizes, up = _sizes_and_room(operation, case)
    # B is the same for all rows: the unchanged rows are divided by its factor.
    for_b = min(up[1], round(-math.log2(smallest_normal(lhs.dtype))))
    if for_b < 0:
        return None
    if s.accumulator.maximum < math.prod(sizes) * operation.matmul_shape.k * 2.0 ** (up[0] + for_b):
        return None
    powers = np.array([-for_b, up[0]])
    rows = np.resize(powers, lhs.shape[-2])[:, np.newaxis]
    a = _scaled(case.inputs[0], lhs, powers, axis=-2)
    b = _scaled(case.inputs[1], rhs, np.array([for_b]), axis=-1)
    shifted = _shifted(operation, case, (a, b, *case.inputs[2:]), rows + np.float64(for_b))
    is_beyond = not _is_finite(shifted)
    if shifted.reference is not None:
        values = np.abs(to_float64(shifted.reference.value))
        is_beyond = bool((values > 2 * s.result.maximum).any())
    return shifted if is_beyond else None


def _scaled(array: Array, spec: TensorSpec, powers: Powers, *, axis: int) -> Array:
    """`array` (in storage shape) times powers of two that are cycled along an axis of its logical
    shape."""
    values = to_float64(to_logical(array, spec))
    cycled = np.resize(powers, values.shape[axis]).astype(np.float64)
    factors = np.exp2(cycled if axis == -1 else cycled[:, np.newaxis])
    return to_storage(quantize(values * factors, spec.dtype), spec)


def _shifted(
    operation: Operation,
    case: ExactCase,
    inputs: tuple[Array, ...],
    powers: Float64Array | np.float64,
) -> ExactCase:
    """`case` with other inputs, whose product is multiplied by 2**`powers`. A result that stays
    normal is rounded as before."""
    factor = np.exp2(powers)
    if case.expected is not None:
        wide = to_float64(case.expected) * factor
        return replace(case, inputs=inputs, expected=quantize(wide, operation.signature.result))
    assert case.reference is not None
    scaled = replace(case.reference.of(lambda array: to_float64(array) * factor), sizes=None)
    return replace(case, inputs=inputs, reference=scaled)


WIDEST_PRODUCT = 30
"""Powers of two, up and down, of a product of two scale factors where the result has room: f16 ends
at 2^16 and 2^-24."""

WIDEST_FACTOR = 20
"""Additional powers of two by which one factor is large and the other small, so that both are
outside the range of f16."""

_REACH_OF_E4M3 = 5
"""Powers of two of a factor in e4m3, whose normal numbers are 2^-6 to 448."""

_SUMS = frozenset({EpilogueStep.BIAS, EpilogueStep.RESIDUAL, EpilogueStep.GELU})


def scaled(
    operation: Operation, seed: int, matmul: Matmul, round_once: bool = True
) -> ExactCase | None:
    """The integers of :func:`gemmetry.verification.inputs.exact.integers` with scale factors of
    either sign that use every bit of f32 and differ from their neighbours. Factors, and products of
    two, span the range that the formats of result and accumulator allow. Factors of blocks are
    applied to a selection of A's integers, as sums over several blocks would round. None for
    operations without scale factors."""
    if operation.signature.blocks is not None:
        return _scaled_blocks(operation, seed, matmul)
    if operation.signature.scaling is Scaling.NONE or exact_integer_limit(operation) == 0:
        return None
    inputs = make_inputs(operation, distribution="integers", seed=seed)
    product = exact_product(operation, inputs, matmul)
    return case_of(operation, _with_factors(operation, inputs, product, seed), matmul, False)


def _with_factors(
    operation: Operation, inputs: Sequence[Array], product: Floats, seed: int
) -> tuple[Array, ...]:
    return tuple(
        _factors(operation, spec, product, seed) if spec.role.startswith("scale_") else array
        for spec, array in zip(operation.inputs, inputs, strict=True)
    )


def _scaled_blocks(operation: Operation, seed: int, matmul: Matmul) -> ExactCase | None:
    """A selection of A whose factors of blocks use every bit: the sum of a few products may
    round."""
    found = selecting_inputs(operation, seed, codes="lhs")
    if found is None:
        return None
    unscaled = [
        np.ones_like(array) if spec.role.startswith("scale_") else absolute(array)
        for spec, array in zip(operation.inputs, found[0], strict=True)
    ]
    product = selected(operation, unscaled, matmul, codes="lhs")
    inputs = _with_factors(operation, found[0], product, seed)
    product, magnitude = (
        to_float64(selected(operation, given, matmul, codes="lhs", rounds=True))
        for given in (inputs, [absolute(array) for array in inputs])
    )
    reference = with_epilogue(operation, product, magnitude, logical_tensors(operation, inputs))
    m, n, k, _ = operation.matmul_shape
    return ExactCase(inputs, None, reference, 4 + -(-k // min(m, n)))


def _factors(operation: Operation, spec: TensorSpec, product: Floats, seed: int) -> Array:
    s, is_first = operation.signature, spec.role == "scale_a"
    low, high = _factors_room(s.result, product, max(1.0, abs(s.alpha)))
    middle, half = (low + high) // 2, (high - low) // 2
    # Sums of a power of A and one of B range from `low` to `high`; a single pair is at `low`.
    reach = half // 2 if is_first else half - half // 2
    apart = WIDEST_FACTOR if s.accumulator.maximum > 2.0**100 else 0
    if spec.dtype is E4M3:
        reach, apart, middle = min(reach, _REACH_OF_E4M3), 0, 0
    center = middle + apart if is_first else -apart
    powers = np.resize(center + np.array([-reach, reach, 0]), spec.storage_shape)
    rng = np.random.default_rng([seed % 2**64, is_first, *spec.shape])
    signs = np.resize([-1.0, 1.0] if is_first else [1.0, 1.0, -1.0], spec.storage_shape)
    significands = rng.uniform(1, 2, spec.storage_shape)
    if spec.dtype is not F32:
        signs = np.abs(signs)  # Factors of 8 bits have no sign, and those of e8m0 no significand.
        significands = np.ones_like(signs) if spec.dtype is E8M0 else significands
    return quantize(np.ldexp(signs * significands, powers), spec.dtype)


def _factors_room(result: DType, product: Floats, alpha: float) -> tuple[int, int]:
    """The smallest and the largest power of two of a product of two factors, each below 2, so that
    `product` stays normal and finite in the format of the result; finiteness has priority."""
    largest = float(np.abs(product).max(initial=1.0)) * alpha * 4
    high = min(math.floor(math.log2(result.maximum / largest)), WIDEST_PRODUCT)
    low = math.ceil(math.log2(smallest_normal(result)))
    return min(max(low, -WIDEST_PRODUCT), high), high


def cancelled(
    operation: Operation, seed: int, matmul: Matmul, round_once: bool = True
) -> ExactCase | None:
    """Integers, and a C that is the negative product rounded to the format of the result: the
    remainder of alpha·A·B + beta·C is exactly what rounding the product would lose. None where
    nothing is added, or only after a further sum, and where the format loses nothing."""
    s = operation.signature
    is_integer, bits = s.lhs.is_integer, s.accumulator.significand_bits
    if is_integer or 0 in (s.alpha, s.beta) or s.result.significand_bits >= bits:
        return None
    if not _SUMS.isdisjoint(s.epilogue) or exact_integer_limit(operation) == 0:
        return None
    inputs = list(make_inputs(operation, distribution="integers", seed=seed))
    due = _scaled_product(operation, inputs, matmul)
    # C follows A and B.
    addend = _rounded(-due / s.beta, s.result)
    inputs[2] = to_storage(addend, operation.inputs[2])
    if not np.any(due + s.beta * to_float64(addend)):
        return None
    case = case_of(operation, tuple(inputs), matmul, False)
    assert case.reference is not None
    # Nothing but the result is rounded to its format.
    return replace(case, reference=replace(case.reference, extra_rounding=None))


def added_late(operation: Operation, inputs: Sequence[Array], matmul: Matmul) -> Array:
    """The result, in its format and logical shape, of two kernels: the first stores alpha·A·B, the
    second adds beta·C."""
    s, tensors = operation.signature, logical_tensors(operation, inputs)
    stored = _rounded(_scaled_product(operation, inputs, matmul), s.result)
    sums = to_float64(stored) + s.beta * to_float64(tensors["addend"])
    return _rounded(np.maximum(sums, 0) if EpilogueStep.RELU in s.epilogue else sums, s.result)


def _scaled_product(operation: Operation, inputs: Sequence[Array], matmul: Matmul) -> Float64Array:
    """alpha·A·B of integers, with the scale factors, in logical shape."""
    tensors = logical_tensors(operation, inputs)
    product = to_float64(exact_product(operation, inputs, matmul)) * operation.signature.alpha
    for factor in scales_of_result(operation, tensors):
        product = product * factor
    return product


def _rounded(values: Float64Array, dtype: DType) -> Array:
    """The values in `dtype`; zero where it cannot represent them."""
    return quantize(np.where(np.abs(values) <= dtype.maximum, values, 0.0), dtype)
