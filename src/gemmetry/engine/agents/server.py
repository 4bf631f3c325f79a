"""The driver's listener: takes agents that prove knowledge of the token."""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from gemmetry.domain.errors import EnvironmentFailure, RequestError
from gemmetry.engine.agents.handshake import is_proof, new_nonce, proof
from gemmetry.engine.agents.link import Link
from gemmetry.engine.agents.messages import (
    DESCRIBE_S,
    HANDSHAKE_S,
    Beat,
    Challenge,
    Described,
    Proof,
    Refused,
    ToDriver,
    Welcome,
    with_mac,
)
from gemmetry.engine.agents.remote import RemoteAgent, seconds_left
from gemmetry.engine.workers.protocol import BadFrame, ChannelClosed
from gemmetry.hardware.detect import own_version

DRIVER, AGENT = "driver", "agent"
"""The roles in proofs."""

MOST_UNPROVED = 64
"""The connections that may be in the middle of proving themselves; further ones are closed."""

_EVERYWHERE = ("0.0.0.0", "::")

_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Address:
    """Where a driver listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address_of(text: str) -> tuple[str, int]:
    """Host and port of ``HOST``, ``HOST:PORT`` or ``[HOST]:PORT``; 0 is any free port.

    Raises:
        RequestError: it has another form.
    """
    host, colon, port = text.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):
        host, port = text, "0"
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdigit() or int(port) > 65535:
        raise RequestError(
            f"cannot read the address {text!r}", hint="Write HOST or HOST:PORT, as in node1:7777."
        )
    return host, int(port)


class AgentServer:
    """Listens for agents of one run."""

    def __init__(
        self, host: str, port: int, token: bytes, welcome: Welcome, warn: Callable[[str], None]
    ) -> None:
        """Listen on `host`, and on a free port if `port` is 0.

        Args:
            welcome: what agents are to prepare; version and proof are added.
            warn: called from other threads with a sentence about an agent that is refused.

        Raises:
            EnvironmentFailure: nothing can listen there.
        """
        self._token = token
        self._welcome = msgspec.structs.replace(welcome, version=own_version())
        self._warn = warn
        self._warned: set[str] = set()
        self._arrived: queue.SimpleQueue[RemoteAgent] = queue.SimpleQueue()
        self._unproved = threading.BoundedSemaphore(MOST_UNPROVED)
        self._closed = threading.Event()
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listener = socket.create_server((host, port), family=family, backlog=128)
        except OSError as error:
            raise EnvironmentFailure(
                f"cannot listen for agents on {host}:{port}: {_cause(error)}",
                hint="Give an address of this machine and a port that no other run uses with "
                "--listen HOST:PORT, or HOST alone for any free port.",
            ) from error
        self._listener.settimeout(_POLL_S)
        # Where it listens at every address, agents need the one that has a name.
        named = socket.gethostname() if host in _EVERYWHERE else host
        self.address = Address(named, self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._accept, name="agents", daemon=True)
        self._thread.start()

    def arrived(self) -> list[RemoteAgent]:
        """The agents that are new since the last call."""
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._arrived.get_nowait())
        return found

    def close(self, reason: str) -> None:
        """Stop listening, and have agents that nobody took end."""
        self._closed.set()
        self._thread.join()
        self._listener.close()
        for agent in self.arrived():
            agent.close(reason)

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, peer = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:  # too many open files; others may close some
                time.sleep(_POLL_S)
                continue
            if self._unproved.acquire(blocking=False):
                name = f"agent at {peer[0]}"
                threading.Thread(target=self._meet, args=(connection, str(peer[0])), name=name,
                                 daemon=True).start()  # fmt: skip
            else:
                connection.close()

    def _meet(self, connection: socket.socket, peer: str) -> None:
        link = Link(connection, ToDriver)
        try:
            try:
                agent_proof = self._proved(link)
            finally:
                self._unproved.release()
            if agent_proof is not None:
                self._take(link, agent_proof)
                return
            reason = "it does not know the token"
        except _RefusedError as refused:
            self._refuse(link, refused.name, refused.reason)
            return
        except TimeoutError:
            reason = "it did not prove knowledge of the token in time"
        except ChannelClosed:
            reason = "it left before it had proved knowledge of the token"
        except BadFrame as error:
            reason = f"it sent what no agent sends: {error}"
        self._refuse(link, f"connection from {peer}", reason)

    def _proved(self, link: Link) -> Proof | None:
        """The proof of the other side; None if it is wrong."""
        nonce, ends = new_nonce(), time.monotonic() + HANDSHAKE_S
        link.send(Challenge(nonce))
        found = _received(link, ends)
        if not isinstance(found, Proof):
            raise BadFrame(f"{type(found).__name__} before a proof")
        stated = (found.version, found.name, found.host, found.python)
        expected = proof(self._token, AGENT, nonce, found.nonce, *stated)
        if not is_proof(found.mac, expected):
            return None
        mac = proof(self._token, DRIVER, nonce, found.nonce, own_version())
        if found.version != own_version():
            link.send(with_mac(self._only_version(), mac))
            raise _RefusedError(
                f"agent {found.name}",
                f"it runs gemmetry {found.version} and the driver {own_version()}; install the "
                "same version on both",
            )
        link.send(with_mac(self._welcome, mac))
        return found

    def _only_version(self) -> Welcome:
        """A welcome that another version can read."""
        return Welcome(b"", own_version())

    def _take(self, link: Link, found: Proof) -> None:
        """Wait for the description of a device, and pass the agent on."""
        link.trust()
        ends = time.monotonic() + DESCRIBE_S
        try:
            described = _received(link, ends)
        except (TimeoutError, ChannelClosed, BadFrame) as error:
            why = str(error) or "it left, or took too long"
            raise _RefusedError(
                f"agent {found.name}", f"it did not describe its device: {why}"
            ) from error
        if not isinstance(described, Described):
            raise _RefusedError(f"agent {found.name}", "it did not describe its device")
        problem = described.problem or self._misfit(described)
        if problem:
            raise _RefusedError(f"agent {found.name}", problem)
        beat_s, lost_s = self._welcome.beat_s, self._welcome.lost_s
        agent = RemoteAgent(link, found.name, described, beat_s=beat_s, lost_s=lost_s)
        self._arrived.put(agent)

    def _misfit(self, described: Described) -> str:
        wanted, found = self._welcome.target, described.target
        if wanted is None or found is None or found.name == wanted.name:
            return ""
        return f"it serves {found.device} ({found.name}), and the plan is for {wanted.name}"

    def _refuse(self, link: Link, name: str, reason: str) -> None:
        with contextlib.suppress(ChannelClosed):
            link.send(Refused(reason))
        link.close()
        text = f"{name} is refused: {reason}."
        if text not in self._warned and not self._closed.is_set():
            self._warned.add(text)
            self._warn(text)


def _cause(error: OSError) -> str:
    """Without the address, which Python repeats in it; the numbers of name look-ups are no errno
    and negative."""
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or str(error)


class _RefusedError(Exception):
    """An agent that knows the token cannot be used."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name, self.reason = name, reason


def _received(link: Link, ends: float) -> object:
    """The next message that is no beat."""
    while True:
        left = seconds_left(ends)
        if left <= 0:
            raise TimeoutError
        message: object = link.receive(left)
        if not isinstance(message, Beat):
            return message
