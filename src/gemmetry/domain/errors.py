"""Every exception gemmetry raises on purpose, as one tree.

::

    GemmetryError
    ├── RequestError            the request itself is wrong                    exit status 2
    │   ├── NameSyntaxError     an operation or dispatch name does not parse
    │   ├── UnknownNameError    no such dtype, layout, provider, column ...
    │   ├── EmptySelectionError a pattern or range selects nothing
    │   ├── SpecError           one or more mistakes in a spec, each with file:line:column
    │   └── PlanMismatchError   the experiment folder belongs to another plan
    ├── InterruptedRunError     someone pressed Ctrl-C during a run            exit status 130
    ├── EnvironmentFailure      this machine failed, not the request           exit status 3
    │   ├── StorageError        disk full, folder not writable
    │   ├── JournalDamagedError the experiment's database cannot be read
    │   ├── DeviceLostError     the device disappeared in the middle of a run
    │   └── ProfiledCommandError a command failed while it was profiled
    ├── DispatchError           one dispatch cannot continue; becomes its Outcome, never ends a run
    │   ├── UnsupportedError    the provider cannot do this operation on this target
    │   ├── CompileError        a compiler rejected the configuration
    │   ├── LaunchError         the device rejected the launch
    │   │   └── WrongResultError what a launch returned cannot be the result
    │   └── OutOfMemoryError    host or device memory did not suffice
    └── EnergyUnavailableError  the device's energy cannot be read; only that is missing

Each message names the object, the cause and what to do next; ``hint`` holds the last part so
that the command line can set it off.

The outcome of a dispatch.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from enum import StrEnum

_LISTED = 12
"""Known names that a message lists where none is similar: about two lines of a terminal."""


class GemmetryError(Exception):
    """Root of the tree; catch this to catch everything gemmetry raises on purpose."""

    exit_status = 1
    label = "error"
    """Printed by the command line in front of the message."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class RequestError(GemmetryError):
    """The request cannot be carried out as given; nothing was run."""

    exit_status = 2


class NameSyntaxError(RequestError):
    """A name does not follow the grammar of docs/names.md."""


class UnknownNameError(RequestError):
    """A dtype, layout, provider, column ... that does not exist; the message lists the nearest
    names."""

    def __init__(
        self, what: str, name: str, known: Iterable[str], *, where: str = "", more: str = ""
    ) -> None:
        """`more`: a sentence for the end of the hint."""
        names = sorted(set(known))
        near = nearest(name, names)
        all_of_them = f"Known: {listed(names, _LISTED)}" if names else "None is known here."
        hint = did_you_mean(near) or all_of_them
        place = f" in {where}" if where else ""
        if more:
            hint = f"{hint.removesuffix('.')}{'' if near else '.'} {more}"
        super().__init__(f"unknown {what} {name!r}{place}", hint=hint)
        self.name = name


class EmptySelectionError(RequestError):
    """A selection, range or product of axes is empty."""


MOST_MISTAKES = 50
"""Mistakes of one file that a message has; whoever has more of them repairs something else."""

_LONGEST_MISTAKE = 2000


class SpecError(RequestError):
    """A spec has mistakes; ``mistakes`` holds one ``file:line:column: text`` line each, of the
    first :data:`MOST_MISTAKES`."""

    def __init__(self, mistakes: Iterable[str], *, hint: str = "") -> None:
        lines = [line if len(line) <= _LONGEST_MISTAKE else f"{line[:_LONGEST_MISTAKE]} ..."
                 for line in mistakes]  # fmt: skip
        more = ["... and more mistakes"] if len(lines) > MOST_MISTAKES else []
        self.mistakes = (*lines[:MOST_MISTAKES], *more)
        super().__init__("\n".join(self.mistakes), hint=hint)


class PlanMismatchError(RequestError):
    """The experiment folder belongs to another plan; nothing in it was changed."""


class InterruptedRunError(GemmetryError):
    """A run was interrupted; the message states which results are stored."""

    exit_status = 130
    label = "interrupted"


class EnvironmentFailure(GemmetryError):
    """The machine failed; earlier results are kept, and the same command resumes the run."""

    exit_status = 3


class StorageError(EnvironmentFailure):
    """A file or the journal cannot be written."""


class JournalDamagedError(EnvironmentFailure):
    """The experiment's database is damaged; it was not changed."""


class DeviceLostError(EnvironmentFailure):
    """The device disappeared; running the same command again resumes the rest of the plan."""


class ProfiledCommandError(EnvironmentFailure):
    """A command that a profiler ran failed, for a reason of its own."""


class DispatchError(GemmetryError):
    """One dispatch cannot continue. The engine turns the error into that dispatch's Outcome."""


class UnsupportedError(DispatchError):
    """The provider does not support this operation on this target; the message states why."""


class CompileError(DispatchError):
    """A compiler rejected the configuration; the first useful line of its output is the reason."""


class LaunchError(DispatchError):
    """The device rejected the launch (resources, arguments, architecture)."""


class WrongResultError(LaunchError):
    """A launch returned something that cannot be the result: of another type, shape or dtype, or a
    view of an input."""


class EnergyUnavailableError(GemmetryError):
    """The energy of a device cannot be read; a dispatch is measured without it."""


class OutOfMemoryError(DispatchError):
    """Host or device memory was not sufficient for this dispatch."""


def alternatives(names: Sequence[str]) -> str:
    """``a``, ``a or b`` or ``a, b or c``; at least one name."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def listed(names: Sequence[str], most: int) -> str:
    """``a, b, c``, or ``a, b and 7 more``: at most `most` of the names, and never a name less to
    mention one more."""
    if len(names) <= most + 1:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def did_you_mean(names: Sequence[str]) -> str:
    """The question that suggests `names`; "" if there are none."""
    return f"Did you mean {alternatives(names)}?" if names else ""


def nearest(name: str, known: Iterable[str], count: int = 3, *, cutoff: float = 0.5) -> list[str]:
    """The names most similar to `name`, best first; empty if no similarity ratio (0 to 1, as
    difflib defines it) reaches `cutoff`. A name with `name` in front of a ``_`` comes first."""
    lowered = {candidate.lower(): candidate for candidate in known}
    longer = [candidate for candidate in lowered if candidate.startswith(f"{name.lower()}_")]
    matches = difflib.get_close_matches(name.lower(), lowered, n=count, cutoff=cutoff)
    return [lowered[match] for match in dict.fromkeys((*longer, *matches))][:count]


class Outcome(StrEnum):
    """Outcome of a dispatch; each except ``ok`` has a reason that a user can act on."""

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
        """True for ``ok``, the only outcome with timings."""
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
    """Verdict on a dispatch's correctness."""

    PASSED = "passed"
    WARNED = "warned"
    """Within the bound that no correct kernel exceeds, but above the usual error."""
    FAILED = "failed"
    NOT_VERIFIED = "not_verified"
