"""The commands of ``benchmarks/block_scaled/campaign.sh``, as far as they go without a GPU."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gemmetry.cli.main import run
from gemmetry.domain.names import parse_operation
from gemmetry.domain.target import parse_target
from gemmetry.providers.registry import load_provider

ROOT = Path(__file__).parents[3]
COUNTERS = ROOT / "tests/data/counters/h200_cublas_bf16_4096_raw.csv.gz"


@pytest.fixture(scope="module")
def commands() -> list[list[str]]:
    """What the campaign would run, without ``python -m gemmetry``."""
    done = subprocess.run(
        ["sh", "benchmarks/block_scaled/campaign.sh", "results"],
        cwd=ROOT, env={**os.environ, "DRY_RUN": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = [line.split() for line in done.stdout.splitlines()]
    assert not (ROOT / "results").exists()
    return [words[3:] for words in lines if words[1:3] == ["-m", "gemmetry"]]


def test_the_profiles_are_planned(commands, capsys, monkeypatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.chdir(ROOT)
    tiles, formats = (words for words in commands if words[0] == "profile")
    assert tiles.pop(tiles.index("--counters"))
    for words, planned in ((tiles, "2 dispatches of 1 operation"), (formats, "of 8 operations")):
        here = ["cuda-sm_90" if word == "cuda:0" else word for word in words]
        assert run([*here, "--dry-run"]) == 0
        assert planned in capsys.readouterr().out


def test_each_tile_is_launched_often_enough_for_an_interval(commands) -> None:
    pytest.importorskip("triton")
    found = [words for words in commands if words[:2] == ["counters", "collect"]]
    assert len(found) == 2
    for words in found:
        script, option, launches, product = words[words.index("--") + 2 :]
        assert (ROOT / script).exists()
        assert (option, int(launches)) == ("--launches", 6)
        provider, operation, configuration = product.split(":")
        assert load_provider(provider).parse_configuration(
            configuration, parse_operation(operation), parse_target("cuda-sm_90")
        )


def test_the_reports_are_compared_and_diagnosed(commands, capsys, tmp_path) -> None:
    compare, diagnose = commands[3:5]
    page = tmp_path / "compare.html"
    for words in (compare, diagnose):
        given = {".csv": str(COUNTERS), ".html": str(page)}
        assert run([given.get(Path(word).suffix, word) for word in words]) == 0
    assert "TMA efficiency" in capsys.readouterr().out
    assert page.exists()
