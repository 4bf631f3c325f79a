from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from gemmetry.domain.errors import LaunchError  # noqa: E402
from gemmetry.domain.names import parse_operation  # noqa: E402
from gemmetry.providers.cublaslt_provider import choosing as trial  # noqa: E402

OPERATION = parse_operation("matmul_64x48x32_e4m3t_e4m3n_bf16t_scaletensor")


class Stopwatch:
    """Candidates that take a pretended time, on a device that reports it."""

    def __init__(self, device: Any, *times_ns: float) -> None:
        self.now_ns = 0.0
        self.order: list[int] = []
        self.loaded: set[int] = set()
        self.addresses: set[int] = set()
        self.captured = 0
        self.device = device
        device.last_level_cache_bytes = 4 * OPERATION.bytes
        self.launches = [self._launch(*pair) for pair in enumerate(times_ns)]
        device.captured = self._capture
        device.time_calls = self._time

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

    def _time(self, calls: Any) -> tuple[list[float], str]:
        found = []
        for call in calls:
            before = self.now_ns
            call()
            found.append(self.now_ns - before)
        return found, "events"


@pytest.fixture
def device() -> Any:
    from gemmetry.hardware.torch_device import TorchDevice

    return TorchDevice("cpu")


def test_medians_are_those_of_one_launch(device: Any) -> None:
    watch = Stopwatch(device, 50e3, 30e3, 90e3)
    assert trial.medians_ns(watch.launches, OPERATION, device) == pytest.approx([50e3, 30e3, 90e3])
    assert watch.captured == 3


def test_candidates_alternate_in_changing_order(device: Any) -> None:
    watch = Stopwatch(device, *[300e3] * 4)
    trial.medians_ns(watch.launches, OPERATION, device)
    rounds = watch.order[4 + 3 :]  # after loading each, and three launches of the first
    turns = [tuple(rounds[at : at + 4]) for at in range(0, len(rounds), 4)]
    assert all(sorted(turn) == [0, 1, 2, 3] for turn in turns)
    assert len(set(turns)) > len(turns) // 2
    assert {turn[-1] for turn in turns} == {0, 1, 2, 3}


def test_buffers_rotate_through_more_than_the_cache(device: Any) -> None:
    watch = Stopwatch(device, 10e3, 10e3)
    trial.medians_ns(watch.launches, OPERATION, device)
    assert len(watch.addresses) == 8


def test_long_launches_take_few_rounds(device: Any) -> None:
    watch = Stopwatch(device, 1e9, 1e9)
    trial.medians_ns(watch.launches, OPERATION, device)
    assert len(watch.order) == 2 + 3 + 2 * (trial._LEAST_ROUNDS + 1)


def test_a_launch_that_fails_ends_the_trial(device: Any) -> None:
    watch = Stopwatch(device, 1e6, 1e6)

    def fails(inputs: Any, output: Any) -> None:
        raise LaunchError("no")

    with pytest.raises(LaunchError):
        trial.medians_ns([*watch.launches, fails], OPERATION, device)
