"""Telemetry and sampling on a real GPU: the observers see it, and the clock is believable."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch
from gemmetry.domain.names import parse_operation
from gemmetry.domain.settings import RunSettings
from gemmetry.domain.target import Target, TargetKind
from gemmetry.hardware.detect import amd_gpus, nvidia_gpus
from gemmetry.hardware.roofline import roofline
from gemmetry.measurement.sampler import Sampler
from gemmetry.measurement.stopping import StopPolicy
from gemmetry.measurement.summary import summarize
from gemmetry.numerics.inputs import make_inputs
from gemmetry.observers import make_observers
from gemmetry.providers.torch_provider import PROVIDER

pytestmark = pytest.mark.gpu


@pytest.fixture
def observed(gpu: Target) -> Target:
    found = nvidia_gpus() if gpu.kind is TargetKind.CUDA else amd_gpus()
    if not found.gpus:
        pytest.skip(found.reason)
    return gpu


def test_the_driver_lists_what_torch_sees(observed: Target) -> None:
    found = nvidia_gpus() if observed.kind is TargetKind.CUDA else amd_gpus()
    assert observed.product in [gpu.name for gpu in found.gpus]
    assert found.gpus[0].driver


def test_a_reading_takes_less_than_a_millisecond(observed: Target) -> None:
    [observer] = make_observers(observed)
    observer.start()
    observer.sample()
    began = time.perf_counter()
    for _ in range(20):
        observer.sample()
    each_s = (time.perf_counter() - began) / 20
    assert observer.stop()["sm_clock_hz"]
    assert each_s < 1e-3


@pytest.mark.parametrize("size", [256, 4096])
def test_a_product_is_sampled_within_the_roofline(
    tmp_path: Path, observed: Target, size: int
) -> None:
    operation = parse_operation(f"matmul_{size}x{size}x{size}_bf16t_bf16t_bf16t")
    dispatch = Dispatch(operation, Configuration(), "torch", observed)
    executable = PROVIDER().build(dispatch, Workspace(generated=tmp_path))
    settings = RunSettings(time_budget_s=1.0)
    inputs = make_inputs(operation, distribution="normal", seed=1)
    sampler = Sampler(executable, operation, inputs, settings, make_observers(observed))
    sampler.prepare()
    policy, rounds, samples, seconds = StopPolicy(settings, observed), [], [], 0.0
    while count := policy.next_count(samples, seconds):
        rounds.append(sampler.sample_round(count))
        samples.extend(rounds[-1].samples_ns)
        seconds += rounds[-1].seconds
    found = summarize(
        rounds,
        stop_reason=policy.reason(samples, seconds),
        regime="burst",
        target=observed,
        settings=settings,
    )
    print(found)
    assert found.telemetry.power_w is not None
    assert found.telemetry.sm_clock_hz is not None
    assert found.input_sets * operation.bytes > 2 * executable.device.last_level_cache_bytes
    assert len(sampler.recheck()) == 1, "cuBLAS gives the same bits at every launch"
    sampler.close()
    roof = roofline(observed, operation)
    if roof is not None:  # a boosting clock may pass the datasheet's by a few percent
        assert operation.flops / found.median_ns * 1e9 < 1.1 * roof.attainable_flops_per_s
