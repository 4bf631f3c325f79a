"""Telemetry and sampling on a real GPU: the observers see it, and the clock is believable."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind, parse_operation
from gemmetry.domain.errors import LaunchError
from gemmetry.domain.record import BuildFacts
from gemmetry.domain.settings import RunSettings
from gemmetry.hardware.detect import amd_gpus, nvidia_free_bytes, nvidia_gpus
from gemmetry.hardware.monitors import make_observers
from gemmetry.hardware.roofline import roofline
from gemmetry.measurement.marks import summarize
from gemmetry.measurement.sampler import Sampler
from gemmetry.measurement.stopping import StopPolicy
from gemmetry.numerics.inputs import make_inputs
from gemmetry.providers.torch_provider.provider import PROVIDER

pytestmark = [pytest.mark.gpu, pytest.mark.alone]


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
    if observed.kind is TargetKind.CUDA:
        assert 0 < nvidia_free_bytes(found.gpus[0].uuid) <= found.gpus[0].memory_bytes


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
    policy, rounds, seconds = StopPolicy(settings, observed), [], 0.0
    while count := policy.next_count(rounds, seconds, sampler.sample_s):
        rounds.append(sampler.sample_round(count))
        seconds += rounds[-1].seconds
    found = summarize(
        rounds,
        stop_reason=policy.reason(rounds, seconds),
        target=observed,
        settings=settings,
    )
    print(found)
    assert found.method == "graph" or size > 256
    assert found.telemetry.power_w is not None
    assert found.telemetry.sm_clock_hz is not None
    assert found.input_sets * operation.bytes > 2 * executable.device.last_level_cache_bytes
    outputs = sampler.recheck()
    changes = {output.change for output in outputs}
    assert len(outputs) == len(changes) <= 2, "cuBLAS gives the same bits at every launch"
    sampler.close()
    roof = roofline(observed, operation)
    if roof is not None:  # a boosting clock may pass the datasheet's by a few percent
        assert operation.flops / found.median_ns * 1e9 < 1.1 * roof.attainable_flops_per_s


def test_a_short_budget_buys_hundreds_of_launches(tmp_path: Path, observed: Target) -> None:
    """Launches of at least half a millisecond on an H200, whatever happens around the samples."""
    operation = parse_operation("matmul_2048x28672x4096_bf16t_bf16t_bf16t")
    dispatch = Dispatch(operation, Configuration(), "torch", observed)
    executable = PROVIDER().build(dispatch, Workspace(generated=tmp_path))
    settings = RunSettings(time_budget_s=0.3, interval_width=1e-6)
    inputs = make_inputs(operation, distribution="normal", seed=1)
    sampler = Sampler(executable, operation, inputs, settings, make_observers(observed))
    sampler.prepare()
    policy, rounds, seconds = StopPolicy(settings, observed), [], 0.0
    began = time.perf_counter()
    while count := policy.next_count(rounds, seconds, sampler.sample_s):
        rounds.append(sampler.sample_round(count))
        seconds += rounds[-1].seconds
    wall_s = time.perf_counter() - began
    sampler.close()
    sizes = [len(item.samples_ns) for item in rounds]
    renewal_s = float(np.median([item.renewal_s for item in rounds]))
    print(sizes, f"{seconds:.3f} s of {wall_s:.3f} s, renewal {1e3 * renewal_s:.2f} ms a round")
    each_s = float(np.median(rounds[0].samples_ns)) / 1e9
    launches = sum(
        size * item.launches_per_sample for size, item in zip(sizes, rounds, strict=True)
    )
    assert launches * each_s > 0.7 * settings.time_budget_s
    assert len(rounds) >= 12
    assert renewal_s < 0.01, "less than the samples of a round take"


class Kernel:
    """An executable around a function of (A, B, out)."""

    writes_output = True
    facts = BuildFacts()

    def __init__(self, gpu: Target, function: Callable[..., object]) -> None:
        from gemmetry.hardware.torch_device import open_device

        self.device = open_device(gpu)
        self._function = function

    def run(self, inputs, output):
        self._function(*inputs, output)
        return output

    def close(self) -> None: ...


def _sampler(gpu: Target, function: Callable[..., object], size: int, **settings) -> Sampler:
    operation = parse_operation(f"matmul_{size}x{size}x{size}_bf16t_bf16t_bf16t")
    inputs = make_inputs(operation, distribution="normal", seed=1)
    kernel = Kernel(gpu, function)
    return Sampler(kernel, operation, inputs, RunSettings(time_budget_s=0.5, **settings))


def _product(a, b, out) -> None:
    import torch

    torch.mm(a, b, out=out)


def test_graphs_and_events_agree(gpu: Target) -> None:
    """In turns, because the clock changes from second to second: launches of about 30 µs, of which
    the gap between launches, about 1 µs, is a small part."""
    samplers = {
        method: _sampler(gpu, _product, 2048, timing_method=method)
        for method in ("graph", "events")
    }
    for sampler in samplers.values():
        sampler.prepare()
    ratios = []
    for _ in range(10):
        found = {method: sampler.sample_round(5) for method, sampler in samplers.items()}
        assert {method: item.method for method, item in found.items()} == {
            method: method for method in samplers
        }
        graph, events = (float(np.median(found[m].samples_ns)) for m in ("graph", "events"))
        ratios.append(events / graph)
    for sampler in samplers.values():
        sampler.close()
    print(sorted(ratios))
    assert 0.99 < float(np.median(ratios)) < 1.1


def test_captures_continue_after_all_earlier_graphs_are_gone(gpu: Target) -> None:
    """Two dispatches one after the other, as two groups of an engine's run."""
    import torch

    for _ in range(3):
        sampler = _sampler(gpu, _product, 512)
        sampler.prepare()
        assert sampler.sample_round(3).method == "graph", sampler.capture_failure
        sampler.close()
        del sampler
        torch.cuda.empty_cache()


def test_a_short_launch_is_not_timed_by_its_python(gpu: Target) -> None:
    def slow_to_submit(a, b, out) -> None:
        until = time.perf_counter() + 200e-6
        while time.perf_counter() < until:
            pass
        _product(a, b, out)

    sampler = _sampler(gpu, slow_to_submit, 256)
    sampler.prepare()
    found = sampler.sample_round(10)
    sampler.close()
    assert found.method == "graph", (sampler.capture_failure, sampler.launch_ns)
    assert float(np.median(found.samples_ns)) < 20_000
    assert found.wall_launch_ns is not None
    assert found.wall_launch_ns > 200_000


def test_a_launch_that_cannot_be_captured_is_timed_by_events(gpu: Target) -> None:
    import torch

    def waits(a, b, out) -> None:
        _product(a, b, out)
        torch.cuda.current_stream().synchronize()

    sampler = _sampler(gpu, waits, 256, timing_method="graph")
    sampler.prepare()
    found = sampler.sample_round(5)
    assert found.method == "events"
    assert "cannot be captured" in found.capture_failure
    sampler.close()
    torch.cuda.empty_cache()  # the allocator must have forgotten the capture
    again = _sampler(gpu, _product, 256, timing_method="graph")
    again.prepare()
    assert again.sample_round(5).method == "graph"
    again.close()


def test_work_on_a_stream_of_its_own_is_refused(gpu: Target) -> None:
    import torch

    side = torch.cuda.Stream()

    def elsewhere(a, b, out) -> None:
        with torch.cuda.stream(side):
            _product(a, b, out)

    with pytest.raises(LaunchError, match="still busy when the timed stream had finished"):
        _sampler(gpu, elsewhere, 4096).prepare()


def test_a_sustained_load_says_whether_it_settled(observed: Target) -> None:
    sampler = _sampler(observed, _product, 4096, regime="sustained")
    sampler._observers = make_observers(observed)
    sampler.prepare()
    found = sampler.sample_round(5)
    sampler.close()
    print(found.load_s, found.is_settled, found.unsettled_change, found.telemetry)
    assert found.is_settled is not None
    assert 1.0 <= found.load_s <= 8.0
