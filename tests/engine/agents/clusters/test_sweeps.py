"""A training sweep whose points run in a job of Slurm."""

from __future__ import annotations

import json

import pytest

from gemmetry.cli.main import run as run_command

pytestmark = pytest.mark.cluster


def test_torchrun_on_a_node_of_slurm(slurm, tmp_path, monkeypatch, capsys, wait_for):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    status = run_command([
        "sweep", "run", "--channels", "1", "--config", "tiny", "--nproc", "1", "--library", "gloo",
        "--executor", "slurm", "--json", "--output", "sweep",
    ])  # fmt: skip
    shown = capsys.readouterr()
    assert status == 0, shown.err
    (point,) = json.loads(shown.out)["points"]
    assert point["outcome"] == "ok"
    assert list((tmp_path / "sweep" / point["folder"] / "torch_profiler").rglob("*.json*"))
    assert (tmp_path / "sweep" / "agents" / "agents.sbatch").exists()
    wait_for(lambda: not slurm.call("squeue", "--noheader", "--states=running,pending"))
