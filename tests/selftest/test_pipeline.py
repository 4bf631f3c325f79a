from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gemmetry.selftest.emulator import FRAGMENT_ROWS, Racing

TM, TN, TK = 64, 64, 32
RACES = (
    "barrier_missing",
    "wrong_phase",
    "too_few_bytes_expected",
    "live_stage_overwritten",
    "proxy_fence_missing",
    "staging_reused_early",
    "exits_before_store",
    "accumulator_read_early",
)


@pytest.mark.parametrize(
    "slug",
    [
        "half_step_missed",
        "step_counted_twice",
        "stages_share_memory",
        "warps_share_staging",
        "wrong_swizzle",
        "fragment_rows_swapped",
        "multicast_to_both",
    ],
)
def test_it_is_wrong_in_every_launch_and_the_same_way(plant: Any, slug: str) -> None:
    bench = plant(slug)
    first = bench.launch()
    assert bench.wrong(first).any()
    np.testing.assert_array_equal(first, bench.launch())


@pytest.mark.parametrize(
    ("slug", "shape"),
    [
        ("step_counted_twice", (TM, TN, 3 * TK)),  # the ring never wraps
        ("stages_share_memory", (TM, TN, TK)),  # one step
        ("warps_share_staging", (TM, 16, TK)),  # one warp
        ("multicast_to_both", (TM, TN, TK)),  # one row of tiles
        ("barrier_in_branch", (TM, TN, TK)),  # no tile at the edge
    ],
)
def test_it_is_right_where_the_bug_cannot_show(
    plant: Any, slug: str, shape: tuple[int, int, int]
) -> None:
    assert plant(slug, shape).is_right()


def test_the_last_half_step_is_missing(plant: Any) -> None:
    bench = plant("half_step_missed", (TM, TN, 2 * TK))
    inputs = [np.array(array) for array in bench.inputs]
    inputs[0][:, 2 * TK - TK // 2 :] = 0
    bench.use(inputs)
    assert bench.is_right()


def test_a_barrier_in_a_branch_spoils_half_a_tile_at_the_edge(plant: Any) -> None:
    assert plant("barrier_in_branch").is_right()
    wrong = plant("barrier_in_branch", (TM, TN + 8, 4 * TK)).wrong()
    assert wrong[: TM // 2, TN:].mean() > 0.9
    assert not wrong[TM // 2 :].any()
    assert not wrong[:, :TN].any()


def test_swapped_fragments_are_the_right_rows_elsewhere(plant: Any) -> None:
    bench = plant("fragment_rows_swapped")
    output = bench.launch()
    rows = np.arange(output.shape[0]) ^ FRAGMENT_ROWS
    assert not bench.wrong(np.ascontiguousarray(output[rows])).any()


def test_columns_of_the_last_warp_are_everywhere_in_the_tile(plant: Any) -> None:
    output = plant("warps_share_staging", (TM, TN, TK)).launch()
    for first in (0, 16, 32):
        np.testing.assert_array_equal(output[:, first : first + 16], output[:, 48:])


def test_both_blocks_of_a_cluster_have_the_first_ones_rows(plant: Any) -> None:
    output = plant("multicast_to_both", (2 * TM, TN, TK)).launch()
    np.testing.assert_array_equal(output[TM:], output[:TM])


@pytest.mark.parametrize("slug", RACES)
def test_a_race_spoils_a_few_elements_of_some_launches(plant: Any, slug: str) -> None:
    bench = plant(slug)
    assert isinstance(bench.kernel, Racing)
    bench.kernel.chance.seed(slug)
    shares = []
    for _ in range(40):
        bench.use(bench.inputs)  # new buffers: cold memory
        shares.append(bench.wrong().mean())
    spoiled = [share for share in shares if share > 0]
    # Each race shows in some launches, and leaves at least three quarters of the result alone.
    assert 0 < len(spoiled) < 40
    assert max(spoiled) < 0.25


@pytest.mark.parametrize("slug", RACES)
def test_without_the_hazard_it_is_right(
    plant: Any, slug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = plant(slug)
    monkeypatch.setattr(type(bench.kernel), "odds", 0.0)
    assert bench.is_right()
    assert bench.is_right()


def test_half_filled_stages_show_where_memory_is_cold(
    plant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = plant("too_few_bytes_expected")
    monkeypatch.setattr(type(bench.kernel), "odds", 1.0)
    assert bench.wrong().any()
    assert all(bench.is_right() for _ in range(10))


def test_a_processor_that_ends_early_leaves_what_was_there(
    plant: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = plant("exits_before_store")
    monkeypatch.setattr(type(bench.kernel), "odds", 1.0)
    output = bench.launch()
    left = (output.view(np.uint16) == 0xFFFF).reshape(output.shape)
    assert 0 < left.sum() <= TM * TN
    np.testing.assert_array_equal(bench.wrong(output), left)
