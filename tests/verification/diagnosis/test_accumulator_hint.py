from __future__ import annotations

import pytest
from tests.verification.conftest import FakeExecutable, accumulating, drawn

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.errors import Verification
from gemmetry.numerics.storage import quantize, to_float64
from gemmetry.verification.companions import Companions
from gemmetry.verification.protocol import verify, with_accumulator_hint

NAME = "matmul_33x47x96_bf16t_bf16t_f32t"


def in_blocks(dtype, *, skipped=0):
    """A kernel that keeps its sums of sixteen products each in `dtype`, and skips some of K."""
    kernel = accumulating(lambda total: quantize(total, dtype), 16)

    def skipping(operation, tensors):
        k = operation.matmul_shape.k - skipped
        return kernel(operation, {"lhs": tensors["lhs"][:, :k], "rhs": tensors["rhs"][:k]})

    return skipping


def hinted(name, kernel, *, supports=True):
    """The verdict with a hint, and what was built for the hint."""
    given = drawn(name)
    built = []

    def build(other):
        built.append(other)
        return FakeExecutable(other, kernel) if supports else None

    others = Companions(build, (16, 16, 16))
    verdict = verify(FakeExecutable(given[0], kernel), *given, companions=others)
    built.clear()
    return with_accumulator_hint(verdict, *given, others, level="standard", seed=42), built


@pytest.mark.parametrize("name", [NAME, "matmul_33x47x96_bf16t_bf16t_bf16t"])
def test_the_option_is_suggested_for_a_kernel_that_accumulates_in_bf16(name):
    operation = parse_operation(name)
    verdict, built = hinted(name, in_blocks(operation.signature.lhs))
    assert verdict.status is Verification.FAILED
    assert verdict.reason.endswith("accumulates in bf16: --accumulator bf16")
    assert built[0].signature.accumulator is operation.signature.lhs


def test_nothing_is_suggested_that_does_not_pass():
    bf16 = parse_operation(NAME).signature.lhs
    verdict, built = hinted(NAME, in_blocks(bf16, skipped=8))
    assert built, "its errors are within the bound of such sums"
    assert "--accumulator" not in verdict.reason
    verdict, _ = hinted(NAME, in_blocks(bf16), supports=False)
    assert "--accumulator" not in verdict.reason


def test_a_right_kernel_and_another_bug_cost_no_second_verification():
    verdict, built = hinted(NAME, in_blocks(parse_operation(NAME).signature.result))
    assert (verdict.status, built) == (Verification.PASSED, [])
    verdict, built = hinted(NAME, lambda _, t: 0 * to_float64(t["lhs"]) @ to_float64(t["rhs"]))
    assert (verdict.status, built) == (Verification.FAILED, [])
