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

from gemmetry.domain.dispatch import Target, check_device_names, parse_target
from gemmetry.domain.errors import EnvironmentFailure, RequestError, UnknownNameError, listed
from gemmetry.domain.settings import LOCAL, RunSettings
from gemmetry.engine.agents import starters
from gemmetry.engine.agents.handshake import read_token
from gemmetry.engine.agents.server import address_of


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

    def queued(self) -> int:
        """The number of those that a scheduler has not started yet."""

    def close(self) -> None:
        """End them all; harmless twice."""


class AgentStarter(Protocol):
    """Starts agents in one way."""

    @property
    def name(self) -> str:
        """The value of ``--executor``."""

    def available(self) -> str | None:
        """None, or why it cannot be used here and what to do."""

    def check(self, options: Mapping[str, str], count: int) -> None:
        """Check options, and the number of agents if it is given (0: it is not), before anything
        is started.

        Raises:
            RequestError: an option is missing, unknown or wrong.
        """

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


def starter_options(settings: RunSettings) -> dict[str, str]:
    """Options of the starter; the devices are for those that start several agents on one host."""
    found = dict(settings.executor_options)
    if settings.devices:
        found.setdefault("devices", ",".join(settings.devices))
    return found


def names_in(options: Mapping[str, str], key: str) -> list[str]:
    """The names that an option lists, separated by commas."""
    return [name for name in options.get(key, "").split(",") if name]


def check_count(count: int, served: int, what: str) -> None:
    """Compare the number of agents with that of the devices that `what` names.

    Raises:
        RequestError: both are given, and differ.
    """
    if count and count != served:
        raise RequestError(
            f"--agents is {count}, but {what} name {served}",
            hint="Leave --agents out: each device gets one agent.",
        )


def check_settings(settings: RunSettings) -> None:
    """Check what concerns devices and agents in the settings of a run, before anything of it is
    stored or started.

    Raises:
        UnknownNameError: there is no such executor. RequestError: settings are wrong, or do not go
        together. EnvironmentFailure: the executor cannot be used here.
    """
    executor = settings.executor
    _check_devices(settings)
    if executor == LOCAL:
        usual = RunSettings()
        names = ("executor_options", "agents", "listen", "token_file", "agent_wait_s")
        given = [
            "--" + name.removesuffix("_s").replace("_", "-")
            for name in names
            if getattr(settings, name) != getattr(usual, name)
        ]
        if given:
            raise RequestError(
                f"{listed(given, len(names))} without --executor: the workers are processes of "
                "this machine, and no agent takes part",
                hint="Name what starts the agents, as in --executor loopback, or leave "
                f"{'it' if len(given) == 1 else 'them'} out.",
            )
        return
    starter = load_starter(executor)
    starter.check(starter_options(settings), settings.agents)
    address_of(settings.listen)
    if settings.token_file:
        read_token(Path(settings.token_file), is_private=True)
    reason = starter.available()
    if reason is not None:
        raise EnvironmentFailure(
            f"the executor {executor} cannot be used here: {reason}",
            hint="Choose another one with --executor.",
        )


def _check_devices(settings: RunSettings) -> None:
    is_local = settings.executor == LOCAL
    check_device_names(settings.devices, with_agents=not is_local)
    for name in () if is_local else settings.devices:
        if name == "all":
            raise RequestError(
                f"--devices all is for this machine; the executor {settings.executor} does not "
                "know the devices of other hosts",
                hint="Give the number of agents with --agents, or name the devices.",
            )
        parse_target(name)
