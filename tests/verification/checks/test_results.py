from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.errors import LaunchError, UnsupportedError, WrongResultError
from gemmetry.verification import checks as results
from gemmetry.verification.checks import CheckResult, bug_of


@pytest.mark.parametrize(("result", "text"), [
    (CheckResult("values"), "passed"), (results.passed("but"), "passed: but"),
    (results.failed("why"), "failed: why"), (results.warned("why"), "warned: why"),
    (results.not_applicable("why"), "not applicable: why"),
])  # fmt: skip
def test_a_verdict_holds_the_text_and_only_failures_are_failures(result, text):
    assert result.text == text
    assert result.is_failure is text.startswith("failed")


def raised_by(function, *arguments):
    with pytest.raises(Exception) as found:
        function(*arguments)
    return found.value


def bugs_of(error):
    """The bugs of an error, and of another that it caused."""
    outer = LaunchError("it raised")
    outer.__cause__ = error
    return bug_of(error), bug_of(outer)


def stated(text):
    raise ValueError(text)


def asserted(size):
    assert size % 16 == 0, "multiples of 16"


def passes_on(size):
    try:
        asserted(size)
    except AssertionError as error:
        raise NotImplementedError("tails") from error


@pytest.mark.parametrize("error", [
    raised_by(stated, "M % 64"), raised_by(asserted, 3), raised_by(passes_on, 3),
    NotImplementedError("tails"),
])  # fmt: skip
def test_a_statement_of_the_kernel_is_a_refusal(error):
    assert bugs_of(error) == ("", "")


@pytest.mark.parametrize("wrong", [
    lambda: np.ones(3) + np.ones(4), lambda: np.ones(6).reshape(4, -1),
    lambda: np.split(np.ones(5), 2), lambda: int("rows"),
    lambda: np.frombuffer(b"abc", np.float32), lambda: [1][2], lambda: None.shape,
])  # fmt: skip
def test_what_a_library_or_an_expression_raised_is_a_bug(wrong):
    error = raised_by(wrong)
    assert all(type(error).__name__ in bug for bug in bugs_of(error))


def test_a_provider_refuses_by_an_error_of_its_own():
    assert bug_of(UnsupportedError("no tails")) == ""
    assert bug_of(WrongResultError("returned None")) == "returned None"
