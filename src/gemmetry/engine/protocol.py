"""The messages between parent and worker: length-prefixed msgpack frames over a socket pair.

They use neither standard output (a provider's libraries print there) nor pickle. The parent sends
one request and reads replies until the request is answered. A worker answers the dispatches of a
request in order; the one running is always the first without an answer.

A worker runs other people's kernels, which may write to its end of the socket. The parent trusts
nothing that arrives from there. Here, bytes that are not a frame raise :class:`BadFrame`;
:mod:`gemmetry.engine.protocol` rejects frames that answer no request.

What a parent accepts as an answer: replies that arrive when they are due, with valid contents.

A worker runs other people's kernels in its own process. Some write to arbitrary descriptors, some
fork and return twice; what then arrives may decode and still be meaningless. A flawed reply counts
as a crash of the dispatch that was running.

What exceptions and deaths of workers mean for the dispatch that was running.
"""

from __future__ import annotations

import math
import os
import re
import signal
import socket
import struct
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from gemmetry.domain import errors
from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, Target, parse_operation
from gemmetry.domain.errors import GemmetryError, Outcome, Stage, Verification
from gemmetry.domain.record import BuildFacts, TraceFacts, Verdict
from gemmetry.domain.settings import RunSettings
from gemmetry.measurement.energy import EnergyTaken
from gemmetry.measurement.stopping import Round
from gemmetry.verification import after_timing
from gemmetry.verification.checks import CheckResult
from gemmetry.verification.protocol import missing_checks

if TYPE_CHECKING:
    from gemmetry.engine.candidates import Job


_LENGTH = struct.Struct("<I")
CHUNK_BYTES = 1 << 20
"""The most bytes that are read, or passed on, at a time."""

MAX_FRAME_BYTES = 64 << 20
"""The longest frame: a round of a million samples takes 9 MB."""

FRAME_PAUSE_S = 30.0
"""The longest pause within a frame. A frame is sent in one piece, so only a writer without a
processor, or something that is not a worker, pauses in the middle."""


class Frame(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Base of all frames."""


class WireDispatch(msgspec.Struct, frozen=True, array_like=True):
    """A dispatch as it is sent; `operation` is the canonical name, which parses back."""

    id: int
    operation: str
    configuration: Configuration
    verify: bool = True
    is_new: bool = True
    """Nothing of it has been launched yet, in this worker or another, so one launch may have to be
    tried first."""
    trace_folder: str = ""
    trace_kept: int = 0
    """The number of existing repeats that are kept; only further ones are recorded."""
    right_output: str = ""
    """The digest of the output that was verified, in this worker or another; "" if none was."""


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """An exception in a worker."""

    kind: str
    """Its class in domain/errors.py (``CompileError`` ...), ``MemoryError``, or the name of an
    exception that was not raised on purpose."""
    message: str
    hint: str = ""
    trace: str = ""
    """The traceback of an exception that was not raised on purpose."""
    worker_is_unusable: bool = False
    """True if the device did not respond after the failure, as after an illegal access on a GPU:
    nothing that the worker does from here on can be trusted."""


class Hello(Frame, frozen=True):
    """The first request: which provider, target and settings the worker serves."""

    provider: str
    options: Mapping[str, Any]
    target: Target
    settings: RunSettings
    generated: str
    folder: str
    """The experiment's."""
    jobs: int
    kept: str = ""
    """Where machine code is kept for other experiments; "": below `generated`."""

    def workspace(self, *, force: bool = False) -> Workspace:
        """The folders that the provider uses."""
        kept = Path(self.kept) if self.kept else None
        return Workspace(generated=Path(self.generated), jobs=self.jobs, force=force, kept=kept)

    def dispatch(self, wire: WireDispatch) -> Dispatch:
        """The dispatch that `wire` describes."""
        operation = parse_operation(wire.operation)
        return Dispatch(operation, wire.configuration, self.provider, self.target)


class Compile(Frame, frozen=True):
    """Compile dispatches, which may be of several operations. Answered by one CompileDone each, in
    any order."""

    dispatches: tuple[WireDispatch, ...]


class Open(Frame, frozen=True):
    """Build, verify and prepare dispatches for sampling. Answered by one Opened each."""

    dispatches: tuple[WireDispatch, ...]
    ahead: int = 0
    """Only build and verify, while so many processes do; the same dispatches are opened later."""
    only_verifies: bool = False
    """With `ahead`: close what was verified, because others are measured first."""


class Sample(Frame, frozen=True):
    """Take a round of samples of open dispatches: (id, count) each. Answered by one Sampled
    each."""

    requests: tuple[tuple[int, int], ...]
    is_loaded: bool = False
    """Whether the device is at work for another candidate until then."""


class Close(Frame, frozen=True):
    """Check the outputs of the timed launches and free everything. Answered by one Closed each."""

    ids: tuple[int, ...]


class Shutdown(Frame, frozen=True):
    """End the process."""


class Ready(Frame, frozen=True):
    """The answer to Hello; `failure` states why the provider does not work here."""

    failure: Failure | None = None


class Entered(Frame, frozen=True):
    """The dispatch enters a stage, which starts that stage's deadline."""

    id: int
    stage: Stage


class Trying(Frame, frozen=True):
    """The dispatch starts one launch that may take too long; the parent enforces its deadline."""

    id: int


class LeftBehind(Frame, frozen=True):
    """The dispatch left processes running in sessions of their own; they are ended with it."""

    id: int
    processes: tuple[str, ...]


class CompileDone(Frame, frozen=True):
    """One dispatch has been compiled, or has failed to compile."""

    id: int
    facts: BuildFacts
    failure: Failure | None


class Opened(Frame, frozen=True):
    """One dispatch is ready to be sampled, or `failure` states why not."""

    id: int
    facts: BuildFacts
    verdict: Verdict | None
    failure: Failure | None
    skip_reason: str
    """Why it is skipped (a launch on trial was too slow); empty otherwise."""
    free_memory_bytes: int
    trace: TraceFacts | None = None
    right_output: str = ""
    """The digest of the output that was verified now; "" if none was."""
    sample_s: float = 0.0
    """The time of one sample, estimated by the warm-up; 0: not known."""


class Sampled(Frame, frozen=True):
    """One round of one dispatch."""

    id: int
    round: Round | None
    failure: Failure | None


class Closed(Frame, frozen=True):
    """One dispatch is closed; `check` is the result for its timed launches, if they can be
    judged."""

    id: int
    check: CheckResult | None
    failure: Failure | None
    evidence_path: str | None = None
    """The evidence of the wrong output, if `check` failed and the evidence could be kept."""
    energy: EnergyTaken | None = None
    """The energy of its launches, if the settings request it."""


class Answered(Frame, frozen=True):
    """Every part of the request is answered."""


Request: TypeAlias = Hello | Compile | Open | Sample | Close | Shutdown
Reply: TypeAlias = (
    Ready | Entered | Trying | LeftBehind | CompileDone | Opened | Sampled | Closed | Answered
)


class ChannelClosed(Exception):
    """The other side is gone, or this process is a copy that may not send messages for the
    worker."""


class BadFrame(Exception):
    """The other side sent something that is not a message; the text states why."""


class Channel:
    """One end of the socket pair, for the process that created it.

    A kernel that forks and returns twice leaves a copy of the worker that would answer too. If
    Python forked, the copy finds its socket closed; otherwise it is rejected by its process number.
    """

    def __init__(self, connection: socket.socket, incoming: Any) -> None:
        """`incoming` is the union of messages that this side reads."""
        self._socket = connection
        self._owner = os.getpid()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(incoming)
        self._buffer = bytearray()
        self._received_s = 0.0
        """The time at which bytes last arrived."""

    def send(self, message: Frame) -> None:
        """Send one frame.

        Raises:
            ChannelClosed: the other side is gone.
        """
        self._refuse_copies()
        payload = self._encoder.encode(message)
        try:
            self._socket.settimeout(None)
            self._socket.sendall(_LENGTH.pack(len(payload)) + payload)
        except OSError as error:
            raise ChannelClosed from error

    def receive(self, timeout_s: float | None = None) -> Any:
        """The next message.

        Raises:
            ChannelClosed: the other side is gone. TimeoutError: nothing arrived in time.
            BadFrame: what arrived is not a message; nothing after it can be read either.
        """
        ends = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self._refuse_copies()
            if len(self._buffer) >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(self._buffer)
                if length > MAX_FRAME_BYTES:
                    raise BadFrame(f"a frame of {length} bytes, more than {MAX_FRAME_BYTES}")
                end = _LENGTH.size + length
                if len(self._buffer) >= end:
                    return self._take(end)
            self._fill(ends)

    def is_idle(self) -> bool:
        """Whether every message that has arrived was received."""
        if not self._buffer:
            try:
                self._fill(time.monotonic())
            except (TimeoutError, ChannelClosed):
                return True
        return False

    def _take(self, end: int) -> Any:
        try:
            with memoryview(self._buffer) as view:
                message = self._decoder.decode(view[_LENGTH.size : end])
        except (msgspec.MsgspecError, ValueError, RecursionError, MemoryError) as error:
            length = end - _LENGTH.size
            raise BadFrame(f"a frame of {length} bytes that is not a message: {error}") from error
        del self._buffer[:end]
        return message

    def _fill(self, ends: float | None) -> None:
        self._socket.settimeout(None if ends is None else max(0.0, ends - time.monotonic()))
        try:
            data = self._socket.recv(CHUNK_BYTES)
        except (TimeoutError, BlockingIOError):
            if self._buffer and time.monotonic() - self._received_s > FRAME_PAUSE_S:
                raise BadFrame(f"{len(self._buffer)} bytes of an incomplete frame") from None
            raise TimeoutError from None
        except OSError as error:
            raise ChannelClosed from error
        if not data:
            raise ChannelClosed
        self._received_s = time.monotonic()
        self._buffer += data

    def _refuse_copies(self) -> None:
        if os.getpid() != self._owner:
            raise ChannelClosed

    def close(self) -> None:
        """Close this end."""
        self._socket.close()


ON_THE_WAY = (Entered, Trying, LeftBehind)
"""Messages before an answer."""

OPENING = (*ON_THE_WAY, Opened)
SAMPLING = (Sampled,)
CLOSING = (LeftBehind, Closed)
"""Messages that answer a request to close, apart from ``Answered``."""

OPENING_STAGES = (Stage.BUILD, Stage.VERIFY, Stage.MEASURE, Stage.TRACE)

MOST_ON_THE_WAY = 16
"""The most messages before an answer: three stages, one launch on trial, one for each sanitizer,
and the processes that are left running are fewer."""

MOST_LEFT = 20
"""The most names of processes of one dispatch that are kept."""

LONGEST_NS = 1e15
"""The longest sample: eleven days."""


def out_of_turn(reply: Frame) -> str:
    """Why a reply that answers no request is rejected."""
    return f"an unexpected reply ({type(reply).__name__})"


def flaw_of(reply: Frame, wire: WireDispatch, job: Job) -> str:
    """What is wrong with a reply to a request about `wire` that arrives when it is due; "" if
    nothing is."""
    match reply:
        case Entered():
            return "" if reply.stage in OPENING_STAGES else f"the unexpected stage {reply.stage}"
        case Opened():
            return _flaw_of_opened(reply, wire, job)
        case Sampled():
            if (reply.round is None) == (reply.failure is None):
                return "samples and a failure at once, or neither"
            return "" if reply.round is None else _flaw_of_round(reply.round)
        case Closed():
            return _flaw_of_closed(reply, job)
    return ""


def _flaw_of_opened(opened: Opened, wire: WireDispatch, job: Job) -> str:
    settings = job.settings
    if opened.failure is not None or opened.skip_reason:
        return ""
    if not _are_sane([1e9 * opened.sample_s]):
        return "an invalid time of a sample"
    verdict = opened.verdict
    if settings.verify and wire.verify and verdict is None:
        return "a dispatch without the required verdict"
    if verdict is not None and not is_inside(verdict.evidence_path):
        return "evidence outside the experiment"
    if verdict is not None and verdict.status is Verification.FAILED:
        return ""
    if verdict is not None and (missing := missing_checks(verdict, settings.verification_level)):
        others = f" and {len(missing) - 1} others" if len(missing) > 1 else ""
        return f"a verdict without a result of the check {missing[0]}{others}"
    return job.flaw_of_opened(opened, wire)


def _flaw_of_closed(closed: Closed, job: Job) -> str:
    if not is_inside(closed.evidence_path):
        return "evidence outside the experiment"
    if closed.energy is not None:
        numbers = [closed.energy.idle_power_w or 0.0]
        for window in closed.energy.windows:
            numbers += [window.joules, window.seconds, window.launches, window.resolution]
        if not _are_sane(numbers):
            return "an invalid energy"
    is_due = job.settings.verify and job.samples and closed.failure is None
    if is_due and (closed.check is None or closed.check.name != after_timing.NAME):
        return f"no result of the check {after_timing.NAME}"
    return ""


def _flaw_of_round(taken: Round) -> str:
    if not taken.samples_ns or not _are_sane(taken.samples_ns):
        return "invalid times of samples"
    others = (
        taken.first_launch_ns, taken.overhead_ns, taken.wall_launch_ns, taken.unsettled_change,
        taken.new_inputs_ratio, 1e9 * taken.seconds, 1e9 * taken.load_s,
        1e9 * taken.elapsed_s, 1e9 * taken.waited_s,
        1e9 * taken.renewal_s, 1e9 * taken.quiet_wait_s, 1e9 * taken.runs_on_s,
    )  # fmt: skip
    if not _are_sane(value for value in others if value is not None):
        return "invalid times of a round"
    counts = (taken.launches_per_sample, taken.input_sets)
    sizes = (taken.bytes_per_set, taken.last_level_cache_bytes)
    if min(counts) < 1 or min(sizes) < 0 or max(*counts, *sizes) > LONGEST_NS:
        return "invalid counts of a round"
    readings = (value for value in taken.telemetry.values() if isinstance(value, float))
    return "" if all(map(math.isfinite, readings)) else "telemetry that is not a number"


def _are_sane(values: Iterable[float]) -> bool:
    return all(0 <= value <= LONGEST_NS for value in values)


def is_inside(path: str | None) -> bool:
    """Whether `path`, relative to the experiment, is inside it."""
    if path is None:
        return True
    found = PurePath(path)
    return not found.is_absolute() and ".." not in found.parts and "\0" not in path


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
    is_death: bool = False
    """The worker died without being killed by its parent."""


class WorkerLost(Exception):
    """The worker died or was killed; `ending` is for the dispatch that it was working on."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.reason)
        self.ending = ending


def describe(error: BaseException, *, worker_is_unusable: bool = False) -> Failure:
    """An exception in the form in which a worker sends it to its parent."""
    if isinstance(error, GemmetryError):
        # The nearest class of domain/errors.py: a provider may derive its own classes from it.
        kinds = (one for one in type(error).__mro__ if one.__module__ == errors.__name__)
        kind = next(kinds, type(error)).__name__
        return Failure(kind, error.message, error.hint, "", worker_is_unusable)
    if isinstance(error, MemoryError):
        text = str(error) or "the process could not allocate memory"
        return Failure("MemoryError", text, "", "", worker_is_unusable)
    trace = "".join(traceback.format_exception(error))[-TAIL_BYTES:]
    return Failure(type(error).__name__, str(error), "", trace, worker_is_unusable)


def ending_of(failure: Failure, output_tail: str) -> Ending:
    """The outcome of a dispatch whose worker raised `failure`.

    An exception that was not raised on purpose is a ``crash``: the provider or the kernel is
    broken, rather than this configuration rejected.
    """
    text = failure.message if "\n" in failure.message.strip() else ""
    tail = "\n".join(part for part in (output_tail, text, failure.trace) if part)[-TAIL_BYTES:]
    outcome, kind = _OUTCOMES.get(failure.kind), getattr(errors, failure.kind, None)
    if outcome is None and isinstance(kind, type) and issubclass(kind, errors.RequestError):
        outcome = Outcome.UNSUPPORTED
    if outcome is not None:
        line = first_useful_line(failure.message) or failure.kind
        return Ending(outcome, f"{line} ({failure.hint})" if failure.hint else line, tail)
    reason = f"{failure.kind}: {first_useful_line(failure.message)}".rstrip(": ")
    return Ending(Outcome.CRASH, reason, tail)


def ending_of_death(status: int, output_tail: str, *, memory_ran_out: bool) -> Ending:
    """The outcome of the dispatch that was running when its worker ended with `status` (Popen's
    returncode)."""
    if -status == signal.SIGALRM:
        return Ending(Outcome.TIMEOUT, HUNG_REASON, output_tail)
    if -status == signal.SIGKILL and memory_ran_out:
        reason = "the system killed the worker, as memory ran out"
        return Ending(Outcome.OUT_OF_MEMORY, reason, output_tail)
    how = f"died of {signal_name(-status)}" if status < 0 else f"ended with status {status}"
    if -status == signal.SIGABRT:  # of abort(), which libraries call where they cannot go on
        how = "was ended by its own code, which called abort() (SIGABRT)"
    # The line that looks like the cause, rather than a file and line of a traceback.
    causes = (one.strip()[:_MAX_REASON] for one in output_tail.splitlines()
              if _LOOKS_USEFUL.search(one) and not _NOISE.match(one))  # fmt: skip
    reason = ": ".join([f"the worker process {how}", *islice(causes, 1)])
    return Ending(Outcome.CRASH, reason, output_tail, is_death=True)


def left_behind(processes: Sequence[str]) -> str:
    """Text about the processes that a dispatch left in sessions of their own and that were ended;
    "" if there are none."""
    what = "a process running in a session of its own"
    if len(processes) > 1:
        what = f"{len(processes)} processes running in sessions of their own"
    return f"it left {what}, now ended: {', '.join(processes)}" if processes else ""


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
    useful = [line for line in lines if re.search(r"\berror\b", line, re.IGNORECASE)]
    return [*useful, *lines, ""][0][:_MAX_REASON]


def signal_name(number: int) -> str:
    """The name of a signal, such as SIGKILL."""
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
