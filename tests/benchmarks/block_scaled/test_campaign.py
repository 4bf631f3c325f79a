"""The commands of ``benchmarks/block_scaled/campaign.sh``, as far as they go without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from gemmetry.cli.main import run
from gemmetry.counters.collector import read_counters
from gemmetry.counters.gates import diagnose
from gemmetry.counters.work import gemm_work
from gemmetry.domain.dispatch import parse_operation, parse_target
from gemmetry.providers.registry import load_provider

ROOT = Path(__file__).parents[3]
TILES = ROOT / "tests/data/counters/block_scaled_h200"
OPERATION = "matmul_8192x8192x1024_e2m1t_e2m1n_f16t_vs16_e8m0"
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
        assert run([*(word.replace("cuda:0", "cuda-sm_90") for word in words), "--dry-run"]) == 0
        assert planned in capsys.readouterr().out


def test_each_tile_is_launched_often_enough_for_an_interval(commands) -> None:
    pytest.importorskip("triton")
    found = [words for words in commands if words[:2] == ["counters", "collect"]]
    assert len(found) == 2
    for words in found:
        script, option, launches, product = words[words.index("--") + 2 :]
        assert (ROOT / script).exists()
        assert (option, int(launches)) == ("--launches", 6)
        provider, name, configuration = product.split(":")
        operation, target = parse_operation(name), parse_target("cuda-sm_90")
        assert load_provider(provider).parse_configuration(configuration, operation, target)


def test_the_reports_are_compared_and_diagnosed(commands, capsys, tmp_path) -> None:
    page = tmp_path / "compare.html"
    assert [words[1] for words in commands[3:6]] == ["compare", "compare", "diagnose"]
    for words in commands[3:6]:
        given = {".csv": str(COUNTERS), ".html": str(page)}
        assert run([given.get(Path(word).suffix, word) for word in words]) == 0
    assert "TMA efficiency" in capsys.readouterr().out
    assert page.exists()


def test_two_tiles_of_the_block_scaled_kernel_on_an_h200(capsys) -> None:
    """It did the product described, in bf16; integer instructions, which widen elements, are the
    nearest limit."""
    reports = [str(TILES / f"{tile}.csv.gz") for tile in ("256x128", "128x128")]
    assert run(["counters", "compare", *reports, "--operation", OPERATION, "--json"]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    assert kernel["matched_by"] == "the same name and work"
    for report in reports:
        found = diagnose(read_counters(Path(report))[0], gemm_work(parse_operation(OPERATION)))
        assert found.verdict.id == "alu_roof"
        checks = {one.quantity: one for one in found.work_check}
        assert checks["operations"].verdict == checks["bytes of results"].verdict == "ok"
        assert checks["operations"].measured == 2 * 8192 * 8192 * 1024
        assert "widened" in checks["operations"].reason
