"""Agents as a job array of Slurm: the script, what squeue shows of it, and a real cluster."""

from __future__ import annotations

import shlex
import sys
import time
from itertools import pairwise
from types import SimpleNamespace

import pytest

from gemmetry.domain.dispatch import parse_target
from gemmetry.domain.errors import EnvironmentFailure, RequestError
from gemmetry.engine.agents.starters import slurm
from gemmetry.engine.agents.starting import AgentRequest, load_starter

PATIENCE_S = 60.0


@pytest.fixture
def make(tmp_path):
    """Makes requests whose folder has a name that both shells and Slurm read in their own way."""
    token = tmp_path / "token"
    token.write_text("secret\n")
    folder = tmp_path / "50% of 'it'"
    folder.mkdir()

    def request(target="null", count=2, **options):
        return AgentRequest(
            "node0:4711", token, count, parse_target(target), folder,
            {name.replace("_", "-"): value for name, value in options.items()},
        )  # fmt: skip

    return request


@pytest.fixture
def answers(monkeypatch):
    """Replaces Slurm's commands: name of a command -> what the next calls of it return, the last
    one again and again. The calls are in `called`."""
    fake = SimpleNamespace(sbatch=[(0, "7\n", "")], squeue=[(0, "", "")], scancel=[(0, "", "")],
                           called=[])  # fmt: skip

    def call(*command):
        fake.called.append(command)
        left = getattr(fake, command[0])
        return left.pop(0) if len(left) > 1 else left[0]

    monkeypatch.setattr(slurm, "_call", call)
    monkeypatch.setattr(slurm, "POLL_S", 0.001)
    monkeypatch.setattr(slurm, "MOST_POLL_S", 0.001)
    return fake


def wait_for(condition):
    ends = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < ends, "it does not happen"
        time.sleep(0.005)
    return found


def options_of(script):
    lines = [line for line in script.splitlines() if line.startswith("#SBATCH ")]
    words = [shlex.split(line)[1].removeprefix("--").partition("=") for line in lines]
    return {name: value for name, _, value in words}


def test_the_script_is_an_array_with_one_task_for_each_agent(make):
    request = make(count=3, partition="debug", exclusive="", setup="module load x")
    script = slurm.job_script(request, request.folder, request.folder / "token")
    options = options_of(script)
    assert (options["array"], options["partition"], options["exclusive"]) == ("0-2", "debug", "")
    assert options["output"] == str(request.folder).replace("%", "%%") + "/agent-%a.log"
    setup, command = script.splitlines()[-2:]
    assert setup == "module load x"
    words = shlex.split(command)
    assert words[:4] == ["exec", sys.executable, "-m", "gemmetry"]
    assert words[words.index("--connect") + 1] == "node0:4711"
    assert words[words.index("--token-file") + 1] == str(request.folder / "token")
    assert "secret" not in script


@pytest.mark.parametrize(
    ("target", "given", "expected"),
    [
        ("cuda:3", {}, {"gres": "gpu:1"}),
        ("cuda", {"gres": "gpu:h200:1"}, {"gres": "gpu:h200:1"}),
        ("cuda", {"licenses": "gpu:1"}, {"licenses": "gpu:1"}),
        ("cpu", {}, {"exclusive": ""}),
        ("cpu", {"cpus_per_task": "4"}, {"cpus-per-task": "4"}),
    ],
)
def test_a_job_requests_a_device_of_its_own(make, target, given, expected):
    request = make(target, **given)
    script = slurm.job_script(request, request.folder, request.folder / "token")
    options = options_of(script)
    asked = {"gres", "licenses", "exclusive", "cpus-per-task"} & options.keys()
    assert {name: options[name] for name in asked} == expected
    # Slurm shows a job its own devices only, counted from 0.
    assert f"--device {target.partition(':')[0]}" in script
    assert "cuda:3" not in script


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"output": "x"}, "output"),
        ({"devices": "cuda:0"}, "devices"),
        ({"Partition": "x"}, "Partition"),
        ({"time": "1\n2"}, "time"),
    ],
)
def test_an_option_that_cannot_be_one_is_named(make, options, named, answers):
    with pytest.raises(RequestError, match=named):
        load_starter("slurm").start(make(**options))
    assert answers.called == []
    assert not (make().folder / slurm.TOKEN).exists()


def test_a_controller_that_does_not_answer_is_no_refusal(make, answers):
    request = make()
    answers.sbatch = [(1, "", "unreachable\n")]
    answers.squeue = [(1, "", "unreachable\n")]
    with pytest.raises(EnvironmentFailure, match=r"does not answer.*: unreachable") as failed:
        load_starter("slurm").start(request)
    assert "sinfo" in failed.value.hint
    assert not (request.folder / slurm.TOKEN).exists()


def test_a_refusal_of_sbatch_is_repeated_and_the_script_stays(make, answers):
    answers.sbatch = [(1, "", "sbatch: error: no such partition\nsbatch: error: refused\n")]
    request = make(partition="x")
    with pytest.raises(EnvironmentFailure, match="no such partition; refused") as refused:
        load_starter("slurm").start(request)
    assert slurm.SCRIPT in refused.value.hint
    assert options_of((request.folder / slurm.SCRIPT).read_text())["partition"] == "x"
    assert not (request.folder / slurm.TOKEN).exists()


def test_the_token_is_copied_for_its_owner_alone_and_removed(make, answers):
    request = make()
    agents = load_starter("slurm").start(request)
    copy = request.folder / slurm.TOKEN
    assert (copy.read_text(), copy.stat().st_mode & 0o777) == ("secret\n", 0o600)
    agents.close()
    agents.close()
    assert not copy.exists()
    assert [call for call in answers.called if call[0] == "scancel"] == [("scancel", "7")]
    assert not any("secret" in word for call in answers.called for word in call)


def test_tasks_that_end_are_reported_once_with_the_end_of_their_log(make, answers):
    request = make(count=3)
    (request.folder / "agent-0.log").write_text("wrong token\n")
    answers.squeue = [
        (0, "7_0|RUNNING|None|n1\n7_1|RUNNING|None|n2\n7_2|PENDING|Resources|\n8_0|FAILED||\n", ""),
        (0, "7_0|FAILED|NonZeroExitCode|n1\n7_1|RUNNING|None|n2\n7_2|PENDING|Resources|\n", ""),
        (0, "7_0|FAILED|NonZeroExitCode|n1\n7_1|NODE_FAIL|None|n2\n7_2|RUNNING|None|n1\n", ""),
        (0, "7_2|RUNNING|None|n1\n", ""),
    ]
    agents = load_starter("slurm").start(request)
    try:
        wait_for(lambda: agents.running() == 1)
        wait_for(lambda: len(answers.called) > 6)
        first, second = agents.problems()
        assert "agent 0 of job 7 on n1" in first and "wrong token" in first
        assert "agent 1 of job 7 on n2: its node failed" in second
        assert agents.problems() == []
        answers.squeue = [(0, "", "")]  # Slurm has forgotten the job.
        wait_for(lambda: agents.running() == 0)
        assert agents.problems() == []
    finally:
        agents.close()


def test_a_task_that_lost_its_node_waits_again(make, answers):
    answers.squeue = [
        (0, "7_0|RUNNING|None|n1\n7_1|RUNNING|None|n2\n", ""),
        (0, "7_0|PENDING|BeginTime|\n7_1|RUNNING|None|n2\n", ""),
    ]
    agents = load_starter("slurm").start(make())
    try:
        (news,) = wait_for(agents.problems)
        assert "agent 0 of job 7 lost its node" in news
        assert agents.running() == 2
    finally:
        agents.close()


def test_a_wait_that_may_never_end_is_reported_once(make, answers):
    answers.squeue = [(0, "7_0|PENDING|PartitionTimeLimit|\n7_1|PENDING|Priority|\n", "")]
    agents = load_starter("slurm").start(make())
    try:
        (news,) = wait_for(agents.problems)
        assert "1 agent of job 7 waits" in news and "PartitionTimeLimit" in news
        before = len(answers.called)
        wait_for(lambda: len(answers.called) > before + 3)
        assert agents.problems() == []
    finally:
        agents.close()


def test_a_controller_that_does_not_answer_ends_no_agent(make, answers):
    listed = (0, "7_0|RUNNING|None|n1\n7_1|RUNNING|None|n2\n", "")
    answers.squeue = [listed, (1, "", "squeue: error: no controller\n")]
    agents = load_starter("slurm").start(make())
    try:
        (news,) = wait_for(agents.problems)
        assert "no controller" in news
        before = len(answers.called)
        wait_for(lambda: len(answers.called) > before + 3)
        assert (agents.problems(), agents.running()) == ([], 2)
    finally:
        agents.close()


def test_squeue_is_called_less_often_while_nothing_changes(make, answers, monkeypatch):
    monkeypatch.setattr(slurm, "POLL_S", 0.01)
    monkeypatch.setattr(slurm, "MOST_POLL_S", 0.3)
    times = []
    listed = (0, "7_0|RUNNING|None|n1\n7_1|RUNNING|None|n2\n", "")

    def call(*command):
        if command[0] == "squeue":
            times.append(time.monotonic())
        return (0, "7\n", "") if command[0] == "sbatch" else listed

    monkeypatch.setattr(slurm, "_call", call)
    agents = load_starter("slurm").start(make())
    try:
        wait_for(lambda: len(times) > 8)
    finally:
        agents.close()
    pauses = [after - before for before, after in pairwise(times)]
    assert min(pauses[5:]) >= 0.01 * 1.5**4


def test_slurm_is_needed_on_this_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "sbatch" in load_starter("slurm").available()
