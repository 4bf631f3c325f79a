from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.names import parse_operation
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.verification import checks
from gemmetry.verification.checks import CaseCache, CheckOutcome, CheckResult, Context
from gemmetry.verification.exact_inputs import integers
from gemmetry.verification.launching import Launcher


@pytest.fixture
def context_of(executable_of):
    def make(name, **how):
        operation = parse_operation(name)
        inputs = make_inputs(operation, distribution="normal", seed=42)
        launcher = Launcher(executable_of(operation, **how), operation)
        return Context(launcher, operation, inputs, compute_reference(operation, inputs), 42)

    return make


def test_text_is_what_the_verdict_holds():
    assert CheckResult("values").text == "passed"
    assert checks.failed("values", "why").text == "failed: why"
    assert checks.not_applicable("values", "why").text == "not applicable: why"
    assert checks.warned("values", "why").text == "warned: why"


def test_launches_happen_once(context_of):
    context = context_of("matmul_8x6x16_f32t_f32t_f32t")
    checks.check_values(context)
    checks.check_written(context)
    checks.check_inputs_unchanged(context)
    assert context.executable.launches == 1
    checks.check_repeat(context)
    checks.check_second_launch(context)
    assert context.executable.launches == 2


def test_fp8_value_that_looks_like_the_sentinel_counts_as_written(context_of):
    """0xFF is -240 in e4m3fnuz, which a right result may hold."""
    name = "matmul_64x64x16_e4m3fnuzt_e4m3fnuzn_e4m3fnuzt_alpham32"
    context = context_of(name)
    assert (context.first.output.view(np.uint8) == 0xFF).any()
    assert checks.check_written(context).outcome is CheckOutcome.PASSED


def test_exact_check_is_not_applicable_where_sums_round(context_of):
    context = context_of("matmul_8x6x4096_bf16t_bf16t_bf16t_accbf16")
    result = checks.check_integers(context)
    assert result.text == "not applicable: sums of K=4096 round in bf16"


def test_zero_mean_and_many_repeats_pass_a_right_kernel(context_of):
    context = context_of("matmul_8x6x16_f32t_f32t_f32t")
    assert checks.check_zero_mean(context).outcome is CheckOutcome.PASSED
    assert checks.check_many_repeats(context).outcome is CheckOutcome.PASSED
    assert context.executable.launches == 1 + 1 + checks.REPEATS


def test_rare_nondeterminism_is_found_by_many_repeats(context_of):
    def flip_late(inputs, output, launch):
        if launch == 12:
            output[0, 0] = np.nextafter(output[0, 0], np.float32(np.inf))

    context = context_of("matmul_8x6x16_f32t_f32t_f32t", meddle=flip_late)
    assert checks.check_repeat(context).outcome is CheckOutcome.PASSED
    result = checks.check_many_repeats(context)
    assert result.outcome is CheckOutcome.WARNED
    assert "1 of 48 elements" in result.detail


def test_large_products_are_left_to_the_device(context_of, monkeypatch):
    context = context_of("matmul_8x6x16_f32t_f32t_f32t")
    assert context.matmul is np.matmul
    monkeypatch.setattr(checks, "HOST_PRODUCT_FLOPS", 100)
    assert context.matmul is np.matmul  # This device offers none.
    seen = []

    def multiply(a, b):
        seen.append((a.dtype, b.dtype))
        return a @ b

    monkeypatch.setattr(context.executable.device, "float64_matmul", lambda: multiply)
    assert checks.check_zero_mean(context).outcome is CheckOutcome.PASSED
    assert seen and all(pair == (np.float64, np.float64) for pair in seen)


def test_cases_are_kept_within_their_limit(monkeypatch):
    operations = [parse_operation(f"matmul_8x8x{k}_f32t_f32t_f32t") for k in (8, 16)]
    made = []

    def make(operation, seed, matmul):
        made.append(operation)
        return integers(operation, seed, matmul)

    cache = CaseCache()
    cases = [cache.get("integers", make, operation, 1, np.matmul) for operation in operations]
    assert cache.get("integers", make, operations[0], 1, np.matmul) is cases[0]
    assert made == operations
    monkeypatch.setattr(checks, "CASE_CACHE_BYTES", cases[1].nbytes)
    third = parse_operation("matmul_8x8x8_f32t_f32n_f32t")
    cache.get("integers", make, third, 1, np.matmul)
    cache.get("integers", make, operations[1], 1, np.matmul)
    assert made == [*operations, third, operations[1]]
