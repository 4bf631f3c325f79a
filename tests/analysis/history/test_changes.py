"""Planted changes of every cause are found in the run in which they begin, and classified."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from gemmetry.history.changes import TRANSIENT, ChangeCause, device_history, history_changes
from gemmetry.statistics.comparison import Difference


def judged(runs, baseline=None):
    return history_changes(device_history(runs[0].device, runs, baseline), threshold=0.02)


def found(synthetic, baseline=None):
    runs = synthetic.entries()
    history = device_history(runs[0].device, runs, baseline)
    return [
        (history.keys[one.series][0], one.series % synthetic.shapes, one.run, str(one.cause), one)
        for one in judged(runs, baseline).changes
    ]


def summary(changes):
    return [change[:4] for change in changes]


@pytest.mark.parametrize("runs", [36, 150])
def test_a_slower_kernel(histories, runs):
    synthetic = histories.SyntheticHistory(runs=runs)
    synthetic.slow(1.08, runs // 2, provider="triton", shape=3)
    [change] = found(synthetic)
    assert change[:4] == ("triton", 3, runs // 2, "kernel")
    assert change[4].direction is Difference.SLOWER
    low, high = change[4].shift.interval
    assert low < 1.08 < high


QUIET = {"noise": 0.001, "host_noise": 0.001}
FEW = {"shapes": 1, "runs": 40, "seed": 2, "host_noise": 0.001}
"""Short excursions are found only where few series are judged together."""
PLANTED = {
    "a faster baseline": (
        {}, lambda one: one.slow(0.74, 30, provider="torch", shape=2),
        [(name, 2, 30, "baseline") for name in ("torch", "triton", "iree")]),
    "a change smaller than what counts": (
        QUIET, lambda one: one.slow(1.01, 30, provider="triton", shape=2),
        [("triton", 2, 30, "noise")]),
    "an excursion of a few runs": (
        FEW, lambda one: one.slow(1.1, 20, provider="triton", end=20 + TRANSIENT),
        [("triton", 0, 20, "noise"), ("triton", 0, 27, "noise")]),
    "an excursion of many runs": (
        {"runs": 80}, lambda one: one.slow(1.1, 30, provider="triton", shape=2, end=50),
        [("triton", 2, 30, "kernel"), ("triton", 2, 50, "kernel")]),
    "nothing": ({"shapes": 40}, lambda one: None, []),
}  # fmt: skip
SHARED = {
    "a slower host": ({}, 30, "host", ""),
    "a version": ({"triton": "3.6.0"}, 10, "environment", "triton 3.5.0 → 3.6.0"),
    "a driver": ({"driver": "590.3"}, 30, "environment", "driver 580.1 → 590.3"),
    "a method": ({"cold_cache": False}, 30, "method", "cold_cache none → False"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_changes(histories, name):
    options, change, expected = PLANTED[name]
    synthetic = histories.SyntheticHistory(**options)
    change(synthetic)
    assert summary(found(synthetic)) == expected


@pytest.mark.parametrize("name", SHARED)
def test_changes_that_dispatches_share(histories, name):
    new, count, cause, reason = SHARED[name]
    synthetic = histories.SyntheticHistory()
    if "triton" in new:
        synthetic.slow(0.94, 35, provider="triton")
        synthetic.upgrade(35, "triton", new["triton"])
    else:
        synthetic.slow(1.06, 35)
        changed = synthetic.environments if "driver" in new else synthetic.settings
        for one in changed[35:]:
            one.update(new)
    changes = found(synthetic)
    assert len(changes) == count
    assert {one[2:4] for one in changes} == {(35, cause)}
    assert reason in changes[0][4].reasons[0]


def test_a_lower_clock_where_nothing_else_shows_it(histories):
    """One dispatch with its reference alone: no others can decide."""
    synthetic = histories.SyntheticHistory(shapes=1, providers=("torch", "triton"))
    synthetic.slow(1.07, 30)
    assert {change[3] for change in found(synthetic)} == {"undecided"}
    synthetic.clocks[30:] /= 1.07
    changes = found(synthetic)
    assert {change[3] for change in changes} == {"host"}
    assert any("the clock changed by -6.5 %" in one[4].reasons[0] for one in changes)


def test_a_dispatch_that_is_timed_in_another_way(histories):
    synthetic = histories.SyntheticHistory()
    synthetic.slow(1.05, 35, provider="iree", shape=1)
    runs = synthetic.entries()
    for run in runs[35:]:
        place = next(n for n, p in enumerate(run.points)
                     if p.provider == "iree" and p.operation.startswith("matmul_128x"))  # fmt: skip
        run.points[place] = msgspec.structs.replace(run.points[place], method="events")
    [change] = judged(runs).changes
    assert (change.run, change.cause) == (35, ChangeCause.METHOD)


def test_a_kernel_on_a_host_that_varies_is_found_by_its_ratio(histories):
    synthetic = histories.SyntheticHistory(host_noise=0.08, noise=0.003)
    synthetic.slow(1.06, 30, provider="triton", shape=4)
    [change] = [one for one in found(synthetic) if one[3] != "noise"]
    assert change[:4] == ("triton", 4, 30, "kernel")
    assert change[4].is_of_ratio


def test_all_of_them_at_once(histories):
    synthetic = histories.SyntheticHistory(runs=120)
    synthetic.slow(1.06, 20)
    synthetic.slow(1.08, 45, provider="triton", shape=2)
    synthetic.slow(0.85, 60, provider="torch", shape=4)
    synthetic.slow(1.07, 80, provider="iree")
    synthetic.upgrade(80, "iree", "3.13")
    synthetic.slow(1.05, 100)
    for settings in synthetic.settings[100:]:
        settings["cold_cache"] = False
    assert {one[2:4] for one in found(synthetic)} == {
        (20, "host"), (45, "kernel"), (60, "baseline"), (80, "environment"), (100, "method"),
    }  # fmt: skip


def test_nothing_is_found_in_other_noise(histories):
    assert found(histories.SyntheticHistory(kind=histories.heavy_tails)) == []
    assert found(histories.SyntheticHistory(kind=histories.correlated(0.5), host_noise=0.0)) == []


def test_gaps_and_late_starts_are_no_changes(histories):
    synthetic = histories.SyntheticHistory(shapes=4)
    runs = synthetic.entries()
    for number, run in enumerate(runs):
        run.points[:] = [p for n, p in enumerate(run.points) if number % 3 or n % 2]
    for run in runs[:20]:
        del run.points[-3:]
    assert judged(runs).changes == []
    assert np.isnan(device_history(runs[0].device, runs).median_ns).any()


def test_another_reference_changes_who_moved(histories):
    synthetic = histories.SyntheticHistory(shapes=3)
    synthetic.slow(0.8, 30, provider="iree", shape=1)
    assert {one[:4] for one in found(synthetic, "iree")} == {
        (name, 1, 30, "baseline") for name in ("iree", "torch", "triton")
    }
    assert summary(found(synthetic, "torch:default")) == [("iree", 1, 30, "kernel")]


@pytest.mark.parametrize(("runs", "first", "factor"), [(11, 6, 1.5), (5, 4, 1.5), (5, 4, 1.3)])
def test_a_large_step_over_small_noise_is_found_at_once(histories, runs, first, factor):
    """Of a young history with 1 % of noise: 20 of 20 seeds, and nothing else."""
    for seed in range(20):
        synthetic = histories.SyntheticHistory(
            shapes=2, runs=runs, noise=0.01, host_noise=0.01, seed=seed
        )
        synthetic.slow(factor, first, provider="triton", shape=1)
        kernels = [one for one in found(synthetic) if one[3] == "kernel"]
        assert summary(kernels) == [("triton", 1, first, "kernel")]


def test_what_a_young_history_promises_is_what_it_finds(histories):
    """The chance that an unchanged history states is that with which the changed one is found."""
    hits = promised = 0
    for seed in range(40):
        synthetic = histories.SyntheticHistory(
            shapes=4, runs=8, noise=0.01, host_noise=0.01, seed=seed
        )
        promised += judged(synthetic.entries()).power(4, 0.1, most_after=1).share
        synthetic.slow(1.1, 7, provider="triton", shape=0)
        hits += ("triton", 0, 7, "kernel") in summary(found(synthetic))
    assert hits / 40 == pytest.approx(promised / 40, abs=0.2)


def test_young_histories_are_undecided_and_longer_ones_are_not(histories):
    def changes(runs, noise):
        synthetic = histories.SyntheticHistory(runs=runs, noise=noise, host_noise=noise)
        return judged(synthetic.entries())

    assert [changes(runs, 0.01).is_undecided for runs in (1, 3, 12)] == [True, True, False]
    assert [changes(5, noise).is_undecided for noise in (0.002, 0.03)] == [False, True]
    assert changes(30, 0.1).is_undecided, "runs that differ by more than what is sought"


def test_an_old_commit_measured_again_is_no_change_and_hides_none(histories):
    synthetic = histories.SyntheticHistory(shapes=2, runs=40, seed=2)
    synthetic.slow(0.8, 15, provider="triton", shape=1)
    synthetic.slow(1.25, 30, provider="triton", shape=1, end=38)
    runs = synthetic.entries()
    for place in range(30, 38):
        runs[place] = msgspec.structs.replace(runs[place], commit=runs[place - 25].commit)
    history = device_history(runs[0].device, runs)
    assert sorted(history.measured_again) == list(range(30, 38))
    assert history.first_new(4) == 28
    [change] = judged(runs).changes
    assert (change.run, change.direction) == (15, Difference.FASTER)
    synthetic.slow(1.25, 38, provider="triton", shape=1)
    later = synthetic.entries()
    later[30:38] = runs[30:38]
    changes = judged(later).changes
    assert [(one.run, one.direction) for one in changes][1:] == [(38, Difference.SLOWER)]


@pytest.mark.parametrize(("kind", "runs"), [("heavy_tails", 5), ("gaussian", 8)])
def test_unchanged_young_histories_raise_no_alarm(histories, kind, runs):
    """Of 60 histories of six series, at most 5 % have one, up to chance."""
    alarms = 0
    for seed in range(60):
        synthetic = histories.SyntheticHistory(
            shapes=2, runs=runs, noise=0.02, kind=getattr(histories, kind), seed=seed
        )
        alarms += any(
            one[3] == "kernel" and one[4].direction is Difference.SLOWER for one in found(synthetic)
        )
    assert alarms <= 6
