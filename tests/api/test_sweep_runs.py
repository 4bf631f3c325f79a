"""Sweeps that scripts run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gemmetry.engine.opaque import JobFinished
from gemmetry.sweeps.api import run_sweep
from gemmetry.sweeps.run import plan

OPTIONS = {"threads": [256], "channels": [4, 8], "library": "nccl", "order": "given"}


@pytest.fixture
def command(sweeps, tmp_path, monkeypatch):
    """Writes a trace of one rank; with 8 channels only if the file ``good`` exists."""
    monkeypatch.chdir(tmp_path)
    trace = tmp_path / "trace.json"
    trace.write_text(sweeps.point_traces(sweeps.MadePoint(ranks=1, steps=2, layers=1))[0])
    script = f"test $GEMMETRY_CHANNELS = 4 -o -e good || exit 3; cp {trace} $GEMMETRY_TRACE_DIR/"
    return ["sh", "-c", f"{script}rank0.pt.trace.json"]


def test_a_sweep_is_run_continued_and_analysed(command):
    events = []
    first = run_sweep("sweep", listener=events.append, command=command, **OPTIONS)
    assert [one.channels for one in first.failed] == [8]
    assert sum(isinstance(one, JobFinished) for one in events) == 2
    assert repr(first) == "<SweepRun sweep: 2 points, 1 failed>"
    Path("good").touch()
    second = run_sweep(Path("sweep"), command=command, **OPTIONS)
    assert second.failed == []
    points = second.document()["points"]
    assert [(one["channels"], one["outcome"], one["exit_status"]) for one in points] == [
        (4, "ok", 0), (8, "ok", 0)
    ]  # fmt: skip
    found = second.analyze(channels=[4])
    assert [one.point.configuration.channels for one in found.analysis.points] == [4]


def test_a_plan_writes_nothing(command):
    planned = plan("sweep", command=command, axes={"NCCL_ALGO": ["Ring"]}, **OPTIONS)
    assert planned.notes == ()
    point = planned.document()["points"][1]
    assert (point["folder"], point["axes"]) == (
        "256thread/nccl_8channels/NCCL_ALGO=Ring", {"NCCL_ALGO": "Ring"}
    )  # fmt: skip
    assert point["command"] == list(command)
    assert point["environment"]["NCCL_ALGO"] == "Ring"
    json.dumps(planned.document())
    assert repr(planned) == "<SweepPlan sweep: 2 points>"
    assert not planned.folder.exists()
