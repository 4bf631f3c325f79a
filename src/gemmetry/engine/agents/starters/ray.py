"""Agents as actors of a Ray cluster, one for each device; ``engine/agents/ray_actors.py`` runs them
in a process of its own.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import json
import math
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gemmetry.domain.errors import EnvironmentFailure, RequestError, UnknownNameError
from gemmetry.engine.agents import ray_actors
from gemmetry.engine.agents.starting import AgentRequest
from gemmetry.formats.run_log import log_tail

LOG = "ray.log"

RESTARTS = 3
"""How often an agent is started again that was killed, or whose node was lost."""

CONNECTING_S = 60.0
"""How long it may take to connect to the cluster, and to submit the actors: seconds, but Ray itself
tries for minutes."""

_OPTIONS = ("address", "num_cpus", "num_gpus", "python", "resources", "restarts")


class RayStarter:
    """Starts actors in the cluster ``address=HOST:PORT`` (default: that of ``RAY_ADDRESS`` or of
    this host). An agent takes one GPU, and for other devices one processor; ``num_gpus=``,
    ``num_cpus=`` and ``resources=NAME:AMOUNT,...`` request something else. ``restarts=`` limits
    how often a lost agent is started again. ``python=`` is the interpreter on the nodes (default:
    that of Ray's workers)."""

    name = "ray"

    def available(self) -> str | None:
        """Whether Ray is installed here."""
        if importlib.util.find_spec("ray") is None:
            return "Ray is not installed: pip install 'gemmetry[ray]'"
        return None

    def check(self, options: Mapping[str, str], count: int) -> None:
        """See :class:`gemmetry.engine.agents.starting.AgentStarter`."""
        if "devices" in options:
            raise RequestError(
                "Ray chooses the devices of agents", hint="Give their number with --agents."
            )
        for name in options:
            if name not in _OPTIONS:
                raise UnknownNameError("option of the executor ray", name, _OPTIONS)
        for name in ("num_cpus", "num_gpus", "restarts"):
            _amount(name, options.get(name, "0"))
        _resources(options)

    def start(self, request: AgentRequest) -> RayAgents:
        """Create the actors; they wait for a node that has what they need.

        Raises:
            RequestError: an option is not valid, or no node of the cluster could run an agent.
            EnvironmentFailure: no cluster answers.
        """
        self.check(request.options, 0)
        restarts = _amount("restarts", request.options.get("restarts", str(RESTARTS)))
        target = request.target
        order = ray_actors.Order(
            address=request.options.get("address", "auto"),
            needs=actor_options(request),
            count=request.count,
            python=request.options.get("python", ""),
            # Ray shows an actor its own devices only.
            arguments=("--connect", request.connect,
                       "--device", f"{target.kind}:0" if target.is_gpu else target.device),
            token=base64.b64encode(request.token_file.read_bytes()).decode(),
            restarts=int(restarts),
        )  # fmt: skip
        agents = RayAgents(order, request.folder / LOG)
        try:
            agents.wait_until_submitted(CONNECTING_S)
        except BaseException:
            agents.close(grace_s=0)  # It may be trying to connect.
            raise
        return agents


class RayAgents:
    """The agents of one request, and the process that is connected to Ray for them."""

    def __init__(self, order: ray_actors.Order, log: Path) -> None:
        """`log`: the file to which Ray's own messages are appended."""
        self._address = order.address
        self._log = log
        self._running, self._queued = order.count, 0
        self._messages: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", ray_actors.__name__],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output,
                # Ctrl-C in the terminal is for the run, which then ends the agents.
                start_new_session=True,
            )  # fmt: skip
        assert self._process.stdin is not None
        self._process.stdin.write(ray_actors.encoded(order))
        self._process.stdin.flush()
        threading.Thread(target=self._read, name="ray", daemon=True).start()

    def wait_until_submitted(self, seconds: float) -> None:
        """Wait for the first answer.

        Raises:
            RequestError: no node of the cluster has what an agent requests.
            EnvironmentFailure: no cluster answers.
        """
        try:
            message = self._messages.get(timeout=seconds)
        except queue.Empty:
            message = {"unreachable": f"it did not answer within {seconds:g} s"}
        if message is None:
            message = {"unreachable": self._end()}
        if "lacking" in message:
            raise RequestError(
                f"no node of the Ray cluster has what an agent requests: {message['lacking']}",
                hint=f"The cluster has {message['cluster']}. Add a node that has it (ray start "
                "--address HOST:PORT --num-gpus 1), choose another device, or change the "
                "executor's options num_gpus, num_cpus and resources.",
            )
        if "unreachable" in message:
            which = "of this host" if self._address == "auto" else self._address
            raise EnvironmentFailure(
                f"cannot connect to the Ray cluster {which}: {message['unreachable']}",
                hint="Start one with ray start --head, set RAY_ADDRESS, give the executor's option "
                "address=HOST:PORT, or submit the command to the cluster with ray job submit. "
                f"Ray's own messages are in {self._log}.",
            )

    def problems(self) -> Sequence[str]:
        """See :class:`gemmetry.engine.agents.starting.StartedAgents`."""
        found: list[str] = []
        while True:
            try:
                message = self._messages.get_nowait()
            except queue.Empty:
                return found
            if message is None:
                if self._running:
                    found.append(f"the connection to Ray was lost, with all agents: {self._end()}")
                self._running = self._queued = 0
            else:
                self._running = message.get("running", self._running)
                self._queued = message.get("queued", self._queued)
                found += message.get("problems", ())

    def running(self) -> int:
        """The agents that wait for resources or run, as known from the last :meth:`problems`."""
        return self._running

    def queued(self) -> int:
        """Those that have found no node yet, as known from the last :meth:`problems`."""
        return self._queued

    def close(self, grace_s: float = 10.0) -> None:
        """End the actors, by ending the process to which they belong."""
        self._running = 0
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._messages.put(json.loads(line))
        self._messages.put(None)

    def _end(self) -> str:
        """Why the process ended."""
        tail = log_tail(self._log, 1000).strip()
        return f"the end of {self._log}:\n{tail}" if tail else "its process was killed"


def actor_options(request: AgentRequest) -> dict[str, Any]:
    """The options of an actor, as Ray names them.

    Raises:
        RequestError: an option is not valid.
    """
    options = request.options
    is_gpu = request.target.is_gpu
    return {
        "num_gpus": _amount("num_gpus", options.get("num_gpus", "1" if is_gpu else "0")),
        "num_cpus": _amount("num_cpus", options.get("num_cpus", "0" if is_gpu else "1")),
        "resources": _resources(options),
        # Agents on one node would disturb each other's measurements on its processors.
        "scheduling_strategy": "DEFAULT" if is_gpu else "SPREAD",
    }


def _resources(options: Mapping[str, str]) -> dict[str, float]:
    parts = (part.partition(":") for part in options.get("resources", "").split(",") if part)
    return {name.strip(): _amount("resources", amount) for name, _, amount in parts}


def _amount(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise RequestError(
            f"the executor ray's option {name} is {text!r}, which is not an amount",
            hint="Write a number such as 1, and resources=NAME:AMOUNT,NAME:AMOUNT.",
        )
    return value


STARTER = RayStarter()
