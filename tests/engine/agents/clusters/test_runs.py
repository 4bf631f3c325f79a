"""Runs over a cluster of two nodes, of which one is killed while it measures."""

from __future__ import annotations

import json

import pytest

from gemmetry.cli.main import run as run_command
from gemmetry.domain.errors import Outcome
from gemmetry.domain.record import DispatchFinished, Message
from gemmetry.engine import run
from gemmetry.engine.store.experiment import Experiment

pytestmark = pytest.mark.cluster

SIZES = tuple(range(8, 32))


@pytest.fixture
def run_and_kill(make_plan, tmp_path):
    """Runs dispatches that take a while on two agents, and calls `kill` as soon as both are
    connected and some dispatches have their results; the records, and the messages of the run."""

    def go(kill, executor, **options):
        plan = make_plan(
            ("slow_5",), sizes=SIZES, executor=executor, executor_options=options, agents=2,
            memory_budget_bytes=1,  # No operation shares a group with another.
        )  # fmt: skip
        messages, finished, killed = [], [], []

        def listener(event):
            if isinstance(event, Message):
                messages.append(event.text)
            if isinstance(event, DispatchFinished) and event.record.configuration == "slow_5":
                finished.append(event.record)
            both = any("2 agents connected" in text for text in messages)
            if both and len(finished) >= 4 and not killed:
                killed.append(len(finished))
                kill()

        summary = run(plan, tmp_path / "experiment", listener=listener)
        with Experiment.open(tmp_path / "experiment") as experiment:
            records = list(experiment.records())
        assert killed and killed[0] < len(SIZES) - 4
        assert not summary.failure
        return records, messages

    return go


def assert_complete(records):
    assert {record.outcome for record in records} == {Outcome.OK}
    slow = [record.dispatch for record in records if record.configuration == "slow_5"]
    assert len(slow) == len(set(slow)) == len(SIZES)


def test_slurm_continues_without_a_node(slurm, run_and_kill):
    records, messages = run_and_kill(lambda: slurm.kill_node("n1"), "slurm")
    assert_complete(records)
    assert any("is lost" in text for text in messages)


def test_ray_continues_without_a_raylet(ray_nodes, run_and_kill):
    doomed, _ = [ray_nodes.add(num_cpus=1) for _ in range(2)]
    records, messages = run_and_kill(
        lambda: ray_nodes.kill(doomed), "ray", address=ray_nodes.address
    )
    assert_complete(records)
    assert any("is lost" in text for text in messages)


@pytest.mark.parametrize("executor", ["slurm", "ray"])
def test_cpus_of_both_nodes(executor, request, tmp_path, monkeypatch, capsys):
    options = []
    if executor == "slurm":
        request.getfixturevalue("slurm")
    else:
        nodes = request.getfixturevalue("ray_nodes")
        nodes.add(num_cpus=1)
        nodes.add(num_cpus=1)
        options = ["--executor-options", f"address={nodes.address}"]
    monkeypatch.chdir(tmp_path)
    status = run_command([
        "profile", "--providers", "numpy", "--shapes", "8x8x8,16x16x16",
        "--executor", executor, "--agents", "2", *options, "--experiment", "e", "--json",
        "--max-samples", "10", "--memory-budget", "1",
    ])  # fmt: skip
    shown = capsys.readouterr()
    assert status == 0, shown.err
    records = json.loads(shown.out)["records"]
    assert [record["outcome"] for record in records] == ["ok"] * 2
