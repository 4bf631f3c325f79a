"""An agent: connects to a driver, proves knowledge of the token, and serves one device."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gemmetry.domain.dispatch import Target, TargetKind, parse_target
from gemmetry.domain.errors import EnvironmentFailure, GemmetryError, RequestError
from gemmetry.engine.agents.handshake import is_proof, new_nonce, proof
from gemmetry.engine.agents.link import Link
from gemmetry.engine.agents.messages import (
    HANDSHAKE_S,
    Beat,
    Challenge,
    Described,
    Proof,
    Refused,
    ToAgent,
    Welcome,
)
from gemmetry.engine.agents.server import AGENT, DRIVER
from gemmetry.engine.agents.serving import WorkerHost
from gemmetry.engine.slots import device_id
from gemmetry.engine.workers.local import thread_variables
from gemmetry.engine.workers.protocol import BadFrame, ChannelClosed
from gemmetry.hardware.detect import capture_environment, own_version
from gemmetry.hardware.host import usable_cores
from gemmetry.providers.registry import load_provider

CONNECT_S = 60.0
"""How long an agent tries to reach its driver, which may start later than the agent."""

_PAUSE_S = 1.0

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """How an agent is started."""

    host: str
    port: int
    token: bytes
    device: str = ""
    """``cuda:0`` ...; "": the first device of the kind that the plan is for."""
    name: str = ""
    connect_s: float = CONNECT_S


def run_agent(options: AgentOptions, report: Report) -> None:
    """Serve a device until the driver no longer needs it.

    Args:
        report: called with a sentence about what happens.

    Raises:
        RequestError: the driver refused this agent.
        EnvironmentFailure: the driver cannot be reached, or is gone, or the device failed.
    """
    link = Link(_connected(options), ToAgent)
    folder = Path(tempfile.mkdtemp(prefix="gemmetry-agent-"))
    beating = threading.Event()
    try:
        welcome = _welcomed(link, options)
        link.trust()
        _keep_beating(link, welcome.beat_s, beating)
        described = _described(welcome, options.device, folder)
        link.send(described)
        if described.problem:
            raise RequestError(f"this agent cannot serve the run: {described.problem}")
        assert described.target is not None
        product = f" ({described.target.product})" if described.target.product else ""
        report(f"serving {described.target.device}{product} for {options.host}:{options.port}")
        reason = WorkerHost(link, folder, welcome.lost_s).work()
        report(f"the driver ended this agent: {reason}")
    except (ChannelClosed, BadFrame, TimeoutError) as error:
        why = f": {error}" if str(error) else ""
        raise EnvironmentFailure(
            f"the connection to the driver {options.host}:{options.port} was lost{why}",
            hint="The driver takes the work again elsewhere; start an agent again to help it.",
        ) from error
    finally:
        beating.set()
        link.close()
        shutil.rmtree(folder, ignore_errors=True)


def _connected(options: AgentOptions) -> socket.socket:
    ends = time.monotonic() + options.connect_s
    while True:
        try:
            return socket.create_connection((options.host, options.port), timeout=HANDSHAKE_S)
        except OSError as error:
            if time.monotonic() + _PAUSE_S > ends:
                raise EnvironmentFailure(
                    f"no driver listens on {options.host}:{options.port}: "
                    f"{error.strerror or error}",
                    hint="Start the run first, or check its address; a driver listens on its own "
                    "machine only, unless --listen names another address.",
                ) from error
            time.sleep(_PAUSE_S)


def _welcomed(link: Link, options: AgentOptions) -> Welcome:
    """The driver's welcome, after both sides have proved that they know the token."""
    challenge = link.receive(HANDSHAKE_S)
    if not isinstance(challenge, Challenge):
        raise BadFrame("it did not begin as a driver does")
    nonce, host = new_nonce(), socket.gethostname()
    version = own_version()
    name = options.name or f"{host}-{os.getpid()}"
    stated = (version, name, host, platform.python_version())
    mac = proof(options.token, AGENT, challenge.nonce, nonce, *stated)
    link.send(Proof(nonce, mac, *stated))
    welcome = link.receive(HANDSHAKE_S)
    if isinstance(welcome, Refused):
        raise _refused(welcome.reason)
    if not isinstance(welcome, Welcome):
        raise BadFrame("it did not answer as a driver does")
    expected = proof(options.token, DRIVER, challenge.nonce, nonce, welcome.version)
    if not is_proof(welcome.mac, expected):
        raise RequestError(
            "what answered does not know the token, so that this agent does nothing for it",
            hint="Check the address, and that both sides have the same token file.",
        )
    if welcome.version != version:
        raise _refused(f"it runs gemmetry {welcome.version}, and this agent {version}")
    return welcome


def _refused(reason: str) -> RequestError:
    return RequestError(
        f"the driver refused this agent: {reason}",
        hint="Give it the driver's token file, and install the same version of gemmetry.",
    )


def _keep_beating(link: Link, beat_s: float, until: threading.Event) -> None:
    def beat() -> None:
        with contextlib.suppress(ChannelClosed):
            while not until.wait(beat_s / 2):
                link.send_if_silent(Beat(), beat_s)

    threading.Thread(target=beat, name="beats", daemon=True).start()


def _described(welcome: Welcome, device: str, folder: Path) -> Described:
    """This machine and the device that it serves, or why it can serve none."""
    versions: dict[str, str] = {}
    offered: list[Target] = []
    try:
        for name, options in welcome.providers:
            provider = load_provider(name, options)
            reason = provider.available()
            if reason is not None:
                return Described(f"the provider {name} does not work there: {reason}")
            versions |= {key: str(text) for key, text in provider.versions().items()}
            offered += provider.targets()
        target = Target(TargetKind.CPU)
        if welcome.target is not None:
            target = _served(welcome.target, device, offered)
    except GemmetryError as error:
        return Described(error.message)
    cores = usable_cores()
    environment = capture_environment(versions)
    variables = {**environment.variables, **thread_variables(welcome.threads or cores)}
    environment = dataclasses.replace(environment, variables=variables)
    return Described("", target, device_id(target, environment), environment, cores, str(folder))


def _served(plans: Target, device: str, offered: list[Target]) -> Target:
    """The device to serve.

    Raises:
        RequestError: it is not here.
    """
    kind = plans.kind
    wanted = parse_target(device) if device else None
    here = {one.device: one for one in offered if one.index is not None}
    if kind is TargetKind.CPU:
        here.setdefault("cpu", Target(TargetKind.CPU))
    fitting = [
        one
        for one in here.values()
        if (one.device == wanted.device if wanted else one.kind is kind)
    ]
    if not fitting:
        missing = f"device {wanted.device}" if wanted else f"{kind} device"
        raise RequestError(
            f"there is no {missing} for the providers of the run; devices there: "
            f"{', '.join(sorted(here)) or 'none'}"
        )
    return min(fitting, key=lambda one: one.index or 0)
