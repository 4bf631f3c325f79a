"""A check is added by its function and its row in ``CHECKS``; everything else follows."""

from __future__ import annotations

from gemmetry.domain.errors import Verification
from gemmetry.verification import protocol
from gemmetry.verification.checks import failed, passed
from gemmetry.verification.protocol import CHECKS, Check, launches, missing_checks

F32 = "matmul_17x13x24_f32t_f32t_f32t"


def check_not_all_alike(context):
    """A result whose elements are all equal shows that the inputs were not used."""
    result = context.first.output
    if (result == result.flat[0]).all():
        return failed("all elements are equal")
    return passed()


def test_its_result_is_in_verdicts_and_the_first_failure_decides(judge, monkeypatch):
    monkeypatch.setattr(protocol, "CHECKS", (Check("quick", check_not_all_alike, 2), *CHECKS))
    right = judge(F32, level="quick")
    assert (right.status, right.checks["not_all_alike"]) == (Verification.PASSED, "passed")
    wrong = judge(F32, lambda o, t: 0 * (t["lhs"] @ t["rhs"]), level="quick")
    assert wrong.status is Verification.FAILED
    assert "all elements are equal" in wrong.reason


def test_launches_count_and_a_verdict_without_it_is_incomplete(judge, monkeypatch):
    before, old = launches("quick"), judge(F32, level="quick")
    assert missing_checks(old, "quick") == ()
    row = Check("standard", check_not_all_alike, 2)
    monkeypatch.setattr(protocol, "CHECKS", (*CHECKS, row))
    assert (launches("quick"), missing_checks(old, "quick")) == (before, ())
    assert "not_all_alike" in missing_checks(old, "standard")
    assert "not_all_alike" not in judge(F32, level="quick").checks
