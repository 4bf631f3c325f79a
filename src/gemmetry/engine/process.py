"""Workers as processes of this machine, each with a guardian of its own, and their environment
variables.

A worker process from its parent's side: starting it, sending requests, receiving replies within
a deadline, and killing it.

The workers of a device: a lane's workers share the rounds of each dispatch.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import getpass
import glob
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import Outcome, Stage
from gemmetry.domain.files import remove
from gemmetry.domain.settings import RunSettings
from gemmetry.engine import guardian, protocol
from gemmetry.engine.candidates import job_of
from gemmetry.engine.schema import Lane
from gemmetry.hardware.host import (
    free_memory_bytes,
    oom_kills,
    resident_bytes,
    total_memory_bytes,
    usable_cores,
)

GUARDIAN = ("-S", "-P", guardian.__file__)
WORKER = ("-m", "gemmetry.engine.worker")
"""The interpreter's arguments for a worker, which the descriptor of its socket follows."""

GUARDIAN_S = 10.0
"""A guardian starts its worker in about ten milliseconds."""

MIN_FREE_SHARE = 0.04
"""A share of the usable memory: if less is left while a worker works, the worker is ended before
the kernel chooses another process."""

LARGE_SHARE = 0.25
"""A share of the usable memory: only a worker that holds this much is considered the cause."""


def start_worker(
    log: Path, temporary: Path, environment: Mapping[str, str]
) -> tuple[protocol.Channel, LocalProcess]:
    """Start a worker on this machine, in a session of its own, that waits for its first request.

    Args:
        log: the file to which its standard output and standard error are appended.
        temporary: the folder of its temporary files; it exists, and is removed at the end.

    Raises:
        OSError: it cannot be started.
    """
    return _start_worker(log, temporary, environment)


def _start_worker(
    log: Path, temporary: Path, environment: Mapping[str, str], forks: ForkServer | None = None
) -> tuple[protocol.Channel, LocalProcess]:
    ours, theirs = socket.socketpair()
    command = [sys.executable, *WORKER, str(theirs.fileno())]
    try:
        process = start_guarded(
            command, channel=theirs.fileno(), temporary=str(temporary), log=log,
            environment=environment, forks=forks,
        )  # fmt: skip
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return protocol.Channel(ours, protocol.Reply), process


def start_guarded(
    command: Sequence[str],
    *,
    channel: int,
    temporary: str,
    log: Path,
    environment: Mapping[str, str],
    folder: Path | None = None,
    forks: ForkServer | None = None,
) -> LocalProcess:
    """Start `command`, whose program is given by its path, with a guardian.

    Args:
        channel: a descriptor that the command inherits and the guardian closes.
        temporary: a folder that is removed at the end; "" for none.
        log: the file to which standard output and standard error are appended.
        folder: the working folder; None for this process's.
        forks: where the guardian is forked, and `command` in it, if it can be.

    Raises:
        OSError: it cannot be started.
    """
    control, inherited = socket.socketpair()
    mark = os.urandom(16).hex()
    kills_before = oom_kills()
    descriptors = (inherited.fileno(), channel)
    try:
        # Not through a link: workers' output stays where it belongs.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        arguments = [*map(str, descriptors), temporary, *command]
        variables = {**environment, guardian.MARK: mark}
        with os.fdopen(os.open(log, flags, 0o644), "ab") as output:
            process: subprocess.Popen[bytes] | ForkedProcess | None = None
            if forks is not None:
                with Path(os.devnull).open() as nothing:
                    files = nothing.fileno(), output.fileno(), output.fileno()
                    process = forks.fork(arguments, descriptors, files, variables, folder)
            process = process or subprocess.Popen(
                [sys.executable, *GUARDIAN, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=descriptors,
                start_new_session=True,
                env=variables,
                cwd=folder,
            )
    except BaseException:
        control.close()
        raise
    finally:
        inherited.close()
    return LocalProcess(process, control, kills_before, mark)


@dataclass(eq=False, slots=True)
class LocalProcess:
    """A worker or a command of this machine, controlled through its guardian. That ends with its
    worker's status and reports over the socket `_control`. `_kills_before` is the number of
    processes that the system had killed for lack of memory before; `_mark` is in the environment
    of all."""

    _guardian: subprocess.Popen[bytes] | ForkedProcess
    _control: socket.socket
    _kills_before: int
    _mark: str
    _unread: bytes = b""
    _report: dict[str, Any] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        """The number of the worker once its guardian has started it, else the guardian's."""
        return int(self._wait_for_report("worker", GUARDIAN_S).get("worker", self._guardian.pid))

    def wait(self, seconds: float) -> int | None:
        """The exit status of the worker, negative for a signal, which its guardian repeats; None if
        it still runs after `seconds`."""
        if seconds > 0:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._guardian.wait(seconds)
        return self._guardian.poll()

    def end_gently(self, grace_s: float) -> None:
        """Send SIGTERM to the worker's group, and after `grace_s` end everything."""
        try:
            if self.wait(0) is None:
                with contextlib.suppress(OSError):
                    self._control.sendall(guardian.TERMINATE)
                self.wait(grace_s)
        finally:
            self.end()

    def end(self) -> None:
        """Have the guardian end everything; kill it if it does not. Harmless if it is dead."""
        if self._control.fileno() >= 0:
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)  # the guardian then ends everything
            self._wait_for_report("left", 2 * guardian.LAST_S)
            self._control.close()
        if self._guardian.poll() is None:  # its number belongs to no other process yet
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._guardian.pid, signal.SIGKILL)
            self._guardian.wait()
        if "left" not in self._report:  # The guardian was killed, or hung.
            self._report["left"] = guardian.end_marked(self._mark)

    def left_running(self) -> Sequence[str]:
        """The names of processes outside the worker's session that were found and ended."""
        return list(self._report.get("left", ()))

    def memory_shortage(self) -> str:
        """Why the worker must be ended before the machine runs out of memory: it holds much of
        what this process may use, of which almost none is left; "" if it need not be."""
        held, total = resident_bytes(self.pid), total_memory_bytes()
        if held <= LARGE_SHARE * total or free_memory_bytes() >= MIN_FREE_SHARE * total:
            return ""
        return f"the machine's memory ran out; the worker held {held / 1e9:.1f} GB"

    def was_killed_for_memory(self) -> bool:
        """Whether the system has killed processes for lack of memory since the worker started."""
        return oom_kills() > self._kills_before

    def _wait_for_report(self, key: str, seconds: float) -> dict[str, Any]:
        """What the guardian has reported once it reports `key`, or after `seconds`."""
        ends = time.monotonic() + seconds
        while key not in self._report and (left := ends - time.monotonic()) > 0:
            self._control.settimeout(left)
            try:
                data = self._control.recv(1 << 16)
            except OSError:
                break
            if not data:
                break
            *lines, self._unread = (self._unread + data).split(b"\n")
            for line in lines:
                self._report |= json.loads(line)
        return self._report


FORK_S = 60.0
"""Importing torch takes seconds, and tens of them from a slow disk."""


class ForkedProcess:
    """A process that a :class:`ForkServer` forked, with what is used of
    :class:`subprocess.Popen`."""

    def __init__(self, pid: int, status: int) -> None:
        """`status` is a pipe on which the server reports its exit status."""
        self.pid = pid
        self.returncode: int | None = None
        self._status = status
        self._lock = threading.Lock()

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, negative for a signal.

        Raises:
            TimeoutExpired: it still runs after `timeout` s.
        """
        with self._lock:
            if self.returncode is None:
                ready, _, _ = select.select([self._status], [], [], timeout)
                if not ready:
                    raise subprocess.TimeoutExpired(WORKER, timeout or 0.0)
                # Nothing is written if the server died before it.
                self.returncode = int(os.read(self._status, 16) or -signal.SIGKILL)
                os.close(self._status)
            return self.returncode

    def poll(self) -> int | None:
        """Its exit status; None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None


class ForkServer:
    """A process that has imported what workers import (:func:`gemmetry.engine.worker.fork_all`) and
    forks them, which takes milliseconds where importing torch and triton takes seconds of a
    processor. Its memory is theirs until they write to it.

    Only workers of a GPU are forked. Workers of a CPU start anew with other memory addresses, and
    the processes of one dispatch show how much these addresses matter.
    """

    def __init__(self, environment: Mapping[str, str], command: Sequence[str] = ()) -> None:
        """Start it, without waiting for it.

        Args:
            environment: of its workers, which libraries read when they are loaded. A worker whose
                variables differ, but for the folder of its temporary files, is not forked.
            command: the program and its first arguments, by default that of workers.
        """
        self._environment = {**environment, _OWN_FOLDER: ""}
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._server = subprocess.Popen(
                [*(command or (sys.executable, *WORKER, "--forks")), str(theirs.fileno())],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),), env=dict(environment), start_new_session=True,
            )  # fmt: skip
        self._socket = ours
        self._socket.settimeout(FORK_S)
        self._lock = threading.Lock()

    def start_worker(
        self, log: Path, temporary: Path, environment: Mapping[str, str]
    ) -> tuple[protocol.Channel, LocalProcess]:
        """:func:`start_worker`, by a fork where that has the same variables."""
        forks = self if self.is_for(environment) else None
        return _start_worker(log, temporary, environment, forks)

    def is_for(self, environment: Mapping[str, str]) -> bool:
        """Whether workers with these variables can be forked."""
        is_open = self._socket.fileno() >= 0
        return is_open and {**environment, _OWN_FOLDER: ""} == self._environment

    def fork(
        self, arguments: Sequence[str], inherited: Sequence[int], files: tuple[int, int, int],
        environment: Mapping[str, str], folder: Path | None = None,
    ) -> ForkedProcess | None:  # fmt: skip
        """A guardian with these arguments and what it starts; None if the server does not work.

        Args:
            inherited: descriptors that it has by the same numbers.
            files: its standard input, output and error.
            folder: its working folder; None for this process's.
        """
        request = json.dumps([arguments, inherited, dict(environment), str(folder or Path.cwd())])
        read, write = os.pipe()
        try:
            with self._lock:
                sent = array.array("i", [write, *files, *inherited])
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent)]
                self._socket.sendmsg([request.encode()], rights)
                if answer := self._socket.recv(64):
                    return ForkedProcess(int(answer), read)
        except OSError:
            pass
        finally:
            os.close(write)
        self.close()  # It must not fork later.
        os.close(read)
        return None

    def close(self) -> None:
        """End the server; what it has forked continues."""
        self._socket.close()
        self._server.kill()
        self._server.wait()


_OWN_FOLDER = "TMPDIR"
"""The variable that differs from worker to worker."""

_kept: list[ForkServer] = []


def fork_server(environment: Mapping[str, str] | None) -> ForkServer | None:
    """The server for workers with these variables. It is kept for further runs of this process,
    until others are wanted, or none: starting would disturb what is measured on a CPU."""
    while _kept and (environment is None or not _kept[0].is_for(environment)):
        _kept.pop().close()
    if environment is None:
        return None
    if not _kept:
        _kept.append(ForkServer(environment))
        atexit.register(_kept[0].close)
    return _kept[0]


def import_early() -> None:
    """Start the :class:`ForkServer` for the usual settings, while this process still prepares the
    request; nothing on a machine without GPUs."""
    if any(map(glob.glob, ("/dev/nvidia[0-9]*", "/dev/kfd"))):
        target = Target(TargetKind.CUDA)
        threads = default_threads(target, usable_cores())
        fork_server(worker_environment(RunSettings(), target, threads))


_THREAD_VARIABLES = (
    *(f"{library}_NUM_THREADS" for library in ("OMP", "MKL", "OPENBLAS", "BLIS", "NUMEXPR")),
    "VECLIB_MAXIMUM_THREADS",
)

_QUIET_WHEN_IDLE = {
    "KMP_BLOCKTIME": "1",
    "GOMP_SPINCOUNT": "10000",
    "OPENBLAS_THREAD_TIMEOUT": "20",
}
"""Threads of a worker whose turn is over must not spin on the processors on which the next worker
is measured, nor must a thread spin while it waits for one that another program has preempted.
Intel's OpenMP spins for 200 ms (its manual's KMP_BLOCKTIME), OpenBLAS for 2²⁶ cycles
(driver/others/blas_server.c), GNU's for 300,000 turns (libgomp manual, GOMP_SPINCOUNT). Here it is
1 ms, 2²⁰ cycles and 10,000 turns, which does not affect torch's products on an idle machine. The
user's own settings have precedence."""


GPU_SHARE = 8
"""Divisor of the processors for a worker of a GPU, as several verify on the host at the same time.
Six workers verified a 4096³ product in 67 s of processor time with 16 threads each on 16
processors, and in 44 s with two, in no more wall time (``benchmarks/profile_time.py``, the host of
an H100)."""


def default_threads(target: Target, cores: int) -> int:
    """The CPU threads of a worker on a machine with `cores` processors."""
    return max(1, cores // GPU_SHARE) if target.is_gpu else cores


def thread_variables(threads: int) -> dict[str, str]:
    """Variables that limit CPU libraries to `threads` threads."""
    return dict.fromkeys(_THREAD_VARIABLES, str(threads))


def default_variables() -> dict[str, str]:
    """Variables that every worker gets unless the user has set them."""
    found = dict(_QUIET_WHEN_IDLE)
    # torch.compile keeps compiled code below the folder for temporary files, where other runs find
    # it (torch/_inductor/runtime/cache_dir_utils.py), so it is to stay there.
    with contextlib.suppress(OSError, KeyError, ImportError):
        name = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
        found["TORCHINDUCTOR_CACHE_DIR"] = f"{tempfile.gettempdir()}/torchinductor_{name}"
    return found


KEPT_SHARE = 32
"""Divisor of the machine's memory for what a GPU's worker keeps of the memory that it frees: checks
on the host take and free arrays of 100 MB, whose pages would be made anew each time. On a virtual
machine with an H200, ``benchmarks/profile_time.yaml`` took 67 s where nothing was kept, and 61 s
where all was."""


def _kept_memory() -> dict[str, str]:
    """Variables that make glibc keep freed memory (mallopt(3)). Not for workers of a CPU: the check
    ``spoiled_scratch`` spoils memory that is made anew."""
    return {
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(total_memory_bytes() // KEPT_SHARE),
        "MALLOC_TOP_PAD_": str(64 << 20),
    }


def worker_environment(settings: RunSettings, target: Target, threads: int) -> dict[str, str]:
    """The variables of workers on `target`, but for the folder of their temporary files."""
    defaults = {**default_variables(), **job_of(settings).worker_defaults}
    if target.is_gpu:
        defaults |= _kept_memory()
    return {**defaults, **os.environ, **thread_variables(threads)}


POLL_S = 0.5
"""The time between checks of the stop flag, the worker's memory and its output file."""

MAX_OUTPUT_BYTES = 8 << 20
"""The size of a worker's output file beyond which only the end is kept."""

SHUTDOWN_S = 2.0
"""A healthy worker ends in milliseconds; one that takes longer is killed."""


class RunStopped(Exception):
    """The run is being ended (interrupt, failure elsewhere); no dispatch is to blame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """What all workers of a run share."""

    settings: RunSettings
    generated: Path
    folder: Path
    """The experiment's, absolute. Only it may be a link: what is in it, and removed, is not
    elsewhere."""
    kept: Path | None = None
    """Where machine code is kept for other experiments; None: below `generated`."""
    start: Callable[[Path, Path, Mapping[str, str]], tuple[protocol.Channel, LocalProcess]] = (
        start_worker
    )
    cores: int = field(default_factory=usable_cores)
    stop: threading.Event = field(default_factory=threading.Event)

    def hello(self, lane: Lane, *, jobs: int) -> protocol.Hello:
        """The first request to a worker of `lane`."""
        return protocol.Hello(
            lane.provider,
            {**lane.options, "threads": self.threads(lane.target)},
            lane.target,
            self.settings,
            str(self.generated),
            str(self.folder),
            jobs,
            str(self.kept or ""),
        )

    @property
    def temporary(self) -> Path:
        """The folder in which workers and the compilers that they start keep files while they
        run."""
        return self.folder / "temporary"

    def environment(self, target: Target) -> dict[str, str]:
        """The variables of workers on `target` (:func:`worker_environment`)."""
        return worker_environment(self.settings, target, self.threads(target))

    def threads(self, target: Target) -> int:
        """The CPU threads of a provider on `target`."""
        return self.settings.threads or default_threads(target, self.cores)


class WorkerProcess:
    """One worker. Methods that communicate with it raise WorkerLost if it is gone (then it is dead,
    with its children) and RunStopped if the run is being ended."""

    _numbers = iter(range(1, 1 << 62))

    def __init__(self, lane: Lane, context: WorkerContext, *, jobs: int = 1) -> None:
        """Start a worker of `lane`, whose compilers may use `jobs` processors."""
        self.started_ns = time.time_ns()
        """Since 1970; distinguishes this process from others."""
        self._context = context
        logs = context.folder / "artifacts" / "logs"
        self._log = logs / f"{lane.provider}-{next(self._numbers)}.log"
        logs.mkdir(parents=True, exist_ok=True)
        self._temporary = context.temporary / self._log.stem
        self._temporary.mkdir(parents=True, exist_ok=True)
        self._channel, self._process = context.start(
            self._log,
            self._temporary,
            {**context.environment(lane.target), _OWN_FOLDER: str(self._temporary)},
        )
        self._mark = 0
        self._deadline = 0.0
        self._late = protocol.Ending(Outcome.TIMEOUT, "")
        self._on_the_way = 0
        self._is_ending = False
        self.may_be_damaged = False
        """A dispatch failed here; its threads may still run, and it may have overwritten memory."""
        self._owned: set[str] = set()
        """Processes left running that are known to belong to some dispatch."""
        self.send(context.hello(lane, jobs=jobs))

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def wait_ready(self) -> protocol.Failure | None:
        """Why the provider does not work here; None if it does."""
        self.set_deadline(Stage.BUILD, "starting")
        reply = self.receive()
        if not isinstance(reply, protocol.Ready):
            raise self.distrust(protocol.out_of_turn(reply))
        return reply.failure

    def send(self, message: protocol.Frame) -> None:
        """Send a request; output from here on belongs to it."""
        self.mark_output()
        try:
            self._channel.send(message)
        except protocol.ChannelClosed:
            raise self._reap() from None

    def set_deadline(
        self, stage: Stage, doing: str, factor: float = 1, expected_s: float | None = None
    ) -> None:
        """Set the deadline of the next reply to `factor` times that of `stage`, from now; to less
        where it is expected after `expected_s`. `doing` is for the message."""
        whole = seconds = factor * self._context.settings.deadlines_s[stage]
        if expected_s is not None:
            seconds = min(
                whole, max(protocol.COMPILING_HUNG_SHARE * whole, protocol.HUNG * expected_s)
            )
        late = protocol.Ending(
            Outcome.TIMEOUT, protocol.timeout_reason(stage, doing, seconds, whole)
        )
        self.set_limit(seconds, late)

    def set_limit(self, seconds: float, late: protocol.Ending) -> None:
        """Require the next reply within `seconds` from now; otherwise the worker ends as `late`."""
        self._deadline = time.monotonic() + seconds
        self._late = late

    def expect(
        self, kinds: tuple[type[protocol.Frame], ...], ids: Collection[int]
    ) -> protocol.Reply:
        """The next reply, which must be one of `kinds` about one of `ids` or, if all are answered,
        report that.

        Raises:
            WorkerLost, RunStopped: see :meth:`receive`; or the reply answers no request.
        """
        reply = self.receive()
        if isinstance(reply, protocol.Answered):
            if ids:
                raise self.distrust("it reported the end before it had answered")
            if not self._channel.is_idle():
                raise self.distrust("it continued after its last answer")
            return reply
        if not isinstance(reply, kinds) or getattr(reply, "id", None) not in ids:
            raise self.distrust(protocol.out_of_turn(reply))
        if isinstance(reply, protocol.LeftBehind):
            self._owned.update(reply.processes)
        self._on_the_way = self._on_the_way + 1 if isinstance(reply, protocol.ON_THE_WAY) else 0
        if self._on_the_way > protocol.MOST_ON_THE_WAY:
            raise self.distrust("it entered more stages than a dispatch has")
        return reply

    def distrust(self, flaw: str) -> protocol.WorkerLost:
        """End a worker that has sent something it should not have. Returns the exception to
        raise."""
        return self._lost(protocol.Ending(
            Outcome.CRASH,
            f"the worker's channel carried what no worker sends: {flaw}; a kernel can cause this "
            "by writing to file descriptors that are not its own, by forking and returning "
            "twice, or by patching the code that verifies it",
            may_be_anothers=True,
        ))  # fmt: skip

    def receive(self) -> protocol.Reply:
        """The next reply.

        Raises:
            WorkerLost: it died, was killed because the deadline passed or memory ran out, or sent
                something that is not a reply.
            RunStopped: the run is being ended; the worker is killed.
        """
        while True:
            if self._context.stop.is_set():
                self.kill()
                raise RunStopped
            left = self._deadline - time.monotonic()
            try:
                reply: protocol.Reply = self._channel.receive(max(0.0, min(POLL_S, left)))
                return reply
            except protocol.ChannelClosed:
                raise self._reap() from None
            except protocol.BadFrame as error:
                raise self.distrust(str(error)) from None
            except TimeoutError:
                self._raise_if_lost(left)

    def mark_output(self) -> None:
        """Output from here on belongs to the next dispatch."""
        self._mark = self._log_size()

    def output_tail(self) -> str:
        """The end of what was printed since the last mark."""
        with contextlib.suppress(OSError), self._log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(min(self._mark, size), size - protocol.TAIL_BYTES))
            return log.read(protocol.TAIL_BYTES).decode(errors="replace").strip()
        return ""

    def request_end(self) -> None:
        """Request that a healthy worker end, without waiting for it."""
        if not self._is_ending:
            with contextlib.suppress(protocol.ChannelClosed):
                self._channel.send(protocol.Shutdown())
                self._is_ending = True

    def stop(self) -> None:
        """End a healthy worker; kill it if it does not end."""
        self.request_end()
        if self._is_ending:
            self._process.wait(SHUTDOWN_S)
        self.kill()

    def kill(self) -> None:
        """Kill the worker and everything that it started; harmless if it is dead."""
        self._process.end()
        self._channel.close()
        with contextlib.suppress(OSError):
            remove(self._temporary, inside=self._context.temporary.parent)
        with contextlib.suppress(OSError):
            if self._log.stat().st_size == 0:
                remove(self._log, inside=self._log.parent)

    def _lost(self, ending: protocol.Ending) -> protocol.WorkerLost:
        """End the worker. Returns the exception that states how its dispatch ended."""
        self.kill()
        owned = {name.rpartition(" ")[2] for name in self._owned}  # a name changes with exec
        found = self._process.left_running()
        left = [name for name in found if name.rpartition(" ")[2] not in owned]
        return protocol.WorkerLost(
            protocol.with_left_behind(replace(ending, output_tail=self.output_tail()), left)
        )

    def _raise_if_lost(self, left_s: float) -> None:
        if left_s <= 0:
            raise self._lost(self._late)
        if self._process.wait(0) is not None:
            # A copy of the worker may still hold its end of the channel.
            raise self._reap()
        if shortage := self._process.memory_shortage():
            raise self._lost(protocol.Ending(Outcome.OUT_OF_MEMORY, shortage))
        self._trim_output()

    def _reap(self) -> protocol.WorkerLost:
        """Interpret the status of a dead worker."""
        if (status := self._process.wait(SHUTDOWN_S)) is None:
            return self._lost(
                protocol.Ending(Outcome.CRASH, "the worker closed its connection and hung")
            )
        self.kill()
        ran_out = self._process.was_killed_for_memory()
        return self._lost(
            protocol.ending_of_death(status, self.output_tail(), memory_ran_out=ran_out)
        )

    def _log_size(self) -> int:
        with contextlib.suppress(OSError):
            return self._log.stat().st_size
        return 0

    def _trim_output(self) -> None:
        """Keep the output file small; the worker appends, so it continues after what remains."""
        if self._log_size() <= MAX_OUTPUT_BYTES:
            return
        self._mark = 0
        tail = self.output_tail().encode()
        with contextlib.suppress(OSError):
            os.truncate(self._log, 0)
            with self._log.open("ab") as log:
                log.write(tail + b"\n")


def stop_all(workers: Collection[WorkerProcess]) -> None:
    """End workers at the same time: closing a GPU takes a process half a second."""
    for worker in workers:
        worker.request_end()
    for worker in workers:
        worker.stop()


_ending: list[threading.Thread] = []


def wait_for_ends() -> None:
    """Wait for the workers that end while the program goes on (:meth:`WorkerPool.stop`)."""
    while _ending:
        _ending.pop().join()


class WorkerPool:
    """The workers of one device, by lane: the first ones verify, and all sample."""

    def __init__(self, context: WorkerContext, count: int) -> None:
        """`count` is the number of workers of each lane."""
        self._context = context
        self._count = count
        self.running: dict[int, list[WorkerProcess]] = {}
        """By the numbers of their lanes."""
        self._ready: dict[int, int] = {}
        """Number of a lane's first workers that have loaded everything."""
        self._broken: dict[int, protocol.Ending] = {}

    def start(self, lane: Lane, count: int | None = None) -> None:
        """Start the first `count` workers of `lane`, by default all, as far as they are not
        running, without waiting for them."""
        if lane.id in self._broken:
            return
        workers = self.running.setdefault(lane.id, [])
        with self._starting(lane.id):
            while len(workers) < min(count or self._count, self._count):
                workers.append(WorkerProcess(lane, self._context))
                # Nothing is opened, but everything is loaded, in all processes of all lanes at
                # once and while the compilers work.
                workers[-1].send(protocol.Open(()))

    def of(self, lane: Lane, count: int | None = None) -> list[WorkerProcess]:
        """The lane's workers that are ready: those that were before, and at least the first
        `count`, by default all. It starts them if they are not running, and waits until they have
        loaded what dispatches need: the provider, the libraries of verification and measurement,
        and the device.

        Raises:
            WorkerLost: they did not start, now or earlier; none is left running.
            RunStopped: the run is being ended.
        """
        self.start(lane, count)
        with self._starting(lane.id):
            ready = self._ready.get(lane.id, 0)
            for worker in self.running.get(lane.id, [])[ready : count or self._count]:
                if (failure := worker.wait_ready()) is not None:
                    raise protocol.WorkerLost(protocol.ending_of(failure, worker.output_tail()))
                worker.set_deadline(Stage.BUILD, "starting")
                worker.expect((), ())
                ready += 1
            self._ready[lane.id] = ready
        if lane.id in self._broken:
            raise protocol.WorkerLost(self._broken[lane.id])
        return self.running[lane.id][:ready]

    @contextlib.contextmanager
    def _starting(self, lane: int) -> Iterator[None]:
        """Leave none of a lane's workers running if one does not start; :meth:`of` has the
        reason."""
        try:
            yield
        except BaseException as error:
            self.drop(lane)
            if not isinstance(error, protocol.WorkerLost):
                raise
            self._broken[lane] = error.ending

    def drop(self, lane: int) -> None:
        """End a lane's workers, one of which is lost, if they are running; the next ones are
        new."""
        self._ready.pop(lane, None)
        for worker in self.running.pop(lane, ()):
            worker.kill()

    def stop(self, *, waits: bool = True) -> None:
        """End all workers; without `waits` while the program goes on (:func:`wait_for_ends`), as
        processes close a GPU one after the other."""
        workers = [*chain(*self.running.values())]
        self.running.clear()
        ending = threading.Thread(target=stop_all, args=[workers], name="ending workers")
        ending.start()
        if waits:
            ending.join()
        else:
            _ending.append(ending)

    def kill(self) -> None:
        """Kill all workers."""
        for lane in list(self.running):
            self.drop(lane)
