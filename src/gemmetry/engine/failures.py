"""What exceptions and deaths of workers mean for the dispatch that was running."""

from __future__ import annotations

import re
import signal
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gemmetry.domain import errors
from gemmetry.domain.errors import GemmetryError, Outcome, Stage
from gemmetry.engine.workers.protocol import Failure

TAIL_BYTES = 4000
"""The part of a worker's output that is kept with an outcome that it may explain."""

_OUTCOMES = {
    "CompileError": Outcome.COMPILE_ERROR,
    "LaunchError": Outcome.LAUNCH_ERROR,
    "WrongResultError": Outcome.LAUNCH_ERROR,
    "OutOfMemoryError": Outcome.OUT_OF_MEMORY,
    "MemoryError": Outcome.OUT_OF_MEMORY,
    "UnsupportedError": Outcome.UNSUPPORTED,
}
HUNG = 200
"""A launch that takes this many times as long as expected has hung. Inputs may slow a launch down:
subnormal numbers cost a CPU tens of times as much."""

COMPILING_HUNG_SHARE = 1 / 4
"""Share of the stage's deadline that work may always take in which something may be compiled, as
where an address or a setting is new to a kernel."""

HUNG_REASON = (
    "a launch did not end: it took hundreds of times as long as predicted or as earlier launches "
    "(where launches do differ that much, raise the limit with --set deadlines.verify=1200)"
)

_LOOKS_USEFUL = re.compile(r"error|fatal|fault|abort|assert|fail|exception", re.IGNORECASE)
_NOISE = re.compile(r"^\s*(File \"|Traceback|Extension modules|Thread 0x|Current thread|$)")
_MAX_REASON = 500


@dataclass(frozen=True, slots=True)
class Ending:
    """How a dispatch ended that is not ok."""

    outcome: Outcome
    reason: str
    output_tail: str = ""
    may_be_anothers: bool = False
    """Another dispatch that is open in the same worker may have caused it."""


class WorkerLost(Exception):
    """The worker died or was killed; `ending` is for the dispatch that it was working on."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.reason)
        self.ending = ending


def describe(error: BaseException, *, worker_is_spoiled: bool = False) -> Failure:
    """An exception in the form in which a worker sends it to its parent."""
    if isinstance(error, GemmetryError):
        return Failure(_known_kind(error), error.message, error.hint, "", worker_is_spoiled)
    if isinstance(error, MemoryError):
        text = str(error) or "the process could not allocate memory"
        return Failure("MemoryError", text, "", "", worker_is_spoiled)
    trace = "".join(traceback.format_exception(error))[-TAIL_BYTES:]
    return Failure(type(error).__name__, str(error), "", trace, worker_is_spoiled)


def ending_of(failure: Failure, output_tail: str) -> Ending:
    """The outcome of a dispatch whose worker raised `failure`.

    An exception that was not raised on purpose is a ``crash``: the provider or the kernel is
    broken, rather than this configuration rejected.
    """
    text = failure.message if "\n" in failure.message.strip() else ""
    tail = "\n".join(part for part in (output_tail, text, failure.trace) if part)[-TAIL_BYTES:]
    outcome = _OUTCOMES.get(failure.kind)
    if outcome is None and _is_request_error(failure.kind):
        outcome = Outcome.UNSUPPORTED
    if outcome is not None:
        line = first_useful_line(failure.message) or failure.kind
        return Ending(outcome, f"{line} ({failure.hint})" if failure.hint else line, tail)
    reason = f"{failure.kind}: {first_useful_line(failure.message)}".rstrip(": ")
    return Ending(Outcome.CRASH, reason, tail)


def ending_of_death(status: int, output_tail: str, *, memory_ran_out: bool) -> Ending:
    """The outcome of the dispatch that was running when its worker ended with `status` (Popen's
    returncode)."""
    complaint = _first_complaint(output_tail)
    suffix = f": {complaint}" if complaint else ""
    if status >= 0:
        return Ending(
            Outcome.CRASH, f"the worker process ended with status {status}{suffix}", output_tail
        )
    if -status == signal.SIGALRM:
        return Ending(Outcome.TIMEOUT, HUNG_REASON, output_tail)
    if -status == signal.SIGKILL and memory_ran_out:
        return Ending(
            Outcome.OUT_OF_MEMORY,
            "the system killed the worker, as memory ran out",
            output_tail,
        )
    how = f"died of {signal_name(-status)}"
    if -status == signal.SIGABRT:  # of abort(), which libraries call where they cannot go on
        how = "was ended by its own code, which called abort() (SIGABRT)"
    return Ending(Outcome.CRASH, f"the worker process {how}{suffix}", output_tail)


def left_behind(processes: Sequence[str]) -> str:
    """Text about the processes that a dispatch left in sessions of their own and that were ended;
    "" if there are none."""
    if not processes:
        return ""
    what = "a process running in a session of its own"
    if len(processes) > 1:
        what = f"{len(processes)} processes running in sessions of their own"
    return f"it left {what}, now ended: {', '.join(processes)}"


def with_left_behind(ending: Ending, processes: Sequence[str]) -> Ending:
    """`ending`, with a note on processes that were left running."""
    more = left_behind(processes)
    return replace(ending, reason=f"{ending.reason}; {more}") if more else ending


def timeout_reason(stage: Stage, doing: str, seconds: float, deadline_s: float) -> str:
    """Why a dispatch ended that took longer than `seconds`, all or a part of its stage's deadline,
    and how to give it longer."""
    return (
        f"{doing} took longer than {seconds:g} s "
        f"(raise it with --set deadlines.{stage}={2 * deadline_s:g})"
    )


def first_useful_line(text: str) -> str:
    """The most informative line of a message or of a compiler's output: the first that mentions an
    error, else the first that is not empty."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    useful = next((line for line in lines if re.search(r"\berror\b", line, re.IGNORECASE)), "")
    if lines and not useful:
        useful = lines[0]
    return useful[:_MAX_REASON]


def _first_complaint(output: str) -> str:
    """The first line that looks like the cause of a death, rather than a file and line of a
    traceback."""
    for line in output.splitlines():
        if _LOOKS_USEFUL.search(line) and not _NOISE.match(line):
            return line.strip()[:_MAX_REASON]
    return ""


def signal_name(number: int) -> str:
    """The name of a signal, such as SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _known_kind(error: GemmetryError) -> str:
    """The nearest class of domain/errors.py, so that a provider may derive its own classes from
    it."""
    for kind in type(error).__mro__:
        if kind.__module__ == errors.__name__:
            return kind.__name__
    return type(error).__name__


def _is_request_error(kind: str) -> bool:
    found = getattr(errors, kind, None)
    return isinstance(found, type) and issubclass(found, errors.RequestError)
