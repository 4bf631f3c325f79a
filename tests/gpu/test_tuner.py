"""``gemmetry tune`` on a GPU: Triton's whole space, with torch as the baseline."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from gemmetry.cli.main import run
from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.engine.experiment import Experiment
from gemmetry.tuning.simulation import median_of

pytestmark = pytest.mark.gpu


def test_a_search_of_tritons_tiles(gpu: Target, tmp_path: Path, capsys) -> None:
    if gpu.kind is not TargetKind.CUDA or importlib.util.find_spec("triton") is None:
        pytest.skip("needs triton and a GPU of NVIDIA")
    command = [
        "tune", "--provider", "triton", "--device", gpu.device, "--shapes", "512x512x1024",
        "--dtypes", "bf16", "--layouts", "tn", "--evaluations", "6", "--finalists", "2",
        "--time-budget", "200ms", "--experiment", str(tmp_path / "t"), "--json",
        "-o", f"{tmp_path / 'table.json'},{tmp_path / 'configs.py'},{tmp_path / 'tunableop.csv'}",
    ]  # fmt: skip
    assert run(command) == 0
    (winner, *_) = json.loads(capsys.readouterr().out)["winners"]
    assert winner["tried"] == 6
    assert winner["baseline"] == "torch:default"
    assert winner["speed_low"] is None or winner["speed_low"] <= winner["speed_high"]
    with Experiment.open(tmp_path / "t") as finals:
        (best,) = [r for r in finals.records() if r.configuration == winner["configuration"]]
        assert best.verdict.checks["tail_shapes"] == "passed"
        assert median_of(best) == winner["median_ns"]
    table = json.loads((tmp_path / "table.json").read_text())
    assert table["entries"][0]["shape"] == [512, 512, 1024]
    assert "triton.Config(" in (tmp_path / "configs.py").read_text()
    from torch.cuda import tunable

    assert tunable.read_file(str(tmp_path / "tunableop.csv"))
