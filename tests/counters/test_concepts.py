"""The concepts on a full report of a bf16 product of 4096x4096x4096 on an H200."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.counters.catalogue import concepts, expression_on, reading_of, value_of
from gemmetry.counters.collector import read_counters
from gemmetry.formats.counters.launches import ProfiledLaunch

REPORT = Path(__file__).parents[1] / "data/counters/h200_cublas_bf16_4096_raw.csv.gz"
SIZE = 4096


@pytest.fixture(scope="module")
def launch() -> ProfiledLaunch:
    return read_counters(REPORT)[0]


def test_every_concept_that_a_section_collects_has_a_value(launch: ProfiledLaunch) -> None:
    for one in concepts():
        if one.section and expression_on("GH100", one):
            assert reading_of(launch, one) is not None, one.name


@pytest.mark.parametrize(
    ("concept", "expected"),
    [
        ("tensor_ops_bf16", 2 * SIZE**3),
        # Tiles of 256x128, each with all of K: (256 + 128) x K x 2 bytes.
        ("tma_load_bytes", SIZE // 256 * (SIZE // 128) * (256 + 128) * SIZE * 2),
        ("tma_store_bytes", SIZE * SIZE * 2), ("duration", 180_992), ("sm_count", 132),
        ("l2_size", 60 * 2**20), ("tensor_peak_bf16", 132 * 4096), ("dram_peak_bytes", 1504),
        ("passes", 38), ("registers_per_thread", 168),
    ],
)  # fmt: skip
def test_counts_are_those_of_the_product(launch, concept, expected) -> None:
    # The file has seven digits of large numbers with a unit: 1.610613 Gbyte.
    assert value_of(launch, concept) == pytest.approx(expected, rel=5e-7)


def test_stalls_add_up_to_the_latency_of_a_warp(launch: ProfiledLaunch) -> None:
    stalls = [value_of(launch, one.name) for one in concepts() if one.name.startswith("stall_")]
    latency = value_of(launch, "warp_latency")
    assert sum(stall for stall in stalls if stall is not None) == pytest.approx(latency, rel=0.005)


def test_the_operations_do_not_follow_from_the_peak_of_sparse_products(launch) -> None:
    operations, peak = value_of(launch, "tensor_ops_bf16"), value_of(launch, "tensor_peak_bf16")
    cycles, busy = value_of(launch, "elapsed_cycles"), value_of(launch, "tensor_pipe_percent")
    assert operations and peak and cycles and busy
    assert 100 * operations / (peak * cycles) == pytest.approx(busy, rel=0.02)
