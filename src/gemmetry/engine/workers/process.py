"""A worker process from its parent's side: starting it, sending requests, receiving replies within
a deadline, and killing it.

The workers of a device: for each lane a crew, whose processes share a dispatch's rounds.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gemmetry.domain.errors import Outcome, Stage
from gemmetry.domain.files import remove
from gemmetry.domain.settings import RunSettings
from gemmetry.engine.failures import (
    COMPILING_HUNG_SHARE,
    HUNG,
    TAIL_BYTES,
    Ending,
    WorkerLost,
    ending_of,
    ending_of_death,
    timeout_reason,
    with_left_behind,
)
from gemmetry.engine.jobs import Job, job_of
from gemmetry.engine.store.rows import Lane
from gemmetry.engine.workers.local import (
    Executor,
    LocalExecutor,
    WorkerStart,
    default_variables,
    thread_variables,
)
from gemmetry.engine.workers.protocol import (
    MOST_ON_THE_WAY,
    ON_THE_WAY,
    Answered,
    BadFrame,
    ChannelClosed,
    Failure,
    Frame,
    Hello,
    LeftBehind,
    Open,
    Ready,
    Reply,
    Shutdown,
    out_of_turn,
)
from gemmetry.hardware.host import usable_cores

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
    references: Path
    failures: Path
    logs: Path
    temporary: Path
    """The folder in which workers and the compilers that they start keep files while they run."""
    executor: Executor = field(default_factory=LocalExecutor)
    cores: int = field(default_factory=usable_cores)
    """The processors of the machine where the workers run."""
    stop: threading.Event = field(default_factory=threading.Event)

    def hello(self, lane: Lane, *, jobs: int) -> Hello:
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
            self.settings.force_compile,
        )

    @property
    def job(self) -> Job:
        """What is done with each dispatch."""
        return job_of(self.settings)

    @property
    def threads(self) -> int:
        """The CPU threads of a provider."""
        return self.settings.threads or self.cores


class WorkerProcess:
    """One worker. Methods that communicate with it raise WorkerLost if it is gone (then it is dead,
    with its children) and RunStopped if the run is being ended."""

    _numbers = iter(range(1, 1 << 62))

    def __init__(self, lane: Lane, context: WorkerContext, hello: Hello) -> None:
        """Have the context's executor start a worker of `lane`, and send it `hello`."""
        self.lane = lane
        self.started_ns = time.time_ns()
        """Since 1970; distinguishes this process from others."""
        self._context = context
        self._log = context.logs / f"{lane.provider}-{next(self._numbers)}.log"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._temporary = context.temporary / self._log.stem
        self._temporary.mkdir(parents=True, exist_ok=True)
        self._channel, self._process = context.executor.start(
            WorkerStart(
                log=self._log,
                temporary=self._temporary,
                defaults={**default_variables(), **context.job.worker_defaults},
                variables={**thread_variables(context.threads), "TMPDIR": str(self._temporary)},
            )
        )
        self._mark = 0
        self._deadline = 0.0
        self._late = Ending(Outcome.TIMEOUT, "")
        self._on_the_way = 0
        self._is_ending = False
        self._owned: set[str] = set()
        """Processes left running that are known to belong to some dispatch."""
        self.send(hello)

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def wait_ready(self) -> Failure | None:
        """Why the provider does not work here; None if it does."""
        self.set_deadline(Stage.BUILD, "starting")
        reply = self.receive()
        if not isinstance(reply, Ready):
            raise self.distrust(out_of_turn(reply))
        return reply.failure

    def send(self, message: Frame) -> None:
        """Send a request; output from here on belongs to it."""
        self._mark = self._log_size()
        try:
            self._channel.send(message)
        except ChannelClosed:
            raise self._reap() from None

    def set_deadline(
        self, stage: Stage, doing: str, factor: float = 1, expected_s: float | None = None
    ) -> None:
        """Set the deadline of the next reply to `factor` times that of `stage`, from now; to less
        where it is expected after `expected_s`. `doing` is for the message."""
        whole = seconds = factor * self._context.settings.deadlines_s[stage]
        if expected_s is not None:
            seconds = min(whole, max(COMPILING_HUNG_SHARE * whole, HUNG * expected_s))
        self.set_limit(
            seconds, Ending(Outcome.TIMEOUT, timeout_reason(stage, doing, seconds, whole))
        )

    def set_limit(self, seconds: float, late: Ending) -> None:
        """Require the next reply within `seconds` from now; otherwise the worker ends as `late`."""
        self._deadline = time.monotonic() + seconds
        self._late = late

    def expect(self, kinds: tuple[type[Frame], ...], ids: Collection[int]) -> Reply:
        """The next reply, which must be one of `kinds` about one of `ids` or, if all are answered,
        report that.

        Raises:
            WorkerLost, RunStopped: see :meth:`receive`; or the reply answers no request.
        """
        reply = self.receive()
        if isinstance(reply, Answered):
            if ids:
                raise self.distrust("it reported the end before it had answered")
            if not self._channel.is_idle():
                raise self.distrust("it continued after its last answer")
            return reply
        if not isinstance(reply, kinds) or getattr(reply, "id", None) not in ids:
            raise self.distrust(out_of_turn(reply))
        if isinstance(reply, LeftBehind):
            self._owned.update(reply.processes)
        self._on_the_way = self._on_the_way + 1 if isinstance(reply, ON_THE_WAY) else 0
        if self._on_the_way > MOST_ON_THE_WAY:
            raise self.distrust("it entered more stages than a dispatch has")
        return reply

    def distrust(self, flaw: str) -> WorkerLost:
        """End a worker that has sent something it should not have. Returns the exception to
        raise."""
        return self._lost(
            Outcome.CRASH,
            f"the worker's channel carried what no worker sends: {flaw}; a kernel can cause this "
            "by writing to file descriptors that are not its own, by forking and returning "
            "twice, or by patching the code that verifies it",
            may_be_anothers=True,
        )

    def receive(self) -> Reply:
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
                reply: Reply = self._channel.receive(max(0.0, min(POLL_S, left)))
                return reply
            except ChannelClosed:
                raise self._reap() from None
            except BadFrame as error:
                raise self.distrust(str(error)) from None
            except TimeoutError:
                self._raise_if_lost(left)

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

    def request_end(self) -> None:
        """Request that a healthy worker end, without waiting for it."""
        if not self._is_ending:
            with contextlib.suppress(ChannelClosed):
                self._channel.send(Shutdown())
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

    def _lost(self, outcome: Outcome, reason: str, *, may_be_anothers: bool = False) -> WorkerLost:
        """End the worker. Returns the exception that states how its dispatch ended."""
        self.kill()
        ending = Ending(outcome, reason, self.output_tail(), may_be_anothers=may_be_anothers)
        return WorkerLost(with_left_behind(ending, self._left()))

    def _left(self) -> list[str]:
        """Processes found running when the worker ended that belong to no known dispatch."""
        owned = {name.rpartition(" ")[2] for name in self._owned}  # a name changes with exec
        found = self._process.left_running()
        return [name for name in found if name.rpartition(" ")[2] not in owned]

    def _raise_if_lost(self, left_s: float) -> None:
        if left_s <= 0:
            raise self._lost(self._late.outcome, self._late.reason)
        if self._process.wait(0) is not None:
            # A copy of the worker may still hold its end of the channel.
            raise self._reap()
        shortage = self._process.memory_shortage()
        if shortage:
            raise self._lost(Outcome.OUT_OF_MEMORY, shortage)
        self._trim_output()

    def _reap(self) -> WorkerLost:
        """Interpret the status of a dead worker."""
        status = self._process.wait(SHUTDOWN_S)
        if status is None:
            return self._lost(Outcome.CRASH, "the worker closed its connection and hung")
        self.kill()
        ending = ending_of_death(
            status, self.output_tail(), memory_ran_out=self._process.was_killed_for_memory()
        )
        return WorkerLost(with_left_behind(ending, self._left()))

    def _log_size(self) -> int:
        try:
            return self._log.stat().st_size
        except OSError:
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


class Crew:
    """Workers of a lane; the first one verifies, and all of them sample.

    Raises:
        WorkerLost: one could not be started; none is left running.
    """

    def __init__(self, lane: Lane, context: WorkerContext, count: int) -> None:
        hello = context.hello(lane, jobs=1)
        self.workers: list[WorkerProcess] = []
        self._is_ready = False
        try:
            for _ in range(count):
                self.workers.append(WorkerProcess(lane, context, hello))
                # Nothing is opened, but everything is loaded, in all processes of all lanes at once
                # and while the compilers work.
                self.workers[-1].send(Open(()))
        except BaseException:
            self.kill()
            raise

    def wait_ready(self) -> None:
        """Wait until all workers have loaded what dispatches need: the provider, the libraries of
        verification and measurement, and the device.

        Raises:
            WorkerLost: one ended, or the provider does not work there; none is left running.
            RunStopped: the run is being ended.
        """
        if self._is_ready:
            return
        try:
            for worker in self.workers:
                failure = worker.wait_ready()
                if failure is not None:
                    raise WorkerLost(ending_of(failure, worker.output_tail()))
                worker.set_deadline(Stage.BUILD, "starting")
                worker.expect((), ())
        except BaseException:
            self.kill()
            raise
        self._is_ready = True

    def kill(self) -> None:
        """Kill the workers."""
        for worker in self.workers:
            worker.kill()


class Crews:
    """The crews of one device, by lane."""

    def __init__(self, context: WorkerContext, count: int) -> None:
        """`count` is the number of workers in each crew."""
        self._context = context
        self._count = count
        self._running: dict[int, Crew] = {}
        self._broken: dict[int, Ending] = {}

    def start(self, lanes: Iterable[Lane]) -> None:
        """Start the crews of `lanes` that are not running, without waiting for them."""
        for lane in lanes:
            if lane.id not in self._running and lane.id not in self._broken:
                try:
                    self._running[lane.id] = Crew(lane, self._context, self._count)
                except WorkerLost as lost:
                    self._broken[lane.id] = lost.ending

    def wait_ready(self) -> None:
        """Wait for all crews that were started; :meth:`of` reports those that did not start.

        Raises:
            RunStopped: the run is being ended.
        """
        for lane, crew in list(self._running.items()):
            try:
                crew.wait_ready()
            except WorkerLost as lost:
                del self._running[lane]
                self._broken[lane] = lost.ending

    def of(self, lane: Lane) -> Crew:
        """The lane's crew, started if it is not running.

        Raises:
            WorkerLost: it did not start, now or earlier.
            RunStopped: the run is being ended.
        """
        self.start([lane])
        self.wait_ready()
        if lane.id in self._broken:
            raise WorkerLost(self._broken[lane.id])
        return self._running[lane.id]

    def workers(self, lane: int) -> list[WorkerProcess]:
        """The workers of a lane, if its crew is running."""
        return self._running[lane].workers

    def drop(self, lane: int) -> None:
        """End a lane's workers, one of which is lost, if they are running; the next ones are
        new."""
        crew = self._running.pop(lane, None)
        if crew is not None:
            crew.kill()

    def stop(self) -> None:
        """End all workers, at the same time: closing a GPU takes a process half a second."""
        workers = [worker for crew in self._running.values() for worker in crew.workers]
        for worker in workers:
            worker.request_end()
        for worker in workers:
            worker.stop()
        self._running.clear()

    def kill(self) -> None:
        """Kill all workers."""
        for crew in self._running.values():
            crew.kill()
        self._running.clear()
