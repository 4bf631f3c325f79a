"""Invalid requests to record, and folders that cannot store recordings."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("torch")

RECORD = ("trace", "record", "--device", "cpu", "--precisions", "fp32", "--layouts", "tt",
          "--repeat-count", "1", "--format", "none")  # fmt: skip
SMALL = ("--matrix-sizes", "16")


def test_a_product_too_large_for_any_memory_is_a_row_with_the_reason(cli):
    ended = cli(*RECORD, "--matrix-sizes", "1000000000", "--experiment", "e", "--json")
    assert ended.status == 1
    (record,) = json.loads(ended.stdout)["records"]
    assert record["outcome"] == "out_of_memory"
    assert "inputs and result of matmul_1000000000x" in record["reason"]


def test_a_manifest_that_cannot_be_read_is_reported_and_stays(cli):
    assert cli(*RECORD, *SMALL, "--experiment", "e").status == 0
    manifest = Path("e/traces_matmul/manifest.json")
    whole = manifest.read_bytes()
    for content in (b"", whole[:100], b'{"configurations": [{"number": "x"}]}', b"\xff"):
        manifest.write_bytes(content)
        ended = cli(*RECORD, *SMALL, "--experiment", "e")
        assert ended.status == 3
        assert "error: the manifest e/traces_matmul/manifest.json cannot be read: " in ended.stderr
        assert "hint: " in ended.stderr
        assert manifest.read_bytes() == content
    manifest.unlink()
    manifest.mkdir()
    ended = cli(*RECORD, *SMALL, "--experiment", "e")
    assert ended.status == 3
    assert f"manifest.json cannot be read: {os.strerror(errno.EISDIR)}" in ended.stderr
    manifest.rmdir()
    manifest.write_bytes(whole)
    assert cli(*RECORD, *SMALL, "--experiment", "e").status == 0


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
