from __future__ import annotations

from gemmetry.verification import checks
from gemmetry.verification.checks import CheckResult


def test_text_is_what_the_verdict_holds():
    assert CheckResult("values").text == "passed"
    assert checks.passed("values", "but").text == "passed: but"
    assert checks.failed("values", "why").text == "failed: why"
    assert checks.not_applicable("values", "why").text == "not applicable: why"
    assert checks.warned("values", "why").text == "warned: why"


def test_only_failures_are_failures():
    assert checks.failed("values", "why").is_failure
    assert not checks.warned("values", "why").is_failure
    assert not checks.not_applicable("values", "why").is_failure
