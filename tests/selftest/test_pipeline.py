from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gemmetry.selftest.emulator import Racing

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
