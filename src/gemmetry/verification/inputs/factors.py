"""Exact inputs that test the steps after a product: scale factors, and an addend that cancels it.

A·B of integers is exact, which exposes errors of an epilogue: a factor or a product of factors kept
in a narrow format, or a product that is rounded before C is added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gemmetry.domain.dtypes import E4M3, E8M0, F32, DType
from gemmetry.domain.operation import EpilogueStep, Operation, Scaling, TensorSpec
from gemmetry.numerics.inputs import exact_integer_limit, make_inputs
from gemmetry.numerics.references import (
    Matmul,
    exact_product,
    logical_tensors,
    scales_of_result,
    to_storage,
)
from gemmetry.numerics.storage import (
    Array,
    Float64Array,
    Floats,
    absolute,
    quantize,
    smallest_normal,
    to_float64,
)
from gemmetry.verification.inputs.exact import ExactCase, case_of
from gemmetry.verification.inputs.selections import selected, selecting_inputs, summed_selection

WIDEST_PRODUCT = 30
"""Powers of two, up and down, of a product of two scale factors where the result has room: f16 ends
at 2^16 and 2^-24."""

WIDEST_FACTOR = 20
"""Additional powers of two by which one factor is large and the other small, so that both are
outside the range of f16."""

_REACH_OF_E4M3 = 5
"""The same for factors in e4m3, whose normal numbers are 2^-6 to 448."""

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
    inputs = list(make_inputs(operation, distribution="integers", seed=seed))
    product = exact_product(operation, inputs, matmul)
    for i, spec in enumerate(operation.inputs):
        if spec.role.startswith("scale_"):
            inputs[i] = _factors(operation, spec, product, seed)
    return case_of(operation, tuple(inputs), matmul, False)


def _scaled_blocks(operation: Operation, seed: int, matmul: Matmul) -> ExactCase | None:
    found = selecting_inputs(operation, seed, codes="lhs")
    if found is None:
        return None
    inputs = list(found[0])
    unscaled = [
        np.ones_like(array) if spec.role.startswith("scale_") else absolute(array)
        for spec, array in zip(operation.inputs, inputs, strict=True)
    ]
    product = selected(operation, unscaled, matmul, codes="lhs")
    for i, spec in enumerate(operation.inputs):
        if spec.role.startswith("scale_"):
            inputs[i] = _factors(operation, spec, product, seed)
    return summed_selection(operation, tuple(inputs), matmul, codes="lhs")


def _factors(operation: Operation, spec: TensorSpec, product: Floats, seed: int) -> Array:
    s, is_first = operation.signature, spec.role == "scale_a"
    low, high = _room(s.result, product, max(1.0, abs(s.alpha)))
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


def _room(result: DType, product: Floats, alpha: float) -> tuple[int, int]:
    """The smallest and the largest power of two of a product of two factors, each below 2, so that
    `product` stays normal and finite in the format of the result; finiteness has priority."""
    sizes = np.abs(product)
    largest = float(sizes.max(initial=1.0)) * alpha * 4
    high = math.floor(math.log2(result.maximum / largest))
    low = math.ceil(math.log2(smallest_normal(result)))
    high = min(high, WIDEST_PRODUCT)
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
    (place,) = (i for i, spec in enumerate(operation.inputs) if spec.role == "addend")
    spec = operation.inputs[place]
    addend = _rounded(-due / s.beta, spec.dtype)
    inputs[place] = to_storage(addend, spec)
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
