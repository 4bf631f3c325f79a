"""The outcome of a dispatch."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """How a dispatch ended; every outcome except ``ok`` comes with a reason that a user can act
    on."""

    OK = "ok"
    WRONG = "wrong"
    COMPILE_ERROR = "compile_error"
    LAUNCH_ERROR = "launch_error"
    CRASH = "crash"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    UNSUPPORTED = "unsupported"
    SKIPPED = "skipped"

    @property
    def is_failure(self) -> bool:
        """True for outcomes that make the run exit with status 1 by themselves."""
        return self in _FAILURES

    @property
    def may_have_time(self) -> bool:
        """Only an ``ok`` dispatch carries timings."""
        return self is Outcome.OK


_FAILURES = {Outcome.WRONG, Outcome.CRASH, Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY}


class Stage(StrEnum):
    """The stages of a dispatch, in order; each has its own deadline."""

    GENERATE = "generate"
    COMPILE = "compile"
    BUILD = "build"
    """Loading the compiled code and preparing inputs on the device."""
    VERIFY = "verify"
    MEASURE = "measure"
    TRACE = "trace"
    """Launching under a profiler and reading back its output."""


class Verification(StrEnum):
    """What is known of a dispatch's correctness."""

    PASSED = "passed"
    WARNED = "warned"
    """Within the bound that no correct kernel exceeds, but above the usual error."""
    FAILED = "failed"
    NOT_VERIFIED = "not_verified"
