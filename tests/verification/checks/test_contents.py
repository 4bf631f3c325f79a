from __future__ import annotations

import numpy as np
import pytest
from tests.verification.conftest import FakeExecutable, operands, product

from gemmetry.domain.record import BuildFacts, Trait
from gemmetry.numerics.references import apply_epilogue
from gemmetry.numerics.storage import to_float32, to_float64
from gemmetry.verification.checks import CheckOutcome, contents
from gemmetry.verification.companions import Companions


def companions(kernel, built=None, refuses=lambda operation: False, **how):
    """Other shapes of a kernel, unless it `refuses` them; what is built is added to `built`."""

    def build(operation):
        if refuses(operation):
            return None
        if built is not None:
            built.append(operation)
        return FakeExecutable(operation, kernel, **how)

    return Companions(build, (16, 16, 8))


def test_half_of_the_smallest_numbers_round(context_of):
    def rounds(operation, tensors):
        result = product(operation, tensors)
        steps = np.trunc(result * 2.0**24) * 2.0**-24
        return np.where(np.abs(result) < 2.0**-14, steps, result)

    def flushes(operation, tensors):
        lhs = to_float32(tensors["lhs"])
        flushed = np.where(np.abs(lhs) < 2.0**-14, np.float32(0), lhs)
        return product(operation, {**tensors, "lhs": flushed})

    for kernel, declared in ((rounds, ()), (flushes, (Trait.FLUSHES_SUBNORMALS,))):
        facts = BuildFacts(declared=declared)
        others = companions(kernel, facts=facts)
        name = "matmul_32x32x32_f16t_f16n_f16t"
        context = context_of(name, kernel=kernel, companions=others, facts=facts)
        assert contents.check_ends_of_formats(context).is_failure is not bool(declared)


def test_refused_sizes_are_rounded(context_of):
    built = []
    others = companions(
        product, built, lambda operation: any(size % 16 for size in operation.matmul_shape[:3])
    )
    context = context_of("matmul_32x32x32_f32t_f32n_f32t", companions=others)
    assert contents.check_structures(context).text == "passed"
    assert built


@pytest.fixture
def rows(context_of):
    """rows(name, by_rows) -> the context of a kernel that divides K. Its parts are three, or as
    many as the number of rows has remainders."""

    def make(name, by_rows):
        def split(operation, tensors):
            parts = 1 + operation.matmul_shape.m % 5 if by_rows else 3
            a, b = operands(tensors)
            total = np.zeros((*a.shape[:-1], b.shape[-1]), np.float32)
            for some in np.array_split(np.arange(a.shape[-1]), parts):
                total += np.stack([a[..., k, None] * b[..., k, None, :] for k in some]).sum(axis=0)
            return apply_epilogue(operation, to_float64(total), tensors)

        return context_of(name, kernel=split, companions=companions(split))

    return make


ROWS = (
    "matmul_37x24x65_f32t_f32n_f32t", "batch_matmul_2x37x24x65_bf16n_bf16t_bf16n_bias_residual",
    "matmul_37x24x64_e4m3t_e4m3n_bf16t_scalerow",
)  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_rows_that_keep_their_bits_pass(rows, name):
    result = contents.check_row_invariance(rows(name, by_rows=False))
    assert result.outcome is CheckOutcome.PASSED, result.detail
    assert result.detail.endswith(" 2, 1 rows")


def test_rows_that_depend_on_their_number_are_a_property_or_wrong_if_demanded(rows, context_of):
    context = rows(ROWS[0], by_rows=True)
    result = contents.check_row_invariance(context)
    assert result.outcome is CheckOutcome.PROPERTY
    assert "the bits of a row depend on the number of rows: with 36 instead of 37" in result.detail
    assert contents.check_row_invariance(context, contents.DEMAND).is_failure
    assert "cannot be built" in contents.check_row_invariance(context_of(ROWS[0])).detail
