from __future__ import annotations

import pytest

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.names import parse_operation
from gemmetry.hardware.devices import find_device
from gemmetry.providers.launch_model import filled_shares, modelled_ns, pipelined_ns

H200 = find_device("NVIDIA H200")


def product(m, n, k):
    return parse_operation(f"matmul_{m}x{n}x{k}_bf16t_bf16n_bf16t")


def tile(m, n, **others):
    return Configuration("x", {"tile_m": m, "tile_n": n, "tile_k": 64, **others})


def test_a_second_wave_doubles_the_time_of_a_large_product():
    one = product(128 * 12, 256 * 11, 8192)
    two = product(128 * 12, 256 * 11 + 1, 8192)
    first, second = (modelled_ns(p, tile(128, 256, cluster_m=2), H200) for p in (one, two))
    assert second / first == pytest.approx(2, rel=0.05)
    alone = modelled_ns(one, tile(128, 256), H200)
    assert alone > first, "without a cluster the L2 cache is the limit"


def test_decode_is_bound_by_memory_and_slices_fill_the_device():
    decode = product(1, 8192, 8192)
    bytes_s = (8192 * 8192 + 2 * 8192) * 2 / H200.bandwidth_bytes_per_s
    assert modelled_ns(decode, tile(64, 64), H200) == pytest.approx(3250 + bytes_s * 1e9)
    few = product(128, 128, 65536)
    whole, sliced = (modelled_ns(few, tile(128, 128, splits=s), H200) for s in (1, 8))
    assert sliced < whole / 4


def block(m, n, k=64, warps=4, stages=3):
    sizes = {"block_m": m, "block_n": n, "block_k": k, "warps": warps, "stages": stages}
    return Configuration("x", sizes)


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
    assert pipelined_ns(large, block(32, 256, 64, 8, 3), H200) > 1.3 * wide
    assert pipelined_ns(large, block(128, 256, 64, 4, 3), H200) > 1.3 * wide


def test_what_has_no_warps_and_stages_is_modelled_without_them():
    operation, configuration = product(512, 4096, 4096), tile(128, 128, stages=4)
    found = pipelined_ns(operation, configuration, H200)
    assert found == modelled_ns(operation, configuration, H200)


@pytest.mark.parametrize(
    ("size", "tiles", "busy", "within"),
    [
        (1024, (128, 128), 64 / 132, 1.0),  # 64 tiles
        (2048, (128, 128), 256 / 264, 1.0),  # 256 tiles, two waves
        (
            96,
            (64, 128),
            2 / 132,
            0.5625,
        ),  # half of the second tile's rows, a quarter of the columns
    ],
)
def test_shares_of_a_launch_that_are_filled(size, tiles, busy, within):
    found = filled_shares(product(size, size, 512), block(*tiles))
    assert found == pytest.approx((busy, within))


def test_what_has_no_tile_fills_everything():
    assert filled_shares(product(96, 96, 512), Configuration()) == (1.0, 1.0)
