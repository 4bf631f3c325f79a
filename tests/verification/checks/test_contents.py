from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.record import BuildFacts, Trait
from gemmetry.numerics.references import apply_epilogue
from gemmetry.numerics.storage import to_float32, to_float64
from gemmetry.verification.checks import CheckOutcome, contents
from gemmetry.verification.companions import Companions

TILE = (16, 16, 8)
NAME = "matmul_32x32x32_f32t_f32n_f32t"


def product(operation, tensors):
    wide = to_float64 if tensors["lhs"].dtype.itemsize == 8 else to_float32
    with np.errstate(all="ignore"):
        sums = to_float64(wide(tensors["lhs"]) @ wide(tensors["rhs"]))
        return apply_epilogue(operation, sums, tensors)


@pytest.fixture
def check(context_of, executable_of):
    """check(kernel, name, ...) -> CheckResult of the ends of formats."""

    def run(kernel, name, declared=()):
        facts = BuildFacts(declared=declared)

        def build(operation):
            return executable_of(operation, kernel, facts=facts)

        companions = Companions(build, TILE)
        context = context_of(name, kernel=kernel, companions=companions, facts=facts)
        return contents.check_ends_of_formats(context)

    return run


def test_half_of_the_smallest_numbers_round(check):
    def kernel(operation, tensors):
        result = product(operation, tensors)
        steps = np.trunc(result * 2.0**24) * 2.0**-24
        return np.where(np.abs(result) < 2.0**-14, steps, result)

    def flushes(operation, tensors):
        lhs = to_float32(tensors["lhs"])
        flushed = np.where(np.abs(lhs) < 2.0**-14, np.float32(0), lhs)
        return product(operation, {**tensors, "lhs": flushed})

    name = "matmul_32x32x32_f16t_f16n_f16t"
    assert check(kernel, name).is_failure
    assert not check(flushes, name, declared=(Trait.FLUSHES_SUBNORMALS,)).is_failure


def test_refused_sizes_are_rounded(context_of, executable_of):
    built = []

    def build(operation):
        if any(size % 16 for size in operation.matmul_shape[:3]):
            return None
        built.append(operation)
        return executable_of(operation, product)

    context = context_of(NAME, companions=Companions(build, TILE))
    assert contents.check_structures(context).text == "passed"
    assert built


ROWS = (
    "matmul_37x24x65_f32t_f32n_f32t",
    "batch_matmul_2x37x24x65_bf16n_bf16t_bf16n_bias_residual",
    "matmul_37x24x64_e4m3t_e4m3n_bf16t_scalerow",
)


def split(operation, tensors, by_rows):
    """A right product in as many parts of K as the number of rows has remainders, if `by_rows`."""
    parts = 1 + operation.matmul_shape.m % 5 if by_rows else 3
    a, b = to_float32(tensors["lhs"]), to_float32(tensors["rhs"])
    total = np.zeros((*a.shape[:-1], b.shape[-1]), np.float32)
    for some in np.array_split(np.arange(a.shape[-1]), parts):
        total += np.stack([a[..., k, None] * b[..., k, None, :] for k in some]).sum(axis=0)
    if "scale_a" in tensors:
        total = total * to_float32(tensors["scale_a"]) * to_float32(tensors["scale_b"])
    return apply_epilogue(operation, to_float64(total), tensors)


def judged(context_of, executable_of, name, by_rows, wanted=contents.REPORT):
    def kernel(operation, tensors):
        return split(operation, tensors, by_rows)

    def build(operation):
        return executable_of(operation, kernel)

    context = context_of(name, kernel=kernel, companions=Companions(build, (16, 16, 8)))
    return contents.check_row_invariance(context, wanted)


@pytest.mark.parametrize("name", ROWS)
def test_rows_that_keep_their_bits_pass(context_of, executable_of, name):
    result = judged(context_of, executable_of, name, by_rows=False)
    assert result.outcome is CheckOutcome.PASSED, result.detail
    assert result.detail.endswith(" 2, 1 rows")


def test_rows_that_depend_on_their_number_are_a_property_or_wrong_if_demanded(
    context_of, executable_of
):
    result = judged(context_of, executable_of, ROWS[0], by_rows=True)
    assert result.outcome is CheckOutcome.PROPERTY
    assert "the bits of a row depend on the number of rows: with 36 instead of 37" in result.detail
    assert judged(context_of, executable_of, ROWS[0], True, contents.DEMAND).is_failure


def test_where_it_does_not_apply(context_of):
    assert "cannot be built" in contents.check_row_invariance(context_of(ROWS[0])).detail
