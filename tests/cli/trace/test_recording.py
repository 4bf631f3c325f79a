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
    return json.loads((folder / "traces_matmul" / "manifest.json").read_text())


def by_dispatch(folder=Path("e")):
    return {one["dispatch"]: one for one in manifest(folder)["configurations"]}


def folders():
    return sorted(path.name for path in Path("e/traces_matmul").glob("config_*"))


def test_a_grid_is_recorded_and_what_the_device_cannot_do_is_a_row(cli):
    ended = cli(*GRID, "--matrix-sizes", "32", "--batch-sizes", "1,2", "--json")
    assert ended.status == 0
    records = json.loads(ended.stdout)["records"]
    assert [r["outcome"] for r in records] == ["ok"] * 4 + ["ok", "ok"] + ["unsupported"] * 2
    assert folders() == [f"config_000{number}" for number in range(1, 7)]
    for record, entry in zip(records, manifest()["configurations"], strict=True):
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
    assert cli(*GRID, "--matrix-sizes", "48x32x80,129").status == 0
    first = by_dispatch()
    assert cli(*GRID, "--matrix-sizes", "48x32x80,129", "--fresh").status == 0
    second = by_dispatch()
    assert len(first) == 8
    for name, entry in first.items():
        for key in ("number", "input_sha256", "output_sha256"):
            assert second[name][key] == entry[key], name
    assert len({entry["output_sha256"] for entry in first.values()}) > 4
    other = cli(*GRID, "--matrix-sizes", "48x32x80,129", "--fresh", "--random-seed", "43")
    assert other.status == 0
    for name, entry in by_dispatch().items():
        assert entry["input_sha256"] != first[name]["input_sha256"]


def test_the_repeats_of_a_grid_may_become_more(cli):
    """REPEAT_COUNT is 5 at first and 30 later: recordings and their numbers stay."""
    small = [word for word in GRID if word != "fp32,int8"]
    small.insert(small.index("--precisions") + 1, "fp32")
    assert cli(*small, "--matrix-sizes", "16").status == 0
    before = by_dispatch()
    times = {path: path.stat().st_mtime_ns for path in Path("e/traces_matmul").rglob("config*/*")}
    assert len(times) == 6
    grown = cli(*small, "--matrix-sizes", "16,24", "--repeat-count", "4", "--json")
    assert grown.status == 0, grown.stderr
    assert all(path.stat().st_mtime_ns == time_ns for path, time_ns in times.items())
    after = by_dispatch()
    assert len(after) == 4
    for entry in after.values():
        assert entry["schedule"]["repeats"] == 4
        assert len(entry["files"]) == 5
        folder = Path("e") / entry["folder"]
        assert sorted(path.name for path in folder.iterdir()) == sorted(entry["files"])
    for name, entry in before.items():
        for key in ("number", "input_sha256", "output_sha256"):
            assert after[name][key] == entry[key]
        assert after[name]["operators"] == 2 * entry["operators"]
    fewer = cli(*small, "--matrix-sizes", "16,24")
    assert fewer.status == 2
    assert "trace.repeats (4, now 2)" in fewer.stderr


def finished(folder: Path) -> int:
    if not (folder / "journal.sqlite").exists():
        return 0
    connection = sqlite3.connect(f"file:{folder / 'journal.sqlite'}?mode=ro", uri=True)
    try:
        return int(connection.execute("SELECT count(*) FROM records").fetchone()[0])
    finally:
        connection.close()


def test_a_killed_run_continues_where_it_was(cli):
    command = (*GRID, "--matrix-sizes", "16,24,32,40,48,56,64,72")
    process = subprocess.Popen(
        [sys.executable, "-m", "gemmetry", *command],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + PATIENCE_S
    while (done := finished(Path("e"))) < 3:
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = finished(Path("e"))
    assert done <= kept < 32
    started = {one["dispatch"]: one["number"] for one in manifest()["configurations"]}
    assert len(started) == 32, "numbers are given before the first is recorded"
    ended = cli(*command)
    assert ended.status == 0
    assert f"{kept} from an earlier run are kept" in ended.stderr
    entries = by_dispatch()
    assert {name: entry["number"] for name, entry in entries.items()} == started
    assert all(entry["outcome"] == "ok" and entry["output_sha256"] for entry in entries.values())
    assert folders() == [f"config_{number:04d}" for number in range(1, 33)]


def test_a_spec_file_says_the_same_as_the_options(cli):
    Path("grid.yaml").write_text(
        "MATRIX_SIZES: [[16, 16, 16], [32, 16, 16]]\nENABLE_SIZE_SEARCH: false\n"
        "PRECISIONS: [fp32, bf16]\nENABLE_PRECISION_SEARCH: true\n"
        "ENABLE_LAYOUT_SEARCH: false\nREPEAT_COUNT: 3\nWAIT_STEPS: 0\nACTIVE_STEPS: 2\n"
        "device: cpu\n"
    )
    from_file = cli("trace", "record", "--spec", "grid.yaml", "--dry-run", "--json")
    options = cli("trace", "record", "--matrix-sizes", "16x16x16,32x16x16",
                  "--no-enable-size-search", "--precisions", "fp32,bf16",
                  "--enable-precision-search", "--no-enable-layout-search", "--repeat-count", "3",
                  "--wait-steps", "0", "--active-steps", "2", "--device", "cpu", "--dry-run",
                  "--json")  # fmt: skip
    reported, same = json.loads(from_file.stdout), json.loads(options.stdout)
    assert reported["plan"] == same["plan"]
    assert reported["dispatches"] == 2
    assert reported["plan"]["trace"]["repeats"] == 3
    assert reported["plan"]["trace"]["active_steps"] == 2


def test_the_suggested_command_reports_what_was_recorded(cli):
    ended = cli(*GRID, "--matrix-sizes", "16")
    reported = "gemmetry trace report e -o report.html"
    assert reported in ended.stderr
    assert not Path("e/report.html").exists()  # Of speeds, of which there are none.
    ended = cli(*reported.split()[1:], "-o", "report.json")
    assert ended.status == 0
    rows = json.loads(Path("report.json").read_text())["sheets"]["host_operators"]
    products = [row for row in rows if row["m"] is not None]
    # Four configurations with two repeats; one call of the innermost product in each.
    assert len(products) == 8
    assert {(row["name"], row["dtype"], row["layout"], row["count"]) for row in products} == {
        ("aten::mm", "f32", "tt", 1), ("aten::mm", "f32", "nt", 1),
        ("aten::_int_mm", "s8", "tt", 1), ("aten::_int_mm", "s8", "nt", 1)}  # fmt: skip


RECORD = ("trace", "record", "--device", "cpu", "--precisions", "fp32", "--layouts", "tt",
          "--repeat-count", "1", "--format", "none")  # fmt: skip
SMALL = ("--matrix-sizes", "16")


@pytest.mark.parametrize(
    ("words", "outcome", "stage", "reason"),
    [
        ((*SMALL, "--set", "deadlines.trace=0.001"), "timeout", "trace", "tracing"),
        (("--matrix-sizes", "1000000000"), "out_of_memory", "verify", "inputs and result of"),
    ],
)
def test_a_recording_that_fails_is_a_row_with_the_reason(cli, words, outcome, stage, reason):
    ended = cli(*RECORD, *words, "--experiment", "e", "--json")
    assert ended.status == 1
    (record,) = json.loads(ended.stdout)["records"]
    assert (record["outcome"], record["stage"]) == (outcome, stage)
    assert reason in record["reason"]
    assert folders() == []
    (entry,) = manifest()["configurations"]
    assert (entry["outcome"], entry["files"]) == (outcome, [])


def test_a_manifest_that_names_folders_elsewhere_removes_nothing_there(cli):
    """The manifest's numbers are trusted, its folders are not."""
    Path("precious").mkdir()
    Path("precious/file").write_text("mine")
    Path("e/traces_matmul").mkdir(parents=True)
    dispatch = "matmul_1000000000x1000000000x1000000000_f32t_f32t_f32t_default"
    entry = {"number": 1, "folder": "../precious", "device": "cpu", "provider": "torch",
             "dispatch": dispatch}  # fmt: skip
    manifest = Path("e/traces_matmul/manifest.json")
    manifest.write_text(json.dumps({"schema_version": 1, "configurations": [entry]}))
    cli(*RECORD, "--matrix-sizes", "1000000000", "--experiment", "e")
    assert Path("precious/file").read_text() == "mine"


def test_a_disk_that_fills_up_ends_the_recording_and_the_same_command_continues(cli, tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=260k", "none", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a small file system")
    try:
        command = [*RECORD, "--matrix-sizes", "16,32,48,64,80,96", "--experiment"]
        ended = cli(*command, str(place / "e"))
        assert ended.status == 3, ended.stderr
        assert os.strerror(errno.ENOSPC) in ended.stderr
        assert "Traceback" not in ended.stderr
        shutil.copytree(place / "e", tmp_path / "e")
    finally:
        subprocess.run(["umount", str(place)], check=True)
    ended = cli(*command, str(tmp_path / "e"))
    assert ended.status == 0, ended.stderr
    traces = list((tmp_path / "e").rglob("*.pt.trace.json"))
    assert len(traces) == 6
    for path in traces:
        json.loads(path.read_bytes())
