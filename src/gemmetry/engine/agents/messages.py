"""The messages between a driver, the process of a run, and its agents.

They are frames as between parent and worker (:mod:`gemmetry.engine.workers.protocol`), over TCP.
What a worker sends and receives passes through an agent as bytes: the driver alone interprets it,
and trusts it no more than it trusts a worker of its own machine.

The first three messages are exchanged before either side trusts the other. Their order of fields
never changes, so that another version can be refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from gemmetry.domain.dispatch import Target
from gemmetry.domain.record import Environment
from gemmetry.engine.workers.protocol import MAX_FRAME_BYTES, Frame

FIRST_FRAME_BYTES = 4096
"""The longest frame of a side that has not proved knowledge of the token yet."""

FRAME_BYTES = MAX_FRAME_BYTES
"""The longest frame of an agent; what a worker sends is passed on in smaller parts."""

HANDSHAKE_S = 10.0
"""How long a side may take to prove knowledge of the token."""

DESCRIBE_S = 120.0
"""How long an agent may take to load the providers and to describe its device."""

BEAT_S = 5.0
"""A side that has sent nothing for this long sends a beat."""

LOST_S = 30.0
"""A side that has sent nothing for this long is lost: it hangs, its host is down, or the network
between the two is."""


class Challenge(Frame, frozen=True):
    """The driver's first message."""

    nonce: bytes


class Proof(Frame, frozen=True):
    """The agent's answer: `mac` shows knowledge of the token, see
    :mod:`gemmetry.engine.agents.handshake`."""

    nonce: bytes
    mac: bytes
    version: str
    """Of gemmetry."""
    name: str
    """What messages call the agent."""
    host: str
    python: str


class Welcome(Frame, frozen=True):
    """The driver's answer to a right proof: its own, and what the agent is to prepare."""

    mac: bytes
    version: str
    target: Target | None = None
    """The kind of device that it serves; None: it runs commands only."""
    providers: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """Names and options."""
    threads: int = 0
    beat_s: float = BEAT_S
    lost_s: float = LOST_S


class Described(Frame, frozen=True):
    """The device that the agent serves, and the machine around it; `problem` states why it can
    serve none."""

    problem: str = ""
    target: Target | None = None
    device_id: str = ""
    environment: Environment = Environment()
    cores: int = 1
    folder: str = ""
    """The agent's folder for what workers write."""


class Refused(Frame, frozen=True):
    """The driver does not take the agent, and ends the connection."""

    reason: str


class Leave(Frame, frozen=True):
    """The driver no longer needs the agent, which ends."""

    reason: str
    is_fault: bool = False
    """Whether the agent's device is the reason, so that its host should see a failure."""


class Beat(Frame, frozen=True):
    """The sender is alive."""


class StartWorker(Frame, frozen=True):
    """Start a worker under a number that the driver chooses."""

    worker: int
    defaults: Mapping[str, str]
    variables: Mapping[str, str]


class StartCommand(Frame, frozen=True):
    """Start a command as a worker without a channel."""

    worker: int
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    """Set in addition to the agent's own."""
    folder: str
    """The working folder, which must be there on the agent's host."""


class Started(Frame, frozen=True):
    """A worker runs as process `pid`; `failure` states why it could not be started."""

    worker: int
    pid: int
    failure: str = ""


class Passed(Frame, frozen=True):
    """Bytes for a worker, or from it; none when it has closed its end."""

    worker: int
    data: bytes


class Printed(Frame, frozen=True):
    """What a worker has written to standard output and standard error, sent before what it says
    next."""

    worker: int
    data: bytes


class Exited(Frame, frozen=True):
    """A worker's process has ended."""

    worker: int
    status: int


class Shortage(Frame, frozen=True):
    """The memory of the agent's machine runs out because of a worker."""

    worker: int
    text: str


class EndWorker(Frame, frozen=True):
    """End a worker and all that it started; a command gets SIGTERM first, and `grace_s` to end by
    itself. Answered by Ended."""

    worker: int
    grace_s: float = 0.0


class Ended(Frame, frozen=True):
    """Nothing of the worker runs any more."""

    worker: int
    status: int
    left: tuple[str, ...]
    was_killed_for_memory: bool


class Fetch(Frame, frozen=True):
    """Request a file of the agent's folder, by its path relative to that, up to `limit` bytes.
    Answered by parts."""

    number: int
    path: str
    limit: int


class Part(Frame, frozen=True):
    """A part of a file; the last one is marked. `failure`: it cannot be read, or is too large."""

    number: int
    data: bytes
    is_last: bool = False
    failure: str = ""


ToAgent: TypeAlias = (
    Challenge
    | Welcome
    | Refused
    | Leave
    | Beat
    | StartWorker
    | StartCommand
    | Passed
    | EndWorker
    | Fetch
)
ToDriver: TypeAlias = (
    Proof | Described | Beat | Started | Passed | Printed | Exited | Shortage | Ended | Part
)


def with_mac(message: Any, mac: bytes) -> Any:
    """`message` with its proof."""
    return msgspec.structs.replace(message, mac=mac)
