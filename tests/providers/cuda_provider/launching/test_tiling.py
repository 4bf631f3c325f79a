"""Names, resources and ranking of tilings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gemmetry.providers.cuda_provider.kernel import (
    SHARED_BYTES,
    Tiling,
    parse_tiling,
    predicted_cycles,
    ranked,
    ring_bytes,
    staged_columns,
    stages_that_fit,
    staging_bytes,
)

unswapped = st.builds(
    Tiling,
    st.sampled_from((64, 128, 192, 256)),
    st.sampled_from((64, 96, 128, 160, 176, 192, 208, 224, 256)),
    st.sampled_from((1, 2, 4)),
    st.sampled_from((1, 2, 4)),
    st.integers(1, 99),
    st.integers(1, 64),
)


def swapped(one: Tiling) -> Tiling:
    tile, cluster = (one.tile_n, one.tile_m), (one.cluster_n, one.cluster_m)
    return Tiling(*tile, *cluster, one.band, one.splits, is_swapped=True)


tilings = st.one_of(unswapped, unswapped.map(swapped))


@given(tilings)
def test_names_parse_back(tiling: Tiling) -> None:
    assert parse_tiling(str(tiling)) == tiling


def test_other_texts_are_no_tilings() -> None:
    for text in (
        "",
        "128x256",
        "128x256_c2x1",
        "128x256_c2x1_b8_k1",
        "0128x256_c2x1_b8",
        "٣x4_c1x1_b8",
        "160x128_c1x1_b8_swap_k4",
    ):
        assert parse_tiling(text) is None, text


@given(unswapped)
def test_a_swapped_tiling_takes_the_same_kernel(tiling: Tiling) -> None:
    turned = swapped(tiling)
    assert turned.in_kernel == tiling.in_kernel == tiling
    assert turned.threads == tiling.threads and turned.cluster == tiling.cluster
    assert turned.clusters(320, 7168) == tiling.clusters(7168, 320)


@given(unswapped)
def test_the_ring_and_the_staging_memory_fit(tiling: Tiling) -> None:
    stage_bytes = (tiling.tile_m + tiling.tile_n) * 128
    staging = staging_bytes(tiling)
    stages = stages_that_fit(stage_bytes, staging)
    assert ring_bytes(stages, stage_bytes, staging) <= SHARED_BYTES
    one_more = ring_bytes(stages + 1, stage_bytes, staging) + 512
    assert stages == 12 or one_more > SHARED_BYTES


@given(unswapped)
def test_staged_columns_divide_the_tile(tiling: Tiling) -> None:
    columns = staged_columns(tiling.tile_n)
    assert tiling.tile_n % columns == 0
    assert columns == 64 or tiling.tile_n % (2 * columns)


def test_small_results_get_small_tiles_and_large_ones_large_tiles() -> None:
    choices = (Tiling(128, 256, 2), Tiling(128, 128, 2), Tiling(64, 64, 2))
    assert ranked(choices, 128, 4096, 4096)[0] == Tiling(64, 64, 2)
    assert ranked(choices, 8192, 8192, 8192)[0] == Tiling(128, 256, 2)
    # Both large tiles reach what the power limit allows; the order of the list decides.
    assert ranked(choices[::-1], 8192, 8192, 8192)[0] == Tiling(128, 128, 2)


def test_slices_pay_where_k_is_long_and_tiles_are_few() -> None:
    whole, sliced = Tiling(128, 128, 2), Tiling(128, 128, 2, splits=4)
    assert ranked((whole, sliced), 256, 1024, 65536)[0] == sliced
    assert ranked((whole, sliced), 256, 1024, 512)[0] == whole


@given(tilings, st.integers(1, 9000), st.integers(1, 9000), st.integers(1, 9000))
def test_more_work_never_takes_less_time(tiling: Tiling, m: int, n: int, k: int) -> None:
    assert predicted_cycles(tiling, m, n, k, 132) <= predicted_cycles(tiling, m + 64, n, k, 132)
    assert predicted_cycles(tiling, m, n, k, 132) <= predicted_cycles(tiling, m, n, k + 64, 132)


def test_320_rows_are_two_swapped_tiles_of_160() -> None:
    choices = (Tiling(128, 256, 2), Tiling(128, 128, 2), Tiling(160, 128, is_swapped=True))
    assert ranked(choices, 320, 7168, 2048)[0] == choices[2]
