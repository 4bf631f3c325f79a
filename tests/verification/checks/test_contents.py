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
CHECKS = {
    "structures": contents.check_structures,
    "ends_of_formats": contents.check_ends_of_formats,
    "special_numbers": contents.check_special_numbers,
}


def product(operation, tensors):
    wide = to_float64 if tensors["lhs"].dtype.itemsize == 8 else to_float32
    with np.errstate(all="ignore"):
        sums = to_float64(wide(tensors["lhs"]) @ wide(tensors["rhs"]))
        return apply_epilogue(operation, sums, tensors)


@pytest.fixture
def check(context_of, executable_of):
    """check(which, kernel, name, ...) -> CheckResult"""

    def run(which, kernel=product, name=NAME, declared=(), **how):
        facts = BuildFacts(declared=declared)

        def build(operation):
            return executable_of(operation, kernel, facts=facts)

        companions = Companions(build, TILE)
        context = context_of(name, kernel=kernel, companions=companions, facts=facts, **how)
        return CHECKS[which](context)

    return run


@pytest.mark.parametrize("which", CHECKS)
@pytest.mark.parametrize(
    "name",
    [
        NAME,
        "batch_matmul_2x32x32x32_bf16n_bf16t_bf16n_bias_relu",
        "matmul_32x32x32_f16t_f16n_f16t_alpha0p1_betam1p7_residual",
        "matmul_32x32x32_f32t_f32n_f32t_relu_residual",
        "matmul_32x32x32_bf16t_bf16n_f32t_gelu",
        "matmul_splitk_32x32x32_f16t_f16n_f16t_slices4",
        "matmul_32x32x32_e4m3t_e4m3n_e4m3t_scalerow",
        "matmul_32x32x32_e5m2t_e5m2n_bf16t_scaletensor",
        "matmul_32x32x32_f64t_f64n_f64t_alpham1_beta1",
    ],
)
def test_right_kernels_pass(check, which, name):
    assert check(which, name=name).text == "passed"


def test_integers_have_structures_alone(check):
    name = "matmul_32x32x32_s8t_s8n_s32t_beta1"
    assert check("structures", name=name).text == "passed"
    assert check("special_numbers", name=name).outcome is CheckOutcome.NOT_APPLICABLE


def changed(role, change):
    """The kernel whose operand `role` is changed first."""

    def kernel(operation, tensors):
        with np.errstate(all="ignore"):
            return product(operation, {**tensors, role: change(to_float32(tensors[role]))})

    return kernel


def where(condition, result):
    return lambda values: result(values) if condition(values) else values


def test_half_of_the_smallest_numbers_round(check):
    def kernel(operation, tensors):
        result = product(operation, tensors)
        steps = np.trunc(result * 2.0**24) * 2.0**-24
        return np.where(np.abs(result) < 2.0**-14, steps, result)

    name = "matmul_32x32x32_f16t_f16n_f16t"
    assert check("ends_of_formats", kernel, name).is_failure
    flushes = changed("lhs", lambda a: np.where(np.abs(a) < 2.0**-14, np.float32(0), a))
    assert not check(
        "ends_of_formats", flushes, name, declared=(Trait.FLUSHES_SUBNORMALS,)
    ).is_failure


def test_nothing_is_tried_without_companions(context_of):
    for one in CHECKS.values():
        assert one(context_of(NAME)).outcome is CheckOutcome.NOT_APPLICABLE


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
