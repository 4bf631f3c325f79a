from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.errors import Verification
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.numerics.storage import quantize, to_float64
from gemmetry.verification.companions import Companions
from gemmetry.verification.protocol import verify, with_accumulator_hint

NAME = "matmul_33x47x96_bf16t_bf16t_f32t"
TILE = (16, 16, 16)


def in_blocks(dtype, *, skipped=0):
    """A kernel that keeps its sums of eight products each in `dtype`."""

    def kernel(operation, tensors):
        a, b = to_float64(tensors["lhs"]), to_float64(tensors["rhs"])
        total = np.zeros((a.shape[0], b.shape[1]))
        for k in range(0, a.shape[1] - skipped, 8):
            partial = a[:, k : k + 8] @ b[k : k + 8]
            total = to_float64(quantize(total + partial, dtype))
        return total

    return kernel


@pytest.fixture
def hinted(executable_of):
    def run(name, kernel, *, supports=True):
        operation = parse_operation(name)
        inputs = make_inputs(operation, distribution="offset_uniform", seed=42)
        reference = compute_reference(operation, inputs)
        built = []

        def build(other):
            built.append(other)
            return executable_of(other, kernel) if supports else None

        companions = Companions(build, TILE)
        executable = executable_of(operation, kernel)
        verdict = verify(executable, operation, inputs, reference, companions=companions)
        built.clear()
        how = {"level": "standard", "seed": 42}
        return with_accumulator_hint(
            verdict, operation, inputs, reference, companions, **how
        ), built

    return run


@pytest.mark.parametrize("name", [NAME, "matmul_33x47x96_bf16t_bf16t_bf16t"])
def test_the_option_is_suggested_for_a_kernel_that_accumulates_in_bf16(hinted, name):
    operation = parse_operation(name)
    verdict, built = hinted(name, in_blocks(operation.signature.lhs))
    assert verdict.status is Verification.FAILED
    assert verdict.reason.endswith("accumulates in bf16: --accumulator bf16")
    assert built[0].signature.accumulator is operation.signature.lhs


def test_nothing_is_suggested_that_does_not_pass(hinted):
    bf16 = parse_operation(NAME).signature.lhs
    verdict, built = hinted(NAME, in_blocks(bf16, skipped=8))
    assert built, "its errors are within the bound of such sums"
    assert "--accumulator" not in verdict.reason
    verdict, _ = hinted(NAME, in_blocks(bf16), supports=False)
    assert "--accumulator" not in verdict.reason


def test_a_right_kernel_and_another_bug_cost_no_second_verification(hinted):
    verdict, built = hinted(NAME, in_blocks(parse_operation(NAME).signature.result))
    assert (verdict.status, built) == (Verification.PASSED, [])
    verdict, built = hinted(NAME, lambda _, t: 0 * to_float64(t["lhs"]) @ to_float64(t["rhs"]))
    assert (verdict.status, built) == (Verification.FAILED, [])
