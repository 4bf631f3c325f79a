"""Commands that an agent starts on its host, one after the other, such as in a job of Slurm."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from gemmetry.domain.dispatch import Target
from gemmetry.domain.errors import EnvironmentFailure
from gemmetry.domain.settings import RunSettings
from gemmetry.engine.agents.executor import RemoteProcess
from gemmetry.engine.agents.fleet import COMPLETE, FOLDER, AgentPool
from gemmetry.engine.agents.messages import EndWorker, StartCommand, Welcome
from gemmetry.engine.agents.remote import AgentLostError, RemoteAgent
from gemmetry.engine.opaque import JobLostError, OpaqueJob
from gemmetry.engine.workers.guardian import LAST_S
from gemmetry.engine.workers.local import GUARDIAN_S

_POLL_S = 0.2


class AgentJobExecutor:
    """Starts jobs on the host of an agent; use it as a context manager. All jobs run on the same
    agent, so that they can be compared, until it is lost; then on the next one that comes."""

    def __init__(
        self,
        settings: RunSettings,
        target: Target,
        folder: Path,
        warn: Callable[[str], None],
        note: Callable[[str], None],
    ) -> None:
        """Nothing is started before the first job is.

        Args:
            settings: the executor, and what concerns agents; nothing else is read.
            target: the kind of device that the jobs need.
            folder: of the jobs; agents have a folder in it.
        """
        self._settings = settings
        self._target = target
        self._folder = folder
        self._warn, self._note = warn, note
        self._pool: AgentPool | None = None
        self._agents: list[RemoteAgent] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for agent in self._agents:
            agent.close(COMPLETE)
        if self._pool is not None:
            self._pool.__exit__(kind, error, traceback)

    def start(self, job: OpaqueJob) -> RemoteJob:
        """See :class:`gemmetry.engine.opaque.JobExecutor`."""
        agent = self._agent()
        worker = agent.add(job.log)
        remote = RemoteJob(agent, worker)
        try:
            agent.send(
                StartCommand(
                    worker.number, job.argv, dict(job.environment), str(job.working_folder)
                )
            )
        except AgentLostError as lost:
            raise JobLostError(lost.message) from lost
        agent.wait_for(lambda: worker.failure or worker.pid is not None, GUARDIAN_S)
        if worker.failure:
            raise OSError(f"{worker.failure} (agent {agent.name})")
        return remote

    def _agent(self) -> RemoteAgent:
        """An agent that is connected; waits for one.

        Raises:
            EnvironmentFailure: none will come.
        """
        if self._pool is None:
            self._pool = AgentPool(
                Welcome(b"", ""), self._target, self._settings, self._folder / FOLDER,
                self._warn, self._note,
            )  # fmt: skip
        while True:
            for agent in self._pool.arrived():
                self._agents.append(agent)
                host = agent.described.environment.hostname
                self._note(f"agent {agent.name} runs commands on {host}")
            self._agents = [agent for agent in self._agents if not agent.lost]
            reason = self._pool.given_up(len(self._agents))
            if self._agents:
                return self._agents[0]
            if reason:
                raise EnvironmentFailure(reason, hint="The same command continues where it ended.")
            time.sleep(_POLL_S)


class RemoteJob(RemoteProcess):
    """A command on the host of an agent; see :class:`gemmetry.engine.opaque.JobHandle`."""

    def wait(self, seconds: float) -> int | None:
        """See :class:`gemmetry.engine.workers.local.ProcessHandle`.

        Raises:
            JobLostError: the agent is gone.
        """
        try:
            return super().wait(seconds)
        except AgentLostError as lost:
            raise JobLostError(lost.message) from lost

    def end_gently(self, grace_s: float) -> None:
        """See :class:`gemmetry.engine.opaque.JobHandle`."""
        with contextlib.suppress(AgentLostError):
            self._agent.send(EndWorker(self._worker.number, grace_s))
            self._agent.wait_for(lambda: self._worker.ended, grace_s + 3 * LAST_S)
        self._agent.forget(self._worker)
