"""What one check found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

BUGS = (LookupError, RecursionError, NameError, AttributeError, TypeError, ArithmeticError,
        StopIteration, EOFError, BufferError, SystemError)  # fmt: skip
"""Exceptions that Python raises for programming errors. A kernel rejects a shape with others, such
as ValueError, NotImplementedError, AssertionError or RuntimeError; these are tested after
RecursionError, which is a subclass of RuntimeError."""


class CheckOutcome(StrEnum):
    PASSED = "passed"
    WARNED = "warned"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"
    INCOMPLETE = "incomplete"
    """What was tried is correct, but the check was cut short."""
    PROPERTY = "property"
    """Not wrong, but worth knowing: a range, or a relation between results, that does not hold."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check found."""

    name: str
    outcome: CheckOutcome = CheckOutcome.PASSED
    detail: str = ""
    """One line: why the check did not pass, or what a passed check left out, if anything."""
    first_bad: str = ""
    refused: int = 0
    """Shapes that the configuration rejected; others were tried instead where possible."""

    @property
    def text(self) -> str:
        """The text in ``Verdict.checks``: ``passed``, ``failed: why`` ..."""
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


def incomplete(name: str, detail: str) -> CheckResult:
    return CheckResult(name, CheckOutcome.INCOMPLETE, detail)


def property_of(name: str, detail: str) -> CheckResult:
    return CheckResult(name, CheckOutcome.PROPERTY, detail)


def not_applicable(name: str, detail: str) -> CheckResult:
    return CheckResult(name, CheckOutcome.NOT_APPLICABLE, detail)


def raised(error: BaseException) -> str:
    """An exception described in one line."""
    line = str(error).strip().partition("\n")[0]
    return f"raised {type(error).__name__}: {line}".rstrip(": ")
