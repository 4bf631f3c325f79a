"""Sweeps in Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gemmetry.engine.external import JobFinished
from gemmetry.sweeps.api import analyze, run_sweep
from gemmetry.sweeps.run import plan


@pytest.fixture
def folder(tmp_path, sweeps):
    points = [sweeps.MadePoint(channels=channels, layers=2) for channels in (4, 8)]
    return sweeps.write_sweep(tmp_path / "sweep", points)


def test_frames_and_document(folder):
    found = analyze(folder)
    assert found.is_complete
    points, gemms, pooled = map(found.frame, ("points", "gemms", "pooled_gemms"))
    assert points["channels"].to_list() == [4, 8]
    assert points["step_ms"].dtype.is_float()
    assert len(gemms) == 2 * len(pooled) == 2 * 2 * 2
    assert set(gemms["rank"]) == {0, 1}
    assert found.document()["sweep"] == str(folder)


def test_nothing_is_written_before_it_is_requested(folder):
    found = analyze(str(folder), channels=[8])
    assert not (folder / "analysis").exists()
    written = found.write(["variance"]).paths
    assert [path.parent for path in written] == [folder / "analysis"]
    assert not (folder / "analysis" / "analysis.json").exists()
    written = found.write().paths[0]
    assert written == folder / "analysis" / "analysis.json"
    assert json.loads(written.read_text())["points"][0]["channels"] == 8


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
