from __future__ import annotations

import pytest

from gemmetry.domain.dispatch import Configuration, parse_operation
from gemmetry.hardware.devices import find_device
from gemmetry.providers.launch_model import (
    LONG_S,
    SIZES,
    TRIES,
    CostProbe,
    filled_shares,
    least_seconds,
    modelled_ns,
    pipelined_ns,
    shrunk,
)

H200 = find_device("NVIDIA H200")


def product(m, n, k):
    return parse_operation(f"matmul_{m}x{n}x{k}_bf16t_bf16n_bf16t")


def tiled(m, n, **others):
    return Configuration("x", {"tile_m": m, "tile_n": n, "tile_k": 64, **others})


def test_a_second_wave_doubles_the_time_of_a_large_product():
    one = product(128 * 12, 256 * 11, 8192)
    two = product(128 * 12, 256 * 11 + 1, 8192)
    first, second = (modelled_ns(p, tiled(128, 256, cluster_m=2), H200) for p in (one, two))
    assert second / first == pytest.approx(2, rel=0.05)
    alone = modelled_ns(one, tiled(128, 256), H200)
    assert alone > first, "without a cluster the L2 cache is the limit"


def test_decode_is_bound_by_memory_and_slices_fill_the_device():
    decode = product(1, 8192, 8192)
    bytes_s = (8192 * 8192 + 2 * 8192) * 2 / H200.bandwidth_bytes_per_s
    assert modelled_ns(decode, tiled(64, 64), H200) == pytest.approx(3250 + bytes_s * 1e9)
    few = product(128, 128, 65536)
    whole, sliced = (modelled_ns(few, tiled(128, 128, splits=s), H200) for s in (1, 8))
    assert sliced < whole / 4


def block(*sizes):
    names = ("block_m", "block_n", "block_k", "warps", "stages")
    return Configuration("x", dict(zip(names, sizes, strict=True)))


def test_a_pipeline_needs_bytes_in_flight_where_the_memory_is_the_limit():
    """Sixteen rows: few small tiles, whose steps do not cover the latency of the memory."""
    decode = product(16, 4096, 14336)
    times = [pipelined_ns(decode, block(16, 32, k, 4, stages), H200)
             for k, stages in ((32, 3), (64, 3), (64, 4), (128, 4))]  # fmt: skip
    assert times == sorted(times, reverse=True)
    assert times[0] > 2 * times[-1]


def test_low_tiles_and_few_warps_do_not_reach_the_peak():
    large = product(4096, 4096, 4096)
    wide = pipelined_ns(large, block(128, 256, 64, 8, 3), H200)
    for other in (block(32, 256, 64, 8, 3), block(128, 256, 64, 4, 3)):
        assert pipelined_ns(large, other, H200) > 1.3 * wide
    plain = tiled(128, 128, stages=4)  # has no warps
    assert pipelined_ns(large, plain, H200) == modelled_ns(large, plain, H200)


@pytest.mark.parametrize(
    ("m", "n", "configuration", "busy", "within"),
    [
        (1024, 1024, tiled(128, 128), 64 / 132, 1.0),  # 64 tiles
        (1536, 1408, tiled(128, 128), 1.0, 1.0),  # 132 tiles
        (2048, 2048, tiled(128, 128), 256 / 264, 1.0),  # 256 tiles, two waves
        (96, 96, tiled(64, 128), 2 / 132, 0.5625),  # half the rows of a tile, 3/4 of the columns
        (96, 96, Configuration(), 1.0, 1.0),
    ],
)
def test_shares_of_a_launch_that_are_filled(m, n, configuration, busy, within):
    found = filled_shares(product(m, n, 512), configuration)
    assert found == pytest.approx((busy, within))


F32 = "_f32t_f32t_f32t"
LARGE = parse_operation(f"matmul_4096x4096x4096{F32}")
RATE = 1e-11
"""Seconds per FLOP of the simulated device: 2048³ takes 0.17 s."""


class Device:
    """Launches that take their time on a simulated clock; `disturbed` adds to some."""

    def __init__(self, rate=RATE, disturbed=lambda *_: 0.0):
        self.now, self.launches = 0.0, []
        self.rate, self._disturbed = rate, disturbed

    def clock(self):
        return self.now

    def prepare(self, operation):
        def launch():
            self.launches.append(operation)
            self.now += self.rate * operation.flops + self._disturbed(len(self.launches), operation)

        return launch

    def predict(self, operation=LARGE):
        return CostProbe(self.prepare, self.clock).seconds(operation)


DISTURBED = {
    "nothing": lambda *_: 0.0,
    "a launch here and there": lambda number, _: 0.5 * (number % (TRIES + 1) == 2),
    "the first launch": lambda number, _: 0.5 * (number == 1),
    **{size: lambda _, one, size=size: 0.04 * (one.shape.m == size) for size in SIZES},
}


@pytest.mark.parametrize("name", DISTURBED)
def test_disturbed_launches_decide_nothing(name):
    """All launches of one size wait for a neighbour, as 128³ did that made 0.7 s into 81.8 s."""
    device = Device(disturbed=DISTURBED[name])
    assert device.predict() == pytest.approx(RATE * LARGE.flops)
    assert [*dict.fromkeys(operation.shape.m for operation in device.launches)] == [*SIZES]
    if name == "the first launch":
        device.launches.clear()
        small = shrunk(LARGE, 128)
        seconds = least_seconds(device.prepare(small), device.clock)
        assert seconds == pytest.approx(RATE * small.flops), "it is not timed"


def test_small_products_that_are_slow_for_their_size_do_not_decide():
    truth = RATE * LARGE.flops
    assert Device(disturbed=lambda *_: 1e-3).predict() == pytest.approx(truth, rel=0.1)
    assert truth + 1e-3 * LARGE.flops / shrunk(LARGE, 128).flops > 20 * truth


def test_long_probes_end_the_search():
    slow = Device(rate=2 * LONG_S / shrunk(LARGE, 256).flops)
    assert slow.predict() == pytest.approx(slow.rate * LARGE.flops)
    assert [one.shape.m for one in slow.launches] == [128] * (TRIES + 1) + [256] * 3


def test_probes_are_remembered_and_not_larger_than_the_operation():
    device = Device()
    assert device.predict(parse_operation(f"matmul_200x200x200{F32}")) is None
    assert device.launches == []
    probe = CostProbe(device.prepare, device.clock)
    first = probe.seconds(LARGE)
    count = len(device.launches)
    assert probe.seconds(LARGE) == first
    larger = parse_operation(f"matmul_8192x4096x4096{F32}")
    assert probe.seconds(larger) == pytest.approx(2 * first)
    assert len(device.launches) == count


@pytest.mark.parametrize(
    ("name", "small"),
    [
        ("matmul_4096x64x1000_f32t_f32t_f32t", "matmul_256x64x256"),
        ("batch_matmul_9x512x512x512_f32t_f32t_f32t", "batch_matmul_4x256x256x256"),
        ("matmul_splitk_512x512x600_f32t_f32t_f32t_slices3", "matmul_splitk_256x256x255"),
        ("conv2d_8x64x64x512_3x3x300_f32nhwc_f32hwcf_f32nhwc", "conv2d_1x32x32x256_3x3x256"),
    ],
)
def test_every_kind_is_shrunk(name, small):
    formats = name[name.index("_f32") :]
    assert shrunk(parse_operation(name), 256) == parse_operation(f"{small}{formats}")
