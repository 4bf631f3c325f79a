"""alpha, beta and scale factors: every right order of operations passes, wrong factors do not."""

from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.names import parse_operation
from gemmetry.domain.operation import EpilogueStep
from gemmetry.numerics.references import gelu
from gemmetry.numerics.storage import numpy_dtype, quantize, to_float32, to_float64
from gemmetry.verification.inputs import exact as exact_inputs
from gemmetry.verification.inputs import selections

FORMATS = ("f16t_f16t_f16t", "bf16t_bf16t_bf16t", "f32t_f32t_f32t", "f64t_f64t_f64t")
FACTORS = ("alpha0p1", "alpha0p3333_beta1p7", "alpha1p7_betam2", "alpham2", "alpham2_beta0p1")
STEPS = ("", "_bias", "_residual", "_gelu", "_bias_relu")


def ordered(order, alpha=None, beta=None):
    """A kernel that applies the factors in that order, in the accumulator's format."""

    def kernel(operation, tensors):
        s = operation.signature
        wide = numpy_dtype(s.accumulator).type
        widen = to_float64 if s.accumulator.significand_bits > 24 else to_float32
        a, b = widen(tensors["lhs"]), widen(tensors["rhs"])
        by = wide(s.alpha if alpha is None else alpha(s.alpha))
        addend = wide(0)
        if "addend" in tensors:
            addend = wide(s.beta if beta is None else beta(s.beta)) * widen(tensors["addend"])
        if order == "in_a":
            value = (a * by) @ b + addend
        elif order == "in_b":
            value = a @ (b * by) + addend
        elif order == "addend_first":
            value = addend + np.zeros(operation.output.shape, wide)
            for k in range(a.shape[-1]):
                value = value + (a[:, k : k + 1] * by) * b[k]
        else:
            value = (a @ b) * by + addend
        for step in s.epilogue:
            if step is EpilogueStep.RELU:
                value = np.maximum(value, 0)
            elif step is EpilogueStep.GELU:
                value = gelu(to_float64(value)).astype(wide)
            else:
                value = value + widen(tensors[str(step)])
        return quantize(value, s.result)

    return kernel


@pytest.mark.parametrize("formats", FORMATS)
@pytest.mark.parametrize("factors", FACTORS)
@pytest.mark.parametrize("order", ["in_a", "in_b", "addend_first", "behind"])
def test_every_order_of_factors_passes(judge, formats, factors, order):
    verdict = judge(f"matmul_48x40x72_{formats}_{factors}", ordered(order))
    assert (verdict.status, verdict.reason) == ("passed", "")


@pytest.mark.parametrize("formats", FORMATS)
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("order", ["in_b", "addend_first"])
def test_orders_of_factors_pass_at_paranoid_with_what_follows(judge, formats, steps, order):
    name = f"matmul_24x20x40_{formats}_alpha0p3333_beta1p7{steps}"
    verdict = judge(name, ordered(order), level="paranoid")
    assert (verdict.status, verdict.reason) == ("passed", "")


@pytest.mark.parametrize("order", ["in_a", "addend_first"])
def test_orders_of_factors_pass_on_other_shapes_and_factors(judge, order):
    name = "matmul_24x20x40_f32t_f32t_f32t_alpha0p1_beta1p7"
    verdict = judge(name, ordered(order), tile=(8, 8, 4))
    assert (verdict.status, verdict.reason) == ("passed", "")
    assert verdict.checks["alpha_beta"].startswith("passed")


def rounded_to(dtype):
    return lambda value: float(to_float64(quantize(np.array([value]), dtype))[0])


@pytest.mark.parametrize(
    ("alpha", "beta"),
    [
        (lambda alpha: alpha * alpha, None),
        (float.__trunc__, None),
        (rounded_to(parse_operation("matmul_8x8x8_f16t_f16t_f16t").signature.lhs), None),
        (rounded_to(parse_operation("matmul_8x8x8_bf16t_bf16t_bf16t").signature.lhs), None),
        (None, lambda beta: 0.0),
        (None, lambda beta: 1.0),
        (None, rounded_to(parse_operation("matmul_8x8x8_bf16t_bf16t_bf16t").signature.lhs)),
    ],
)
@pytest.mark.parametrize("order", ["in_a", "addend_first", "behind"])
def test_other_factors_do_not_pass(judge, order, alpha, beta):
    name = "matmul_48x40x72_f32t_f32t_f32t_alpha0p1_beta1p7"
    assert judge(name, ordered(order, alpha, beta)).status == "failed"


def ties(even):
    """A right product in f32 whose bits are rounded to bf16 here; halfway cases to even or away."""

    def kernel(operation, tensors):
        bits = (to_float32(tensors["lhs"]) @ to_float32(tensors["rhs"])).view(np.uint32)
        up = 0x7FFF + ((bits >> np.uint32(16)) & 1) if even else np.uint32(0x8000)
        rounded = ((bits + up) & np.uint32(0xFFFF0000)).view(np.float32)
        product = bits.view(np.float32)
        finite = np.where(np.isfinite(product), rounded, product)
        return quantize(finite, operation.signature.result)

    return kernel


def test_halfway_cases_of_bf16_go_to_even(judge):
    assert judge("matmul_64x48x96_bf16t_bf16t_bf16t", ties(even=True)).status == "passed"
    away = judge("matmul_64x48x96_bf16t_bf16t_bf16t", ties(even=False))
    assert away.checks["values"] == "passed"
    assert away.checks["integers"].startswith("failed")


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
    case = selections.selects_lhs(operation, 1, np.matmul, round_once=False)
    assert case.folded_terms == 2
    assert (case.reference.magnitude >= np.abs(case.reference.value)).all()
