from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed")

from gemmetry.domain.dispatch import parse_operation  # noqa: E402
from gemmetry.domain.errors import LaunchError  # noqa: E402
from gemmetry.hardware.torch_device import TorchDevice  # noqa: E402
from gemmetry.providers.cublaslt_provider import choosing as trial  # noqa: E402

OPERATION = parse_operation("matmul_64x48x32_e4m3t_e4m3n_bf16t_scaletensor")


class Stopwatch:
    """Candidates that take a pretended time, on a device that reports it."""

    def __init__(self, device: Any, *times_ns: float) -> None:
        self.now_ns, self.captured = 0.0, 0
        self.order: list[int] = []
        self.rounds: list[list[int]] = []
        self.loaded: set[int] = set()
        self.addresses: set[int] = set()
        device.last_level_cache_bytes = 4 * OPERATION.bytes
        self.launches = [self._launch(*pair) for pair in enumerate(times_ns)]
        device.captured = self._capture
        device.time_calls = self._time
        device.time_in_load = self._time_in_load
        device.neighbour = lambda: lambda: self.order.append(-1)

    def _launch(self, index: int, ns: float) -> Any:
        def launch(inputs: Any, output: Any) -> None:
            self.order.append(index)
            self.loaded.add(index)
            self.addresses.add(output.data_ptr())
            self.now_ns += ns
            assert [one.dtype for one in inputs[:2]] == [torch.float8_e4m3fn] * 2
            assert float(inputs[2]) == 1.0

        return launch

    def _capture(self, call: Any, *, keeps_result: bool = False) -> Any:
        assert len(self.loaded) == len(self.launches), "a capture must not load kernels"
        self.captured += 1
        return call

    def _time_in_load(self, lead: Any, calls: Any, tail: Any, lead_ns: float) -> list[float]:
        self._time(lead)
        before = len(self.order)
        found, _ = self._time(calls)
        self.rounds.append(self.order[before:])
        self._time(tail)
        return found

    def _time(self, calls: Any) -> tuple[list[float], str]:
        found = []
        for call in calls:
            before = self.now_ns
            call()
            found.append(self.now_ns - before)
        return found, "events"


@pytest.fixture
def device() -> Any:
    return TorchDevice("cpu")


def rounds_ns(watch: Stopwatch, device: Any) -> list[list[float]]:
    return trial.Trial(watch.launches, OPERATION, device).rounds_ns()


def test_candidates_alternate_in_changing_order_apart(device: Any) -> None:
    watch = Stopwatch(device, *[300e3] * 4)
    rounds_ns(watch, device)
    assert all(turn[0::2] == [-1] * 4 for turn in watch.rounds), "a neighbour ahead of each"
    turns = [tuple(turn[1::2]) for turn in watch.rounds]
    assert all(sorted(turn) == [0, 1, 2, 3] for turn in turns)
    assert len(set(turns)) > len(turns) // 2
    assert {turn[-1] for turn in turns} == {0, 1, 2, 3}


def test_rounds_count_once_the_clock_has_settled(device: Any) -> None:
    watch = Stopwatch(device, 300e3, 290e3)
    plain, speed = device.time_in_load, iter([0.5, 0.6, 0.7, 0.8, 0.9])

    def slowing(*how: Any) -> list[float]:
        factor = next(speed, 1.0)
        return [factor * ns for ns in plain(*how)]

    device.time_in_load = slowing
    first, second = rounds_ns(watch, device)
    assert set(first) == {300e3} and set(second) == {290e3}


@given(st.integers(2, 32), st.integers(0, 2**32), st.floats(0.0, 0.2))
def test_the_default_is_left_only_for_what_is_faster(count: int, seed: int, gain: float) -> None:
    """Of equal algorithms the default; of one that is faster in all rounds that one."""
    noise, rounds = np.random.default_rng(seed), 15
    times = 100 * (1 + 0.01 * noise.random((count, rounds)))
    times[-1] *= 1 - gain
    chosen = trial.fastest(times.tolist())
    if gain > 0.03:
        assert chosen == count - 1
    elif chosen:
        assert (times[chosen] < times[0]).sum() >= 12, "of 15, which chance does in 2 %"
    assert trial.fastest([times[0].tolist()] * count) == 0


@pytest.mark.parametrize(("own", "expected"), [(310e3, 0), (300e3, 0), (250e3, 1)])
def test_what_is_faster_at_a_shared_clock_alone_is_not_taken(device, own, expected) -> None:
    """Candidate 1 is faster in turns; by itself it takes `own` as against the default's 300 µs."""
    watch = Stopwatch(device, 300e3, 280e3, 400e3)
    plain = device.time_in_load

    def by_itself(lead: Any, calls: Any, *how: Any) -> list[float]:
        found = plain(lead, calls, *how)
        is_alone = len(lead) > 1 and len({id(one) for one in lead}) == 1
        return [own if is_alone and ns == 280e3 else ns for ns in found]

    device.time_in_load = by_itself
    best, times = trial.Trial(watch.launches, OPERATION, device).chosen()
    assert best == expected
    assert [one[0] for one in times] == [300e3, 280e3, 400e3]
    assert max(len(turn) for turn in watch.rounds) <= 10


def test_long_launches_take_few_rounds_and_short_ones_rotate_through_the_cache(device: Any) -> None:
    watch = Stopwatch(device, 1e9, 1e9)
    rounds_ns(watch, device)
    assert len(watch.rounds) == 1 + 5, "one is longer than settling may take; 2⁻⁵ < 5 %"
    watch = Stopwatch(device, 50e3, 30e3, 90e3)
    times = rounds_ns(watch, device)
    assert [set(one) for one in times] == [{50e3}, {30e3}, {90e3}]
    assert len({len(one) for one in times}) == 1
    assert watch.captured == 3
    watch = Stopwatch(device, 10e3, 10e3)
    rounds_ns(watch, device)
    assert len(watch.addresses) == 8, "more than the cache holds"


def test_a_launch_that_fails_ends_the_trial(device: Any) -> None:
    launches = [*Stopwatch(device, 1e6, 1e6).launches, Mock(side_effect=LaunchError("no"))]
    with pytest.raises(LaunchError):
        trial.Trial(launches, OPERATION, device).rounds_ns()
