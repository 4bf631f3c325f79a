"""What a history stores of a run on a GPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gemmetry.dispatches.profile import profile
from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.engine.store.experiment import Experiment
from gemmetry.history.folder import runs_of

pytestmark = pytest.mark.gpu


def test_the_device_class_has_memory_and_power_limit_of_the_gpu(gpu: Target, tmp_path: Path):
    if gpu.kind is not TargetKind.CUDA:
        pytest.skip("only NVIDIA GPUs report a power limit here")
    pytest.importorskip("pynvml", reason="the NVML bindings are not installed")
    profile(shapes="256x256x256", dtypes="bf16", providers="torch", device=gpu.device,
            time_budget="200ms", experiment=tmp_path / "run")  # fmt: skip
    with Experiment.open(tmp_path / "run") as experiment:
        [run] = runs_of(experiment.result_set())
    assert run.device.startswith(gpu.product)
    assert re.search(r", [\d.]+ GiB(, \d+ W)?$", run.device), run.device
    assert run.points
    for point in run.points:
        assert point.median_ns
        assert point.low_ns is not None
        assert point.sm_clock_hz
