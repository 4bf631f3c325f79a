from __future__ import annotations

import pytest

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.names import parse_operation
from gemmetry.hardware.devices import find_device
from gemmetry.providers.launch_model import modelled_ns

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


def test_cublas_is_modelled_as_the_best_of_usual_tiles():
    problem = product(1536, 1536, 1536)
    library = modelled_ns(problem, Configuration(), H200)
    assert library == modelled_ns(problem, tile(128, 192, cluster_m=2), H200)
    assert library < modelled_ns(problem, tile(128, 256, cluster_m=2), H200)
