from __future__ import annotations

import numpy as np
import pytest
from tests.verification.conftest import assert_fails, drawn, stored

from gemmetry.domain.record import Trait
from gemmetry.numerics.inputs import (
    ChangeKind,
    changed_inputs,
    draw_change,
    take_lines,
    with_lines,
)
from gemmetry.numerics.references import compute_reference, to_logical, to_storage
from gemmetry.numerics.storage import as_bits
from gemmetry.verification.after_timing import (
    ABSOLUTE_DIFFERENCE,
    ALLCLOSE,
    NORMALISED_DIFFERENCE,
    RIVALS,
    digest,
    judge,
    recheck,
)
from gemmetry.verification.checks import CheckOutcome

BF16 = "matmul_128x128x512_bf16t_bf16t_bf16t"
NAMES = (
    BF16, "matmul_33x17x65_f32n_f32t_f32n_bias_gelu", "matmul_33x17x65_s8t_s8n_s32t_beta1",
    "matmul_33x17x64_e4m3t_e4m3n_bf16t_scalerow_residual_relu",
    "batch_matmul_3x12x8x16_f16n_f16t_f16n", "matmul_1x17x65_f32t_f32t_f32t",
    "conv2d_2x9x17x3_3x2x50_stride2x1_pad1x0_f32nhwc_f32hwcf_f32nhwc_bias",
)  # fmt: skip


class Case:
    """An operation with right outputs, before and after a change."""

    def __init__(self, name, place=0, seed=1):
        self.operation, self.inputs, self.reference = drawn(name)
        rng = np.random.default_rng(seed)
        self.change = draw_change(self.operation, self.inputs, ChangeKind.NEGATED, place, rng)
        changed = changed_inputs(self.operation, self.inputs, self.change)
        self.good, self.changed = (
            stored(self.operation, reference.value)
            for reference in (self.reference, compute_reference(self.operation, changed))
        )

    def check(self, *outputs, has_reference=True, **how):
        reference = self.reference if has_reference else None
        return recheck(self.operation, outputs, lambda: reference, inputs=self.inputs, **how)

    def passes_at_once(self, *outputs):
        """Whether outputs that were verified before pass without a reference."""
        how = {"inputs": self.inputs, "right": digest(self.good)}
        return recheck(self.operation, outputs, never, **how).text == "passed"


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_outputs_of_changed_inputs(name, place):
    case = Case(name, place)
    good, changed = ("0", case.good, None), ("1", case.changed, case.change)
    for outputs in ((good, changed), (changed, good), (changed,)):
        assert case.check(*outputs).text == "passed"
    stale = case.check(good, ("1", case.good, case.change))
    assert_fails(stale, "the result for the previous inputs")
    assert case.check(("1", case.changed, None)).is_failure
    # Elsewhere than in the line that changed.
    spoiled = np.array(case.changed)
    axis = -1 if place else -2 if len(case.operation.output.shape) < 4 else 0
    other = np.moveaxis(to_logical(spoiled, case.operation.output), axis, 0)
    other[(case.change.lines[0] + 1) % other.shape[0]] = 0
    if other.shape[0] > 1:
        for first in ((), (good,)):
            result = case.check(*first, ("1", spoiled, case.change))
            assert result.is_failure, (name, place)
            assert "elements are wrong" in result.detail


def test_without_a_reference():
    case = Case(BF16)
    assert case.check(("0", case.changed, case.change), has_reference=False).text == "passed"
    assert case.check(("0", case.good, case.change), has_reference=False).is_failure


def never():
    raise AssertionError("the reference was requested")


def negated(case):
    spec = case.operation.output
    logical = to_logical(case.good, spec)
    lines = -take_lines(case.operation, logical, case.change)
    return to_storage(with_lines(case.operation, logical, case.change, lines), spec)


LINEAR = (
    BF16, "matmul_33x17x65_f32n_f32t_f32n", "matmul_33x17x64_e4m3t_e4m3n_bf16t_scalerow",
    "batch_matmul_3x12x8x16_f16n_f16t_f16n",
    "conv2d_2x9x17x3_3x2x50_stride2x1_pad1x0_f32nhwc_f32hwcf_f32nhwc",
)  # fmt: skip


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("name", LINEAR)
def test_what_was_verified_before_is_not_judged_again(name, place):
    case = Case(name, place)
    outputs = [("0", case.good, None), ("1", negated(case), case.change)]
    for some in (outputs, outputs[::-1], outputs[:1], outputs[1:]):
        assert case.passes_at_once(*some)
    # Other bits are judged: right ones pass, and wrong ones do not, wherever they are.
    right = digest(case.good)
    for _, output, change in outputs:
        for at in (0, output.size // 2, output.size - 1):
            other = np.array(output)
            as_bits(other)[at] ^= 1
            with pytest.raises(AssertionError, match="was requested"):
                case.passes_at_once(("0", other, change))
            other.reshape(-1)[at] = 0
            assert case.check(("0", other, change), right=right).is_failure
    for output, change in ((case.good, case.change), (negated(case), None)):
        assert case.check(("0", output, change), right=right).is_failure


@pytest.mark.parametrize("name", [*NAMES[1:4], BF16 + "_relu", BF16 + "_bias"])
def test_results_that_are_not_linear_are_judged_anew(name):
    case = Case(name)
    assert case.passes_at_once(("0", case.good, None))
    for output in (case.changed, negated(case), case.good):
        result = case.check(("1", output, case.change), right=digest(case.good))
        assert result.is_failure is (output is not case.changed)


def test_a_digest_covers_every_byte_and_no_more():
    good = Case("matmul_33x17x65_f32n_f32t_f32n").good
    found = {digest(good), digest(good.copy())}
    for at in range(good.size):
        other = np.array(good)
        as_bits(other)[at] ^= 1
        found.add(digest(other))
    assert len(found) == good.size + 1


def test_what_is_declared_holds_for_lines():
    case = Case("matmul_64x64x64_f32t_f32t_f32t")
    outputs = ("1", case.changed + np.float32(np.sqrt(64) * 1e-6 * 64), case.change)
    assert case.check(outputs).is_failure
    assert case.check(outputs, declared=(Trait.NORMWISE,)).text == "passed"


def test_bits_that_differ_after_timing_are_a_finding():
    case = Case("matmul_1x17x65_f32t_f32t_f32t")
    other = case.good.copy()
    as_bits(other)[0] += 1  # within the bound

    def judged(**how):
        outputs = [("same", case.good, None), ("other", other, None)]
        return case.check(*outputs, right=digest(case.good), **how)

    found = judged(is_repeatable=True)
    assert found.outcome is CheckOutcome.WARNED
    assert found.detail.startswith("other is within its bound, but differs in its bits")
    for how in ({}, {"is_repeatable": True, "declared": (Trait.NONDETERMINISTIC,)}):
        assert judged(**how).outcome is CheckOutcome.PASSED


def test_every_output_counts():
    case = Case(BF16)
    bad = case.good.copy()
    bad[3, 4] = 0
    good = ("0", case.good, None)
    assert case.check(good, good).text == "passed"
    result = case.check(good, ("output 1", bad, None), good)
    assert result.detail.startswith("output 1: 1 of 16384 elements are wrong")
    assert "float32" in case.check(("0", case.good.astype(np.float32), None)).detail


OPERATION = "matmul_600x64x1024_bf16t_bf16t_bf16n"


def judged(change, *, name=OPERATION):
    operation, _, reference = drawn(name, "uniform", 1)
    value = change(np.array(reference.value, dtype=float))
    return judge(operation, stored(operation, value), reference)


def without_last_row(c):
    c[-1] = 0
    return c


@pytest.mark.parametrize(("change", "lets_through"), [
    (lambda c: c, set(RIVALS)), (lambda c: c * 0, set()),
    (without_last_row, {NORMALISED_DIFFERENCE}), (lambda c: c * np.nan, {ABSOLUTE_DIFFERENCE}),
])  # fmt: skip
def test_what_each_lets_through(change, lets_through):
    """Rows of the table in the research on detection power, at M = 600, K = 1024."""
    assert judged(change) == {rival: rival in lets_through for rival in RIVALS}
    enlarged = judged(lambda c: c * 1.001)
    assert enlarged[ALLCLOSE] and enlarged[NORMALISED_DIFFERENCE]


def test_small_large_and_whole_numbers():
    """Small ones hide everything from an absolute difference; overflow is close to itself alone."""
    found = judged(lambda c: c * 0, name="matmul_16x16x64_bf16t_bf16t_bf16t_alpha0p0001")
    assert found[ABSOLUTE_DIFFERENCE] and found[ALLCLOSE]
    assert not found[NORMALISED_DIFFERENCE]
    large, whole = "matmul_8x8x16_f16t_f16t_f16t_alpha65504", "matmul_8x8x16_s8t_s8t_s32t"
    assert judged(lambda c: c, name=large)[ALLCLOSE]
    assert not judged(lambda c: -c, name=large)[ALLCLOSE]
    assert judged(lambda c: c, name=whole) == dict.fromkeys(RIVALS, True)
    assert not judged(lambda c: c + 1, name=whole)[ABSOLUTE_DIFFERENCE]


@pytest.mark.parametrize("output", [np.zeros((3, 4)), np.zeros((64, 600), np.float32)])
def test_another_shape_or_dtype_is_let_through_by_none(output):
    operation, _, reference = drawn(OPERATION, "uniform", 1)
    assert judge(operation, output, reference) == dict.fromkeys(RIVALS, False)
