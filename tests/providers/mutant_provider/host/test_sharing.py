from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gemmetry.numerics.inputs import make_inputs

TM, TN, TK = 64, 64, 32


@pytest.mark.parametrize("slug", ["split_k_not_cleared", "semaphore_not_reset"])
def test_the_first_launch_is_right_and_the_second_is_not(plant: Any, slug: str) -> None:
    bench = plant(slug)
    assert bench.is_right()
    assert bench.wrong().mean() > 0.9


def test_an_uneven_slice_is_dropped(plant: Any) -> None:
    assert plant("uneven_slice_dropped").is_right()
    bench = plant("uneven_slice_dropped", (TM, TN, 5 * TK))
    assert bench.wrong().mean() > 0.9
    inputs = [np.array(array) for array in bench.inputs]
    inputs[0][:, 4 * TK :] = 0
    bench.use(inputs)
    assert bench.is_right()


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
