"""Files of NCCL: the inspector's (``test_golden`` has its records) and the example tuner plugin's,
read back by the plugin's rules."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from gemmetry.formats.nccl import (
    ALGORITHMS,
    COLLECTIVES,
    PROTOCOLS,
    TunerLine,
    inspector_files,
    inspector_records,
    is_inspector_file,
    tuner_config,
)

STORED = json.loads((Path(__file__).parents[1] / "data/read/inspector.json").read_text())
RECORDS = STORED[0]["files"]["node1-pid12.log"]


def test_compressed_and_cut(tmp_path):
    path, problems = tmp_path / "node1-pid12.log.gz", []
    path.write_bytes(gzip.compress(RECORDS.encode() * 100))
    assert len(list(inspector_records(path, problems))) == 200
    assert problems == []
    path.write_bytes(path.read_bytes()[:-20])
    assert list(inspector_records(path, problems)) and problems


def test_files_are_found_by_name(tmp_path):
    (tmp_path / "deep").mkdir()
    good = {tmp_path / "node1-pid12.log", tmp_path / "deep" / "node2-pid9.log"}
    for path in (*good, tmp_path / "other.log"):
        path.write_text(RECORDS)
    (tmp_path / "train-pid3.log").write_text("epoch 1\n")
    (tmp_path / "empty-pid3.log").write_text("")
    found = set(inspector_files(tmp_path))
    assert found >= good
    assert {path for path in found if is_inspector_file(path)} == good


LINE = TunerLine(
    operation="all_gather", min_bytes=1000, max_bytes=4000, algorithm="ring", protocol="simple",
    channels=16, nodes=1, ranks=8,
)  # fmt: skip


def parsed(text):
    """Entries as the plugin parses them: buffers of 256 characters, comments from the first
    character, fields by commas."""
    pieces = [
        line[start : start + 255]
        for line in text.split("\n")
        for start in range(0, max(len(line), 1), 255)
    ]
    return [
        [field.strip() for field in piece.split(",")]
        for piece in pieces
        if piece and not piece.startswith("#")
    ]


@pytest.mark.parametrize("word", ["a comment, with commas " * 40, "x" * 600, "a,b,c\nd,e,f"])
def test_the_plugin_reads_the_settings_alone(word):
    assert LINE.text == "allgather,1000,4000,ring,simple,16,1,8,-1,-1"
    text = tuner_config(word, [(word, LINE), (f"{word}\nno setting\nat all", None)])
    assert parsed(text) == [LINE.text.split(",")]
    assert max(map(len, text.split("\n"))) < 255
    assert text.endswith("\n")


def test_names_are_those_of_the_plugin():
    assert set(COLLECTIVES.values()) == {
        "broadcast", "reduce", "allgather", "reducescatter", "allreduce",
    }  # fmt: skip
    assert set(PROTOCOLS) == {"ll", "ll128", "simple"}
    assert len(ALGORITHMS) == 7
