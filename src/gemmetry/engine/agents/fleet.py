"""The agents of one run: the listener, what starts them, and how long the run waits for them."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from gemmetry.domain.dispatch import Target
from gemmetry.domain.settings import RunSettings
from gemmetry.domain.units import counted, noun_for
from gemmetry.engine.agents.executor import RemoteExecutor
from gemmetry.engine.agents.handshake import read_token, write_token
from gemmetry.engine.agents.messages import Welcome
from gemmetry.engine.agents.remote import RemoteAgent
from gemmetry.engine.agents.server import AgentServer, address_of
from gemmetry.engine.agents.starting import (
    AgentRequest,
    StartedAgents,
    check_settings,
    load_starter,
    starter_options,
)
from gemmetry.engine.planning import LaneProvider
from gemmetry.engine.slots import Slot
from gemmetry.engine.store.experiment import Experiment
from gemmetry.engine.workers.process import WorkerContext

FOLDER = "agents"
"""The folder in the experiment for logs, scripts and the token of agents."""

TOKEN_NAME = "token"

ENDED_S = 5.0
"""How long the run waits for an agent that may be about to connect once its starter has none."""

FIRST_NOTE_S = 15.0
"""A run that waits for agents in a queue reports it after this time, and then each time that it
has doubled."""

COMPLETE = "the run is complete"


class AgentPool:
    """Listens for agents and has them started, until it is closed."""

    def __init__(
        self,
        welcome: Welcome,
        target: Target,
        settings: RunSettings,
        folder: Path,
        warn: Callable[[str], None],
        note: Callable[[str], None],
    ) -> None:
        """Start listening, then the agents.

        Args:
            welcome: what agents are to prepare.
            target: the kind of device that each has.
            settings: the executor, and what concerns agents; nothing else is read.
            folder: for logs, scripts and the token; it is created.

        Raises:
            RequestError: the executor, its options or the token are wrong.
            EnvironmentFailure: the executor cannot be used here, or nothing can listen.
        """
        check_settings(settings)
        starter = load_starter(settings.executor)
        self._settings = settings
        self._warn, self._note = warn, note
        folder.mkdir(parents=True, exist_ok=True)
        self._own_token = folder / TOKEN_NAME if not settings.token_file else None
        token_file = self._own_token or Path(settings.token_file)
        token = write_token(token_file) if self._own_token else read_token(token_file)
        host, port = address_of(settings.listen)
        self._server = AgentServer(host, port, token, welcome, warn)
        self._started: StartedAgents | None = None
        self._alone_since = self._queued_since = time.monotonic()
        self._next_note_s = FIRST_NOTE_S
        self._ended_since: float | None = None
        command = shlex.join([
            "gemmetry", "agent", "--connect", str(self._server.address), "--token-file",
            str(token_file),
        ])  # fmt: skip
        note(f"listening for agents: {command}")
        try:
            self._started = starter.start(
                AgentRequest(
                    connect=str(self._server.address),
                    token_file=token_file,
                    count=settings.agents or len(settings.devices) or 1,
                    target=target,
                    folder=folder,
                    options=starter_options(settings),
                )
            )
        except BaseException:
            self._close("the run could not start")
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._close(COMPLETE if kind is None else "the run ended early")

    def arrived(self) -> list[RemoteAgent]:
        """The agents that are new since the last call; warns of those that have problems."""
        if self._started is not None:
            for text in self._started.problems():
                self._warn(text)
        return self._server.arrived()

    def given_up(self, connected: int) -> str:
        """Why to wait no longer, where `connected` agents are left; "" if there is no reason. The
        time that agents wait in the queue of a scheduler does not count."""
        now = time.monotonic()
        queued = self._started.queued() if self._started is not None else 0
        if connected or queued:
            self._alone_since, self._ended_since = now, None
        if connected or not queued:
            self._queued_since, self._next_note_s = now, FIRST_NOTE_S
        waited_s = now - self._queued_since
        if queued and waited_s >= self._next_note_s:
            self._next_note_s = 2 * waited_s
            self._note(
                f"{counted(queued, 'agent')} of the executor {self._settings.executor} "
                f"{noun_for(queued, 'waits', 'wait')} in its queue, for "
                f"{_elapsed(waited_s)} so far; the run starts with the "
                "first one (Ctrl-C ends it, and the same command continues)"
            )
        if connected or queued:
            return ""
        if self._started is not None and self._started.running() > 0:
            self._ended_since = None
        elif self._ended_since is None:
            self._ended_since = now
        elif now - self._ended_since > ENDED_S:
            return f"all agents of the executor {self._settings.executor} have ended"
        most_s = self._settings.agent_wait_s
        if now - self._alone_since > most_s:
            return f"no agent was connected for {most_s:g} s"
        return ""

    def _close(self, reason: str) -> None:
        self._server.close(reason)
        if self._started is not None:
            self._started.close()
        if self._own_token is not None:
            with contextlib.suppress(OSError):
                self._own_token.unlink(missing_ok=True)


class Fleet(AgentPool):
    """The agents of a run, each of which serves one device."""

    def __init__(
        self,
        target: Target,
        lanes: Sequence[LaneProvider],
        context: WorkerContext,
        experiment: Experiment,
        warn: Callable[[str], None],
        note: Callable[[str], None],
    ) -> None:
        """See :class:`AgentPool`."""
        self._context = context
        self._experiment = experiment
        providers = {item.lane.provider: dict(item.lane.options) for item in lanes}
        settings = context.settings
        welcome = Welcome(b"", "", target, tuple(providers.items()), settings.threads)
        folder = experiment.path.resolve() / FOLDER
        super().__init__(welcome, target, settings, folder, warn, note)

    def slot(self, agent: RemoteAgent) -> Slot:
        """The device of an agent, whose environment becomes one of the experiment's."""
        described, context = agent.described, self._context
        assert described.target is not None
        return Slot(
            described.target,
            described.device_id,
            described.environment.id,
            dataclasses.replace(
                context,
                executor=RemoteExecutor(agent, context.generated, context.failures),
                cores=described.cores,
            ),
            self._experiment.join(described.environment),
            agent.name,
            is_only=False,
        )


def _elapsed(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def connected_text(agent: RemoteAgent, count: int) -> str:
    """A sentence about a new agent, the `count`-th one that is connected."""
    described = agent.described
    assert described.target is not None
    product = f" ({described.target.product})" if described.target.product else ""
    host = described.environment.hostname
    return (
        f"agent {agent.name} serves {described.target.device}{product} of {host}; "
        f"{counted(count, 'agent')} connected"
    )
