"""alpha, beta and scale factors: every right order of operations passes, wrong factors do not."""

from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.names import parse_operation
from gemmetry.numerics.storage import quantize, to_float32
from gemmetry.verification.inputs import exact as exact_inputs
from gemmetry.verification.inputs import scaled


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
    case = scaled.selects_lhs(operation, 1, np.matmul, round_once=False)
    assert case.folded_terms == 2
    assert (case.reference.magnitude >= np.abs(case.reference.value)).all()
