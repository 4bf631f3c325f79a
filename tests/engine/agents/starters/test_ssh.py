"""Agents through ``ssh``, which is a script on PATH here that runs the command on this host."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path

import pytest

from gemmetry.domain.dispatch import parse_target
from gemmetry.domain.errors import EnvironmentFailure, Outcome, RequestError, UnknownNameError
from gemmetry.engine.agents import fleet
from gemmetry.engine.agents.starting import AgentRequest, load_starter

PATIENCE_S = 60.0
TOKEN = "0123456789abcdef0123456789abcdef"

_SSH = """\
#!{python}
import os, sys
words = sys.argv[1:]
with open({folder!r} + f"/{{os.getpid()}}.words", "w") as file:
    file.write("\\0".join(words))
host, command = words[-2:]
if host == "refusing":
    sys.exit("ssh: connect to host refusing port 22: no route")
if host == "reading":
    with open({folder!r} + "/token", "w") as file:
        file.write(sys.stdin.read())
    sys.exit(0)
os.execvp("sh", ["sh", "-c", command])
"""


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """The command lines with which ssh was called."""
    folder = tmp_path / "called"
    folder.mkdir()
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(_SSH.format(python=sys.executable, folder=str(folder)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)

    def found():
        return [path.read_text().split("\0") for path in sorted(folder.glob("*.words"))]

    found.folder = folder
    return found


@pytest.fixture
def make(tmp_path):
    """Makes requests."""
    token = tmp_path / "token"
    token.write_text(TOKEN)
    logs = tmp_path / "logs"
    logs.mkdir()

    def request(connect="node0:4711", **options):
        return AgentRequest(connect, token, 1, parse_target("null"), logs, options)

    return request


def ended(agents):
    """What is reported once all have ended."""
    ends = time.monotonic() + PATIENCE_S
    while agents.running():
        assert time.monotonic() < ends, "it does not end"
        time.sleep(0.01)
    found = agents.problems()
    agents.close()
    assert agents.problems() == []
    return found


def test_the_token_goes_over_standard_input_and_is_in_no_command_line(calls, make):
    assert ended(load_starter("ssh").start(make(hosts="reading"))) == []
    assert (calls.folder / "token").read_text() == TOKEN
    ((*words, host, command),) = calls()
    assert host == "reading"
    assert shlex.split(command)[:6] == [
        "gemmetry", "agent", "--connect", "node0:4711", "--token-file", "-",
    ]  # fmt: skip
    assert "BatchMode=yes" in words, "it never asks for a password"
    assert TOKEN not in " ".join([*words, command])


def test_each_device_of_each_host_has_an_agent_and_a_port_of_its_tunnel(calls, make):
    request = make("127.0.0.1:4711", hosts="reading,me@reading", devices="cuda:0,cuda:1",
                   tunnel="yes", command="/opt/my\\ env/bin/python -m gemmetry",
                   ssh_options="-p 2222 -o 'User=some one'")  # fmt: skip
    agents = load_starter("ssh").start(request)
    ended(agents)
    seen = set()
    for *words, host, command in calls():
        tunnel = words[words.index("-R") + 1]
        agent = shlex.split(command)
        assert words[words.index("-p") + 1] == "2222" and "User=some one" in words
        assert agent[:4] == ["/opt/my env/bin/python", "-m", "gemmetry", "agent"]
        assert tunnel == f"{agent[agent.index('--connect') + 1]}:127.0.0.1:4711"
        if host in ("reading", "me@reading"):
            seen.add((host, agent[agent.index("--device") + 1], tunnel.split(":")[1]))
    assert seen == {
        (host, f"cuda:{number}", str(4711 + number))
        for host in ("reading", "me@reading")
        for number in range(2)
    }


def test_a_host_that_refuses_and_one_without_gemmetry_are_reported_with_the_cause(calls, make):
    request = make(hosts="refusing,other", command="no-such-gemmetry")
    refused, missing = ended(load_starter("ssh").start(request))
    assert "ssh-0-refusing" in refused and "no route" in refused
    assert "ssh-1-other" in missing and "status 127" in missing and "no-such-gemmetry" in missing


def test_a_run_over_ssh_continues_without_the_host_that_refuses(
    calls, make_plan, run_plan, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", str(Path(fleet.__file__).parents[3]))
    options = {
        "hosts": "refusing,here", "tunnel": "yes", "command": f"{sys.executable} -m gemmetry",
    }  # fmt: skip
    # A tunnel of the pretended ssh leads nowhere, so that the agent has the driver's own port.
    ran = run_plan(make_plan(executor="ssh", executor_options=options, agent_wait_s=PATIENCE_S))
    assert ran.summary.outcomes == {Outcome.OK: 2}
    assert len(calls()) == 2


def test_a_run_whose_hosts_all_refuse_ends(calls, make_plan, run_plan, monkeypatch):
    monkeypatch.setattr(fleet, "ENDED_S", 0.1)
    options = {"hosts": "refusing", "tunnel": "yes"}
    ran = run_plan(make_plan(executor="ssh", executor_options=options))
    assert ran.summary.exit_status == 3
    assert "all agents of the executor ssh have ended" in ran.summary.failure


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "needs the names of hosts"),
        ({"hosts": "-oProxyCommand=x"}, "needs the names of hosts"),
        ({"hosts": "a", "tunnel": "maybe"}, "tunnel is 'maybe'"),
        ({"hosts": "a", "command": "'half"}, "option command"),
        ({"hosts": "a"}, "other hosts cannot reach"),
    ],
)
def test_wrong_options_are_refused_before_ssh_is_called(calls, make, options, text):
    with pytest.raises(RequestError, match=text):
        load_starter("ssh").start(make("127.0.0.1:4711", **options))
    assert calls() == []


def test_an_unknown_option_and_a_wrong_number_of_agents_are_named():
    ssh = load_starter("ssh")
    with pytest.raises(UnknownNameError, match="'host'"):
        ssh.check({"host": "a"}, 0)
    ssh.check({"hosts": "a,b", "devices": "cuda:0,cuda:1"}, 4)
    with pytest.raises(RequestError, match="--agents is 3, but hosts and devices name 4"):
        ssh.check({"hosts": "a,b", "devices": "cuda:0,cuda:1"}, 3)


def test_without_ssh_the_next_step_is_named(make_plan, run_plan, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentFailure, match="install OpenSSH"):
        run_plan(make_plan(executor="ssh", executor_options={"hosts": "a", "tunnel": "yes"}))
    assert not (tmp_path / "experiment").exists(), "it is refused before anything is stored"
