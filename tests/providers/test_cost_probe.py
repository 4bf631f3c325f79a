from __future__ import annotations

import pytest

from gemmetry.domain.names import parse_operation
from gemmetry.providers.launch_model import LONG_S, SIZES, TRIES, CostProbe, least_seconds, shrunk

LARGE = parse_operation("matmul_4096x4096x4096_f32t_f32t_f32t")
RATE = 1e-11
"""Seconds per FLOP of the simulated device: 2048³ takes 0.17 s."""


class Device:
    """Launches that take their time on a simulated clock; `disturbed` adds to some."""

    def __init__(self, rate=RATE, disturbed=lambda number, operation: 0.0):
        self.now = 0.0
        self.launches = []
        self._rate = rate
        self._disturbed = disturbed

    def clock(self):
        return self.now

    def prepare(self, operation):
        def launch():
            self.launches.append(operation)
            self.now += self._rate * operation.flops
            self.now += self._disturbed(len(self.launches), operation)

        return launch

    def predict(self, operation=LARGE):
        return CostProbe(self.prepare, self.clock).seconds(operation)


def test_a_steady_device_is_predicted_from_probes_of_growing_size():
    device = Device()
    assert device.predict() == pytest.approx(RATE * LARGE.flops)
    sizes = list(dict.fromkeys(operation.shape.m for operation in device.launches))
    assert sizes == list(SIZES)


@pytest.mark.parametrize("size", SIZES)
def test_one_disturbed_size_decides_nothing(size):
    """All launches of one size wait for a neighbour, as 128³ did that made 0.7 s into 81.8 s."""
    device = Device(disturbed=lambda _, operation: 0.04 * (operation.shape.m == size))
    assert device.predict() == pytest.approx(RATE * LARGE.flops)


def test_a_disturbed_launch_here_and_there_decides_nothing():
    device = Device(disturbed=lambda number, _: 0.5 * (number % (TRIES + 1) == 2))
    assert device.predict() == pytest.approx(RATE * LARGE.flops)


def test_small_products_that_are_slow_for_their_size_do_not_decide():
    device = Device(disturbed=lambda _, operation: 1e-3)
    truth = RATE * LARGE.flops
    assert device.predict() == pytest.approx(truth, rel=0.1)
    assert device._rate * LARGE.flops + 1e-3 * LARGE.flops / shrunk(LARGE, 128).flops > 20 * truth


def test_long_probes_end_the_search():
    slow = Device(rate=2 * LONG_S / shrunk(LARGE, 256).flops)
    assert slow.predict() == pytest.approx(slow._rate * LARGE.flops)
    sizes = [operation.shape.m for operation in slow.launches]
    assert sizes == [128] * (TRIES + 1) + [256] * 3


def test_an_operation_hardly_larger_than_its_probe_is_not_predicted():
    device = Device()
    assert device.predict(parse_operation("matmul_200x200x200_f32t_f32t_f32t")) is None
    assert device.launches == []


def test_probes_are_remembered():
    device = Device()
    probe = CostProbe(device.prepare, device.clock)
    first = probe.seconds(LARGE)
    count = len(device.launches)
    assert probe.seconds(LARGE) == first
    larger = probe.seconds(parse_operation("matmul_8192x4096x4096_f32t_f32t_f32t"))
    assert larger == pytest.approx(2 * first)
    assert len(device.launches) == count


@pytest.mark.parametrize(
    ("name", "small"),
    [
        ("matmul_4096x64x1000_f32t_f32t_f32t", "matmul_256x64x256_f32t_f32t_f32t"),
        ("batch_matmul_9x512x512x512_f32t_f32t_f32t", "batch_matmul_4x256x256x256_f32t_f32t_f32t"),
        (
            "matmul_splitk_512x512x600_f32t_f32t_f32t_slices3",
            "matmul_splitk_256x256x255_f32t_f32t_f32t_slices3",
        ),
        (
            "conv2d_8x64x64x512_3x3x300_stride1x1_pad0x0_f32nhwc_f32hwcf_f32nhwc",
            "conv2d_1x32x32x256_3x3x256_stride1x1_pad0x0_f32nhwc_f32hwcf_f32nhwc",
        ),
    ],
)
def test_every_kind_is_shrunk(name, small):
    assert shrunk(parse_operation(name), 256) == parse_operation(small)


def test_the_first_launch_is_not_timed():
    device = Device(disturbed=lambda number, _: 0.5 * (number == 1))
    launch = device.prepare(shrunk(LARGE, 128))
    assert least_seconds(launch, device.clock) == pytest.approx(RATE * shrunk(LARGE, 128).flops)
