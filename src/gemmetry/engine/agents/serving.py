"""Runs workers for a driver, and passes on what they and the driver send."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from pathlib import Path, PurePosixPath

from gemmetry.domain.errors import EnvironmentFailure, RequestError
from gemmetry.engine.agents.link import Link
from gemmetry.engine.agents.messages import (
    Beat,
    Ended,
    EndWorker,
    Exited,
    Fetch,
    Leave,
    Part,
    Passed,
    Printed,
    Refused,
    Shortage,
    StartCommand,
    Started,
    StartWorker,
)
from gemmetry.engine.opaque import LocalJob, start_command
from gemmetry.engine.workers.local import (
    LocalExecutor,
    LocalProcess,
    WorkerStart,
    default_variables,
)
from gemmetry.engine.workers.protocol import CHUNK_BYTES, BadFrame, ChannelClosed, is_inside

POLL_S = 0.5
"""The time between checks of the workers' processes, memory and output."""

_ENDING_POLL_S = 0.01

MOST_PRINTED_BYTES = 1 << 20
"""The most of a worker's output that is passed on at a time; of more only the end is."""

MOST_LOG_BYTES = 8 << 20
"""The size of a worker's output file beyond which it is emptied."""


class WorkerHost:
    """Serves one driver over `link` until it needs nothing more."""

    def __init__(self, link: Link, folder: Path, lost_s: float) -> None:
        """`folder`: where workers write; `lost_s`: a driver that is silent for so long is gone."""
        self._link = link
        self._folder = folder
        self._lost_s = lost_s
        self._workers: dict[int, _Served] = {}
        self._ending: list[threading.Thread] = []

    def work(self) -> str:
        """Serve. Returns why the driver ended it.

        Raises:
            ChannelClosed, TimeoutError: the driver is gone. BadFrame: it sent what none sends.
            EnvironmentFailure: the driver ended it because of its device.
        """
        checked = time.monotonic()
        try:
            while True:
                reason = self._take_requests()
                if reason:
                    return reason
                for worker in list(self._workers.values()):
                    worker.pass_on()
                if time.monotonic() - checked > self._pause_s():
                    checked = time.monotonic()
                    for worker in list(self._workers.values()):
                        worker.check()
                    if self._link.silence_s() > self._lost_s:
                        raise TimeoutError(f"it has been silent for {self._lost_s:g} s")
                self._wait()
        finally:
            for worker in self._workers.values():
                worker.process.end()
                if worker.channel is not None:
                    worker.channel.close()
            for thread in self._ending:  # their files are to be gone before the folder is removed
                thread.join()

    def _wait(self) -> None:
        """Wait until something can be read, or for the next check."""
        poller = select.poll()
        poller.register(self._link.fileno(), select.POLLIN)
        for worker in self._workers.values():
            if worker.channel is not None and not worker.has_closed:
                poller.register(worker.channel, select.POLLIN)
        poller.poll(1000 * self._pause_s())

    def _pause_s(self) -> float:
        """A worker that has closed its channel is about to end, which the driver waits for."""
        is_ending = any(one.is_ending for one in self._workers.values())
        return _ENDING_POLL_S if is_ending else POLL_S

    def _take_requests(self) -> str:
        """Serve all requests that have arrived. Returns why the driver ended this agent, if it
        did."""
        while True:
            try:
                message = self._link.receive(0)
            except TimeoutError:
                return ""
            match message:
                case Leave(reason, is_fault):
                    if is_fault:
                        raise EnvironmentFailure(
                            f"the driver ended this agent: {reason}",
                            hint="Look at the device of this host; the run continues without it.",
                        )
                    return reason
                case Refused(reason):
                    return reason
                case Beat():
                    pass
                case StartWorker():
                    self._start(message)
                case StartCommand():
                    self._start_command(message)
                case Passed():
                    worker = self._workers.get(message.worker)
                    if worker is not None:
                        worker.take(message.data)
                case EndWorker():
                    ended = self._workers.pop(message.worker, None)
                    if ended is not None:
                        thread = threading.Thread(
                            target=ended.end, args=(message.grace_s,), daemon=True
                        )
                        self._ending = [one for one in self._ending if one.is_alive()]
                        self._ending.append(thread)
                        thread.start()
                case Fetch():
                    threading.Thread(target=self._send_file, args=(message,), daemon=True).start()
                case _:
                    raise BadFrame(f"the unexpected message {type(message).__name__}")

    def _start(self, request: StartWorker) -> None:
        """Start a worker with this machine's own folders and caches."""
        number = request.worker
        temporary = self._folder / "temporary" / str(number)
        log = self._folder / "logs" / f"{number}.log"
        try:
            for folder in (temporary, log.parent):
                folder.mkdir(parents=True, exist_ok=True)
            channel, process = LocalExecutor().open(
                WorkerStart(
                    log=log,
                    temporary=temporary,
                    defaults={**request.defaults, **default_variables()},
                    variables={**request.variables, "TMPDIR": str(temporary)},
                )
            )
        except OSError as error:
            self._link.send(Started(number, 0, str(error)))
            return
        self._workers[number] = _Served(number, self._link, channel, process, log)
        self._link.send(Started(number, process.pid))

    def _start_command(self, request: StartCommand) -> None:
        """Start a command in a folder that this host shares with the driver's."""
        number = request.worker
        log = self._folder / "logs" / f"{number}.log"
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            process = start_command(request.argv, request.environment, Path(request.folder), log)
        except (OSError, RequestError) as error:
            self._link.send(Started(number, 0, str(error)))
            return
        self._workers[number] = _Served(number, self._link, None, process, log)
        self._link.send(Started(number, process.pid))

    def _send_file(self, request: Fetch) -> None:
        with contextlib.suppress(ChannelClosed):  # the other threads notice it
            try:
                self._send_parts(request)
            except OSError as error:
                failure = f"{request.path} cannot be read: {error.strerror or error}"
                self._link.send(Part(request.number, b"", is_last=True, failure=failure))

    def _send_parts(self, request: Fetch) -> None:
        path = (self._folder / PurePosixPath(request.path)).resolve()
        if not is_inside(request.path) or not path.is_relative_to(self._folder.resolve()):
            raise OSError("it is not in the agent's folder")
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size > request.limit:
                raise OSError(f"it has more than {request.limit} bytes")
            data = file.read(CHUNK_BYTES)
            while True:
                following = file.read(CHUNK_BYTES)
                self._link.send(Part(request.number, data, is_last=not following))
                if not following:
                    return
                data = following


class _Served:
    """One worker of this agent."""

    def __init__(
        self,
        number: int,
        link: Link,
        channel: socket.socket | None,
        process: LocalProcess | LocalJob,
        log: Path,
    ) -> None:
        """A command has no `channel`."""
        self.number = number
        self.channel = channel
        self.process = process
        self.has_closed = channel is None
        self._link = link
        self._log = log
        self._printed = 0
        self._has_exited = False
        self._is_short = False

    @property
    def is_ending(self) -> bool:
        """Whether it has closed its channel while its process still runs."""
        return self.channel is not None and self.has_closed and not self._has_exited

    def take(self, data: bytes) -> None:
        """Pass bytes on to it; they are lost if it has ended, which is reported."""
        if self.channel is not None:
            with contextlib.suppress(OSError):
                self.channel.sendall(data)

    def pass_on(self) -> None:
        """Pass on what it has sent, and before that what it has printed."""
        while self.channel is not None and not self.has_closed:
            try:
                data = self.channel.recv(CHUNK_BYTES, socket.MSG_DONTWAIT)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data = b""
            self.has_closed = not data
            self._pass_on_output()
            self._link.send(Passed(self.number, data))
            if len(data) < CHUNK_BYTES:
                return

    def check(self) -> None:
        """Report its end, its output, and a shortage of memory."""
        if self._has_exited:
            return
        self._pass_on_output()
        status = self.process.wait(0)
        if status is not None:
            self.pass_on()
            self._has_exited = True
            self._link.send(Exited(self.number, status))
        elif not self._is_short:
            text = self.process.memory_shortage()
            self._is_short = bool(text)
            if text:
                self._link.send(Shortage(self.number, text))

    def end(self, grace_s: float) -> None:
        """End it and all that it started, and report that."""
        if isinstance(self.process, LocalJob):
            self.process.end_gently(grace_s)
        self.process.end()
        with contextlib.suppress(ChannelClosed):
            self._pass_on_output()
            self._link.send(
                Ended(
                    self.number,
                    self.process.wait(0) or 0,
                    tuple(self.process.left_running()),
                    self.process.was_killed_for_memory(),
                )
            )
        if self.channel is not None:
            self.channel.close()
        self._log.unlink(missing_ok=True)

    def _pass_on_output(self) -> None:
        """Pass on what it has printed since the last call."""
        try:
            size = self._log.stat().st_size
            if size <= self._printed:
                self._printed = size
                return
            start = max(self._printed, size - MOST_PRINTED_BYTES)
            with self._log.open("rb") as log:
                log.seek(start)
                data = log.read(size - start)
            self._printed = size
            if size > MOST_LOG_BYTES:
                os.truncate(self._log, 0)
                self._printed = 0
        except OSError:
            return
        self._link.send(Printed(self.number, data))
