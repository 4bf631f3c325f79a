"""The energy of launches, from the counter of an NVIDIA GPU."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from gemmetry.cli.main import run
from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import EnergyUnavailableError
from gemmetry.hardware.monitors import make_energy_counter

pytestmark = [pytest.mark.gpu, pytest.mark.alone]


@pytest.fixture(autouse=True)
def _counts(gpu: Target) -> None:
    if gpu.kind is not TargetKind.CUDA:
        pytest.skip("only NVIDIA GPUs have this counter")
    try:
        make_energy_counter(gpu)()
    except EnergyUnavailableError as error:
        pytest.skip(str(error))


def test_the_counter_is_updated_often_enough_for_a_window(gpu: Target) -> None:
    counter, seen = make_energy_counter(gpu), set()
    began = time.perf_counter()
    while time.perf_counter() - began < 1.0:
        seen.add(counter())
    print(f"{len(seen)} updates within 1 s")
    assert len(seen) >= 3


def test_energy_power_and_time_agree(
    gpu: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = (
        f"profile --providers torch --device {gpu.device} --shapes 4096x4096x4096 --dtypes bf16 "
        "--distribution normal --time-budget 500ms --energy --json"
    )
    assert run(arguments.split()) == 0
    records = json.loads(capsys.readouterr().out)["records"]
    for record in records:
        assert record["energy_reason"] is None, record["energy_reason"]
        assert record["energy_resolution"] <= 0.02
        assert record["energy_ci_low_j"] <= record["energy_j"] <= record["energy_ci_high_j"]
        watts = record["energy_j"] / (record["median_ns"] / 1e9)
        print(f"{watts:.0f} W under load, {record['idle_power_w']} W before")
        # A limit on power makes a launch of sustained load longer than the median of the samples.
        assert record["idle_power_w"] < watts < 2 * 1000
        assert record["flops_per_j"] == pytest.approx(record["flops"] / record["energy_j"])
