"""Agents on this machine: to try what a cluster will do, and for tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gemmetry.domain.errors import UnknownNameError
from gemmetry.engine.agents.starting import AgentRequest, check_count, names_in
from gemmetry.formats.run_log import log_tail

END_S = 10.0
"""How long an agent may take to end by itself."""

TAIL_CHARACTERS = 1000

_OPTIONS = ("devices",)


class LoopbackStarter:
    """Starts a process for each agent. ``devices=cuda:0,cuda:1``: the device of each."""

    name = "loopback"

    def available(self) -> str | None:
        """This machine is here."""
        return None

    def check(self, options: Mapping[str, str], count: int) -> None:
        """See :class:`gemmetry.engine.agents.starting.AgentStarter`."""
        for name in options:
            if name not in _OPTIONS:
                raise UnknownNameError("option of the executor loopback", name, _OPTIONS)
        devices = names_in(options, "devices")
        if devices:
            check_count(count, len(devices), "--devices")

    def start(self, request: AgentRequest) -> AgentProcesses:
        """See :class:`gemmetry.engine.agents.starting.AgentStarter`."""
        devices = names_in(request.options, "devices")
        started = []
        for number in range(request.count):
            name = f"loopback-{number}"
            device = devices[number % len(devices)] if devices else _device(request, number)
            command = [
                sys.executable, "-m", "gemmetry", "agent", "--connect", request.connect,
                "--token-file", str(request.token_file), "--device", device, "--name", name,
            ]  # fmt: skip
            started.append(AgentProcess(name, command, request.folder / f"{name}.log"))
        return AgentProcesses(started)


def _device(request: AgentRequest, number: int) -> str:
    """The device of an agent where none is named: they count from that of the plan, of which only
    the CPU has no number."""
    name, colon, first = request.target.device.partition(":")
    return f"{name}:{int(first) + number}" if colon else name


class AgentProcess:
    """An agent, or a command that starts one and ends with it."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, token: bytes | None = None
    ) -> None:
        """`token`: what the command reads from standard input."""
        self.name = name
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL if token is None else subprocess.PIPE,
                stdout=output,
                stderr=output,
                # Ctrl-C in the terminal is for the run, which then ends the agents.
                start_new_session=True,
            )
        if token is not None:
            assert self.process.stdin is not None
            try:
                self.process.stdin.write(token)
                self.process.stdin.close()
            except OSError:  # it has ended already, which is reported
                pass

    def end(self) -> None:
        """End it; harmless if it has ended."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class AgentProcesses:
    """Agents that are processes of this machine; see
    :class:`gemmetry.engine.agents.starting.StartedAgents`."""

    def __init__(self, started: Sequence[AgentProcess]) -> None:
        self._started = list(started)
        self._reported: set[str] = set()

    def problems(self) -> Sequence[str]:
        """Those that ended."""
        found = []
        for one in self._started:
            status = one.process.poll()
            if status is not None and one.name not in self._reported:
                self._reported.add(one.name)
                tail = log_tail(one.log, TAIL_CHARACTERS).strip()
                end = f": {tail}" if tail else ""
                if status != 0:
                    found.append(f"the agent {one.name} ended with status {status}{end}")
        return found

    def running(self) -> int:
        """Those that have not ended."""
        return sum(one.process.poll() is None for one in self._started)

    def queued(self) -> int:
        """None: each starts at once."""
        return 0

    def close(self) -> None:
        """End them all; their driver has requested it, and they get a moment for that."""
        for one in self._started:
            try:
                one.process.wait(2.0)
            except subprocess.TimeoutExpired:
                one.process.terminate()
        for one in self._started:
            one.end()


STARTER = LoopbackStarter()
