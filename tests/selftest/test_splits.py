from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gemmetry.numerics.inputs import make_inputs
from gemmetry.selftest.arithmetic import SplitK, SplitKAtomics, StreamK


def test_slices_cover_k_once_in_order(plant: Any) -> None:
    kernel = plant("split_k", (64, 64, 32 * 7)).kernel
    assert isinstance(kernel, SplitK)
    steps = [step for i in range(kernel.slices) for step in kernel.slice_steps(i)]
    assert steps == list(range(7))


def test_atomics_give_other_bits_in_other_launches(plant: Any) -> None:
    bench = plant("split_k_atomics")
    # bf16 results hide last bits, sums do not.
    kernel = bench.kernel
    assert isinstance(kernel, SplitKAtomics)
    sums = set()
    for _ in range(20):
        bench.launch()
        sums.add(kernel.workspace[:, 0].tobytes())
    assert len(sums) > 1


def test_stream_k_shares_tiles_between_processors(plant: Any) -> None:
    bench = plant("stream_k")
    kernel = bench.kernel
    assert isinstance(kernel, StreamK)
    assert bench.is_right()
    assert np.abs(kernel.partials).sum(axis=(1, 2)).astype(bool).tolist() == [False, True, True]


TM, TN, TK = 64, 64, 32


@pytest.mark.parametrize("slug", ["split_k_not_cleared", "semaphore_not_reset"])
def test_the_first_launch_is_right_and_the_second_is_not(plant: Any, slug: str) -> None:
    bench = plant(slug)
    assert bench.is_right()
    assert bench.wrong().mean() > 0.9


def test_a_peer_read_early_shows_after_other_inputs(
    plant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = plant("peer_read_early")
    monkeypatch.setattr(type(bench.kernel), "odds", 1.0)
    assert bench.wrong().any()  # the workspace is empty yet
    assert bench.is_right()  # it holds sums of the same inputs
    bench.use(make_inputs(bench.operation, distribution="uniform_signed", seed=9))
    assert bench.wrong().any()
    monkeypatch.setattr(type(bench.kernel), "odds", 0.0)
    bench.use(make_inputs(bench.operation, distribution="uniform_signed", seed=10))
    assert bench.is_right()


def test_rounded_partials_show_in_exact_sums(plant: Any) -> None:
    bench = plant("bf16_partials")
    bench.use(make_inputs(bench.operation, distribution="integers", seed=3))
    assert bench.wrong().any()
