"""Inputs whose every sum is exact, so that the whole result is known to the bit.

Random inputs prove little about precision: rounding to tf32, a 16-bit accumulator or a lost
product hide among honest rounding errors as K grows. With small integers no partial sum rounds
in any order, so whatever differs from the expectation is a bug or another arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np

from gemmetry.domain.operation import Conv2dShape, MatmulShape, Operation, TensorSpec
from gemmetry.numerics.bounds import rounds_once
from gemmetry.numerics.inputs import exact_integer_limit, make_inputs
from gemmetry.numerics.references import (
    Matmul,
    Reference,
    apply_epilogue,
    exact_product,
    logical_tensors,
    to_storage,
    with_epilogue,
)
from gemmetry.numerics.storage import Array, Float64Array, quantize, to_float64


@dataclass(frozen=True, slots=True)
class ExactCase:
    """Inputs in storage shapes, and what must come out."""

    inputs: tuple[Array, ...]
    expected: Array | None
    """The result itself, in its format and logical shape, where it is known to the bit."""
    reference: Reference | None
    """Otherwise what to compare with. Its magnitude is |A·B|, not |A||B|: as sums are exact, only
    the epilogue's roundings count, and they are relative to what they round."""

    @property
    def nbytes(self) -> int:
        kept = sum(array.nbytes for array in self.inputs)
        kept += 0 if self.expected is None else self.expected.nbytes
        return kept + (0 if self.reference is None else self.reference.nbytes)


ExactInputs = Callable[[Operation, int, Matmul], ExactCase | None]
"""(operation, seed, matmul) -> a case, or None where the operation has no exact inputs."""


def integers(operation: Operation, seed: int, matmul: Matmul) -> ExactCase | None:
    """Every operand uniform in ±[1, r] with the largest exact r
    (:func:`gemmetry.numerics.inputs.exact_integer_limit`); None where even ±1 is not exact."""
    if exact_integer_limit(operation) == 0:
        return None
    inputs = make_inputs(operation, distribution="integers", seed=seed)
    return _case(operation, inputs, exact_product(operation, inputs, matmul))


def selects_lhs(operation: Operation, seed: int, matmul: Matmul) -> ExactCase | None:
    """B holds one 1 a column, so the result is a copy of elements of A that use every bit of the
    format: an element read from elsewhere, or rounded on the way, shows. Where K > N a column has
    ⌈K/N⌉ ones, so that every k is used, and A's integers are smaller by that factor."""
    return _selection(operation, seed, matmul, codes="lhs")


def selects_rhs(operation: Operation, seed: int, matmul: Matmul) -> ExactCase | None:
    """The same with the parts of A and B exchanged; for a convolution, every pixel of the input
    has one channel that is 1."""
    return _selection(operation, seed, matmul, codes="rhs")


def _selection(operation: Operation, seed: int, matmul: Matmul, *, codes: str) -> ExactCase | None:
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
    base = make_inputs(operation, distribution="integers", seed=seed + 1)
    arrays = {spec.role: array for spec, array in zip(operation.inputs, base, strict=True)}
    specs = {spec.role: spec for spec in operation.inputs}
    selecting = "rhs" if codes == "lhs" else "lhs"
    arrays[codes] = _codes(specs[codes], limit, seed)
    arrays[selecting] = _ones(operation, specs[selecting])
    inputs = tuple(arrays[spec.role] for spec in operation.inputs)
    if isinstance(operation.shape, Conv2dShape):
        return _case(operation, inputs, exact_product(operation, inputs, matmul))
    gathered_from = logical_tensors(operation, inputs)[codes]
    return _case(operation, inputs, _gathered(operation.shape, to_float64(gathered_from), codes))


def _case(operation: Operation, inputs: tuple[Array, ...], product: Float64Array) -> ExactCase:
    tensors = logical_tensors(operation, inputs)
    if operation.signature.lhs.is_integer or rounds_once(operation):
        value = apply_epilogue(operation, product, tensors)
        return ExactCase(inputs, quantize(value, operation.signature.result), None)
    reference = with_epilogue(operation, product, np.abs(product), tensors)
    return ExactCase(inputs, None, reference)


def _codes(spec: TensorSpec, limit: int, seed: int) -> Array:
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed % 2**64, *spec.shape])))
    values = rng.integers(-limit, limit, spec.storage_shape, dtype=np.int64)
    values += values >= 0
    return quantize(values.astype(np.float64), spec.dtype)


def _ones(operation: Operation, spec: TensorSpec) -> Array:
    """Zeros and ones, one on each diagonal step, such that every row and column has a one."""
    logical = np.zeros(spec.shape, dtype=np.float64)
    if isinstance(operation.shape, Conv2dShape) and spec.role == "lhs":
        pixels = np.indices(spec.shape[:-1]).sum(axis=0)
        np.put_along_axis(logical, (pixels % spec.shape[-1])[..., np.newaxis], 1.0, axis=-1)
    else:
        matrices = logical.reshape(-1, *_matrix_shape(spec))
        rows, columns = matrices.shape[1:]
        steps = np.arange(max(rows, columns))
        # The shift by the matrix's own number tells the members of a batch apart.
        shifts = np.arange(matrices.shape[0])[:, np.newaxis]
        along_k = steps + shifts
        if spec.role == "rhs":
            matrices[shifts, along_k % rows, steps % columns] = 1.0
        else:
            matrices[shifts, steps % rows, along_k % columns] = 1.0
    return to_storage(quantize(logical, spec.dtype), spec)


def _matrix_shape(spec: TensorSpec) -> tuple[int, int]:
    """(K, N) of a filter as its implicit GEMM sees it, else the last two axes."""
    if len(spec.shape) == 4:
        return math.prod(spec.shape[:-1]), spec.shape[-1]
    return spec.shape[-2], spec.shape[-1]


def _gathered(shape: MatmulShape, codes: Float64Array, role: str) -> Float64Array:
    """The product with :func:`_ones`, without multiplying: gather along K, then add in groups."""
    if role == "rhs":
        transposed = shape._replace(m=shape.n, n=shape.m)
        product = _gathered(transposed, np.swapaxes(codes, -1, -2), "lhs")
        return np.ascontiguousarray(np.swapaxes(product, -1, -2))
    matrices = codes.reshape(-1, shape.m, shape.k)
    steps = np.arange(max(shape.k, shape.n))
    groups = -(-steps.size // shape.n)
    result = np.zeros((matrices.shape[0], shape.m, groups * shape.n))
    for index, matrix in enumerate(matrices):
        result[index, :, : steps.size] = matrix[:, (steps + index) % shape.k]
    summed = result.reshape(-1, shape.m, groups, shape.n).sum(axis=2)
    return cast(Float64Array, summed.reshape(*codes.shape[:-1], shape.n))
