"""Starts a device's workers on the host of an agent; see
:class:`gemmetry.engine.workers.local.Executor`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from gemmetry.domain.record import BuildFacts
from gemmetry.engine.agents.messages import EndWorker, Passed, StartWorker
from gemmetry.engine.agents.remote import AgentLostError, RemoteAgent, RemoteWorker
from gemmetry.engine.candidates import FACT_PATHS
from gemmetry.engine.journal import FAILURES, MAX_DISPATCH_BYTES, TEXT_NAME
from gemmetry.engine.workers.guardian import LAST_S
from gemmetry.engine.workers.local import GUARDIAN_S, WorkerStart
from gemmetry.engine.workers.protocol import (
    CHUNK_BYTES,
    Channel,
    ChannelClosed,
    Closed,
    CompileDone,
    Frame,
    Hello,
    Opened,
    Reply,
    Shutdown,
    is_inside,
)
from gemmetry.verification.comparison import ARRAYS_NAME

GENERATED, REFERENCES = "generated", "references"
"""Folders of an agent's folder; evidence is where it is in an experiment."""

MOST_BUILT_BYTES = 32 << 20
"""A source or binary that is larger than this stays with the agent."""


class RemoteExecutor:
    """Starts workers on the host of one agent."""

    def __init__(self, agent: RemoteAgent, generated: Path, failures: Path) -> None:
        """`generated` and `failures`: the driver's folders for what dispatches leave."""
        self._agent = agent
        self._generated = generated
        self._failures = failures

    def start(self, worker: WorkerStart) -> tuple[RemoteChannel, RemoteProcess]:
        """See :class:`gemmetry.engine.workers.local.Executor`."""
        remote = self._agent.add(worker.log)
        self._agent.send(StartWorker(remote.number, dict(worker.defaults), dict(worker.variables)))
        channel = RemoteChannel(self._agent, remote, self._generated, self._failures)
        return channel, RemoteProcess(self._agent, remote)


class RemoteChannel(Channel):
    """The conversation with a worker of an agent. Files that a reply names are fetched before it is
    passed on, so that they are where the driver expects them."""

    def __init__(
        self, agent: RemoteAgent, worker: RemoteWorker, generated: Path, failures: Path
    ) -> None:
        # No socket of its own: the bytes pass through the agent's connection.
        super().__init__(_NO_SOCKET, Reply)
        self._agent = agent
        self._worker = worker
        self._generated = generated
        self._failures = failures

    def send(self, message: Frame) -> None:
        """See :class:`gemmetry.engine.workers.local.MessageChannel`.

        Raises:
            AgentLostError: the agent is gone.
        """
        if isinstance(message, Hello):
            folder = PurePosixPath(self._agent.described.folder)
            message = msgspec.structs.replace(
                message,
                generated=str(folder / GENERATED),
                references=str(folder / REFERENCES),
                failures=str(folder / FAILURES),
            )
        if self._worker.has_closed or (isinstance(message, Shutdown) and self._agent.lost):
            raise ChannelClosed
        data = self._framed(message)
        for start in range(0, len(data), CHUNK_BYTES):
            self._agent.send(Passed(self._worker.number, data[start : start + CHUNK_BYTES]))

    def receive(self, timeout_s: float | None = None) -> Any:
        """See :class:`gemmetry.engine.workers.local.MessageChannel`.

        Raises:
            AgentLostError: the agent is gone.
        """
        reply = super().receive(timeout_s)
        match reply:
            case Opened():
                if reply.verdict is not None:
                    self._fetch_evidence(reply.verdict.evidence_path)
                return msgspec.structs.replace(reply, facts=self._with_files(reply.facts))
            case CompileDone():
                return msgspec.structs.replace(reply, facts=self._with_files(reply.facts))
            case Closed():
                self._fetch_evidence(reply.evidence_path)
        return reply

    def _read(self, timeout_s: float | None) -> bytes:
        return self._agent.read(self._worker, timeout_s)

    def _fetch_evidence(self, path: str | None) -> None:
        """Fetch the evidence of a failed verification; the verdict stands without it."""
        if not path or not is_inside(path) or not PurePosixPath(path).is_relative_to(FAILURES):
            return
        folder = self._failures / PurePosixPath(path).relative_to(FAILURES)
        for name in (TEXT_NAME, ARRAYS_NAME):
            self._fetch(f"{path}/{name}", folder / name, MAX_DISPATCH_BYTES)

    def _with_files(self, facts: BuildFacts) -> BuildFacts:
        """`facts` with the paths of files that were fetched, and without those of others."""
        changed: dict[str, Any] = {}
        root = PurePosixPath(self._agent.described.folder)
        for name in FACT_PATHS:
            text = getattr(facts, name)
            path = root / text if text else None
            if path is None:
                continue
            changed[name] = None
            if path.is_relative_to(root / GENERATED):
                inside = str(path.relative_to(root / GENERATED))
                target = self._generated / inside
                source = f"{GENERATED}/{inside}"
                if is_inside(inside) and self._fetch(source, target, MOST_BUILT_BYTES):
                    changed[name] = str(target)
        return dataclasses.replace(facts, **changed) if changed else facts

    def _fetch(self, source: str, target: Path, limit: int) -> bool:
        """Fetch a file. Returns whether all of it arrived."""
        partial = target.with_name(f"{target.name}.part")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as file:
                for data in self._agent.fetch(source, limit):
                    file.write(data)
            partial.replace(target)
        except AgentLostError:
            partial.unlink(missing_ok=True)
            raise
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            return False
        return True

    def close(self) -> None:
        """Take nothing more from the worker."""
        self._agent.forget(self._worker)


class RemoteProcess:
    """A worker of an agent; see :class:`gemmetry.engine.workers.local.ProcessHandle`."""

    def __init__(self, agent: RemoteAgent, worker: RemoteWorker) -> None:
        self._agent = agent
        self._worker = worker

    @property
    def pid(self) -> int:
        """The number of the process on the agent's host; 0 if it was never started."""
        self._agent.wait_for(lambda: self._worker.pid is not None, GUARDIAN_S)
        return self._worker.pid or 0

    def wait(self, seconds: float) -> int | None:
        """See :class:`gemmetry.engine.workers.local.ProcessHandle`.

        Raises:
            AgentLostError: the agent is gone. OSError: the worker could not be started.
        """
        worker = self._worker
        if not self._agent.wait_for(lambda: worker.status is not None or worker.failure, seconds):
            self._agent.raise_if_lost()
        if worker.failure:
            raise AgentLostError(
                f"the agent {self._agent.name} cannot start a worker: {worker.failure}"
            )
        return worker.status

    def end(self) -> None:
        """Have the agent end it; nothing remains to be ended if the agent is lost."""
        if self._worker.ended is None and not self._agent.lost:
            with contextlib.suppress(AgentLostError):
                self._agent.send(EndWorker(self._worker.number))
                self._agent.wait_for(lambda: self._worker.ended, 3 * LAST_S)

    def left_running(self) -> Sequence[str]:
        """As the agent reported."""
        return () if self._worker.ended is None else self._worker.ended.left

    def memory_shortage(self) -> str:
        """As the agent reported."""
        return self._worker.shortage

    def was_killed_for_memory(self) -> bool:
        """As the agent reported."""
        return self._worker.ended is not None and self._worker.ended.was_killed_for_memory


_NO_SOCKET = socket.socket()
_NO_SOCKET.close()
