"""Invalid requests to record, and folders that cannot store recordings."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from gemmetry.formats.kineto import read_kineto

pytest.importorskip("torch")

SCHEDULE = ("--wait-steps", "0", "--warmup-iterations", "1", "--repeat-count", "2")
GRID = ("trace", "record", "--device", "cpu", "--experiment", "e", "--precisions", "fp32,int8",
        "--layouts", "tt,nt", "--format", "none", *SCHEDULE)  # fmt: skip
PATIENCE_S = 300.0
PRODUCTS = ("aten::mm", "aten::bmm", "aten::_int_mm")


def manifest(folder=Path("e")):
    text = (folder / "traces_matmul" / "manifest.json").read_text()
    return {one["dispatch"]: one for one in json.loads(text)["configurations"]}


def folders():
    return sorted(path.name for path in Path("e/traces_matmul").glob("config_*"))


@pytest.fixture(scope="module")
def grid(run_in, tmp_path_factory):
    """A recorded grid: its folder, and what the command printed."""
    folder = tmp_path_factory.mktemp("grid")
    return folder, run_in(folder, *GRID, "--matrix-sizes", "32", "--batch-sizes", "1,2", "--json",
                          status=0)  # fmt: skip


def test_a_grid_is_recorded_and_what_the_device_cannot_do_is_a_row(grid, monkeypatch):
    monkeypatch.chdir(grid[0])
    records = json.loads(grid[1].stdout)["records"]
    assert [r["outcome"] for r in records] == ["ok"] * 6 + ["unsupported"] * 2
    assert folders() == [f"config_000{number}" for number in range(1, 7)]
    for record, entry in zip(records, manifest().values(), strict=True):
        assert (entry["dispatch"], entry["outcome"]) == (record["dispatch"], record["outcome"])
        assert entry["record"]["reason"] == record["reason"]
        if record["outcome"] != "ok":
            assert "matmul only" in record["reason"]
            assert record["trace_folder"] is None
            continue
        folder = Path("e") / record["trace_folder"]
        assert sorted(path.name for path in folder.iterdir()) == sorted(record["trace_files"])
        assert entry["input_sha256"] == dict(x.split(":") for x in record["input_sha256"])
        operators = 0
        for path in folder.glob("*.pt.trace.json"):
            with path.open("rb") as file:
                rows = read_kineto(file)
            assert rows is not None
            operators += len(rows.operators.name)
        assert operators == record["trace_operators"] > 0
        chakra = json.loads((folder / "CPU_trace.json").read_text())
        assert chakra["schema"]
        assert any(node["name"] in PRODUCTS for node in chakra["nodes"])
        assert record["trace_kernels"] == 0
        assert record["verification"] == "passed"


def test_the_same_bits_in_two_runs(cli):
    runs = []
    for seed in ((), (), ("--random-seed", "43")):
        cli(*GRID, "--matrix-sizes", "129", "--fresh", *seed, status=0)
        runs.append(manifest())
    first, second, other = runs
    assert len(first) == 4
    for name, entry in first.items():
        for key in ("number", "input_sha256", "output_sha256"):
            assert second[name][key] == entry[key], name
        assert other[name]["input_sha256"] != entry["input_sha256"]
    assert len({entry["output_sha256"] for entry in first.values()}) > 1


def finished() -> int:
    if not Path("e/journal.sqlite").exists():
        return 0
    with closing(sqlite3.connect("file:e/journal.sqlite?mode=ro", uri=True)) as journal:
        return int(journal.execute("SELECT count(*) FROM records").fetchone()[0])


def test_a_killed_run_continues_where_it_was(cli):
    command = (*GRID, "--matrix-sizes", "16,24,32,40,48")
    process = subprocess.Popen(
        [sys.executable, "-m", "gemmetry", *command],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + PATIENCE_S
    while (done := finished()) < 2:
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = finished()
    assert done <= kept < 20
    started = {name: entry["number"] for name, entry in manifest().items()}
    assert len(started) == 20, "numbers are given before the first is recorded"
    assert f"{kept} from an earlier run are kept" in cli(*command, status=0).stderr
    entries = manifest()
    assert {name: entry["number"] for name, entry in entries.items()} == started
    assert all(entry["outcome"] == "ok" and entry["output_sha256"] for entry in entries.values())
    assert folders() == [f"config_{number:04d}" for number in range(1, 21)]


def test_the_suggested_command_reports_what_was_recorded(grid, cli, monkeypatch):
    monkeypatch.chdir(grid[0])
    reported = "gemmetry trace report e -o report.html"
    assert reported in grid[1].stderr
    assert not Path("e/report.html").exists()  # Of speeds, of which there are none.
    cli(*reported.split()[1:], "-o", "report.json", status=0)
    rows = json.loads(Path("report.json").read_text())["sheets"]["host_operators"]
    products = [row for row in rows if row["m"] is not None]
    # Six configurations with two repeats; one call of the innermost product in each.
    assert len(products) == 12
    assert {(row["name"], row["dtype"], row["layout"], row["count"]) for row in products} == {
        (name, dtype, layout, 1)
        for name, dtype in (("aten::mm", "f32"), ("aten::bmm", "f32"), ("aten::_int_mm", "s8"))
        for layout in ("tt", "nt")
    }


RECORD = ("trace", "record", "--device", "cpu", "--precisions", "fp32", "--layouts", "tt",
          "--repeat-count", "1", "--format", "none")  # fmt: skip


@pytest.mark.parametrize(
    ("words", "outcome", "stage", "reason"),
    [
        (("--matrix-sizes", "64", "--warmup-iterations", "100000",  # seconds, on any machine
          "--set", "deadlines.trace=0.001"), "timeout", "trace", "tracing"),
        (("--matrix-sizes", "1000000000"), "out_of_memory", "verify", "inputs and result of"),
    ],
)  # fmt: skip
def test_a_recording_that_fails_is_a_row_with_the_reason(cli, words, outcome, stage, reason):
    (record,) = cli.json(*RECORD, *words, "--experiment", "e", status=1)["records"]
    assert (record["outcome"], record["stage"]) == (outcome, stage)
    assert reason in record["reason"]
    assert folders() == []
    (entry,) = manifest().values()
    assert (entry["outcome"], entry["files"]) == (outcome, [])


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 260 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=260k", "none", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a small file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_fills_up_ends_the_recording_and_the_same_command_continues(cli, small_disk):
    command = [*RECORD, "--matrix-sizes", "16,32,48,64,80,96", "--experiment"]
    ended = cli(*command, small_disk / "e", status=3)
    assert os.strerror(errno.ENOSPC) in ended.stderr
    assert "Traceback" not in ended.stderr
    shutil.copytree(small_disk / "e", "e")
    cli(*command, "e", status=0)
    traces = list(Path("e").rglob("*.pt.trace.json"))
    assert len(traces) == 6
    for path in traces:
        json.loads(path.read_bytes())
