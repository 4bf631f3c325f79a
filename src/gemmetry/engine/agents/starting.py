"""What starts agents: this machine, ssh, or a cluster's scheduler.

A run (the driver) listens; agents connect to it, each serving one device. A starter only has
agents started somewhere. Whether one works is known when it connects, and whether it still works
when it no longer answers, so that a starter needs no more knowledge of its jobs than it can have.

A starter is a module of :mod:`gemmetry.engine.agents.starters` with the constant ``STARTER``; its
name is the value of ``--executor``. Adding one touches only its own file.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol

from gemmetry.domain.errors import UnknownNameError
from gemmetry.domain.target import Target
from gemmetry.engine.agents import starters


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """The agents that a run wants."""

    connect: str
    """``HOST:PORT`` of the driver, as agents reach it."""
    token_file: Path
    """The file of the token, readable by the driver; a starter copies it or passes it on."""
    count: int
    """The number of agents to start, one device each."""
    target: Target
    """The kind of device that each serves."""
    folder: Path
    """The folder for logs of agents and scripts of jobs; it exists."""
    options: Mapping[str, str]
    """Options of the starter, such as ``{"hosts": "a,b"}`` for ssh."""


class StartedAgents(Protocol):
    """Agents that a starter has started."""

    def problems(self) -> Sequence[str]:
        """What is new since the last call: agents that ended or could not start, each with the
        cause and the end of its log."""

    def running(self) -> int:
        """The number of agents that are believed to be queued or running."""

    def close(self) -> None:
        """End them all; harmless twice."""


class AgentStarter(Protocol):
    """Starts agents in one way."""

    @property
    def name(self) -> str:
        """The value of ``--executor``."""

    def available(self) -> str | None:
        """None, or why it cannot be used here and what to do."""

    def start(self, request: AgentRequest) -> StartedAgents:
        """Start agents that connect to ``request.connect``.

        Raises:
            RequestError: an option is missing or wrong.
            EnvironmentFailure: the scheduler refused, with its message.
        """


def starter_names() -> list[str]:
    """The names of all starters, sorted; imports none of them."""
    return sorted(module.name for module in pkgutil.iter_modules(starters.__path__))


def load_starter(name: str) -> AgentStarter:
    """The starter called `name`.

    Raises:
        UnknownNameError: there is none.
    """
    known = starter_names()
    if name not in known:
        raise UnknownNameError("executor", name, known)
    starter: AgentStarter = import_module(f"{starters.__name__}.{name}").STARTER
    return starter
