"""Agents that the user starts by hand, or that something else does, such as a Kubernetes job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gemmetry.domain.errors import RequestError
from gemmetry.engine.agents.starting import AgentRequest


class WaitingStarter:
    """Starts nothing: the run prints the command that connects an agent, and waits."""

    name = "agents"

    def available(self) -> str | None:
        """It can always wait."""
        return None

    def check(self, options: Mapping[str, str], count: int) -> None:
        """It has no options: each agent names its own device."""
        if options:
            raise RequestError(
                "the executor agents starts nothing, so that it takes neither devices nor options",
                hint="Name the device of each agent where you start it: gemmetry agent --device "
                "cuda:0.",
            )

    def start(self, request: AgentRequest) -> AwaitedAgents:
        """See :class:`gemmetry.engine.agents.starting.AgentStarter`."""
        return AwaitedAgents(request.count)


class AwaitedAgents:
    """Agents that may come at any time."""

    def __init__(self, count: int) -> None:
        self._count = count

    def problems(self) -> Sequence[str]:
        """Nothing is known of them."""
        return ()

    def running(self) -> int:
        """As many as are awaited."""
        return self._count

    def queued(self) -> int:
        """Nothing is known of a queue."""
        return 0

    def close(self) -> None:
        """They end by themselves when the driver is gone."""


STARTER = WaitingStarter()
