from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.errors import LaunchError, UnsupportedError, WrongResultError
from gemmetry.verification import checks as results
from gemmetry.verification.checks import CheckResult, bug_of


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (CheckResult("values"), "passed"),
        (results.passed("but"), "passed: but"),
        (results.failed("why"), "failed: why"),
        (results.not_applicable("why"), "not applicable: why"),
        (results.warned("why"), "warned: why"),
    ],
)
def test_a_verdict_holds_the_text_and_only_failures_are_failures(result, text):
    assert result.text == text
    assert result.is_failure is text.startswith("failed")


def raised_by(function, *arguments):
    try:
        function(*arguments)
    except (AssertionError, AttributeError, LookupError, RuntimeError, ValueError) as error:
        return error
    raise AssertionError("it raised nothing")


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


@pytest.mark.parametrize(
    "error",
    [
        raised_by(stated, "M % 64"), raised_by(asserted, 3), raised_by(passes_on, 3),
        NotImplementedError("tails"),
    ],
)  # fmt: skip
def test_a_statement_of_the_kernel_is_a_refusal(error):
    assert bugs_of(error) == ("", "")


@pytest.mark.parametrize(
    "error",
    [
        raised_by(lambda: np.ones(3) + np.ones(4)),
        raised_by(lambda: np.ones(6).reshape(4, -1)),
        raised_by(np.split, np.ones(5), 2),
        raised_by(lambda: int("rows")),
        raised_by(lambda: np.frombuffer(b"abc", np.float32)),
        raised_by(lambda: [1][2]),
        raised_by(lambda: None.shape),
    ],
)
def test_what_a_library_or_an_expression_raised_is_a_bug(error):
    assert all(type(error).__name__ in bug for bug in bugs_of(error))


def test_a_provider_refuses_by_an_error_of_its_own():
    assert bug_of(UnsupportedError("no tails")) == ""
    assert bug_of(WrongResultError("returned None")) == "returned None"
