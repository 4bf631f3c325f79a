"""A worker process as its parent sees it: start, ask, listen with a deadline, kill."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemmetry.domain.outcome import Outcome, Stage
from gemmetry.domain.settings import RunSettings
from gemmetry.engine.failures import (
    TAIL_BYTES,
    Ending,
    WorkerLost,
    ending_of_death,
    timeout_reason,
    with_left_behind,
)
from gemmetry.engine.workers import guardian
from gemmetry.engine.workers.protocol import (
    Answered,
    BadFrame,
    Channel,
    ChannelClosed,
    Failure,
    Hello,
    LeftBehind,
    Message,
    Ready,
    Reply,
    Shutdown,
)
from gemmetry.engine.workers.replies import MOST_ON_THE_WAY, ON_THE_WAY, out_of_turn
from gemmetry.hardware.host import (
    free_memory_bytes,
    oom_kills,
    resident_bytes,
    total_memory_bytes,
    usable_cores,
)
from gemmetry.store.rows import Lane

POLL_S = 0.5
"""Between looks at the stop flag, the worker's memory and its output file."""

MAX_OUTPUT_BYTES = 8 << 20
"""Of a worker's output file; beyond it only the end is kept."""

SHUTDOWN_S = 2.0
"""A healthy worker ends in milliseconds; one that takes longer is killed."""

GUARDIAN_S = 10.0
"""A guardian starts its worker in some ten milliseconds."""

MIN_FREE_SHARE = 0.04
"""Of the memory that may be used: with less left while a worker works, the worker is ended before
the kernel chooses somebody else."""

LARGE_SHARE = 0.25
"""Of the memory that may be used: only a worker that holds this much is taken for the cause."""

GUARDIAN = ("-S", "-P", guardian.__file__)
"""How Python runs a guardian."""

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)

_QUIET_WHEN_IDLE = {
    "KMP_BLOCKTIME": "1",
    "GOMP_SPINCOUNT": "10000",
    "OPENBLAS_THREAD_TIMEOUT": "20",
}
"""Threads of a worker whose turn is over must not spin on the processors that the next one is
measured on, nor a thread wait spinning for one that another program has pushed aside. Intel's
OpenMP spins for 200 ms (its manual's KMP_BLOCKTIME), OpenBLAS for 2²⁶ cycles
(driver/others/blas_server.c), GNU's for 300,000 turns (libgomp manual, GOMP_SPINCOUNT); here 1 ms,
2²⁰ cycles and 10,000 turns, which torch's products on an idle machine do not feel. A user's own
setting has precedence."""


_QUIET_PROFILER = {"KINETO_LOG_LEVEL": "6", "TORCH_CPP_LOG_LEVEL": "ERROR"}
"""Torch's profiler writes four lines a repeat, which would push what explains a failure out of the
output's tail. Errors it raises; seen with torch 2.13."""


class RunStopped(Exception):
    """The run is being ended (interrupt, failure elsewhere); nobody is to blame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """What all workers of a run share."""

    settings: RunSettings
    generated: Path
    references: Path
    failures: Path
    logs: Path
    temporary: Path
    """Where workers and the compilers that they start keep files while they run."""
    stop: threading.Event = field(default_factory=threading.Event)

    def hello(self, lane: Lane, *, jobs: int, force_compile: bool) -> Hello:
        """The first request to a worker of `lane`."""
        return Hello(
            lane.provider,
            {**lane.options, "threads": self.threads},
            lane.target,
            self.settings,
            str(self.generated),
            str(self.references),
            str(self.failures),
            jobs,
            force_compile,
        )

    @property
    def threads(self) -> int:
        """CPU threads of a provider."""
        return self.settings.threads or usable_cores()


class WorkerProcess:
    """One worker. Methods that talk to it raise WorkerLost when it is gone (then it is dead, with
    its children) and RunStopped when the run is being ended."""

    _numbers = iter(range(1, 1 << 62))

    def __init__(self, lane: Lane, context: WorkerContext, hello: Hello) -> None:
        self.lane = lane
        self.started_ns = time.time_ns()
        """Since 1970; tells this process from others."""
        self._context = context
        self._log = context.logs / f"{lane.provider}-{next(self._numbers)}.log"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._oom_kills = oom_kills()
        self._temporary = context.temporary / self._log.stem
        self._temporary.mkdir(parents=True, exist_ok=True)
        ours, theirs = socket.socketpair()
        self._control, control = socket.socketpair()
        worker = [sys.executable, "-m", "gemmetry.engine.workers.main", str(theirs.fileno())]
        descriptors = (control.fileno(), theirs.fileno())
        try:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    [
                        sys.executable,
                        *GUARDIAN,
                        *map(str, descriptors),
                        str(self._temporary),
                        *worker,
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=descriptors,
                    start_new_session=True,
                    env=_environment(context, self._temporary),
                )
        finally:
            theirs.close()
            control.close()
        self._channel = Channel(ours, Reply)
        self._told = b""
        self._report: dict[str, Any] = {}
        self._mark = 0
        self._deadline = 0.0
        self._late = Ending(Outcome.TIMEOUT, "")
        self._on_the_way = 0
        self._owned: set[str] = set()
        """Processes left behind that are known to be of one dispatch or another."""
        self.send(hello)

    @property
    def pid(self) -> int:
        """Of the worker itself, once its guardian has started it; else the guardian's."""
        return int(self._heed_guardian(GUARDIAN_S, "worker").get("worker", self._process.pid))

    def wait_ready(self) -> Failure | None:
        """The provider's own objection to working here, if it has one."""
        self.set_deadline(Stage.BUILD, "starting")
        reply = self.receive()
        if not isinstance(reply, Ready):
            raise self.distrust(out_of_turn(reply))
        return reply.failure

    def send(self, message: Message) -> None:
        """Send a request; output from here on belongs to it."""
        self._mark = self._log_size()
        try:
            self._channel.send(message)
        except ChannelClosed:
            raise self._reap() from None

    def set_deadline(self, stage: Stage, doing: str, factor: float = 1) -> None:
        """From now on the next reply must come within `factor` times the deadline of `stage`;
        `doing` is for the message."""
        seconds = factor * self._context.settings.deadlines_s[stage]
        self.set_limit(seconds, Ending(Outcome.TIMEOUT, timeout_reason(stage, doing, seconds)))

    def set_limit(self, seconds: float, late: Ending) -> None:
        """From now on the next reply must come within `seconds`, or the worker ends as `late`."""
        self._deadline = time.monotonic() + seconds
        self._late = late

    def hear(self, kinds: tuple[type[Message], ...], ids: Collection[int]) -> Reply:
        """The next reply, which must be one of `kinds` about one of `ids`, or, where all are
        answered, say so.

        Raises:
            WorkerLost, RunStopped: as of :meth:`receive`; or the reply answers nothing.
        """
        reply = self.receive()
        if isinstance(reply, Answered):
            if ids:
                raise self.distrust("it was done before it had answered")
            if not self._channel.is_idle():
                raise self.distrust("it went on after its last answer")
            return reply
        if not isinstance(reply, kinds) or getattr(reply, "id", None) not in ids:
            raise self.distrust(out_of_turn(reply))
        if isinstance(reply, LeftBehind):
            self._owned.update(reply.processes)
        self._on_the_way = self._on_the_way + 1 if isinstance(reply, ON_THE_WAY) else 0
        if self._on_the_way > MOST_ON_THE_WAY:
            raise self.distrust("it entered one stage after the other without an end")
        return reply

    def distrust(self, flaw: str) -> WorkerLost:
        """End a worker that has sent something it should not have; the exception to raise."""
        return self._lost(
            Outcome.CRASH,
            f"the worker's channel carried what no worker sends: {flaw}; a kernel that writes "
            "to descriptors which are not its own, forks and returns twice, or patches what judges "
            "it, does that",
            may_be_anothers=True,
        )

    def receive(self) -> Reply:
        """The next reply.

        Raises:
            WorkerLost: it died, was killed because the deadline passed or memory ran out, or sent
                what is no reply.
            RunStopped: the run is being ended; the worker is killed.
        """
        while True:
            if self._context.stop.is_set():
                self.kill()
                raise RunStopped
            left = self._deadline - time.monotonic()
            try:
                reply: Reply = self._channel.receive(max(0.0, min(POLL_S, left)))
                return reply
            except ChannelClosed:
                raise self._reap() from None
            except BadFrame as error:
                raise self.distrust(str(error)) from None
            except TimeoutError:
                self._look_after(left)

    def mark_output(self) -> None:
        """Output from here on belongs to the next dispatch."""
        self._mark = self._log_size()

    def output_tail(self) -> str:
        """The end of what was printed since the last mark."""
        try:
            with self._log.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(min(self._mark, size), size - TAIL_BYTES))
                return log.read(TAIL_BYTES).decode(errors="replace").strip()
        except OSError:
            return ""

    def stop(self) -> None:
        """End a healthy worker; kill it if it does not."""
        try:
            self._channel.send(Shutdown())
            self._process.wait(SHUTDOWN_S)
        except (ChannelClosed, subprocess.TimeoutExpired):
            pass
        self.kill()

    def kill(self) -> None:
        """End the worker and whatever it started; harmless when it is dead."""
        if self._control.fileno() >= 0:
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)  # the guardian then ends everything
            self._heed_guardian(2 * guardian.LAST_S, "left")
            self._control.close()
        if self._process.poll() is None:  # its number is nobody else's yet
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._channel.close()
        shutil.rmtree(self._temporary, ignore_errors=True)
        with contextlib.suppress(OSError):
            if self._log.stat().st_size == 0:
                self._log.unlink()

    def _heed_guardian(self, seconds: float, key: str) -> dict[str, Any]:
        """What the guardian has told by the time that it tells of `key`."""
        ends = time.monotonic() + seconds
        while key not in self._report and (left := ends - time.monotonic()) > 0:
            self._control.settimeout(left)
            try:
                data = self._control.recv(1 << 16)
            except OSError:
                break
            if not data:
                break
            *lines, self._told = (self._told + data).split(b"\n")
            for line in lines:
                self._report |= json.loads(line)
        return self._report

    def _lost(self, outcome: Outcome, reason: str, *, may_be_anothers: bool = False) -> WorkerLost:
        """End the worker; the exception that says how its dispatch ended."""
        self.kill()
        ending = Ending(outcome, reason, self.output_tail(), may_be_anothers=may_be_anothers)
        return WorkerLost(with_left_behind(ending, self._left()))

    def _left(self) -> list[str]:
        """What the guardian found, and nobody knew of, when the worker ended."""
        owned = {name.rpartition(" ")[2] for name in self._owned}  # a name changes with exec
        found: list[str] = self._report.get("left", [])
        return [name for name in found if name.rpartition(" ")[2] not in owned]

    def _look_after(self, left_s: float) -> None:
        if left_s <= 0:
            raise self._lost(self._late.outcome, self._late.reason)
        if self._process.poll() is not None:
            # A copy of the worker may still hold its end of the channel.
            raise self._reap()
        held = resident_bytes(self.pid)
        if _memory_is_short(held):
            raise self._lost(
                Outcome.OUT_OF_MEMORY,
                f"the machine's memory ran out; the worker held {held / 1e9:.1f} GB",
            )
        self._trim_output()

    def _reap(self) -> WorkerLost:
        """What a dead worker's status means."""
        try:
            status = self._process.wait(SHUTDOWN_S)
        except subprocess.TimeoutExpired:
            return self._lost(Outcome.CRASH, "the worker closed its connection and hung")
        self.kill()
        ending = ending_of_death(
            status, self.output_tail(), memory_ran_out=oom_kills() > self._oom_kills
        )
        return WorkerLost(with_left_behind(ending, self._left()))

    def _log_size(self) -> int:
        try:
            return self._log.stat().st_size
        except OSError:
            return 0

    def _trim_output(self) -> None:
        """Keep the output file small; the worker appends, so it goes on behind what is left."""
        if self._log_size() <= MAX_OUTPUT_BYTES:
            return
        self._mark = 0
        tail = self.output_tail().encode()
        with contextlib.suppress(OSError):
            os.truncate(self._log, 0)
            with self._log.open("ab") as log:
                log.write(tail + b"\n")


def thread_variables(threads: int) -> dict[str, str]:
    """Environment variables that hold CPU libraries to `threads` threads."""
    return dict.fromkeys(_THREAD_VARIABLES, str(threads))


def _environment(context: WorkerContext, temporary: Path) -> dict[str, str]:
    quiet = {} if context.settings.trace is None else _QUIET_PROFILER
    threads = thread_variables(context.threads)
    places = {"TMPDIR": str(temporary)}
    return {**_QUIET_WHEN_IDLE, **quiet, **_lasting_caches(), **os.environ, **threads, **places}


def _lasting_caches() -> dict[str, str]:
    """torch.compile keeps what it compiled below the folder for temporary files, from where other
    runs take it (torch/_inductor/runtime/cache_dir_utils.py); it is to stay there."""
    with contextlib.suppress(OSError, KeyError, ImportError):
        name = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
        return {
            "TORCHINDUCTOR_CACHE_DIR": str(Path(tempfile.gettempdir(), f"torchinductor_{name}"))
        }
    return {}


def _memory_is_short(held_bytes: int) -> bool:
    """Whether almost none of the memory that this process may use is left, and a worker holding
    `held_bytes` is why."""
    total = total_memory_bytes()
    return held_bytes > LARGE_SHARE * total and free_memory_bytes() < MIN_FREE_SHARE * total
