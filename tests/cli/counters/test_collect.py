from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from gemmetry.hardware.detect import GpuFacts, GpuList
from gemmetry.hardware.doctor import Profiler

H200 = GpuFacts(kind="cuda", index=0, name="NVIDIA H200", architecture="sm_90")
MI300X = GpuFacts(kind="hip", index=0, name="AMD Instinct MI300X", architecture="gfx942")


@pytest.fixture
def nvidia(monkeypatch, with_ncu):
    """A machine with an H200 and the stand-in for ncu."""
    _gpus(monkeypatch, nvidia=(H200,))


def _gpus(monkeypatch, *, nvidia=(), amd=()):
    module = "gemmetry.counters.collector"
    monkeypatch.setattr(f"{module}.nvidia_gpus", lambda: GpuList(nvidia))
    monkeypatch.setattr(f"{module}.amd_gpus", lambda: GpuList(amd))


@pytest.fixture
def collect(cli):
    """Collects into the folder ``out``."""
    return type(cli)(lambda *words: cli("counters", "collect", "-o", "out", *words))


def described():
    return json.loads(Path("out/counters.json").read_text())


def test_a_command_is_profiled_and_described(collect, nvidia):
    ended = collect("-s", "3", "--", "echo", "hello", "--json", status=0)
    assert ended.stdout.splitlines()[0] == "collected 2 launches, 38 passes each"
    assert Path("out/counters.application.log").read_text() == "hello --json\n"
    assert "gpu__time_duration.sum" in Path("out/counters.csv").read_text()
    record = described()
    assert (record["tool_version"], record["chip"]) == ("2025.3.1.0", "GH100")
    assert (record["clock_control"], record["cache_control"]) == ("none", "all")
    assert (record["launch_skip"], record["launches"], record["passes"]) == (3, 2, 38)
    assert record["command"] == ["echo", "hello", "--json"]
    assert "--clock-control" in record["argv"]


def test_the_description_and_the_counters_are_printed_on_request(cli, nvidia):
    ended = cli("counters", "collect", "-o", "x.ncu-rep", "--json", "--", "echo")
    assert json.loads(ended.stdout)["launches"] == 2
    assert Path("x.ncu-rep").exists() and Path("x.csv").exists()
    # The command may follow at once.
    ended = cli(
        "counters", "collect", "-o", "out", "--csv", "echo", "--csv", "--set", "x", status=0
    )
    assert ended.stdout == Path("out/counters.csv").read_text()
    assert Path("out/counters.application.log").read_text() == "--csv --set x\n"


def test_an_earlier_collection_is_replaced_only_on_request(collect, nvidia):
    Path("out").mkdir()
    Path("out/counters.csv").write_text("precious")
    assert "counters.csv exists" in collect("--", "echo", status=2).stderr
    assert Path("out/counters.csv").read_text() == "precious"
    collect("--force", "--", "echo", status=0)


@pytest.mark.parametrize("wording", ["known", "other"])
@pytest.mark.parametrize(
    ("mode", "status"), [("permission", 3), ("busy", 3), ("nothing", 2), ("error", 3)]
)
def test_failures_are_explained_with_any_wording(
    collect, nvidia, monkeypatch, mode, status, wording
):
    monkeypatch.setenv("FAKE_NCU", mode)
    monkeypatch.setenv("FAKE_NCU_WORDING", wording)
    ended = collect("--", "echo", "done", status=status)
    assert "hint:" in ended.stderr and "Traceback" not in ended.stderr
    assert described()["problem"] and described()["launches"] is None


def test_what_was_collected_before_the_command_failed_is_kept(collect, nvidia):
    ended = collect("--", sys.executable, "-c", "import sys; sys.exit('no more batches')", status=0)
    assert "ended with status 1: no more batches" in ended.stderr
    assert Path("out/counters.ncu-rep").exists()


def test_a_report_that_cannot_be_printed_is_kept_and_that_is_noted(collect, nvidia, monkeypatch):
    monkeypatch.setenv("FAKE_NCU", "no_export")
    assert "could not print out/counters.ncu-rep" in collect("--", "echo", status=0).stderr
    assert Path("out/counters.ncu-rep").exists() and not Path("out/counters.csv").exists()
    assert "could not print" in described()["notes"][-1]


def test_an_older_version_without_some_sections_is_used(collect, nvidia, monkeypatch):
    monkeypatch.setenv("FAKE_NCU", "old")
    ended = collect("--", "echo", status=0)
    assert "has no section SpeedOfLight_HierarchicalTensorRooflineChart" in ended.stderr
    assert "older than 2022.3, the first for sm_90" in ended.stderr


@pytest.fixture
def no_profiler(monkeypatch):
    monkeypatch.setattr("gemmetry.counters.collector.find_profiler", lambda name: None)


def test_a_missing_program_is_named(collect, nvidia):
    assert "no program 'no-such-program'" in collect("--", "no-such-program", status=2).stderr
    collect(status=2)


def test_a_missing_tool_is_named(collect, nvidia, no_profiler):
    assert "ncu is not installed" in collect("--", "echo", status=3).stderr


@pytest.mark.parametrize("tool", ["ncu", "rocprofv3"])
def test_a_dry_run_needs_no_profiler_and_writes_nothing(collect, monkeypatch, no_profiler, tool):
    _gpus(monkeypatch)
    words = ("--dry-run", "--tool", tool, *(["-k", "a b"] if tool == "ncu" else []))
    ended = collect(*words, "--", "echo", "x y", status=0)
    command = ended.stdout.splitlines()[-1]
    assert command.startswith(f"{tool} -") and command.endswith(" echo 'x y'")
    assert ("--kernel-name 'regex:a b'" in command) == (tool == "ncu")
    assert f"note: {tool} is not installed" in ended.stderr
    assert not Path("out").exists()


def test_on_amd_the_command_runs_once_per_pass(collect, monkeypatch, with_rocprofv3):
    _gpus(monkeypatch, amd=(MI300X,))
    monkeypatch.setattr(
        "gemmetry.counters.collector.find_profiler",
        lambda name: Profiler(name, str(with_rocprofv3), "1.0.0"),
    )

    def tables():
        return {path.name for path in Path("out").rglob("*counter_collection.csv")}

    ended = collect("--set", "quick", "--", "echo", "ran", status=0)
    record = described()
    assert (record["tool"], record["chip"]) == ("rocprofv3", "gfx942")
    assert "rocprofv3 runs the command 1 time, once per pass" in ended.stderr
    assert record["launches"] > 0
    log = Path("out/counters.application.log").read_text()
    assert log.count("ran") == record["passes"] >= 1
    before = tables()
    collect("--set", "quick", "--", "echo", status=2)
    collect("--set", "quick", "--force", "--", "echo", status=0)
    assert len(tables()) == len(before) > 0 and not tables() & before
    refused = collect("--force", "--nvtx", "step", "--", "echo", status=2)
    assert "rocprofv3 has no option --nvtx" in refused.stderr
