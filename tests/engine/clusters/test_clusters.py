"""A plan over two nodes of Slurm, as shards, and of Ray, as tasks; one raylet is killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gemmetry.cli.main import run as run_command
from gemmetry.domain.errors import EnvironmentFailure, Outcome, RequestError
from gemmetry.domain.record import DispatchFinished
from gemmetry.engine import ray_tasks, run
from gemmetry.engine.experiment import Experiment

pytestmark = pytest.mark.cluster

PATIENCE_S = 300.0

_ARRAY = """\
#!/bin/sh
#SBATCH --array=1-2 --exclusive --output={folder}/%a.log
{python} -m gemmetry profile --providers null --device null --shapes 8x8x8,16x16x16,32x8x8 \
--dtypes f32 --processes 1 --shard $SLURM_ARRAY_TASK_ID/2 --experiment {folder}/$SLURM_ARRAY_TASK_ID
echo $? > {folder}/$SLURM_ARRAY_TASK_ID.status
"""


def test_an_array_of_two_shards_merges_into_the_whole_plan(slurm, tmp_path, monkeypatch):
    """It looks for the ends itself: ``sbatch --wait`` does so every half a minute."""
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "array.sh"
    script.write_text(_ARRAY.format(folder=tmp_path, python=sys.executable))
    subprocess.run(["sbatch", str(script)], check=True)
    ends = time.monotonic() + PATIENCE_S
    while [path.read_text() for path in tmp_path.glob("*.status")] != ["0\n"] * 2:
        assert time.monotonic() < ends, [path.read_text() for path in tmp_path.glob("*.log")]
        time.sleep(0.1)
    assert run_command(["merge", "1", "2", "--into", "whole"]) == 0
    with Experiment.open(tmp_path / "whole") as found:
        assert found.total() == sum(found.outcome_counts().values())
        assert not found.remarks()
        assert len({record.operation for record in found.records()}) == 3


@pytest.fixture
def plan_on(make_plan):
    """A plan of operations that take a while each, on a cluster."""

    def make(address, **options):
        ray = {"executor": "ray", "executor_options": {"address": address, **options}}
        return make_plan(("slow_5",), sizes=range(8, 12), **ray)

    return make


@pytest.fixture(autouse=True)
def disconnected():
    """The tests of a process connect to several clusters, one after the other."""
    yield
    if "ray" in sys.modules:
        sys.modules["ray"].shutdown()


def test_tasks_of_a_killed_raylet_run_again(ray_nodes, plan_on, tmp_path, monkeypatch):
    """What was finished is not measured again, and the plan is whole after one command."""
    monkeypatch.setattr(ray_tasks, "CHUNK", 1)
    doomed, _ = [ray_nodes.add(num_cpus=1) for _ in range(2)]
    finished, killed = [], []

    def listener(event):
        if isinstance(event, DispatchFinished):
            finished.append(event.record.dispatch)
            if len(finished) >= 4 and not killed:
                killed.append(len(finished))
                ray_nodes.kill(doomed)

    summary = run(plan_on(ray_nodes.address), tmp_path / "e", listener=listener)
    assert killed and killed[0] < summary.total
    assert not summary.failure
    with Experiment.open(tmp_path / "e") as experiment:
        records = list(experiment.records())
        assert all(experiment.samples(one) for one in records if one.outcome is Outcome.OK)
    assert {record.outcome for record in records} == {Outcome.OK}
    assert len(finished) == len(set(finished)) == len(records) == summary.total


def test_what_no_node_has_is_refused(ray_nodes, plan_on, tmp_path):
    ray_nodes.add(num_cpus=2, resources={"big": 1})
    with pytest.raises(RequestError, match="GPU 1") as lacking:
        run(plan_on(ray_nodes.address, num_gpus="1"), tmp_path / "e")
    assert "big 1" in lacking.value.hint


def test_no_cluster(plan_on, tmp_path, monkeypatch):
    pytest.importorskip("ray")

    monkeypatch.setattr("ray.init", lambda **_arguments: time.sleep(PATIENCE_S))
    monkeypatch.setattr(ray_tasks, "CONNECTING_S", 0.1)
    with pytest.raises(EnvironmentFailure, match=r"127\.0\.0\.1:1"):
        run(plan_on("127.0.0.1:1"), tmp_path / "e")


def test_a_training_sweep_as_tasks(ray_nodes, tmp_path, monkeypatch, capsys):
    """A point is a command with a folder that the nodes share; what it prints is in its log."""
    ray_nodes.add(num_cpus=1)
    monkeypatch.chdir(tmp_path)
    status = run_command([
        "sweep", "run", "--channels", "1", "--library", "gloo", "--command", "sh -c 'exit 3'",
        "--executor", "ray", "--executor-options", f"address={ray_nodes.address}", "--json",
        "--output", "sweep",
    ])  # fmt: skip
    (point,) = json.loads(capsys.readouterr().out)["points"]
    assert status == 1
    assert "exit status 3" in point["reason"]


def test_a_search_as_tasks(ray_nodes, tmp_path, monkeypatch, capsys):
    """Its trials and its finals run on the nodes, and the fastest configuration wins."""
    ray_nodes.add(num_cpus=1)
    monkeypatch.chdir(tmp_path)
    null = {"name": "null", "options": {"configurations": ["factor_0p7", "wrong"]}}
    Path("spec.yaml").write_text(json.dumps({"providers": [null]}))
    status = run_command([
        "tune", "--spec", "spec.yaml", "--device", "null", "--shapes", "16x16x16",
        "--strategy", "exhaustive", "--finalists", "1", "--time-budget", "50ms", "--max-samples",
        "20", "--executor", "ray", "--executor-options", f"address={ray_nodes.address}",
        "--experiment", "t", "--json",
    ])  # fmt: skip
    winners = json.loads(capsys.readouterr().out)["winners"]
    assert status == 0
    assert [one["configuration"] for one in winners] == ["factor_0p7"]


def test_an_interrupt_leaves_no_task(ray_nodes, plan_on, tmp_path):
    """The plan continues with the same command."""
    ray_nodes.add(num_cpus=1)
    plan = plan_on(ray_nodes.address)

    def listener(event):
        if isinstance(event, DispatchFinished):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(plan, tmp_path / "e", listener=listener)
    summary = run(plan, tmp_path / "e")
    assert summary.kept >= 1
    assert summary.finished == summary.total
