"""The file of NCCL's example tuner plugin, read back by the plugin's rules."""

from __future__ import annotations

import pytest

from gemmetry.formats.nccl import ALGORITHMS, COLLECTIVES, PROTOCOLS, TunerLine, tuner_config

LINE = TunerLine(
    operation="all_gather", min_bytes=1000, max_bytes=4000, algorithm="ring", protocol="simple",
    channels=16, nodes=1, ranks=8,
)  # fmt: skip


def parsed(text):
    """As the plugin parses it: buffers of 256 characters, comments from the first character, fields
    by commas."""
    found = []
    for line in text.split("\n"):
        for start in range(0, max(len(line), 1), 255):
            piece = line[start : start + 255]
            if piece and not piece.startswith("#"):
                found.append([field.strip() for field in piece.split(",")])
    return found


def test_the_plugin_reads_the_settings_alone():
    assert LINE.text == "allgather,1000,4000,ring,simple,16,1,8,-1,-1"
    long = "a comment, with commas " * 40
    text = tuner_config(long, [(long, LINE), ("no setting\nat all", None)])
    assert parsed(text) == [LINE.text.split(",")]
    assert max(map(len, text.split("\n"))) < 255
    assert text.endswith("\n")


@pytest.mark.parametrize("word", ["x" * 600, "a,b,c\nd,e,f"])
def test_no_comment_becomes_a_setting(word):
    assert parsed(tuner_config(word, [(word, None)])) == []


def test_names_are_those_of_the_plugin():
    assert set(COLLECTIVES.values()) == {
        "broadcast", "reduce", "allgather", "reducescatter", "allreduce",
    }  # fmt: skip
    assert set(PROTOCOLS) == {"ll", "ll128", "simple"}
    assert len(ALGORITHMS) == 7
