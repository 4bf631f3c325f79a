"""Planted bugs must be failed at level standard; right but tricky kernels must pass."""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from gemmetry.domain.errors import UnknownNameError, Verification
from gemmetry.domain.names import parse_operation
from gemmetry.domain.record import BuildFacts, Trait
from gemmetry.domain.settings import VERIFICATION_LEVELS as LEVELS
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import apply_epilogue, compute_reference, factors_of_product
from gemmetry.numerics.storage import to_float32, to_float64
from gemmetry.verification import protocol
from gemmetry.verification.checks import CheckResult
from gemmetry.verification.checks.calls import CALLS, CALLS_UNDER_LOAD, FEWEST_CALLS
from gemmetry.verification.checks.changes import FEWEST_CHANGES, MOST_CHANGES
from gemmetry.verification.checks.results import failed
from gemmetry.verification.protocol import CHECKS, launches, verify, with_check

LAUNCHES = {level: launches(level) for level in LEVELS}
"""Number of launches by level, where all of its checks apply and a launch is fast."""
BF16 = "matmul_128x128x512_bf16t_bf16t_bf16t"
F32 = "matmul_96x80x512_f32t_f32n_f32t"
F64 = "matmul_64x48x128_f64t_f64t_f64t"
S8 = "matmul_64x48x2048_s8t_s8n_s32t"


def operands(tensors):
    return to_float32(tensors["lhs"]), to_float32(tensors["rhs"])


def product(operation, tensors):
    """float32 BLAS: what a right kernel computes."""
    a, b = map(to_float32, factors_of_product(operation, tensors))
    return apply_epilogue(operation, to_float64(a @ b), tensors)


def edit(change):
    """A kernel whose right result is changed in place, or replaced by what `change` returns."""

    def kernel(operation, tensors):
        result = product(operation, tensors)
        changed = change(result)
        return result if changed is None else changed

    return kernel


def accumulating(rounding, step):
    """A kernel that rounds its running sum with `rounding` after every `step` of k."""

    def kernel(operation, tensors):
        a, b = to_float64(tensors["lhs"]), to_float64(tensors["rhs"])
        total = np.zeros((a.shape[0], b.shape[1]), dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            for k in range(0, a.shape[1], step):
                total = to_float64(rounding(total + a[:, k : k + step] @ b[k : k + step]))
        return total

    return kernel


def truncated(values, bits):
    """Rounded towards zero at `bits` significand bits."""
    _, exponent = np.frexp(values)
    step = np.ldexp(1.0, exponent - bits)
    return np.trunc(values / step) * step


def zero_row(result):
    result[-1] = 0


RIGHT = {
    "blas": (BF16, product),
    "truncating tensor core": (BF16, accumulating(lambda v: truncated(v, 24), 16)),
    "truncating tensor core, f32 result": (
        "matmul_64x48x4096_bf16t_bf16t_f32t", accumulating(lambda v: truncated(v, 24), 16)),
    "float64 sums": (F32, lambda o, t: to_float64(t["lhs"]) @ to_float64(t["rhs"])),
    "fp8 promoted every 128": (
        "matmul_48x32x1024_e4m3t_e4m3n_bf16t", accumulating(lambda v: v.astype(np.float32), 128)),
    "f16 accumulator promised": (
        "matmul_48x32x256_f16t_f16t_f16t_accf16",
        accumulating(lambda v: v.astype(np.float16), 16)),
    "s8": (S8, lambda o, t: to_float64(t["lhs"]) @ to_float64(t["rhs"])),
    "f64 in blocks": (F64, accumulating(lambda v: v, 16)),
    "alpha, beta, bias, relu": (f"{F32}_alpha0p3_betam1p5_bias_relu", product),
    "batch, gelu, column-major": ("batch_matmul_3x17x9x33_f16n_f16n_f16n_bias_gelu", product),
    "row scales": ("matmul_33x17x65_e4m3t_e5m2n_f16t_scalerow", product),
    "fp8 blocks": ("matmul_40x33x300_e4m3t_e4m3n_bf16t_vs1x128_vs128x128_alpha2", product),
    "MXFP8": ("matmul_33x40x160_e5m2t_e4m3n_f32t_vs32_e8m0_bias_relu", product),
    "NVFP4": ("batch_matmul_2x16x24x96_e2m1t_e2m1n_f16n_vs16_e4m3", product),
    "one row": ("matmul_1x48x256_bf16t_bf16n_bf16t", product),
    "one column, one k": ("matmul_48x1x1_f32t_f32t_f32n", product),
}  # fmt: skip


@pytest.mark.parametrize("kernel_name", list(RIGHT))
@pytest.mark.parametrize("distribution", ["offset_uniform", "normal", "uniform_signed"])
def test_right_kernels_pass(judge, kernel_name, distribution):
    name, kernel = RIGHT[kernel_name]
    verdict = judge(name, kernel, distribution=distribution)
    assert verdict.reason == ""
    assert verdict.status is Verification.PASSED
    assert verdict.max_error_ratio <= 1
    assert all(not text.startswith(("failed", "warned")) for text in verdict.checks.values())


def test_overflow_to_infinity_is_right(judge):
    name = "matmul_16x16x512_f16t_f16t_f16t_alpha4096"
    verdict = judge(name, product)
    assert verdict.status is Verification.PASSED
    clipped = judge(name, edit(lambda r: np.minimum(r, 65504.0)))
    assert clipped.status is Verification.FAILED


def test_saturating_fp8_result_is_right(judge):
    name = "matmul_16x16x2048_e4m3t_e4m3n_e4m3t"
    assert judge(name, product).status is Verification.PASSED
    saturated = edit(lambda r: np.clip(r, -448.0, 448.0))
    assert judge(name, saturated).status is Verification.PASSED


def test_fp8_without_promotion_is_recognised(judge):
    name = "matmul_48x32x4096_e4m3t_e4m3n_f32t"
    kernel = accumulating(lambda v: truncated(v, 14), 32)
    verdict = judge(name, kernel, level="quick")
    assert verdict.status is Verification.FAILED
    assert verdict.accuracy_class == "fp8-14bit"
    facts = BuildFacts(declared=(Trait.FP8_FAST_ACCUMULATION,))
    declared = judge(name, kernel, facts=facts)
    assert declared.status is Verification.PASSED
    assert declared.checks["fp8_promotion"].startswith("not applicable: declared")


def test_nondeterministic_kernel_is_warned_not_failed(judge):
    rng = np.random.default_rng(1)

    def kernel(operation, tensors):
        a, b = operands(tensors)
        order = rng.permutation(a.shape[1])
        return to_float64(
            np.add.reduce(
                [a[:, part] @ b[part] for part in np.array_split(order, 8)], dtype=np.float32
            )
        )

    verdict = judge(F32, kernel)
    assert verdict.status is Verification.WARNED
    assert verdict.checks["repeat"].startswith("warned: not deterministic")
    assert verdict.checks["values"] == "passed"


def test_unfused_epilogue_is_warned(judge):
    name = "matmul_64x64x64_bf16t_bf16t_bf16t_bias"

    def kernel(operation, tensors):
        a, b = operands(tensors)
        rounded = (a @ b).astype(ml_dtypes.bfloat16)
        return to_float64(rounded) + to_float64(tensors["bias"])

    verdict = judge(name, kernel, distribution="normal")
    assert verdict.status is Verification.WARNED


class TestMemory:
    def test_never_written(self, judge):
        def keep_sentinel(inputs, output, launch):
            output.view(np.uint8)[-1] = 0xFF if launch == 1 else 0x7F

        verdict = judge(BF16, product, meddle=keep_sentinel)
        assert verdict.checks["written"] == "failed: 128 of 16384 elements were never written"

    def test_accumulates_into_its_output(self, judge, executable_of):
        operation = parse_operation(F32)
        inputs = make_inputs(operation, distribution="normal", seed=42)

        class Accumulating(executable_of):
            def run(self, buffers, output):
                # NaN from the first sentinel is ignored, so that only the second launch shows it.
                before = np.nan_to_num(output.copy(), nan=0.0)
                super().run(buffers, output)
                output += before
                return output

        verdict = verify(
            Accumulating(operation, product), operation, inputs,
            compute_reference(operation, inputs),
        )  # fmt: skip
        assert verdict.checks["values"] == "passed"
        assert "adds to the old output" in verdict.checks["second_launch"]

    def test_changes_an_input(self, judge):
        def scribble(inputs, output, launch):
            inputs[1][0, 0] = 3.0

        verdict = judge(F32, product, meddle=scribble, level="quick")
        assert verdict.checks["inputs_unchanged"] == "failed: the launch changed rhs"
        assert verdict.checks["values"] == "passed"
        assert verdict.status is Verification.FAILED

    def test_writes_past_its_output(self, judge):
        def overrun(inputs, output, launch):
            memory, end = output.base, output.ctypes.data + output.nbytes
            memory[end - memory.ctypes.data] = 1

        verdict = judge(F32, product, meddle=overrun, level="quick")
        assert verdict.checks["red_zones"].startswith("failed: the launch wrote outside")

    def test_returns_an_input(self, judge):
        verdict = judge(
            "matmul_64x64x64_f32t_f32t_f32t", product, meddle=lambda i, o, n: i[0], level="quick"
        )
        assert verdict.checks == {"form": "failed: the result is the buffer of lhs, not a new one"}

    def test_wrong_dtype_or_shape_ends_it(self, judge):
        wrong_dtype = judge(F32, meddle=lambda i, o, n: o.astype(np.float64), writes_output=False)
        assert wrong_dtype.reason == "form: the result is float64, not float32"
        wrong_shape = judge(F32, meddle=lambda i, o, n: o[1:].copy(), writes_output=False)
        assert "has shape (95, 80), not (96, 80)" in wrong_shape.reason

    def test_own_output_leaves_checks_out(self, judge):
        verdict = judge(F32, product, writes_output=False)
        assert verdict.status is Verification.PASSED
        assert verdict.checks["written"].startswith("not applicable: ")


def test_levels_add_checks(judge):
    counts = [len(judge(F32, product, level=level).checks) for level in LEVELS]
    assert counts == [5, 37, 43]
    assert len(CHECKS) + 1 == 43
    with pytest.raises(UnknownNameError, match="thorough"):
        judge(F32, level="thorough")


def test_quick_launches_once(executable_of):
    operation = parse_operation(F32)
    inputs = make_inputs(operation, distribution="normal", seed=42)
    executable = executable_of(operation, product)
    reference = compute_reference(operation, inputs)
    verify(executable, operation, inputs, reference, level="quick")
    assert executable.launches == 1
    verify(executable, operation, inputs, reference, level="standard")
    assert executable.launches == 1 + 41


def test_verdict_reports_the_errors(judge):
    verdict = judge(BF16, product, level="quick")
    assert 0 < verdict.max_error_ratio <= 1
    assert 1e-3 < verdict.relative_frobenius_error < 2e-3
    assert abs(verdict.signed_bias) < 0.05
    assert verdict.accuracy_class == "fp32-accumulated"
    assert verdict.zero_share == 0.0
    truncating = judge(BF16, edit(lambda r: truncated(r, 8)), level="quick")
    assert truncating.signed_bias < -0.4


def test_all_nan_has_no_error_sizes(judge):
    verdict = judge(BF16, edit(lambda r: np.full_like(r, np.nan)), level="quick")
    assert verdict.max_error_ratio is None
    assert verdict.accuracy_class is None
    assert "NaN" in verdict.reason


def test_reason_names_place_and_kind(judge):
    verdict = judge(BF16, edit(zero_row), level="quick")
    assert "zeros" in verdict.reason and "rows from 127" in verdict.reason
    assert verdict.first_bad.startswith("[127, 0]: got 0, expected ")
    assert verdict.first_bad in verdict.reason


def test_a_failure_after_timing_enters_the_verdict(judge):
    verdict = judge(BF16, product, level="quick")
    same = with_check(verdict, CheckResult("after_timing"))
    assert same.status is Verification.PASSED
    assert same.checks["after_timing"] == "passed"
    changed = with_check(verdict, failed("after_timing", "0: all wrong"))
    assert changed.status is Verification.FAILED
    assert changed.reason.startswith("after_timing: 0: all wrong")


# What does not apply to F32: subnormals, overflow, fp8_promotion, scale_factors, addend_cancels,
# and the second launch of inf_spreads, which is relu's.
LEFT_OUT = {"quick": 0, "standard": 6, "paranoid": 7}


@pytest.mark.parametrize("level", LEVELS)
def test_the_number_of_launches_is_reported(level, executable_of, monkeypatch):
    operation = parse_operation(F32)
    inputs = make_inputs(operation, distribution="offset_uniform", seed=42)
    executable = executable_of(operation, product)
    made = []
    run = executable.run

    def count(buffers, output):
        made.append(output)
        return run(buffers, output)

    monkeypatch.setattr(executable, "run", count)
    verify(executable, operation, inputs, compute_reference(operation, inputs), level=level)
    assert len(made) == LAUNCHES[level] - LEFT_OUT[level]


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
    assert launches("quick", 10.0) == 1
    assert launches("thorough") == 0
