"""The commands of ``benchmarks/tuner``: the spaces of the GPU, and the whole chain with the null
provider in place of the GPU's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gemmetry.cli.main import run
from gemmetry.tuning.simulation import read_compact

ROOT = Path(__file__).parents[2]
SPEC = """
providers:
  - name: "null"
    options:
      configurations: [wrong, crash, {names}]
shapes: {shapes}
time_budget: 50ms
"""
FACTORS = [f"factor_0p{n}" for n in range(71, 94) if n % 10]


def script(name, results, **variables):
    return subprocess.run(
        ["sh", f"benchmarks/tuner/{name}.sh", str(results)], cwd=ROOT, text=True, check=True,
        env={**os.environ, "PYTHON": sys.executable, **variables}, capture_output=True,
    ).stdout  # fmt: skip


@pytest.mark.parametrize("name", ["campaign", "h200"])
def test_the_header_states_how_many_configurations_there_are(name, monkeypatch, capsys):
    """Ten shapes or more, few enough for the minutes of a GPU; 40 shapes in two formats."""
    pytest.importorskip("triton")
    command = script(name, "results", DRY_RUN="1", DEVICE="cuda-sm_90", PYTHON="echo").split()
    monkeypatch.chdir(ROOT)
    assert run(command[2:]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    sizes = [int(row[1]) for row in rows]
    stated = f"{sum(sizes)} configurations"
    if name == "campaign":
        assert len(rows) == 12
        assert sizes == sorted(sizes)
        assert all(row[1] == row[2] for row in rows)
        stated += " of 12 shapes"
    else:
        assert len(rows) == len({row[0] for row in rows}) == 80
        assert sum("_e4m3t_" in row[0] for row in rows) == 40
    assert stated in (ROOT / f"benchmarks/tuner/{name}.sh").read_text()
    assert not (ROOT / "results").exists()


def test_a_whole_campaign(tmp_path):
    """From the search to the compact file and the table of the strategies."""
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC.format(names=", ".join(FACTORS), shapes="64x64x64"))
    results = tmp_path / "results"
    shown = script("campaign", results, SPEC=str(spec), DEVICE="null", LIMIT="60")
    (measured,) = read_compact(results / "h200_triton.json").measured()
    best = measured.times_ns.index(measured.best_ns)
    assert measured.space.configurations[best].name == "factor_0p71"
    assert measured.times_ns.count(None) == 2
    strategies = {line.split()[0] for line in shown.splitlines() if "%" in line}
    assert strategies == {"model", "exhaustive", "halving", "random"}


def test_the_table_of_tuned_shapes(tmp_path):
    """Also where the time ends before it is written."""
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC.format(names="factor_0p5", shapes="64x64x64, 128x64x32"))
    results = tmp_path / "results"
    shown = script("h200", results, SPEC=str(spec), DEVICE="null")
    assert "the winners' speed is" in shown
    assert "2 faster" in shown
    assert json.loads((results / "table.json").read_text())["target"] == "null"
    assert (results / "winners.md").read_text().count("factor_0p5") == 2

    whole = (results / "table.json").read_text()
    (results / "table.json").unlink()
    shown = script("h200", results, SPEC=str(spec), DEVICE="null", LIMIT="0.01")
    assert "tune ended with status 124" in shown
    assert (results / "table.json").read_text() == whole
