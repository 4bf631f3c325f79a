"""Planted changes of every cause are found in the run in which they begin, and classified. Those of
``histories.txt`` are shown with what is observed next to them."""

from __future__ import annotations

import pytest

from gemmetry.history.changes import device_history, history_changes
from gemmetry.statistics.comparison import Difference


def judged(runs, baseline=None):
    return history_changes(device_history(runs[0].device, runs, baseline), threshold=0.02)


def kernels(synthetic):
    """Provider, shape and run of changes of kernels; whether each is slower."""
    runs = synthetic.entries()
    keys = device_history(runs[0].device, runs).keys
    return [
        (keys[one.series][0], one.series % synthetic.shapes, one.run,
         one.direction is Difference.SLOWER)
        for one in judged(runs).changes if one.cause == "kernel"
    ]  # fmt: skip


def test_gaps_and_late_starts_are_no_changes(histories):
    synthetic = histories.SyntheticHistory(shapes=4)
    runs = synthetic.entries()
    for number, run in enumerate(runs):
        run.points[:] = [p for n, p in enumerate(run.points) if number % 3 or n % 2]
    for run in runs[:20]:
        del run.points[-3:]
    assert judged(runs).changes == []


@pytest.mark.parametrize(("runs", "first", "factor"), [(11, 6, 1.5), (5, 4, 1.5), (5, 4, 1.3)])
def test_a_large_step_over_small_noise_is_found_at_once(histories, runs, first, factor):
    """Ten of ten seeds show the step in a young history with 1 % of noise, and nothing else."""
    for seed in range(10):
        synthetic = histories.SyntheticHistory(
            shapes=2, runs=runs, noise=0.01, host_noise=0.01, seed=seed
        )
        synthetic.slow(factor, first, provider="triton", shape=1)
        assert kernels(synthetic) == [("triton", 1, first, True)]


def test_what_a_young_history_promises_is_what_it_finds(histories):
    """The chance that an unchanged history states is that with which the changed one is found."""
    hits = promised = 0
    for seed in range(40):
        synthetic = histories.SyntheticHistory(
            shapes=4, runs=8, noise=0.01, host_noise=0.01, seed=seed
        )
        promised += judged(synthetic.entries()).power(4, 0.1, most_after=1).share
        synthetic.slow(1.1, 7, provider="triton", shape=0)
        hits += ("triton", 0, 7, True) in kernels(synthetic)
    assert hits / 40 == pytest.approx(promised / 40, abs=0.2)


@pytest.mark.parametrize(("kind", "runs"), [("heavy_tails", 5), ("gaussian", 8)])
def test_unchanged_young_histories_raise_no_alarm(histories, kind, runs):
    """At most 5 % of 40 histories of six series have one, up to chance."""
    alarms = 0
    for seed in range(40):
        synthetic = histories.SyntheticHistory(
            shapes=2, runs=runs, noise=0.02, kind=getattr(histories, kind), seed=seed
        )
        alarms += any(is_slower for *_, is_slower in kernels(synthetic))
    assert alarms <= 4
