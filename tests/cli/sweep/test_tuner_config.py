"""``gemmetry sweep tuner-config`` from a folder to the file."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def folder(tmp_path, sweeps):
    """A sweep of two channel counts, each three times."""
    points = [
        sweeps.MadePoint(channels=channels, repeat=repeat, comm_ns=base + 1000 * repeat,
                         steps=1, layers=2)
        for channels, base in ((4, 400_000), (8, 300_000)) for repeat in (1, 2, 3)
    ]  # fmt: skip
    return sweeps.write_sweep(tmp_path / "sweep", points)


def _settings(text):
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_the_file_and_the_screen(cli, folder):
    ended = cli("sweep", "tuner-config", "sweep")
    assert ended.status == 0, ended.stderr
    assert "A best setting is shown for 1 of 1 collective." in ended.stdout
    assert "faster" in ended.stdout
    assert max(map(len, ended.stdout.splitlines())) <= 80
    assert ended.stderr == "wrote nccl_tuner.conf\n"
    text = (folder.parent / "nccl_tuner.conf").read_text()
    (line,) = _settings(text)
    assert line == f"allgather,{1 << 24},{1 << 26},ring,simple,8,-1,2,-1,-1"
    assert "sweep sweep." in text.splitlines()[0]


def test_json(cli, folder):
    ended = cli("sweep", "tuner-config", "sweep", "--json", "-o", "out/x.conf")
    (entry,) = json.loads(ended.stdout)["collectives"]
    assert (entry["op"], entry["channels"], entry["is_set"]) == ("all_gather", 8, True)
    assert _settings((folder.parent / "out" / "x.conf").read_text())


def test_nothing_to_set(cli, folder):
    ended = cli("sweep", "tuner-config", "sweep", "--channels", "8")
    assert ended.status == 1
    assert "every point ran it in the same way" in ended.stdout
    assert _settings((folder.parent / "nccl_tuner.conf").read_text()) == []


def test_a_path_that_cannot_be_written_is_refused_before_anything_is_read(cli, folder):
    (folder.parent / "taken").mkdir()
    ended = cli("sweep", "tuner-config", "sweep", "-o", "taken")
    assert ended.status == 2
    assert "taken" in ended.stderr
