"""``gemmetry profile --counters``, with the simulated device and a stand-in for Nsight Compute."""

from __future__ import annotations

import json
import re

import pytest

from gemmetry.counters.collector import read_counters
from gemmetry.domain.dispatch import TargetKind
from gemmetry.engine import counting
from gemmetry.engine.counting import WARM_UP
from gemmetry.hardware.doctor import Profiler

RUN = ("profile", "--providers", "null", "--device", "null", "--shapes", "64x64x64",
       "--experiment", "out", "--default-config")  # fmt: skip


@pytest.fixture
def counted(cli, with_ncu, monkeypatch):
    """Runs the command where the simulated device has counters."""
    monkeypatch.setattr(counting, "TOOLS", {TargetKind.NULL: "ncu"})
    return cli


@pytest.fixture
def no_launch(monkeypatch):
    """The program that launches a dispatch is replaced by one that does nothing."""
    monkeypatch.setattr(counting, "PROGRAM", "sysconfig")


def records(cli) -> list[dict]:
    return cli.json("report", "out")["records"]


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """How often the profiler was started with an option."""
    monkeypatch.setenv("FAKE_NCU_CALLS", str(tmp_path / "calls"))
    return lambda option: (tmp_path / "calls").read_text().split().count(option)


def several(*sizes: int) -> list[str]:
    """The run with square products of these sizes."""
    return [word.replace("64x64x64", ",".join(f"{n}x{n}x{n}" for n in sizes)) for word in RUN]


def test_dispatches_of_a_provider_share_a_process_and_have_their_own_launches(
    counted, calls, tmp_path
):
    ended = counted(*several(8, 16), "--counters", status=0)
    assert "collecting hardware counters of 2 dispatches" in ended.stderr
    assert re.search(r"hardware counters of 2 dispatches were collected in \S+ m?s", ended.stderr)
    assert calls("--target-processes") == calls("--import") == 1
    # Before anything runs, and once the dispatches are there.
    assert calls("--list-sections") == calls("--version") == 2
    found = records(counted)
    assert len(found) == 2
    for number, record in enumerate(found):
        folder = tmp_path / "out" / record["counters_folder"]
        (launch,) = read_counters(folder / "counters.csv")
        assert launch.value("gpu__time_duration.sum") == 1000 + number
        assert f":gemmetry_dispatch_{number}:" in " ".join(launch.texts().values())
        described = json.loads((folder / "counters.json").read_text())
        assert (described["launches"], described["passes"]) == (1, 38)
        assert (described["metric_set"], described["exit_status"]) == ("gemm", 0)
        assert described["notes"][-1].endswith(f"gemmetry_dispatch_{number}.")
        for name in ("counters.ncu-rep", "counters.application.log", "counters.profiler.log"):
            assert (folder / name).exists()
        assert not (folder / "request.msgpack").exists()
        assert record["counters_verdict"] == "cannot_tell" and record["counters_summary"]
        assert record["counters_confidence"] == "high"
        assert record["counters_folder"] in (tmp_path / "out/report.html").read_text()
    assert not (tmp_path / "out/counters/.shared").exists()
    shown = counted("show", "out", "*8x8x8*").stdout
    assert "cannot_tell (high confidence): The report does not show" in shown
    assert "Hardware counters" in shown and "the set gemm, 1 kernel, 38 passes" in shown


def test_a_dispatch_that_crashes_loses_its_own_counters_only(counted, calls, tmp_path, monkeypatch):
    (tmp_path / "crashing.py").write_text(  # found, as it lies where the command runs
        "import os, pathlib, sys\n"
        "from gemmetry.engine import counting as counted\n"
        "launch = counted._launch\n"
        "def crashing(provider, request, number):\n"
        "    if request.dispatches[number][0].startswith('matmul_16x16x16'):\n"
        "        os._exit(134)\n"
        "    launch(provider, request, number)\n"
        "counted._launch = crashing\n"
        "sys.exit(counted.main(pathlib.Path(sys.argv[1])))\n"
    )
    monkeypatch.setattr(counting, "PROGRAM", "crashing")
    monkeypatch.setattr(counting, "MOST_TOGETHER", 2)
    ended = counted(*several(8, 16, 32, 64, 128), "--counters", "quick", status=0)
    assert "no counters of matmul_16x16x16" in ended.stderr
    assert "hardware counters of 4 dispatches were collected" in ended.stderr
    # The first two, the one that crashes alone, and those after it, of which one is left.
    assert calls("--target-processes") == 4
    with_counters = [record["counters_folder"] is not None for record in records(counted)]
    assert with_counters == [True, False, True, True, True]


def test_where_launches_have_no_ranges_each_dispatch_has_its_process(counted, no_launch, calls):
    ended = counted(*several(8, 16), "--counters", "quick")
    assert "hardware counters of 2 dispatches were collected" in ended.stderr
    assert calls("--target-processes") == 1 + 2


def test_on_amd_launches_of_the_warm_up_are_not_counted(
    counted, no_launch, tmp_path, monkeypatch, with_rocprofv3
):
    monkeypatch.setattr(counting, "TOOLS", {TargetKind.NULL: "rocprofv3"})
    monkeypatch.setattr(
        "gemmetry.counters.collector.find_profiler",
        lambda name: Profiler(name, str(with_rocprofv3), "1.0.0"),
    )
    monkeypatch.setenv("FAKE_LAUNCHES", str(WARM_UP + 1))
    counted(*RUN, "--counters", "quick", status=0)
    (record,) = records(counted)
    folder = tmp_path / "out" / record["counters_folder"]
    described = json.loads((folder / "counters.json").read_text())
    assert described["launches"] == 2  # One of each of the two ranks.
    assert described["launch_skip"] == WARM_UP


def test_a_resumed_run_collects_only_what_is_lacking(counted, no_launch):
    counted(*RUN)
    assert records(counted)[0]["counters_folder"] is None
    assert "1 dispatch were collected" in counted(*RUN, "--counters", "quick").stderr
    assert "collected" not in counted(*RUN, "--counters", "quick").stderr
    assert records(counted)[0]["median_ns"]


@pytest.mark.parametrize(
    ("mode", "status", "named"),
    [("nothing", 0, "no counters of matmul_64x64x64"), ("permission", 3, "ERR_NVGPUCTRPERM")],
)
def test_where_no_counters_are_had_the_results_are_kept(
    counted, no_launch, monkeypatch, mode, status, named
):
    monkeypatch.setenv("FAKE_NCU", mode)
    ended = counted(*RUN, "--counters")
    assert ended.status == status and named in ended.stderr
    assert ("The same command continues" in ended.stderr) == (status == 3)
    assert records(counted)[0]["outcome"] == "ok"


def test_what_cannot_be_collected_is_refused_before_anything_runs(
    counted, cli, monkeypatch, tmp_path
):
    monkeypatch.setattr("gemmetry.counters.collector.find_profiler", lambda name: None)
    ended = counted(*RUN, "--counters")
    assert ended.status == 3 and "ncu is not installed" in ended.stderr
    monkeypatch.setattr(counting, "TOOLS", {TargetKind.CUDA: "ncu"})
    ended = cli(*RUN, "--counters")
    assert ended.status == 2 and "NVIDIA or AMD GPU" in ended.stderr
    assert cli(*RUN, "--counters", "everything").status == 2
    assert not (tmp_path / "out").exists()
