"""The effect of a setting on the step."""

from __future__ import annotations

import pytest

from gemmetry.sweeps.points import setting_effects
from gemmetry.sweeps.rows import SweepConfiguration

THREADS, CHANNELS = (256, 512), (4, 8, 16, 32)


def grid(step, **axes):
    """One run of one step for each point; `step` of threads and channels."""
    return {
        SweepConfiguration(t, c, tuple(sorted(axes.items()))): [[step(t, c)]]
        for t in THREADS
        for c in CHANNELS
    }


def by_name(runs):
    return {(one.name, one.after): one for one in setting_effects(runs)}


def test_a_setting_without_effect_and_one_with():
    found = by_name(grid(lambda t, c: 100 - c + (0.05 if t == 512 else 0)))
    threads = found["threads", "512"]
    assert (threads.before, threads.pairs) == ("256", 4)
    assert str(threads.comparison.verdict) == "no difference shown"
    channels = found["channels", "32"]
    assert (channels.before, channels.pairs) == ("4", 2)
    assert str(channels.comparison.verdict) == "faster"
    assert channels.comparison.ratio == pytest.approx(68 / 96, rel=0.001)
    assert len(found) == 4


def test_an_effect_that_differs_between_pairs_is_undecided_and_an_axis_is_a_setting():
    found = by_name(grid(lambda t, c: 100 + (c if t == 512 else 0)))
    assert str(found["threads", "512"].comparison.verdict) == "undecided"
    runs = grid(lambda t, c: 100 + c / 10, NCCL_ALGO="Ring")
    runs |= grid(lambda t, c: 120 + c / 10, NCCL_ALGO="Tree")
    effect = by_name(runs)["NCCL_ALGO", "Tree"]
    assert (effect.before, effect.pairs) == ("Ring", 8)
    assert str(effect.comparison.verdict) == "slower"


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_pairs_have_no_effect(count):
    runs = dict(list(grid(lambda t, c: 100.0).items())[:count])
    assert setting_effects(runs) == ()
