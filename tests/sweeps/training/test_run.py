"""Sweeps from options to the files of every point, with a training command of milliseconds."""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from gemmetry.domain.errors import (
    JournalDamagedError,
    PlanMismatchError,
    RequestError,
    StorageError,
)
from gemmetry.domain.options import struct_of
from gemmetry.domain.record import Environment
from gemmetry.engine import external as running
from gemmetry.engine.external import JobFinished, JobsPlanned, JobWarning
from gemmetry.engine.schema import FolderLock
from gemmetry.sweeps import run as sweep_module
from gemmetry.sweeps.folder import read_sweep
from gemmetry.sweeps.options import SweepOptions
from gemmetry.sweeps.plan import read_sweep_manifest
from gemmetry.sweeps.run import (
    environment_changes,
    installed_versions,
    plan,
    succeeded,
    workload_facts,
)

from .conftest import TRACE

FOLDER = Path("sweep")
SMALL = {"threads": [256, 512], "channels": [8], "library": "nccl", "order": "given"}


@pytest.fixture
def run(training):
    """Runs a sweep; what its listener received, and the outcome of each point."""

    def go(**options):
        sweep = plan(FOLDER, **{"command": training, **SMALL, **options})
        events = []
        ends = sweep.run(listener=events.append, command="the command line").ends
        return events, {name: str(end.outcome) for name, end in ends.items()}

    return go


POINT = "256thread/nccl_8channels"


def point(folder=POINT):
    return json.loads((FOLDER / folder / "point.json").read_text())


def test_sweep_and_points_are_described(run):
    _, outcomes = run(axes={"NCCL_ALGO": ["Ring"]}, repeats=2)
    folder = f"{POINT}/NCCL_ALGO=Ring/repeat_02"
    assert list(outcomes.values()) == ["ok"] * 4
    document = point(folder)
    expected = {
        "schema_version": 1, "threads": 256, "channels": 8, "axes": {"NCCL_ALGO": "Ring"},
        "repeat": 2, "outcome": "ok", "reason": "", "exit_status": 0, "world_size": None,
        "losses": None, "path": "kernel", "library": "nccl", "log_tail": "",
    }  # fmt: skip
    assert {key: document[key] for key in expected} == expected
    assert document["seconds"] > 0
    assert [one["name"] for one in document["requested"]] == ["channels", "threads", "NCCL_ALGO"]
    assert document["requested"][1]["environment"] == {"NCCL_NTHREADS": "256"}
    assert document["environment"]["NCCL_MAX_CTAS"] == "8"
    assert (FOLDER / folder / "run_output.log").read_text() == "256/8/2 256 \n"
    manifest = json.loads((FOLDER / "sweep.json").read_text())
    assert {folder, folder.replace("256", "512")} < {one["folder"] for one in manifest["points"]}
    assert (manifest["threads"], manifest["order"], manifest["seed"]) == ([256, 512], "given", 0)
    assert manifest["environment"]["python"] == sys.version.partition(" ")[0]
    assert manifest["environments"].keys() == {document["environment_id"]}
    assert [session["command"] for session in manifest["sessions"]] == ["the command line"]
    assert read_sweep_manifest(FOLDER) == manifest


def test_only_points_without_success_or_traces_run_again(run, monkeypatch):
    Path("fail-256-8").touch()
    _, outcomes = run()
    assert list(outcomes.values()) == ["failed", "ok"]
    assert point()["reason"] == "exit status 1: RuntimeError: it fails"
    assert "RuntimeError: it fails" in point()["log_tail"]
    failed, good = read_sweep(FOLDER).points
    assert (failed.outcome, good.outcome) == ("failed", "ok")
    assert [file.rank for file in good.traces] == [0, 1]
    Path("fail-256-8").unlink()
    Path("runs").unlink()
    events, outcomes = run()
    assert events[0] == JobsPlanned(total=2, kept=1)
    assert Path("runs").read_text().split() == [str(FOLDER.absolute() / POINT)]
    assert set(outcomes.values()) == {"ok"}
    assert len(json.loads((FOLDER / "sweep.json").read_text())["sessions"]) == 2
    other = POINT.replace("256", "512")
    for trace in (FOLDER / other / "torch_profiler").rglob("*.json"):
        trace.unlink()
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    events, _ = run()
    assert [event.job.name for event in events if isinstance(event, JobFinished)] == [other]
    (warning,) = (event for event in events if isinstance(event, JobWarning))
    assert warning.text.endswith("variables.NCCL_DEBUG: none vs INFO")
    for before in (None, {"environment": "?"}):
        assert environment_changes(before, Environment()) == ""


def test_a_sweep_grows(run):
    run()
    events, outcomes = run(channels=[8, 16], repeats=2)
    assert events[0] == JobsPlanned(total=8, kept=2)
    assert {POINT, f"{POINT}/repeat_02"} < {*outcomes}
    assert run()[0] == [JobsPlanned(total=2, kept=2)]
    assert len(read_sweep(FOLDER).points) == 8, "the manifest keeps what earlier commands planned"


def test_how_bytes_move_as_an_axis(run):
    run(axes={"path": ["kernel", "copy_engine"]}, threads=[256])
    for path, policy in (("kernel", None), ("copy_engine", "2")):
        document = point(f"{POINT}/path={path}")
        assert document["path"] == document["environment"]["GEMMETRY_PATH"] == path
        assert document["environment"].get("NCCL_CTA_POLICY") == policy


def test_points_without_traces_and_points_that_hang(run, monkeypatch):
    Path("silent").touch()
    _, outcomes = run()
    assert set(outcomes.values()) == {"failed"}
    assert point()["reason"].startswith("it ended without a trace in torch_profiler/")
    Path("silent").unlink()
    # An hour passes when the point hangs.
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 3600 * Path("hanging").exists())
    monkeypatch.setattr(running, "time", clock)
    Path("hang-256-8").touch()
    _, outcomes = run(timeout_s=1800)
    assert list(outcomes.values()) == ["timeout", "ok"]
    assert point()["reason"] == "it took longer than 1800 s"


def test_another_sweep_is_refused_and_fresh_moves_it_aside(run, training):
    run()
    before = sorted(FOLDER.rglob("*"))
    with pytest.raises(PlanMismatchError, match="command"):
        run(command=f"{training} more")
    assert sorted(FOLDER.rglob("*")) == before
    (FOLDER / "notes.txt").touch()
    events, _ = run(command=f"{training} more", fresh=True)
    assert events[0] == JobsPlanned(total=2, kept=0)
    assert (FOLDER / "previous" / POINT / "point.json").is_file()
    assert (FOLDER / "notes.txt").is_file(), "what is not the sweep's stays"


def test_folders_that_cannot_be_used(run, training):
    def refuses(error, words, hint=""):
        with pytest.raises(error, match=words) as caught:
            run()
        assert hint in caught.value.hint

    assert plan(FOLDER, command=training, **SMALL).ends() == {}, "nothing has ended before a start"
    assert not succeeded(None) and not FOLDER.exists()
    FOLDER.write_text("a file")
    refuses(StorageError, "cannot write the output folder")
    FOLDER.unlink()
    FOLDER.mkdir()
    lock = FolderLock(FOLDER)
    refuses(RequestError, r"the output .*sweep is in use", "--output")
    lock.release()
    (FOLDER / "256thread/nccl_8channels/torch_profiler").mkdir(parents=True)
    refuses(RequestError, r"no sweep\.json")
    for text in ("{", "[]", "\x00"):
        (FOLDER / "sweep.json").write_text(text)
        refuses(JournalDamagedError, r"sweep\.json", "--fresh")


def test_a_full_disk_keeps_what_has_succeeded(run, monkeypatch):
    write, written = sweep_module.write_whole, []

    def fill(path, content, **options):
        written.append(path.name)
        if written.count("point.json") == 2:
            raise OSError(28, "No space left on device", str(path))
        write(path, content, **options)

    with monkeypatch.context() as patched:
        patched.setattr(sweep_module, "write_whole", fill)
        with pytest.raises(StorageError, match=r"no space left to write .*point\.json"):
            run()
    events, outcomes = run()
    assert events[0] == JobsPlanned(total=2, kept=1)
    assert set(outcomes.values()) == {"ok"}


def test_what_a_point_lacks(tmp_path):
    def lacks(**options):
        return sweep_module._lacks(struct_of(SweepOptions, options), tmp_path)

    for rank in (0, 2):
        folder = tmp_path / "torch_profiler" / f"rank{rank}"
        folder.mkdir(parents=True)
        (folder / "t.json").write_text(TRACE)
    assert lacks(nproc=3, config="tiny") == "no trace of rank 1 in torch_profiler/"
    assert lacks(nproc=1, config="tiny") == lacks(command=("x",)) == ""
    assert "rocprofv3 wrote nothing" in lacks(command=("x",), rocprof=True)
    assert "ncu wrote no report" in lacks(command=("x",), ncu=())
    (tmp_path / "ncu").mkdir()
    (tmp_path / "ncu" / "rank0.ncu-rep").touch()
    assert lacks(command=("x",), ncu=()) == ""


def test_the_configuration_is_kept_with_the_sweep(tmp_path):
    source = tmp_path / "mine.yaml"
    source.write_text("distributed:\n  backend: gloo\n")
    planned = plan(tmp_path, config=str(source)).plan
    copied = sweep_module._with_copied_config(planned, tmp_path)
    assert copied.options.config == str(tmp_path / "config.yaml")
    source.write_text("changed")
    assert "gloo" in (tmp_path / "config.yaml").read_text()
    preset = plan(tmp_path, config="tiny").plan
    assert sweep_module._with_copied_config(preset, tmp_path) is preset


def test_what_the_workload_recorded(tmp_path):
    def recorded(losses, facts):
        (tmp_path / "losses.json").write_text(losses)
        (tmp_path / "facts_rank0.json").write_text(facts)
        return workload_facts(tmp_path)

    assert recorded("[", "[]") == dict.fromkeys(("world_size", "backend", "packages", "losses"))
    facts = {"world_size": 4, "backend": "nccl"}
    environment = {"environment": {"packages": {"nccl": "2.28.9"}}}
    found = recorded('{"losses": [2.0, 1.5]}', json.dumps({**facts, **environment}))
    assert found == {**facts, **environment["environment"], "losses": [2.0, 1.5]}
    assert installed_versions()["numpy"] == importlib.metadata.version("numpy")
