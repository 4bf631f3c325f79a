from __future__ import annotations

import numpy as np
import pytest

from gemmetry.history.changes import level_shift
from gemmetry.statistics.comparison import Difference


def shift(before, after, **options):
    logs = (np.log(np.array(side, dtype=np.float64)) for side in (before, after))
    return level_shift(*logs, **{"confidence": 0.95, "relevant": 0.02, **options})


def noisy(level, count, seed):
    return level * np.exp(0.005 * np.random.default_rng(seed).normal(size=count))


def test_the_verdict_is_that_of_the_interval():
    slower, faster, same = (
        shift(noisy(1, 20, 1), noisy(level, 20, 2)) for level in (1.1, 0.9, 1.0)
    )
    assert slower.verdict is Difference.SLOWER
    assert 1.02 < slower.interval[0] < slower.ratio < slower.interval[1]
    assert faster.verdict is Difference.FASTER
    assert same.verdict is Difference.NONE_SHOWN
    assert slower.has_moved and not same.has_moved


def test_too_few_runs_have_no_interval():
    few = shift(noisy(1, 2, 1), noisy(2, 2, 2))
    assert (few.interval, few.verdict) == (None, Difference.UNDECIDED)
    assert shift([1.0], []) is shift([np.nan, np.nan], [1.0]) is None
    assert shift(noisy(1, 50, 1), noisy(1.1, 3, 2), confidence=0.999).interval is not None


def test_only_the_runs_nearest_to_the_change_count():
    drifting = np.concatenate([noisy(5, 100, 1), noisy(1, 40, 2)])
    assert shift(drifting, noisy(1.1, 30, 3)).ratio == pytest.approx(1.1, rel=0.01)
    returning = np.concatenate([noisy(1.1, 30, 3), noisy(9, 100, 4)])
    assert shift(noisy(1, 40, 2), returning).ratio == pytest.approx(1.1, rel=0.01)
