"""What a verdict contains in addition to its checks, without a reference, and for declared
properties."""

from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.errors import Verification
from gemmetry.domain.names import parse_operation
from gemmetry.domain.record import BuildFacts, Trait
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.numerics.storage import quantize, to_float32, to_float64
from gemmetry.verification.after_timing import recheck

BF16 = "matmul_128x128x512_bf16t_bf16t_bf16t"
F32 = "matmul_96x80x512_f32t_f32n_f32t"


def operands(tensors):
    return to_float32(tensors["lhs"]), to_float32(tensors["rhs"])


def product(operation, tensors):
    a, b = operands(tensors)
    with np.errstate(invalid="ignore"):
        return to_float64(a @ b)


def edit(change):
    """A kernel whose right result is changed in place."""

    def kernel(operation, tensors):
        result = product(operation, tensors)
        change(result)
        return result

    return kernel


def zeros(result):
    result[...] = 0


def zero_row(result):
    result[-1] = 0


def nan_element(result):
    result[5, 7] = np.nan


def swap_tiles(result):
    result[:64, :64], result[:64, 64:128] = result[:64, 64:128].copy(), result[:64, :64].copy()


def scaled(result):
    result *= 1.001


class TestWithoutReference:
    """Freivalds' test stands in for the reference."""

    def test_right_kernels_pass(self, judge):
        verdict = judge(F32, product, has_reference=False)
        assert verdict.status is Verification.PASSED
        assert verdict.checks["freivalds"].startswith("passed")
        assert "values" not in verdict.checks
        assert 0 < verdict.max_error_ratio <= 1

    @pytest.mark.parametrize("bug", [zeros, zero_row, swap_tiles, nan_element])
    def test_bugs_are_failed(self, judge, bug):
        verdict = judge(BF16, edit(bug), has_reference=False, level="quick")
        assert verdict.status is Verification.FAILED
        assert verdict.reason.startswith("freivalds: ")

    def test_paranoid_needs_none_either(self, judge):
        verdict = judge(F32, product, has_reference=False, level="paranoid")
        assert verdict.status is Verification.PASSED

    def test_never_written_is_found_by_both_sentinels(self, judge):
        def skip_last(inputs, output, launch):
            output.view(np.uint8)[-1] = 0xFF if launch == 1 else 0x7F

        verdict = judge(F32, product, has_reference=False, meddle=skip_last, level="quick")
        assert verdict.checks["written"].startswith("failed: 80 of 7680")

    def test_recheck(self):
        operation = parse_operation(F32)
        inputs = make_inputs(operation, distribution="offset_uniform", seed=42)
        good = quantize(compute_reference(operation, inputs).value, operation.output.dtype)
        bad = good.copy()
        bad[7] = 0
        one, other = ("0", good, None), ("1", bad, None)
        assert recheck(operation, [one], lambda: None, inputs=inputs).text == "passed"
        result = recheck(operation, [one, other], lambda: None, inputs=inputs)
        assert result.is_failure
        assert result.detail.startswith("1: ")


class TestFailures:
    def test_evidence_of_the_first_failed_check(self, judge):
        kept = []

        def keep(evidence):
            kept.append(evidence)
            return "artifacts/failures/x"

        verdict = judge(BF16, edit(zero_row), tile=(64, 64, 32), on_failure=keep)
        assert verdict.evidence_path == "artifacts/failures/x"
        (evidence,) = kept
        assert evidence.check == "values"
        assert evidence.bad.sum() == 128
        assert evidence.bad[-1].all()
        assert evidence.expected.shape == evidence.output.shape == (128, 128)
        assert verdict.error_map[1:] == ("..", "11")

    def test_evidence_of_a_tail_has_the_operation_of_the_tail(self, judge):
        def tail_dropped(operation, tensors):
            result = product(operation, tensors)
            rows = operation.matmul_shape.m // 64 * 64
            if rows:
                result[rows:] = 0
            return result

        kept = []
        verdict = judge(BF16, tail_dropped, tile=(64, 64, 32), on_failure=kept.append)
        assert verdict.reason.startswith("tail_shapes: matmul_65x63x33_")
        assert kept[0].check == "tail_shapes"
        assert kept[0].operation.shape[:3] == (65, 63, 33)

    def test_right_kernels_leave_none(self, judge):
        verdict = judge(BF16, product, on_failure=pytest.fail)
        assert verdict.evidence_path is None
        assert verdict.error_map == ()

    def test_rivals_run_on_request(self, judge):
        assert judge(BF16, product, level="quick").rivals == {}
        verdict = judge(BF16, edit(scaled), level="quick", judge_rivals=True)
        assert verdict.status is Verification.FAILED
        assert any(verdict.rivals.values())

    def test_a_declaration_excuses_no_bug(self, judge):
        facts = BuildFacts(declared=tuple(Trait))
        for bug in (zeros, swap_tiles):
            assert judge(BF16, edit(bug), facts=facts).status is Verification.FAILED, bug
