"""Inputs whose sums are all exact, so that every bit of the result is known.

Random inputs prove little about precision: rounding to tf32, a 16-bit accumulator or a lost product
hide among legitimate rounding errors as K grows. With small integers no partial sum rounds in any
order, so any difference from the expectation is a bug or another arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from gemmetry.domain.dtypes import BF16, F32, F64, TF32, DType
from gemmetry.domain.operation import (
    Conv2dShape,
    EpilogueStep,
    MatmulShape,
    Operation,
    Scaling,
    TensorSpec,
)
from gemmetry.numerics.bounds import is_power_of_two_or_zero, rounds_once
from gemmetry.numerics.inputs import exact_integer_limit, make_inputs
from gemmetry.numerics.references import (
    Matmul,
    Reference,
    apply_epilogue,
    exact_product,
    factors_of_product,
    logical_tensors,
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
    numpy_dtype,
    quantize,
    smallest_normal,
    to_float32,
    to_float64,
)


@dataclass(frozen=True, slots=True)
class ExactCase:
    """Inputs in storage shapes, and the expected result."""

    inputs: tuple[Array, ...]
    expected: Array | None
    """The result itself, in its format and logical shape, where every bit of it is known."""
    reference: Reference | None
    """Otherwise the reference to compare with. Its magnitude is |A·B|, not |A||B|: as sums are
    exact, only the epilogue's roundings count, and they are relative to the rounded values. With
    `folded_terms` it is the largest possible partial sum."""
    folded_terms: int = 0
    """Number of terms of a sum that is rounded if a kernel multiplies an operand by alpha or a
    scale factor, or begins the sum with beta·C; 0 where the sums of such kernels are exact too."""

    @property
    def nbytes(self) -> int:
        kept = sum(array.nbytes for array in self.inputs)
        kept += 0 if self.expected is None else self.expected.nbytes
        return kept + (0 if self.reference is None else self.reference.nbytes)


ExactInputs = Callable[[Operation, int, Matmul, bool], ExactCase | None]
"""(operation, seed, matmul, round_once) -> a case, or None where the operation has no exact inputs.
With `round_once` every bit of the expectation is known where the operation allows it; without it,
there is always a reference (for stochastically rounded results)."""

LADDER = (1, 3, 16)
"""Magnitudes of integers below the largest exact one: measured on emulations at K = 4096, ±3 passes
a float16 accumulator and inputs cast to fp8, ±16 shows the first, the largest shows both."""

SPREAD = (17, -20)
"""Powers of two, up and down, that lines of a selection are scaled by in formats with 8 exponent
bits or more: 2¹⁷ is beyond float16 (65504), and of a number at 2⁻²⁰ float16 keeps 4 bits. Other
formats are scaled over their whole range, so that every exponent of normal numbers is used."""

_LARGE = 120
"""Least magnitude in the rows of A and columns of B of s8 that hold large numbers: float32 sums of
their products are no longer exact from K = 1100 on (120 to 127 are 123.5 on average, squared). Up
to K = 1024 those of any s8 numbers are."""

_LARGEST_SCALE = 4.0
"""The largest product of two scale factors of :func:`gemmetry.numerics.inputs.make_inputs`."""

_MOST_STEPS = 16
"""Largest ratio of C to the unit of the product's sums: four bits of the accumulator that
:func:`gemmetry.numerics.inputs.exact_integer_limit` leaves free, except in the rarest sums."""

_FEWEST_LINES = 4
"""Least number of rows of A or columns of B at which one of them is cleared."""

PROMOTED = (5, 8)
"""Limits of the numbers of :func:`promoted`: 128·8² is 2¹³, and all fp8 formats can represent
them."""

_SPAN_OF_BLOCKS = 64
"""Ratio of the largest to the smallest product of two scale factors of
:func:`gemmetry.numerics.inputs.make_inputs`."""

_HIDDEN_BITS = 20
"""Significand bits of a result that remain correct after a few roundings in f32."""

_WIDE_EXPONENTS = frozenset({F64, F32, TF32, BF16})


def integers(
    operation: Operation, seed: int, matmul: Matmul, round_once: bool = True
) -> ExactCase | None:
    """Every operand uniform in ±[1, r] with the largest exact r
    (:func:`gemmetry.numerics.inputs.exact_integer_limit`); None where even ±1 is not exact. For s8
    some lines of A and B are large and have one sign (:func:`_to_the_ends`)."""
    if exact_integer_limit(operation) == 0:
        return None
    inputs = make_inputs(operation, distribution="integers", seed=seed)
    if operation.signature.lhs.is_integer:
        inputs = _to_the_ends(operation, inputs)
    return case_of(operation, inputs, matmul, round_once)


def integers_up_to(
    limit: int, operation: Operation, seed: int, matmul: Matmul, round_once: bool = True
) -> ExactCase | None:
    """Like :func:`integers` with A and B in ±[1, limit]; None where that is not exact."""
    if limit > exact_integer_limit(operation):
        return None
    arrays = _others(operation, seed)
    for spec in operation.inputs[:2]:
        arrays[spec.role] = _codes(spec, limit, seed)
    inputs = tuple(arrays[spec.role] for spec in operation.inputs)
    return case_of(operation, inputs, matmul, round_once)


def promoted(
    operation: Operation, seed: int, matmul: Matmul, round_once: bool = True
) -> ExactCase | None:
    """Positive fp8 numbers whose whole sum needs more than the 14 bits that Hopper's fp8 sums keep,
    while sums of 128 products, after which a kernel must move them to the accumulator, need no more
    (sources in :mod:`gemmetry.numerics.accumulation`). None where they do not apply."""
    s = operation.signature
    low, high = PROMOTED
    k = operation.matmul_shape.k
    # Sums of blocks, which have factors from 1/16 to 4, are exact in 24 bits of that range.
    largest = high**2 * k * max(1.0, abs(s.alpha)) * (1 if s.blocks is None else _SPAN_OF_BLOCKS)
    if not (s.lhs.is_fp8 and s.rhs.is_fp8) or s.accumulator.significand_bits < 24:
        return None
    typical = ((low + high) / 2) ** 2 * k
    if typical < 2**15 or largest > min(s.result.maximum, 2**24):
        return None
    arrays = _others(operation, seed)
    for spec in operation.inputs[:2]:
        entropy = [seed % 2**64, spec.role == "lhs", *spec.shape]
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))
        values = rng.integers(low, high, spec.storage_shape, dtype=np.int32, endpoint=True)
        arrays[spec.role] = quantize(values.astype(np.float32), spec.dtype)
    inputs = tuple(arrays[spec.role] for spec in operation.inputs)
    return _case(operation, inputs, exact_product(operation, inputs, matmul), round_once)


def selects_lhs(
    operation: Operation, seed: int, matmul: Matmul, round_once: bool = True
) -> ExactCase | None:
    """B holds one 1 per column, so the result is a copy of elements of A that use every bit of the
    format, which exposes elements that were read from elsewhere or rounded on the way. Where K > N
    a column has ⌈K/N⌉ ones, so that every k is used, and A's integers are smaller by that factor.
    As far as the formats have the range, every third row is large and every third small
    (:data:`SPREAD`), and one row is zero, so that a division by the largest number of a row gives
    NaN there."""
    return _selection(operation, seed, matmul, round_once, codes="lhs")


def selects_rhs(
    operation: Operation, seed: int, matmul: Matmul, round_once: bool = True
) -> ExactCase | None:
    """The same with the parts of A and B exchanged; for a convolution, every pixel of the input
    has one channel that is 1."""
    return _selection(operation, seed, matmul, round_once, codes="rhs")


def nudged(
    codes: str,
    by: int,
    operation: Operation,
    seed: int,
    matmul: Matmul,
    round_once: bool = True,
) -> ExactCase | None:
    """A selection of `codes` ("lhs" or "rhs") with numbers of similar magnitude, which are all a
    little larger with `by` 1 than with 0: by one unit in the last place of the format, or of the
    result where that has fewer bits; by sixteen of f32 where further roundings would hide one. None
    where formats leave no room."""
    return _selection(operation, seed, matmul, round_once, codes=codes, nudged_by=by)


def _selection(
    operation: Operation,
    seed: int,
    matmul: Matmul,
    round_once: bool,
    *,
    codes: str,
    nudged_by: int | None = None,
) -> ExactCase | None:
    found = selecting_inputs(operation, seed, codes=codes, nudged_by=nudged_by)
    if found is None:
        return None
    inputs, ones = found
    product = selected(operation, inputs, matmul, codes=codes)

    def sum_of_magnitudes(operation: Operation, given: Sequence[Array]) -> Floats:
        return selected(operation, [absolute(array) for array in given], matmul, codes=codes)

    partial = sum_of_magnitudes if ones > 1 else None
    return _case(operation, inputs, product, round_once, partial, ones)


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
    arrays = _others(operation, seed + 1)
    specs = {spec.role: spec for spec in operation.inputs}
    selecting = "rhs" if codes == "lhs" else "lhs"
    if nudged_by is not None:
        close = _close_codes(operation, specs[codes], limit, seed, nudged_by)
        if close is None:
            return None
        arrays[codes] = close
    else:
        scales = _line_scales(operation, specs[codes], limit, ones)
        arrays[codes] = _codes(specs[codes], limit, seed, scales)
        if not (isinstance(operation.shape, Conv2dShape) and codes == "lhs"):
            _clear_line(arrays[codes], specs[codes])
    arrays[selecting] = _ones(operation, specs[selecting])
    return tuple(arrays[spec.role] for spec in operation.inputs), ones


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


_Magnitude = Callable[[Operation, Sequence[Array]], Floats | float]


def case_of(
    operation: Operation, inputs: tuple[Array, ...], matmul: Matmul, round_once: bool = True
) -> ExactCase:
    """The case of integers of either sign on which no sum rounds."""
    product = exact_product(operation, inputs, matmul)
    return _case(operation, inputs, product, round_once, _largest_partial_sum)


def summed_selection(
    operation: Operation, inputs: tuple[Array, ...], matmul: Matmul, *, codes: str
) -> ExactCase:
    """The case of a selection of `codes` whose factors of blocks use every bit: the sum of a few
    products may round."""
    product = to_float64(selected(operation, inputs, matmul, codes=codes, rounds=True))
    sizes = [absolute(array) for array in inputs]
    magnitude = to_float64(selected(operation, sizes, matmul, codes=codes, rounds=True))
    reference = with_epilogue(operation, product, magnitude, logical_tensors(operation, inputs))
    m, n, k, _ = operation.matmul_shape
    return ExactCase(inputs, None, reference, 4 + -(-k // min(m, n)))


def _case(
    operation: Operation,
    inputs: tuple[Array, ...],
    product: Floats,
    round_once: bool,
    largest_partial: _Magnitude | None = None,
    terms: int = 0,
) -> ExactCase:
    """The case of `inputs`, whose product is exact in the accumulator.

    Args:
        largest_partial: the largest partial sum of `product`; None: no partial sum exceeds it.
        terms: number of terms of such a sum; 0: K.
    """
    tensors = logical_tensors(operation, inputs)
    s = operation.signature
    if s.lhs.is_integer or (round_once and rounds_once(operation)):
        if s.alpha == 1 and s.accumulator.significand_bits in range(1, 25):
            # One rounding from float32 is several times faster than from float64.
            product = product.astype(np.float32, copy=False)
        value = apply_epilogue(operation, cast(Float64Array, product), tensors)
        return ExactCase(inputs, quantize(value, s.result), None)
    wide = to_float64(product)
    magnitude = np.abs(wide)
    folded_terms = 0
    if not _folds_exactly(operation, tensors):
        folded_terms = terms or operation.matmul_shape.k
        if largest_partial is not None:
            magnitude = np.maximum(magnitude, largest_partial(operation, inputs))
    reference = with_epilogue(operation, wide, magnitude, tensors)
    if s.epilogue == (EpilogueStep.GELU,) and len(inputs) == 2 and s.alpha == 1:
        reference = _without_idle_rounding(reference, wide, s.result)
    return ExactCase(inputs, None, reference, folded_terms)


def _folds_exactly(operation: Operation, tensors: Mapping[str, Array]) -> bool:
    """Whether sums of products of integers, times powers of two, stay exact where factors are
    multiplied into A or B, and where they begin with beta·C: factors are powers of two, and beta·C
    is a small multiple of the sum's unit."""
    s = operation.signature
    for role in ("scale_a", "scale_b"):
        if role in tensors and (np.frexp(np.abs(to_float64(tensors[role])))[0] != 0.5).any():
            return False
    if not is_power_of_two_or_zero(s.alpha):
        return False
    if s.alpha == 0 or s.beta == 0:
        return True
    steps = s.beta / s.alpha
    return steps.is_integer() and abs(steps) <= _MOST_STEPS


def _largest_partial_sum(operation: Operation, inputs: Sequence[Array]) -> float:
    """The largest partial sum of K products of integers with random signs, in any order: a random
    walk, below 8√K·max|A|·max|B| except with probability 2·exp(-32) each (Hoeffding's
    inequality)."""
    k = operation.matmul_shape.k
    largest = [max(map(abs, finite_range(array))) for array in inputs[:2]]
    return min(float(k), 8.0 * math.sqrt(k)) * largest[0] * largest[1]


def _without_idle_rounding(reference: Reference, product: Float64Array, dtype: DType) -> Reference:
    """`reference` without an allowance for rounding `product` to `dtype` where the product is
    representable: that allowance would hide gelu by tanh in 16 bits."""
    assert reference.extra_rounding is not None
    is_kept = to_float64(quantize(product, dtype)) == product
    return replace(reference, extra_rounding=np.where(is_kept, 0.0, reference.extra_rounding))


def _others(operation: Operation, seed: int) -> dict[str, Array]:
    """Integers for the operands other than A and B, by role."""
    if len(operation.inputs) == 2:
        return {}
    made = make_inputs(operation, distribution="integers", seed=seed)
    return {spec.role: array for spec, array in zip(operation.inputs, made, strict=True)}


def _codes(spec: TensorSpec, limit: int, seed: int, scales: Float64Array | None = None) -> Array:
    """Integers in ±[1, limit], times `scales` (powers of two, in logical shape)."""
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed % 2**64, *spec.shape])))
    drawn = np.int32 if limit < 2**31 else np.int64
    values = rng.integers(-limit, limit, spec.storage_shape, dtype=drawn)
    values += values >= 0
    wide = np.float32 if limit <= 2**24 else np.float64
    codes: Floats = values.astype(wide)
    if scales is not None:
        logical = to_logical(codes, spec)
        np.multiply(logical, scales.astype(wide), out=logical)
    return quantize(codes, spec.dtype)


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
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed % 2**64, *spec.shape])))
    steps = rng.integers(top // (4 * step), top // (2 * step), spec.storage_shape)
    values = (2 * steps + by) * step * rng.choice(np.array([-1, 1]), spec.storage_shape)
    return quantize(values.astype(np.float64), spec.dtype)


def _to_the_ends(operation: Operation, inputs: tuple[Array, ...]) -> tuple[Array, ...]:
    """s8 inputs with large positive numbers in every third row of A and column of B, and large
    negative ones and -128 in every third: sums then need all bits of s32 that K leaves room for,
    pairs of products more than 16, and -128 has no counterpart to be negated to."""
    if operation.matmul_shape.k * 128**2 + 3 * 127 > 2**31 - 1:
        return inputs
    changed = list(inputs)
    for i, spec in enumerate(operation.inputs[:2]):
        values = to_logical(inputs[i], spec).astype(np.int16)
        large = _LARGE + np.abs(values) % (128 - _LARGE)
        lowest = np.where(values > 0, -128, -large)
        kind = np.arange(spec.shape[_line_axis(spec)]) % 3
        kind = kind[:, np.newaxis] if spec.role == "lhs" else kind
        values = np.select([kind == 1, kind == 2], [large, lowest], values)
        changed[i] = to_storage(values.astype(inputs[i].dtype), spec)
    return tuple(changed)


def _line_axis(spec: TensorSpec) -> int:
    """The axes along which rows of A and columns of B are counted."""
    return -2 if spec.role == "lhs" else -1


def _clear_line(codes: Array, spec: TensorSpec) -> None:
    """Set the middle row of A, or column of B, to zero."""
    lines = np.moveaxis(to_logical(codes, spec), _line_axis(spec), 0)
    if lines.shape[0] >= _FEWEST_LINES:
        lines[lines.shape[0] // 2] = 0


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
    is_line_of_a = spec.role == "lhs"
    is_added_to = s.beta != 0 or not {EpilogueStep.BIAS, EpilogueStep.RESIDUAL}.isdisjoint(
        s.epilogue
    )
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
        room = min(
            spec.dtype.maximum, s.accumulator.maximum / ones, s.result.maximum / ones / factor
        )
        smallest = max(smallest_normal(dtype) for dtype in (spec.dtype, s.accumulator, s.result))
        up = max(0, min(SPREAD[0], math.floor(math.log2(room / limit))))
        down = max(SPREAD[1], round(math.log2(smallest))) if is_plain else 0
    lines = np.arange(spec.shape[_line_axis(spec)])
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
        matrices = logical.reshape(-1, *_matrix_shape(spec))
        rows, columns = matrices.shape[1:]
        steps = np.arange(max(rows, columns))
        # The shift by the matrix's index distinguishes the matrices of a batch.
        shifts = np.arange(matrices.shape[0])[:, np.newaxis]
        along_k = steps + shifts
        if spec.role == "rhs":
            matrices[shifts, along_k % rows, steps % columns] = one
        else:
            matrices[shifts, steps % rows, along_k % columns] = one
    return to_storage(logical, spec)


def _matrix_shape(spec: TensorSpec) -> tuple[int, int]:
    """(K, N) of a filter in its implicit GEMM, else the last two axes."""
    if len(spec.shape) == 4:
        return math.prod(spec.shape[:-1]), spec.shape[-1]
    return spec.shape[-2], spec.shape[-1]


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
    taken = np.stack(
        [np.take(one, (steps + index) % shape.k, axis) for index, one in enumerate(matrices)]
    )
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
