"""Inputs with which a product copies numbers: one operand holds ones, so that the result shows
every bit of the other operand's numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import numpy as np

from gemmetry.domain.operation import (
    BF16,
    F32,
    F64,
    TF32,
    Conv2dShape,
    EpilogueStep,
    MatmulShape,
    Operation,
    Scaling,
    TensorSpec,
)
from gemmetry.numerics.bounds import rounds_once
from gemmetry.numerics.references import (
    Matmul,
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
    numpy_dtype,
    quantize,
    smallest_normal,
    to_float32,
    to_float64,
)
from gemmetry.verification.inputs.exact import (
    ExactCase,
    exact_case,
    line_axis,
    other_operands,
    random_integers,
)

SPREAD = (17, -20)
"""Powers of two, up and down, that lines of a selection are scaled by in formats with 8 exponent
bits or more: 2¹⁷ is beyond float16 (65504), and of a number at 2⁻²⁰ float16 keeps 4 bits. Other
formats are scaled over their whole range, so that every exponent of normal numbers is used."""

_LARGEST_SCALE = 4.0
"""The largest product of two scale factors of :func:`gemmetry.numerics.inputs.make_inputs`."""

_FEWEST_LINES = 4
"""Least number of rows of A or columns of B at which one of them is cleared."""

_HIDDEN_BITS = 20
"""Significand bits of a result that remain correct after a few roundings in f32."""

_WIDE_EXPONENTS = frozenset({F64, F32, TF32, BF16})


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
    return exact_case(operation, inputs, product, round_once, partial, ones)


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
    arrays = other_operands(operation, seed + 1)
    specs = {spec.role: spec for spec in operation.inputs}
    selecting = "rhs" if codes == "lhs" else "lhs"
    if nudged_by is not None:
        close = _close_codes(operation, specs[codes], limit, seed, nudged_by)
        if close is None:
            return None
        arrays[codes] = close
    else:
        scales = _line_scales(operation, specs[codes], limit, ones)
        arrays[codes] = random_integers(specs[codes], limit, seed, scales)
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


def _clear_line(codes: Array, spec: TensorSpec) -> None:
    """Set the middle row of A, or column of B, to zero."""
    lines = np.moveaxis(to_logical(codes, spec), line_axis(spec), 0)
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
