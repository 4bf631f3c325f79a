"""Agents on other hosts, through ``ssh``: one command for each, which ends with its connection."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence

from gemmetry.domain.errors import RequestError, UnknownNameError
from gemmetry.engine.agents.server import address_of
from gemmetry.engine.agents.starters.loopback import AgentProcess, AgentProcesses
from gemmetry.engine.agents.starting import AgentRequest, check_count, names_in

_YES, _NO = ("yes", "true", "1"), ("no", "false", "0")

_OPTIONS = ("command", "devices", "hosts", "ssh_options", "tunnel")


class SshStarter:
    """``hosts=a,b``: where; ``devices=cuda:0,cuda:1``: the devices of each host (default: one agent
    that takes the first); ``command=``: how gemmetry is called there (default: gemmetry);
    ``tunnel=yes``: agents connect through their ssh connection, so that the driver needs no open
    port and nothing is sent in the clear; ``ssh_options=``: arguments for ssh."""

    name = "ssh"

    def available(self) -> str | None:
        """Whether ssh is installed here."""
        return None if shutil.which("ssh") else "there is no ssh on PATH: install OpenSSH's client"

    def check(self, options: Mapping[str, str], count: int) -> None:
        """See :class:`gemmetry.engine.agents.starting.AgentStarter`."""
        for name in options:
            if name not in _OPTIONS:
                raise UnknownNameError("option of the executor ssh", name, _OPTIONS)
        hosts = names_in(options, "hosts")
        if not hosts or any(name.startswith("-") for name in hosts):
            raise RequestError(
                "the executor ssh needs the names of hosts",
                hint="Give them with --executor-options hosts=a,b.",
            )
        served = len(hosts) * max(1, len(names_in(options, "devices")))
        check_count(count, served, "hosts and devices")
        tunnel = options.get("tunnel", "no")
        if tunnel not in (*_YES, *_NO):
            raise RequestError(
                f"the executor ssh's option tunnel is {tunnel!r}", hint="Write tunnel=yes or no."
            )
        for name in ("command", "ssh_options"):
            try:
                shlex.split(options.get(name, ""))
            except ValueError as error:
                raise RequestError(
                    f"cannot read the executor ssh's option {name}: {error}",
                    hint="Quote it as for a shell.",
                ) from error

    def start(self, request: AgentRequest) -> AgentProcesses:
        """See :class:`gemmetry.engine.agents.starting.AgentStarter`. The token goes over standard
        input, so that no list of processes shows it."""
        options = request.options
        self.check(options, 0)
        host, _ = address_of(request.connect)
        if options.get("tunnel", "no") not in _YES and host in ("127.0.0.1", "localhost", "::1"):
            raise RequestError(
                f"other hosts cannot reach {request.connect}",
                hint="Give an address of this machine with --listen, or send everything through "
                "ssh with --executor-options tunnel=yes.",
            )
        hosts, devices = names_in(options, "hosts"), names_in(options, "devices") or [""]
        token = request.token_file.read_bytes()
        return AgentProcesses([
            AgentProcess(name, command, request.folder / f"{name.replace(':', '-')}.log", token)
            for name, command in _commands(request, hosts, devices)
        ])  # fmt: skip


def _commands(
    request: AgentRequest, hosts: Sequence[str], devices: Sequence[str]
) -> list[tuple[str, list[str]]]:
    """The name and the command of each agent."""
    options = request.options
    host, port = address_of(request.connect)
    found = []
    for number, where in enumerate(hosts):
        for place, device in enumerate(devices):
            connect, tunnel = request.connect, []
            if options.get("tunnel", "no") in _YES:
                # Each agent of a host has a port of its own there.
                remote = port + place if port + place <= 65535 else port - place
                connect = f"127.0.0.1:{remote}"
                tunnel = ["-R", f"{connect}:{host}:{port}"]
            name = f"ssh-{number}-{where.rpartition('@')[2]}" + (f"-{device}" if device else "")
            agent = [*shlex.split(options.get("command", "gemmetry")), "agent", "--connect",
                     connect, "--token-file", "-", "--name", name]  # fmt: skip
            agent += ["--device", device] if device else []
            found.append((
                name,
                ["ssh", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15",
                 "-o", "ExitOnForwardFailure=yes", *shlex.split(options.get("ssh_options", "")),
                 *tunnel, where, shlex.join(agent)],
            ))  # fmt: skip
    return found


STARTER = SshStarter()
