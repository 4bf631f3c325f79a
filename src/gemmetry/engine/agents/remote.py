"""An agent from the driver's side: its connection, and the workers that it runs."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from gemmetry.domain.errors import DeviceLostError
from gemmetry.engine.agents.link import Link
from gemmetry.engine.agents.messages import (
    Beat,
    Described,
    Ended,
    Exited,
    Fetch,
    Leave,
    Part,
    Passed,
    Printed,
    Shortage,
    Started,
)
from gemmetry.engine.workers.protocol import MAX_FRAME_BYTES, BadFrame, ChannelClosed, Frame

FETCH_S = 30.0
"""How long the next part of a file may take."""

MOST_UNREAD_BYTES = 4 * MAX_FRAME_BYTES
"""What of a worker may wait to be read. More comes only from one that floods its channel."""


class AgentLostError(DeviceLostError):
    """The agent is gone, and with it its device; what it was measuring is taken again elsewhere."""


class RemoteWorker:
    """What the driver knows of one worker of an agent; a thread of the connection writes it."""

    def __init__(self, number: int, log: Path, changed: threading.Condition) -> None:
        self.number = number
        self.log = log
        self._changed = changed
        self._unread: deque[bytes] = deque()
        self._unread_bytes = 0
        self.has_closed = False
        self.pid: int | None = None
        self.failure = ""
        self.status: int | None = None
        self.shortage = ""
        self.ended: Ended | None = None

    def note(self, message: Frame) -> None:
        """Take in what the agent reports of it."""
        match message:
            case Passed() if message.data and not self.has_closed:
                self._unread.append(message.data)
                self._unread_bytes += len(message.data)
                self.has_closed = self._unread_bytes > MOST_UNREAD_BYTES
            case Passed():
                self.has_closed = True
            case Printed():
                with self.log.open("ab") as log:
                    log.write(message.data)
            case Started():
                self.pid, self.failure = message.pid, message.failure
            case Exited():
                self.status = message.status
            case Shortage():
                self.shortage = message.text
            case Ended():
                self.status, self.ended = message.status, message

    def read(self, timeout_s: float | None, is_lost: Callable[[], bool]) -> bytes:
        """The next bytes from it, none at the end. Raises TimeoutError where none arrive.

        `is_lost`: whether the agent is, so that none will arrive.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._unread or self.has_closed or is_lost(), timeout_s)
            if self._unread:
                data = self._unread.popleft()
                self._unread_bytes -= len(data)
                return data
            if self.has_closed:
                return b""
            raise TimeoutError


class RemoteAgent:
    """An agent that has proved knowledge of the token and has described its device."""

    def __init__(
        self, link: Link, name: str, described: Described, *, beat_s: float, lost_s: float
    ) -> None:
        self.name = name
        self.described = described
        self._link = link
        self._beat_s, self._lost_s = beat_s, lost_s
        self._changed = threading.Condition()
        self._workers: dict[int, RemoteWorker] = {}
        self._numbers = count(1)
        self._parts: dict[int, deque[Part]] = {}
        self._lost = ""
        self._thread = threading.Thread(target=self._receive, name=f"agent {name}", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> str:
        """Why it is lost; "" if it is not."""
        return self._lost

    def add(self, log: Path) -> RemoteWorker:
        """A new worker, which is not started yet."""
        with self._changed:
            worker = RemoteWorker(next(self._numbers), log, self._changed)
            self._workers[worker.number] = worker
        return worker

    def forget(self, worker: RemoteWorker) -> None:
        """Take nothing more from a worker that has ended."""
        with self._changed:
            self._workers.pop(worker.number, None)

    def send(self, message: Frame) -> None:
        """Send a message.

        Raises:
            AgentLostError: the agent is gone.
        """
        self.raise_if_lost()
        try:
            self._link.send(message)
        except ChannelClosed:
            self._lose("its connection broke")
            self.raise_if_lost()

    def read(self, worker: RemoteWorker, timeout_s: float | None) -> bytes:
        """The next bytes from a worker, none at the end. Raises TimeoutError where none arrive.

        Raises:
            AgentLostError: the agent is gone.
        """
        try:
            return worker.read(timeout_s, lambda: bool(self._lost))
        except TimeoutError:
            self.raise_if_lost()
            raise

    def wait_for(self, condition: Callable[[], object], seconds: float) -> bool:
        """Wait until `condition` holds; False after `seconds`, or if the agent is lost first."""
        with self._changed:
            self._changed.wait_for(lambda: condition() or self._lost, max(0.0, seconds))
            return bool(condition())

    def fetch(self, path: str, limit: int) -> Iterator[bytes]:
        """The content of a file of the agent's folder, part by part.

        Raises:
            OSError: it cannot be read, or has more than `limit` bytes. AgentLostError: the agent
                is gone.
        """
        number = next(self._numbers)
        parts: deque[Part] = deque()
        with self._changed:
            self._parts[number] = parts
        try:
            self.send(Fetch(number, path, limit))
            taken = 0
            while True:
                if not self.wait_for(lambda: parts, FETCH_S):
                    self.raise_if_lost()
                    raise OSError(f"{path} did not arrive")
                part = parts.popleft()
                taken += len(part.data)
                if part.failure or taken > limit:
                    raise OSError(part.failure or f"{path} has more than {limit} bytes")
                yield part.data
                if part.is_last:
                    return
        finally:
            with self._changed:
                self._parts.pop(number, None)

    def raise_if_lost(self) -> None:
        """Raise AgentLostError if the agent is gone."""
        if self._lost:
            raise AgentLostError(
                f"the agent {self.name} is lost: {self._lost}",
                hint="The same command resumes, with this agent or others.",
            )

    def close(self, reason: str, *, is_fault: bool = False) -> None:
        """Have the agent end, and end the connection; `is_fault` if its device is the reason."""
        if not self._lost:
            try:
                self._link.send(Leave(reason, is_fault))
            except ChannelClosed:
                pass
        self._lose(reason)
        if threading.current_thread() is not self._thread:
            self._thread.join(self._beat_s)

    def _lose(self, reason: str) -> None:
        with self._changed:
            self._lost = self._lost or reason
            self._changed.notify_all()
        self._link.close()

    def _receive(self) -> None:
        pause_s = self._beat_s / 2
        try:
            while not self._lost:
                try:
                    self._take(self._link.receive(pause_s))
                except TimeoutError:
                    if self._link.silence_s() > self._lost_s:
                        self._lose(f"it has been silent for {self._lost_s:g} s")
                self._link.send_if_silent(Beat(), self._beat_s)
        except ChannelClosed:
            self._lose("its connection ended")
        except BadFrame as error:
            self._lose(f"it sent what no agent sends: {error}")
        except OSError as error:  # the log of a worker cannot be written
            self._lose(f"its output cannot be kept: {error}")

    def _take(self, message: Frame) -> None:
        if isinstance(message, Beat):
            return
        with self._changed:
            if isinstance(message, Part):
                if message.number in self._parts:
                    self._parts[message.number].append(message)
            else:
                worker = self._workers.get(getattr(message, "worker", -1))
                if worker is not None:
                    worker.note(message)
            self._changed.notify_all()


def seconds_left(ends: float) -> float:
    """The time until `ends` on the monotonic clock."""
    return max(0.0, ends - time.monotonic())
