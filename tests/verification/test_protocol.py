"""Planted bugs must be failed at level standard; right but tricky kernels must pass."""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from tests.verification.conftest import (
    FakeExecutable,
    accumulating,
    drawn,
    operands,
    product,
    right,
    truncated,
)

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.errors import UnknownNameError, Verification
from gemmetry.domain.record import BuildFacts, Trait
from gemmetry.domain.settings import VERIFICATION_LEVELS as LEVELS
from gemmetry.numerics.references import apply_epilogue
from gemmetry.numerics.storage import to_float64
from gemmetry.verification import protocol
from gemmetry.verification.checks import (
    CheckOutcome,
    CheckResult,
    calls,
    contents,
    failed,
    memory,
    shapes,
)
from gemmetry.verification.checks.calls import CALLS, CALLS_UNDER_LOAD, FEWEST_CALLS
from gemmetry.verification.checks.changes import FEWEST_CHANGES, MOST_CHANGES
from gemmetry.verification.inputs import exact as exact_inputs
from gemmetry.verification.inputs import scaled
from gemmetry.verification.protocol import (
    CHECKS,
    launches,
    verify,
    with_check,
)

LAUNCHES = {level: launches(level) for level in LEVELS}
"""Number of launches by level, where all of its checks apply and a launch is fast."""
BF16 = "matmul_128x128x512_bf16t_bf16t_bf16t"
F32 = "matmul_96x80x512_f32t_f32n_f32t"


def edit(change):
    """A kernel whose right result is changed in place, or replaced by what `change` returns."""

    def kernel(operation, tensors):
        result = product(operation, tensors)
        changed = change(result)
        return result if changed is None else changed

    return kernel


RIGHT = {
    "blas": (BF16, product),
    "truncating tensor core": (BF16, accumulating(lambda v: truncated(v, 24), 16)),
    "truncating tensor core, f32 result": (
        "matmul_64x48x4096_bf16t_bf16t_f32t", accumulating(lambda v: truncated(v, 24), 16)),
    "float64 sums": (F32, right),
    "fp8 promoted every 128": (
        "matmul_48x32x1024_e4m3t_e4m3n_bf16t", accumulating(lambda v: v.astype(np.float32), 128)),
    "f16 accumulator promised": (
        "matmul_48x32x256_f16t_f16t_f16t_accf16",
        accumulating(lambda v: v.astype(np.float16), 16)),
    "s8": ("matmul_64x48x2048_s8t_s8n_s32t", product),
    "f64 in blocks": ("matmul_64x48x128_f64t_f64t_f64t", accumulating(lambda v: v, 16)),
    "alpha, beta, bias, relu": (f"{F32}_alpha0p3_betam1p5_bias_relu", product),
    "batch, gelu, column-major": ("batch_matmul_3x17x9x33_f16n_f16n_f16n_bias_gelu", product),
    "fp8 blocks": ("matmul_40x33x300_e4m3t_e4m3n_bf16t_vs1x128_vs128x128_alpha2", product),
    "MXFP8": ("matmul_33x40x160_e5m2t_e4m3n_f32t_vs32_e8m0_bias_relu", product),
    "NVFP4": ("batch_matmul_2x16x24x96_e2m1t_e2m1n_f16n_vs16_e4m3", product),
    "one row": ("matmul_1x48x256_bf16t_bf16n_bf16t", product),
    "one column, one k": ("matmul_48x1x1_f32t_f32t_f32n", product),
}  # fmt: skip


@pytest.mark.parametrize("kernel_name", list(RIGHT))
def test_right_kernels_pass(judge, kernel_name):
    for how in ({}, {"level": "quick", "distribution": "normal"}):
        verdict = judge(*RIGHT[kernel_name], **how)
        assert (verdict.status, verdict.reason) == (Verification.PASSED, "")
        assert verdict.max_error_ratio <= 1
        assert all(not text.startswith(("failed", "warned")) for text in verdict.checks.values())


def convolve(operation, tensors):
    """By im2col, which multiplies the padding with zero."""
    s = operation.shape
    padding = (0, 0), (s.pad_h, s.pad_h), (s.pad_w, s.pad_w), (0, 0)
    padded = np.pad(to_float64(tensors["lhs"]), padding)
    rows = [
        padded[:, p * s.stride_h : p * s.stride_h + s.r, q * s.stride_w : q * s.stride_w + s.s]
        for p, q in np.ndindex(s.p, s.q)
    ]
    columns = np.stack(rows, axis=1).reshape(s.n, s.p, s.q, -1)
    with np.errstate(all="ignore"):
        product = columns @ to_float64(tensors["rhs"]).reshape(-1, s.f)
        return apply_epilogue(operation, product, tensors)


FORMS = [
    "matmul_12x10x64_f16n_f16t_f16n", "matmul_12x10x64_f16t_f16n_f16t_alpham2_beta0p1_bias_gelu",
    "matmul_12x10x64_f16t_f16n_f16t_alpha0p1_betam1p7_residual",
    "matmul_12x10x64_f32t_f32n_f32t_gelu_residual", "matmul_12x10x64_e4m3t_e4m3n_e4m3t",
    "matmul_12x10x64_bf16t_bf16n_f32t_alpha2_beta1_bias_relu_residual",
    "matmul_12x10x64_e5m2t_e5m2n_e4m3t_scalerow", "matmul_12x10x64_e5m2t_e5m2n_bf16t_scaletensor",
    "matmul_12x10x64_f64t_f64n_f64t_alpham1_beta1", "matmul_12x10x64_s8t_s8n_s32t_beta1",
    "matmul_splitk_12x10x64_f16t_f16n_f16t_slices4", "matmul_1x1x1_f32t_f32n_f32t",
    "batch_matmul_2x12x10x63_f16n_f16t_f32t_gelu", "matmul_20x24x1024_bf16t_bf16n_bf16t_accbf16",
    "batch_matmul_3x12x10x64_bf16t_bf16n_bf16n_alpha0p5_beta2_bias",
    "conv2d_2x6x5x3_3x2x4_stride2x1_pad1x0_f32nhwc_f32hwcf_f32nhwc",
    "conv2d_1x5x5x3_3x3x4_stride1x1_pad1x1_f16nhwc_f16hwcf_f16nhwc_relu",
]  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_no_check_objects_to_a_right_kernel_of_any_form(judge, monkeypatch, name):
    # As many of the shapes as make a check complete.
    monkeypatch.setattr(shapes, "MANY_S", {False: 0.0, True: 0.0})
    kernel = convolve if name.startswith("conv") else right
    verdict = judge(name, kernel, level="paranoid", tile=(16, 16, 8))
    assert verdict.status is Verification.PASSED, verdict.reason


ON_DEVICE = (
    memory.check_red_zones, memory.check_unaligned_buffers, calls.check_unordered_work,
    calls.check_other_thread, calls.check_spoiled_scratch, calls.check_under_load,
)  # fmt: skip
"""Checks that need a device with more than every device has; of the next, each needs other
shapes."""

ON_SHAPES = (
    calls.check_many_calls, calls.check_rare_launches, contents.check_structures,
    contents.check_ends_of_formats, contents.check_special_numbers, contents.check_row_invariance,
    shapes.check_tail_shapes, shapes.check_many_shapes, shapes.check_long_axes,
)  # fmt: skip


@pytest.mark.parametrize("check", [*ON_DEVICE, *ON_SHAPES])
def test_a_check_does_not_apply_without_what_it_needs(context_of, plain_device, check):
    how = {"device": plain_device} if check in ON_DEVICE else {}
    result = check(context_of("matmul_8x6x16_f32t_f32t_f32t", **how))
    assert result.outcome is CheckOutcome.NOT_APPLICABLE
    assert ("this device" in result.detail) is (check in ON_DEVICE)


def test_fp8_without_promotion_is_recognised(judge):
    how = "matmul_48x32x4096_e4m3t_e4m3n_f32t", accumulating(lambda v: truncated(v, 14), 32)
    verdict = judge(*how, level="quick")
    assert (verdict.status, verdict.accuracy_class) == (Verification.FAILED, "fp8-14bit")
    declared = judge(*how, facts=BuildFacts(declared=(Trait.FP8_FAST_ACCUMULATION,)))
    assert declared.status is Verification.PASSED
    assert declared.checks["fp8_promotion"].startswith("not applicable: declared")


def test_unfused_epilogue_is_warned(judge):
    def kernel(operation, tensors):
        a, b = operands(tensors)
        return to_float64((a @ b).astype(ml_dtypes.bfloat16)) + to_float64(tensors["bias"])

    name = "matmul_64x64x64_bf16t_bf16t_bf16t_bias"
    assert judge(name, kernel, distribution="normal").status is Verification.WARNED


def test_what_was_never_written_fails_and_a_wrong_form_ends_it(judge):
    def keep_sentinel(inputs, output, launch):
        output.view(np.uint8)[-1] = 0xFF if launch == 1 else 0x7F

    verdict = judge(BF16, product, meddle=keep_sentinel)
    assert verdict.checks["written"] == "failed: 128 of 16384 elements were never written"
    verdict = judge("matmul_8x8x8_f32t_f32t_f32t", meddle=lambda i, o, n: i[0], level="quick")
    assert verdict.checks == {"form": "failed: the result is the buffer of lhs, not a new one"}
    for meddle, words in (
        (lambda i, o, n: o.astype(np.float64), "form: the result is float64, not float32"),
        (lambda i, o, n: o[1:].copy(), "has shape (95, 80), not (96, 80)"),
    ):
        assert words in judge(F32, meddle=meddle, writes_output=False).reason
    own_output = judge(F32, product, writes_output=False)
    assert own_output.status is Verification.PASSED
    assert own_output.checks["written"].startswith("not applicable: ")


def test_verdict_reports_the_errors(judge):
    verdict = judge(BF16, product, level="quick")
    assert 0 < verdict.max_error_ratio <= 1
    assert 1e-3 < verdict.relative_frobenius_error < 2e-3
    assert abs(verdict.signed_bias) < 0.05
    assert (verdict.accuracy_class, verdict.zero_share) == ("fp32-accumulated", 0.0)
    assert judge(BF16, edit(lambda r: truncated(r, 8)), level="quick").signed_bias < -0.4
    all_nan = judge(BF16, edit(lambda r: np.full_like(r, np.nan)), level="quick")
    assert all_nan.max_error_ratio is all_nan.accuracy_class is None
    assert "NaN" in all_nan.reason


def test_a_failure_after_timing_enters_the_verdict(judge):
    verdict = judge(BF16, product, level="quick")
    same = with_check(verdict, CheckResult("after_timing"))
    assert (same.status, same.checks["after_timing"]) == (Verification.PASSED, "passed")
    changed = with_check(verdict, failed("0: all wrong", name="after_timing"))
    assert changed.status is Verification.FAILED
    assert changed.reason.startswith("after_timing: 0: all wrong")


@pytest.mark.parametrize(
    ("level", "checks", "left_out"), [("quick", 5, 0), ("standard", 37, 6), ("paranoid", 43, 7)]
)
def test_the_numbers_of_checks_and_launches_of_a_level(level, checks, left_out):
    """What does not apply to F32: subnormals, overflow, fp8_promotion, scale_factors,
    addend_cancels, and the second launch of inf_spreads, which is relu's."""
    given = drawn(F32)
    executable = FakeExecutable(given[0], product)
    verdict = verify(executable, *given, level=level)
    assert len(verdict.checks) == checks <= len(CHECKS) + 1 == 43
    assert executable.launches == LAUNCHES[level] - left_out
    with pytest.raises(UnknownNameError, match="thorough"):
        verify(executable, *given, level="thorough")


def test_the_numbers_of_launches_in_the_documentation_are_those_of_the_code():
    page = (Path(__file__).parents[2] / "docs" / "verification.md").read_text(encoding="utf-8")
    written = re.findall(rf"^\| `({'|'.join(LEVELS)})` \| (\d+)[ ,]", page, re.MULTILINE)
    assert {level: int(number) for level, number in written} == LAUNCHES
    more = [int(number) for number in re.findall(r"(\d+) more launches", protocol.__doc__)]
    assert more == [LAUNCHES["standard"] - LAUNCHES["quick"],
                    LAUNCHES["paranoid"] - LAUNCHES["standard"]]  # fmt: skip


def test_slow_launches_are_fewer():
    assert launches("standard", 0.01) == LAUNCHES["standard"]
    fewer = CALLS + MOST_CHANGES - FEWEST_CALLS - FEWEST_CHANGES
    assert launches("standard", 10.0) == LAUNCHES["standard"] - fewer
    fewer += CALLS_UNDER_LOAD - FEWEST_CALLS
    assert launches("paranoid", 10.0) == LAUNCHES["paranoid"] - fewer
    assert (launches("quick", 10.0), launches("thorough")) == (1, 0)


def swap_tiles(result):
    result[:64, :64], result[:64, 64:128] = result[:64, 64:128].copy(), result[:64, :64].copy()


def test_freivalds_test_stands_in_for_the_reference(judge):
    verdict = judge(F32, product, has_reference=False, level="paranoid")
    assert verdict.status is Verification.PASSED
    assert verdict.checks["freivalds"].startswith("passed")
    assert "values" not in verdict.checks
    assert 0 < verdict.max_error_ratio <= 1
    wrong = judge(BF16, edit(swap_tiles), has_reference=False, level="quick")
    assert wrong.status is Verification.FAILED
    assert wrong.reason.startswith("freivalds: ")


def without_last_row(result):
    result[-1] = 0


def test_evidence_of_the_first_failed_check(judge):
    kept = []

    def keep(evidence):
        kept.append(evidence)
        return "artifacts/failures/x"

    verdict = judge(BF16, edit(without_last_row), tile=(64, 64, 32), on_failure=keep)
    assert verdict.evidence_path == "artifacts/failures/x"
    (evidence,) = kept
    assert evidence.check == "values"
    assert evidence.bad.sum() == evidence.bad[-1].sum() == 128
    assert evidence.expected.shape == evidence.output.shape == (128, 128)
    assert verdict.error_map[1:] == ("..", "11")
    assert "zeros" in verdict.reason and "rows from 127" in verdict.reason
    assert verdict.first_bad.startswith("[127, 0]: got 0, expected ")
    assert verdict.first_bad in verdict.reason


def test_evidence_of_a_tail_has_the_operation_of_the_tail(judge):
    def tail_dropped(operation, tensors):
        result = product(operation, tensors)
        rows = operation.matmul_shape.m // 64 * 64
        if rows:
            result[rows:] = 0
        return result

    kept = []
    verdict = judge(BF16, tail_dropped, tile=(64, 64, 32), on_failure=kept.append)
    assert verdict.reason.startswith("tail_shapes: matmul_65x63x33_")
    assert (kept[0].check, *kept[0].operation.shape[:3]) == ("tail_shapes", 65, 63, 33)


def test_right_kernels_leave_no_evidence(judge):
    verdict = judge(BF16, product, on_failure=pytest.fail)
    assert (verdict.evidence_path, verdict.error_map) == (None, ())


def test_rivals_run_on_request(judge):
    assert judge(BF16, product, level="quick").rivals == {}
    verdict = judge(BF16, edit(lambda r: 1.001 * r), level="quick", judge_rivals=True)
    assert verdict.status is Verification.FAILED
    assert any(verdict.rivals.values())


@pytest.mark.parametrize("bug", [lambda r: 0 * r, swap_tiles])
def test_a_declaration_excuses_no_bug(judge, bug):
    facts = BuildFacts(declared=tuple(Trait))
    assert judge(BF16, edit(bug), facts=facts).status is Verification.FAILED


@pytest.mark.parametrize(("factors", "terms"), [
    ("", 0), ("_alpha0p5", 0), ("_alpham2_betam4", 0), ("_beta1", 0), ("_alpha0", 0),
    ("_alpha0p1", 72), ("_alpham2_beta0p5", 72), ("_beta1p7", 72), ("_beta100", 72),
])  # fmt: skip
def test_sums_are_exact_in_every_order_where_factors_are_powers_of_two(factors, terms):
    operation = parse_operation(f"matmul_48x40x72_f32t_f32t_f32t{factors}")
    case = exact_inputs.integers(operation, 1, np.matmul, round_once=False)
    assert case.folded_terms == terms


def test_a_selection_rounds_as_many_terms_as_it_has_ones():
    operation = parse_operation("matmul_48x40x72_f32t_f32t_f32t_alpha0p1")
    case = scaled.selects_lhs(operation, 1, np.matmul, round_once=False)
    assert case.folded_terms == 2
    assert (case.reference.magnitude >= np.abs(case.reference.value)).all()
