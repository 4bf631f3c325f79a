"""What one check found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

BUGS = (LookupError, RecursionError, NameError, AttributeError, TypeError, ArithmeticError,
        StopIteration, EOFError, BufferError, SystemError)  # fmt: skip
"""Exceptions that Python raises where code is wrong. A kernel that refuses a shape does so by
another, such as ValueError, NotImplementedError, AssertionError or RuntimeError; these are checked
after RecursionError, which is a RuntimeError as well."""


class CheckOutcome(StrEnum):
    PASSED = "passed"
    WARNED = "warned"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check found."""

    name: str
    outcome: CheckOutcome = CheckOutcome.PASSED
    detail: str = ""
    """Why, where it is not passed; one line. Where it is: what it left out, if anything."""
    first_bad: str = ""
    refused: int = 0
    """Shapes that the configuration refused; others were tried in place of them where possible."""

    @property
    def text(self) -> str:
        """As it stands in ``Verdict.checks``: ``passed``, ``failed: why`` ..."""
        return f"{self.outcome}: {self.detail}" if self.detail else str(self.outcome)

    @property
    def is_failure(self) -> bool:
        return self.outcome is CheckOutcome.FAILED


def passed(name: str, detail: str = "") -> CheckResult:
    return CheckResult(name, CheckOutcome.PASSED, detail)


def failed(name: str, detail: str, first_bad: str = "") -> CheckResult:
    return CheckResult(name, CheckOutcome.FAILED, detail, first_bad)


def warned(name: str, detail: str) -> CheckResult:
    return CheckResult(name, CheckOutcome.WARNED, detail)


def not_applicable(name: str, detail: str) -> CheckResult:
    return CheckResult(name, CheckOutcome.NOT_APPLICABLE, detail)


def raised(error: BaseException) -> str:
    """An exception in one line."""
    line = str(error).strip().partition("\n")[0]
    return f"raised {type(error).__name__}: {line}".rstrip(": ")
