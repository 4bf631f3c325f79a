from __future__ import annotations

import pytest

from gemmetry.domain.errors import (
    CompileError,
    DeviceLostError,
    LaunchError,
    Outcome,
    OutOfMemoryError,
    Stage,
    UnknownNameError,
    UnsupportedError,
)
from gemmetry.engine.protocol import (
    HUNG_REASON,
    describe,
    ending_of,
    ending_of_death,
    first_useful_line,
    timeout_reason,
)


class _OwnCompileError(CompileError):
    """A provider's own."""


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (CompileError("x"), Outcome.COMPILE_ERROR),
        (_OwnCompileError("x"), Outcome.COMPILE_ERROR),
        (LaunchError("x"), Outcome.LAUNCH_ERROR),
        (OutOfMemoryError("x"), Outcome.OUT_OF_MEMORY),
        (MemoryError(), Outcome.OUT_OF_MEMORY),
        (UnsupportedError("x"), Outcome.UNSUPPORTED),
        (UnknownNameError("configuration", "x", []), Outcome.UNSUPPORTED),
        (ZeroDivisionError("x"), Outcome.CRASH),
    ],
)
def test_exceptions_become_outcomes(error, outcome):
    ending = ending_of(describe(error), "")
    assert ending.outcome is outcome
    assert ending.reason


def test_the_hint_is_kept_and_a_long_message_goes_to_the_tail():
    error = CompileError("command failed\nin.mlir:3:5: error: bad tile\nmore", hint="Fix it.")
    ending = ending_of(describe(error), "printed")
    assert ending.reason == "in.mlir:3:5: error: bad tile (Fix it.)"
    assert ending.output_tail == "printed\ncommand failed\nin.mlir:3:5: error: bad tile\nmore"


def test_an_unexpected_exception_keeps_its_traceback():
    try:
        raise ZeroDivisionError("division by zero")
    except ZeroDivisionError as error:
        ending = ending_of(describe(error), "")
    assert ending.reason == "ZeroDivisionError: division by zero"
    assert "test_failures.py" in ending.output_tail


def test_a_lost_device_keeps_its_kind():
    assert describe(DeviceLostError("gone")).kind == "DeviceLostError"


@pytest.mark.parametrize(
    ("status", "tail", "memory_ran_out", "outcome", "reason"),
    [
        (-11, "", False, Outcome.CRASH, "the worker process died of SIGSEGV"),
        (-9, "", True, Outcome.OUT_OF_MEMORY, "the system killed the worker, as memory ran out"),
        (-9, "", False, Outcome.CRASH, "the worker process died of SIGKILL"),
        (-6, "free(): invalid pointer\nFatal Python error: Aborted", False, Outcome.CRASH,
         "the worker process was ended by its own code, which called abort() (SIGABRT): Fatal "
         "Python error: Aborted"),
        (-14, "File x", False, Outcome.TIMEOUT, HUNG_REASON),
        (3, "", False, Outcome.CRASH, "the worker process ended with status 3"),
    ],
)  # fmt: skip
def test_deaths_become_outcomes(status, tail, memory_ran_out, outcome, reason):
    ending = ending_of_death(status, tail, memory_ran_out=memory_ran_out)
    assert (ending.outcome, ending.reason, ending.output_tail) == (outcome, reason, tail)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("\n  \n", ""),
        ("one\ntwo", "one"),
        ("note\nx: error: bad\nerror: later", "x: error: bad"),
        ("compile_error is a name\nreal", "compile_error is a name"),
    ],
)
def test_first_useful_line(text, line):
    assert first_useful_line(text) == line


def test_a_missed_deadline_explains_how_to_raise_it():
    assert timeout_reason(Stage.VERIFY, "verifying", 120.0, 120.0) == (
        "verifying took longer than 120 s (raise it with --set deadlines.verify=240)"
    )
