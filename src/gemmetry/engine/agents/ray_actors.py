"""The actors of a Ray cluster that run agents: ``python -m gemmetry.engine.agents.ray_actors``.

A process of its own is connected to Ray, because Ray prints to standard output what happens in the
cluster, and may end the process that is connected to it when the cluster ends. It reads one order
from standard input, reports in lines of JSON on standard output, and ends the actors when standard
input is closed, however its parent ended.

Ray chooses node and device. The agent is a process that the actor starts, so that nothing of Ray is
in a process that measures. An actor needs only Ray and the standard library on its node: which
gemmetry is installed there, the agent states when it connects.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import select
import socket
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

POLL_S = 0.5

WAITS_S = 30.0
"""An agent that has not found a node for this long is reported."""

_TAIL_BYTES = 2000

_HIDDEN = ("node:", "memory", "object_store_memory")
"""Resources of every node, which no agent requests."""


@dataclass(frozen=True, slots=True)
class Order:
    """What the process is started for."""

    address: str
    needs: Mapping[str, Any]
    """Options of the actors, as Ray names them."""
    count: int
    python: str
    """The interpreter on the nodes; "" for that of Ray's workers."""
    arguments: Sequence[str]
    """Arguments of ``gemmetry agent``, without its name and the token."""
    token: str
    """In base64. It reaches the agent by standard input, so that no file of it is on the node."""
    restarts: int


def encoded(order: Order) -> bytes:
    """`order` as :func:`main` reads it."""
    return json.dumps(asdict(order)).encode() + b"\n"


def main() -> int:
    """Carry out the order. Returns the exit status."""
    order = Order(**json.loads(sys.stdin.buffer.readline()))
    reports = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # What Ray prints is for the log.

    def report(**message: Any) -> None:
        print(json.dumps(message), file=reports, flush=True)

    import ray

    try:
        ray.init(address=order.address, log_to_driver=False, logging_level=logging.WARNING)
    except Exception as error:  # noqa: BLE001 - Ray's own, of many classes
        report(unreachable=_sentence(error))
        return 1
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    lacking = lacking_everywhere(order.needs, nodes)
    if lacking:
        report(lacking=lacking, cluster=described(nodes))
        return 1
    agents = _Actors(order)
    before = None
    problems: list[str] = []
    try:
        while True:
            counts = {"running": agents.running(), "queued": agents.queued()}
            if problems or counts != before:
                report(problems=problems, **counts)
                before = counts
            if select.select([sys.stdin], [], [], POLL_S)[0]:
                break
            problems = agents.problems()
    except BrokenPipeError:
        pass
    finally:
        agents.close()
        ray.shutdown()
    return 0


def lacking_everywhere(needs: Mapping[str, Any], nodes: Sequence[Mapping[str, float]]) -> str:
    """What an actor requests, if no single node has it; else ""."""
    wanted = {"GPU": needs["num_gpus"], "CPU": needs["num_cpus"], **needs["resources"]}
    wanted = {name: amount for name, amount in wanted.items() if amount > 0}
    if any(all(node.get(name, 0) >= least for name, least in wanted.items()) for node in nodes):
        return ""
    return ", ".join(f"{name} {amount:g}" for name, amount in wanted.items())


def described(nodes: Sequence[Mapping[str, float]]) -> str:
    """The resources of `nodes`, equal nodes counted."""
    kinds = Counter(
        ", ".join(
            f"{name} {amount:g}"
            for name, amount in sorted(node.items())
            if not name.startswith(_HIDDEN)
        )
        for node in nodes
    )
    parts = (f"{count} × {kind or 'nothing'}" for kind, count in kinds.items())
    return f"{len(nodes)} nodes ({'; '.join(parts)})" if nodes else "no node"


@dataclass(slots=True)
class _ActorState:
    """One agent, which several actors may run one after the other."""

    actor: Any
    place: Any
    """The future of the host on which it runs."""
    end: Any
    """The future of how it ends."""
    restarts: int
    started: float
    host: str = ""
    waits: bool = False


class _Actors:
    def __init__(self, order: Order) -> None:
        import ray

        self._order = order
        self._token = base64.b64decode(order.token)
        self._class = ray.remote(_actor_class()).options(max_restarts=0, **order.needs)
        self._agents = {number: self._start(number) for number in range(order.count)}

    def running(self) -> int:
        return len(self._agents)

    def queued(self) -> int:
        """Those that have found no node yet."""
        return sum(not agent.host for agent in self._agents.values())

    def problems(self) -> list[str]:
        """Those that ended since the last call; those that were lost are started again."""
        found = []
        for number, agent in list(self._agents.items()):
            text = self._problem(number, agent)
            if text:
                at = f" on {agent.host}" if agent.host else ""
                found.append(f"agent ray-{number}{at}: {text}")
        return found

    def close(self) -> None:
        """End all actors; what they started ends with them."""
        import ray

        for agent in self._agents.values():
            ray.kill(agent.actor)

    def _start(self, number: int, restarts: int = 0) -> _ActorState:
        name = ("--token-file", "-", "--name", f"ray-{number}")
        command = ["-m", "gemmetry", "agent", *self._order.arguments, *name]
        actor = self._class.remote()
        place = actor.place.remote()
        end = actor.run.remote(self._order.python, command, self._token)
        return _ActorState(actor, place, end, restarts, time.monotonic())

    def _problem(self, number: int, agent: _ActorState) -> str:
        """What is new of an agent that should not be; "" for nothing."""
        import ray

        if not agent.host and ray.wait([agent.place], timeout=0)[0]:
            agent.host = _result(agent.place)[0] or ""
        if not ray.wait([agent.end], timeout=0)[0]:
            if agent.host or agent.waits or time.monotonic() - agent.started < WAITS_S:
                return ""
            agent.waits = True
            return "it waits for a node on which what it requests is free (ray status)"
        del self._agents[number]
        ended, error = _result(agent.end)
        if ended is None:
            text = f"its actor was lost ({error}), with its node or on its own"
        else:
            status, tail = ended
            if status == 0:
                return ""  # The driver needed it no longer.
            how = (
                f"ended with status {status}" if status >= 0 else f"was killed by signal {-status}"
            )
            text = f"it {how}; the end of its output:\n{tail}" if tail else f"it {how}"
            if status >= 0:
                return text  # It would end in the same way again.
        ray.kill(agent.actor)  # It may be unreachable only.
        if agent.restarts < self._order.restarts:
            self._agents[number] = self._start(number, agent.restarts + 1)
            return f"{text}; it is started again ({agent.restarts + 1} of {self._order.restarts})"
        return f"{text}; it is not started again, after {agent.restarts} times"


def _result(future: Any) -> tuple[Any, str]:
    """The result of a future, or the kind of error that it has instead."""
    import ray

    try:
        return ray.get(future), ""
    except ray.exceptions.RayError as error:
        logging.getLogger("ray").warning("%s", error)
        return None, type(error).__name__


def _sentence(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _actor_class() -> type[Any]:
    """The class of the actors. It is created within a function, so that Ray sends its code to the
    nodes instead of importing it from the gemmetry of the node, which may be another or missing."""
    tail_bytes, poll_s = _TAIL_BYTES, POLL_S

    class AgentActor:
        def place(self) -> str:
            return socket.gethostname()

        def run(self, python: str, arguments: list[str], token: bytes) -> tuple[int, str]:
            """Exit status and the end of the output of the agent."""
            import subprocess
            import tempfile

            # A killed actor cannot end its child, so the child has the kernel do it (Linux).
            tie = (
                "import ctypes, os, signal, sys\n"
                "parent = int(sys.argv.pop(1))\n"
                "try:\n    ctypes.CDLL(None).prctl(1, signal.SIGTERM)\n"
                "except (AttributeError, OSError):\n    pass\n"
                "if os.getppid() == parent:\n    os.execv(sys.argv[1], sys.argv[1:])\n"
            )
            raylet = os.getppid()
            tied = [sys.executable, "-c", tie, str(os.getpid())]
            # Ray sets it to the number of processors that an actor requests.
            kept = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
            with tempfile.TemporaryFile() as output:
                agent = subprocess.Popen(
                    [*tied, python or sys.executable, *arguments],
                    stdin=subprocess.PIPE, stdout=output, stderr=output, env=kept,
                )  # fmt: skip
                assert agent.stdin is not None
                try:
                    with agent.stdin as stdin:
                        stdin.write(token)
                except BrokenPipeError:
                    pass  # It has ended already, and its status and output state why.
                while agent.poll() is None:
                    if os.getppid() != raylet:
                        # Ray does not interrupt an actor whose raylet was killed, and may give
                        # its device to another.
                        os._exit(1)
                    time.sleep(poll_s)
                size = output.seek(0, os.SEEK_END)
                output.seek(max(0, size - tail_bytes))
                return agent.returncode, output.read().decode(errors="replace").strip()

    return AgentActor


if __name__ == "__main__":
    sys.exit(main())
