from __future__ import annotations

import json
import sys

import pytest

from gemmetry.hardware.detect import GpuFacts, GpuList
from gemmetry.hardware.doctor import Profiler

H200 = GpuFacts(kind="cuda", index=0, name="NVIDIA H200", architecture="sm_90")
MI300X = GpuFacts(kind="hip", index=0, name="AMD Instinct MI300X", architecture="gfx942")


@pytest.fixture
def nvidia(tmp_path, monkeypatch, with_ncu):
    """A machine with an H200 and the stand-in for ncu."""
    _gpus(monkeypatch, nvidia=(H200,))
    return tmp_path


def _gpus(monkeypatch, *, nvidia=(), amd=()):
    module = "gemmetry.counters.collector"
    monkeypatch.setattr(f"{module}.nvidia_gpus", lambda: GpuList(nvidia))
    monkeypatch.setattr(f"{module}.amd_gpus", lambda: GpuList(amd))


def test_a_command_is_profiled_and_described(cli, nvidia):
    ended = cli("counters", "collect", "-o", "out", "-s", "3", "--", "echo", "hello", "--json")
    assert (ended.status, ended.stdout.splitlines()[0]) == (
        0,
        "collected 2 launches, 38 passes each",
    )
    out = nvidia / "out"
    assert (out / "counters.application.log").read_text() == "hello --json\n"
    assert "gpu__time_duration.sum" in (out / "counters.csv").read_text()
    record = json.loads((out / "counters.json").read_text())
    assert (record["tool_version"], record["chip"]) == ("2025.3.1.0", "GH100")
    assert (record["clock_control"], record["cache_control"]) == ("none", "all")
    assert (record["launch_skip"], record["launches"], record["passes"]) == (3, 2, 38)
    assert record["command"] == ["echo", "hello", "--json"]
    assert "--clock-control" in record["argv"]


def test_the_description_is_printed_as_json(cli, nvidia):
    ended = cli("counters", "collect", "-o", "x.ncu-rep", "--json", "--", "echo")
    assert json.loads(ended.stdout)["launches"] == 2
    assert (nvidia / "x.ncu-rep").exists() and (nvidia / "x.csv").exists()


def test_the_counters_are_printed_as_csv_and_the_command_may_follow_at_once(cli, nvidia):
    ended = cli("counters", "collect", "-o", "out", "--csv", "echo", "--csv", "--set", "x",
                status=0)  # fmt: skip
    assert ended.stdout == (nvidia / "out" / "counters.csv").read_text()
    assert (nvidia / "out" / "counters.application.log").read_text() == "--csv --set x\n"


def test_an_earlier_collection_is_replaced_only_on_request(cli, nvidia):
    (nvidia / "out").mkdir()
    (nvidia / "out/counters.csv").write_text("precious")
    ended = cli("counters", "collect", "-o", "out", "--", "echo")
    assert ended.status == 2 and "counters.csv exists" in ended.stderr
    assert (nvidia / "out/counters.csv").read_text() == "precious"
    assert cli("counters", "collect", "-o", "out", "--force", "--", "echo").status == 0


def test_a_dry_run_prints_the_command_and_writes_nothing(cli, nvidia):
    ended = cli("counters", "collect", "-o", "out", "-k", "a b", "--dry-run", "--", "echo", "x y")
    (line,) = ended.stdout.splitlines()
    assert line.endswith("-f -o out/counters echo 'x y'")
    assert "--kernel-name 'regex:a b'" in line
    assert not (nvidia / "out").exists()


@pytest.mark.parametrize("wording", ["known", "other"])
@pytest.mark.parametrize(
    ("mode", "status"), [("permission", 3), ("busy", 3), ("nothing", 2), ("error", 3)]
)
def test_failures_are_explained_with_any_wording(cli, nvidia, monkeypatch, mode, status, wording):
    monkeypatch.setenv("FAKE_NCU", mode)
    monkeypatch.setenv("FAKE_NCU_WORDING", wording)
    ended = cli("counters", "collect", "-o", "out", "--", "echo", "done", status=status)
    assert "hint:" in ended.stderr and "Traceback" not in ended.stderr
    record = json.loads((nvidia / "out/counters.json").read_text())
    assert record["problem"] and record["launches"] is None


def test_what_was_collected_before_the_command_failed_is_kept(cli, nvidia):
    command = ("-c", "import sys; sys.exit('no more batches')")
    ended = cli("counters", "collect", "-o", "out", "--", sys.executable, *command, status=0)
    assert "ended with status 1: no more batches" in ended.stderr
    assert (nvidia / "out/counters.ncu-rep").exists()


def test_a_report_that_cannot_be_printed_is_kept_and_that_is_noted(cli, nvidia, monkeypatch):
    monkeypatch.setenv("FAKE_NCU", "no_export")
    ended = cli("counters", "collect", "-o", "out", "--", "echo")
    assert ended.status == 0 and "could not print out/counters.ncu-rep" in ended.stderr
    assert (nvidia / "out/counters.ncu-rep").exists()
    assert not (nvidia / "out/counters.csv").exists()
    assert "could not print" in json.loads((nvidia / "out/counters.json").read_text())["notes"][-1]


def test_an_older_version_without_some_sections_is_used(cli, nvidia, monkeypatch):
    monkeypatch.setenv("FAKE_NCU", "old")
    ended = cli("counters", "collect", "-o", "out", "--", "echo", status=0)
    assert "has no section SpeedOfLight_HierarchicalTensorRooflineChart" in ended.stderr
    assert "older than 2022.3, the first for sm_90" in ended.stderr


def test_a_missing_tool_and_a_missing_program_are_named(cli, nvidia, monkeypatch):
    ended = cli("counters", "collect", "--", "no-such-program")
    assert ended.status == 2 and "no program 'no-such-program'" in ended.stderr
    assert cli("counters", "collect").status == 2
    monkeypatch.setattr("gemmetry.counters.collector.find_profiler", lambda name: None)
    ended = cli("counters", "collect", "--", "echo")
    assert ended.status == 3 and "ncu is not installed" in ended.stderr


@pytest.mark.parametrize("tool", ["ncu", "rocprofv3"])
def test_a_dry_run_needs_no_profiler(cli, monkeypatch, tool):
    _gpus(monkeypatch)
    monkeypatch.setattr("gemmetry.counters.collector.find_profiler", lambda name: None)
    ended = cli("counters", "collect", "--dry-run", "--tool", tool, "-o", "out", "--", "echo", "x",
                status=0)  # fmt: skip
    command = ended.stdout.splitlines()[-1]
    assert command.startswith(f"{tool} -") and command.endswith(" echo x")
    assert f"note: {tool} is not installed" in ended.stderr


def test_on_amd_the_command_runs_once_per_pass(cli, tmp_path, monkeypatch, with_rocprofv3):
    _gpus(monkeypatch, amd=(MI300X,))
    monkeypatch.setattr(
        "gemmetry.counters.collector.find_profiler",
        lambda name: Profiler(name, str(with_rocprofv3), "1.0.0"),
    )
    ended = cli("counters", "collect", "-o", "out", "--set", "quick", "--", "echo", "ran", status=0)
    record = json.loads((tmp_path / "out/counters.json").read_text())
    assert (record["tool"], record["chip"]) == ("rocprofv3", "gfx942")
    assert "rocprofv3 runs the command 1 time, once per pass" in ended.stderr
    assert record["launches"] > 0
    log = (tmp_path / "out/counters.application.log").read_text()
    assert log.count("ran") == record["passes"] >= 1
    assert list((tmp_path / "out").rglob("*counter_collection.csv"))
    before = {path.name for path in (tmp_path / "out").rglob("*counter_collection.csv")}
    assert cli("counters", "collect", "-o", "out", "--set", "quick", "--", "echo").status == 2
    again = ("counters", "collect", "-o", "out", "--set", "quick", "--force", "--", "echo")
    assert cli(*again).status == 0
    after = {path.name for path in (tmp_path / "out").rglob("*counter_collection.csv")}
    assert len(after) == len(before) and not after & before
    refused = cli("counters", "collect", "-o", "o2", "--nvtx", "step", "--", "echo")
    assert refused.status == 2 and "rocprofv3 has no option --nvtx" in refused.stderr
