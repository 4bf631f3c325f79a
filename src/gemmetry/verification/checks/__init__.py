"""The checks of verification by theme: each is a small named unit that examines results of
launches. This module has the result of one check; the others hold the checks themselves.
"""

from __future__ import annotations

import dis
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import TracebackType

from gemmetry.domain.errors import DispatchError, WrongResultError

BUGS = (LookupError, RecursionError, NameError, AttributeError, TypeError, ArithmeticError,
        StopIteration, EOFError, BufferError, SystemError)  # fmt: skip
"""Exceptions that Python raises for programming errors. A kernel rejects a shape with others, such
as ValueError, NotImplementedError, AssertionError or RuntimeError; these are tested after
RecursionError, which is a subclass of RuntimeError."""

LIMITS = (ValueError, AssertionError, RuntimeError)
"""Exceptions with which a kernel states a limit, if a statement of its own raises them."""

_LIBRARIES = ("site-packages", "dist-packages", Path(dis.__file__).parent.name)
"""Folders that hold libraries, and Python's own."""
_PACKAGE = str(Path(__file__).resolve().parents[2])
_RAISE = frozenset({dis.opmap["RAISE_VARARGS"], dis.opmap["RERAISE"]})


class CheckOutcome(StrEnum):
    PASSED = "passed"
    WARNED = "warned"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"
    INCOMPLETE = "incomplete"
    """Attempts were correct, but the check was cut short."""
    PROPERTY = "property"
    """Not wrong, but worth knowing: a range, or a relation between results, that does not hold."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of one check."""

    name: str
    """Name; "": that of the returning check (:func:`gemmetry.verification.context.run_check`)."""
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

    def because(self, why: str, separator: str = "; ") -> CheckResult:
        """A failure whose detail begins with `why`."""
        return replace(self, detail=f"{why}{separator}{self.detail}")


def passed(detail: str = "", name: str = "") -> CheckResult:
    return CheckResult(name, CheckOutcome.PASSED, detail)


def failed(detail: str, first_bad: str = "", name: str = "") -> CheckResult:
    return CheckResult(name, CheckOutcome.FAILED, detail, first_bad)


def warned(detail: str, name: str = "") -> CheckResult:
    return CheckResult(name, CheckOutcome.WARNED, detail)


def incomplete(detail: str) -> CheckResult:
    return CheckResult("", CheckOutcome.INCOMPLETE, detail)


def property_of(detail: str) -> CheckResult:
    return CheckResult("", CheckOutcome.PROPERTY, detail)


def not_applicable(detail: str, name: str = "") -> CheckResult:
    return CheckResult(name, CheckOutcome.NOT_APPLICABLE, detail)


def bug_of(error: BaseException) -> str:
    """Bug of a kernel that ended with `error`; "" if `error` states a limit.

    A provider states a limit with a DispatchError that no other exception caused. A kernel does so
    by a ``raise`` or ``assert`` of its own, with an exception other than :data:`BUGS`. What a
    library (numpy, torch, triton) raised through a user's kernel, or what Python raised for an
    expression of the kernel, is a bug in the call. A library that a provider calls itself may
    refuse by RuntimeError.
    """
    if isinstance(error, WrongResultError):
        return str(error.message)
    cause = error.__cause__ if isinstance(error, DispatchError) else error
    if cause is None or isinstance(cause, MemoryError):
        return ""
    if isinstance(cause, BUGS):
        return f"{raised(cause)}, which is a bug, not a refusal"
    if isinstance(cause, NotImplementedError) or _is_own_statement(cause):
        return ""
    return f"{raised(cause)}, from a call or an expression, not by a statement: it refuses nothing"


def _is_own_statement(error: BaseException) -> bool:
    """Whether a ``raise`` or ``assert`` outside of libraries raised `error`, or a library that no
    user's code called."""
    trace: TracebackType | None = error.__traceback__
    if trace is None:
        return True
    passes_users = _is_users(trace)
    while trace.tb_next is not None:
        trace = trace.tb_next
        passes_users |= _is_users(trace)
    is_kernels = _is_users(trace) or trace.tb_frame.f_code.co_filename.startswith(_PACKAGE)
    if is_kernels and trace.tb_frame.f_code.co_code[trace.tb_lasti] in _RAISE:
        return True
    return not passes_users and isinstance(error, RuntimeError)


def _is_users(trace: TracebackType) -> bool:
    """Whether the code at `trace` is neither ours nor that of a library."""
    file = trace.tb_frame.f_code.co_filename
    if file.startswith((_PACKAGE, "<")):
        return False
    return not set(_LIBRARIES).intersection(Path(file).parts)


def raised(error: BaseException) -> str:
    """An exception described in one line."""
    line = str(error).strip().partition("\n")[0]
    return f"raised {type(error).__name__}: {line}".rstrip(": ")
