from __future__ import annotations

import numpy as np
import pytest
from tests.verification.conftest import assert_fails, operands

from gemmetry.domain.record import BuildFacts, Trait
from gemmetry.verification.checks import CheckOutcome, special

CHECKS = (special.check_nan_spreads, special.check_inf_spreads)
NAME = "matmul_12x10x64_f32t_f32n_f32t"


def product(tensors):
    with np.errstate(all="ignore"):
        return np.matmul(*operands(tensors))


def swallowing(operation, tensors):
    to = {"nan": 0.0, "posinf": 1e4, "neginf": -1e4}
    return product({role: np.nan_to_num(array, **to) for role, array in tensors.items()})


def leaking(operation, tensors):
    """The first k of each row counts, times zero, for the row before."""
    result = product(tensors)
    with np.errstate(invalid="ignore"):
        for column in (0, -1):
            result[:-1] += 0 * tensors["lhs"][1:, column, np.newaxis]
    return result


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(
    ("kernel", "words"), [(swallowing, "is swallowed: 21 of 21"), (leaking, "leaks: 9 elements")]
)
def test_bugs_are_failed(context_of, check, kernel, words):
    context = context_of(NAME, kernel=kernel)
    result = check(context)
    assert words in result.detail
    assert result.first_bad.startswith("[")
    assert context.evidence[result.name].bad.sum() == int(words.split(":")[1].split()[0])


@pytest.mark.parametrize("suffix", ["_relu", ""])
def test_relu_by_maximum_number_is_accepted_of_relu_alone(context_of, suffix):
    def kernel(operation, tensors):
        sums = product(tensors)
        return np.fmax(sums, 0.0) if suffix else np.where(np.isnan(sums), 0.0, sums)

    result = special.check_nan_spreads(context_of(NAME + suffix, kernel=kernel))
    assert result.outcome is (CheckOutcome.PASSED if suffix else CheckOutcome.FAILED)


def test_launches_may_differ_elsewhere(context_of):
    rng = np.random.default_rng(0)

    def kernel(operation, tensors):
        result = product(tensors)
        return np.nextafter(result, rng.choice([-1, 1], result.shape) * np.float32(9e9))

    context = context_of(NAME, kernel=kernel)
    for check in CHECKS:
        assert check(context).outcome is CheckOutcome.PASSED


@pytest.mark.parametrize(("check", "name", "declared", "words"), [
    (CHECKS[0], "matmul_8x8x8_s8t_s8t_s32t", (), "integers have"),
    (CHECKS[1], "matmul_8x8x8_e4m3t_e4m3t_f32t", (), "e4m3 has no infinity"),
    (CHECKS[0], NAME, (Trait.NORMWISE,), "declared normwise"),
    (CHECKS[0], f"{NAME}_alpha0_beta1", (), "alpha 0"),
])  # fmt: skip
def test_where_it_does_not_apply(context_of, check, name, declared, words):
    context = context_of(name, facts=BuildFacts(declared=declared))
    result = check(context)
    assert result.outcome is CheckOutcome.NOT_APPLICABLE
    assert words in result.detail
    assert context.executable.launches == 0


@pytest.mark.parametrize("check", CHECKS)
def test_inputs_that_hold_them_stay_as_they_are(context_of, check):
    def clean(inputs, output, launch):
        for array in inputs:
            array[~np.isfinite(array)] = 0

    assert_fails(check(context_of(NAME, meddle=clean)), "the launch changed lhs, rhs")


def test_the_next_launch_shows_nothing_of_nan(context_of):
    kept = []

    def keep(inputs, output, launch):
        kept.append(np.isnan(output).any())
        if len(kept) > 1 and kept[-2]:
            output[3, 4] = np.nan

    context = context_of(NAME, meddle=keep)
    assert np.isfinite(context.first.output).all()
    assert_fails(special.check_nan_spreads(context), "part of it was kept")


@pytest.mark.parametrize("split", ["lhs", "rhs", "both"])
def test_products_of_parts_may_have_nan_for_infinity(context_of, split):
    """The second part of infinity is infinity less infinity."""

    def parts(values, is_split):
        first = values.astype(np.float16).astype(np.float32)
        return (first, values - first) if is_split else (values,)

    def kernel(operation, tensors):
        with np.errstate(all="ignore"):
            lhs, rhs = (parts(tensors[role], split in (role, "both")) for role in ("lhs", "rhs"))
            return np.maximum(sum(a @ b for a in lhs for b in rhs), 0)

    result = special.check_inf_spreads(context_of(f"{NAME}_relu", kernel=kernel))
    assert result.outcome is CheckOutcome.PASSED, result.detail
