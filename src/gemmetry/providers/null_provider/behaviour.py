"""The behaviours of the null provider, and the names of the configurations that select them.

``kind`` or ``kind_value``, the value written as numbers in operation names are (``factor_1p5``).
:func:`parse_behaviour` is the inverse of :attr:`Behaviour.name`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from gemmetry.domain.names import parse_number, print_number


class BehaviourKind(StrEnum):
    """Every behaviour; the value is the first part of the configuration's name."""

    DEFAULT = "default"
    FAST = "fast"
    """0.8 times the default's simulated time."""
    FACTOR = "factor"
    """Simulated time × value."""
    NOISY = "noisy"
    """Simulated time that varies by ± value percent instead of ± 0.5 percent."""
    SLOW = "slow"
    """Really sleeps for value milliseconds in every launch."""
    CHATTY = "chatty"
    """Correct, but writes lines to standard output and standard error at every launch."""

    WRONG = "wrong"
    """All elements are too large by a half (integers: by one)."""
    WRONG_NAN = "wrong_nan"
    """Correct except for a NaN in the last element (integers: the smallest value)."""
    PARTIAL = "partial"
    """The last row of the result is never written."""
    LATE = "late"
    """Correct until the device times it, wrong from then on."""
    MUTATE_INPUTS = "mutate_inputs"
    """Correct, but then changes one bit of A."""
    OUT_OF_BOUNDS = "out_of_bounds"
    """Correct, but also writes eight bytes past the end of its output."""

    LAUNCH_ERROR = "launch_error"
    FLAKY = "flaky"
    """Every second launch raises LaunchError."""
    RAISES = "raises"
    """A launch raises an exception that is not one of gemmetry's."""
    OUT_OF_MEMORY = "out_of_memory"
    LEAK = "leak"
    """A launch allocates in small steps up to a limit that it sets itself, then raises
    MemoryError."""
    DEVICE_LOST = "device_lost"
    """After value launches every synchronisation reports that the device is gone."""
    CRASH = "crash"
    """A launch dies of SIGSEGV."""
    ABORT = "abort"
    """A launch dies of SIGABRT."""
    EXIT = "exit"
    """A launch ends the process with the status value."""
    HANG = "hang"
    """A launch never returns."""

    UNSUPPORTED = "unsupported"
    """Building raises UnsupportedError."""
    HANG_BUILD = "hang_build"
    COMPILE_ERROR = "compile_error"
    COMPILE_CRASH = "compile_crash"
    """Compiling dies of SIGSEGV."""
    HANG_COMPILE = "hang_compile"


_DEFAULT_VALUES: dict[BehaviourKind, float] = {BehaviourKind.EXIT: 1, BehaviourKind.DEVICE_LOST: 1}
_VALUE_REQUIRED = {BehaviourKind.SLOW, BehaviourKind.FACTOR, BehaviourKind.NOISY}
_INTEGER_VALUES = {BehaviourKind.EXIT, BehaviourKind.DEVICE_LOST}
_VALUE = re.compile(r"[0-9]+(?:p[0-9]+)?(?:em?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Behaviour:
    """A kind with its value; 0 where the kind has no value."""

    kind: BehaviourKind = BehaviourKind.DEFAULT
    value: float = 0.0

    @property
    def name(self) -> str:
        """The configuration's name; a kind's default value is left out."""
        if self.kind in _VALUE_REQUIRED or self.value != _DEFAULT_VALUES.get(self.kind, 0.0):
            return f"{self.kind}_{print_number(self.value)}"
        return str(self.kind)


def parse_behaviour(name: str) -> Behaviour | None:
    """The behaviour whose name is exactly `name`; None if there is none."""
    if name in list(BehaviourKind):
        kind = BehaviourKind(name)
        behaviour = Behaviour(kind, _DEFAULT_VALUES.get(kind, 0.0))
    else:
        word, _, number = name.rpartition("_")
        if word not in list(BehaviourKind) or not _VALUE.fullmatch(number):
            return None
        kind = BehaviourKind(word)
        behaviour = Behaviour(kind, parse_number(number))
        if kind not in _VALUE_REQUIRED | _INTEGER_VALUES:
            return None
        if kind in _INTEGER_VALUES and not behaviour.value.is_integer():
            return None
    return behaviour if behaviour.name == name else None
