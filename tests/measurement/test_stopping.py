from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.settings import RunSettings
from gemmetry.domain.target import Target, TargetKind
from gemmetry.measurement.stopping import StopPolicy, asked_width, relative_half_width

CPU = Target(TargetKind.CPU)
GPU = Target(TargetKind.CUDA, "sm_90")
NULL = Target(TargetKind.NULL)


def _spread(count: int, share: float) -> list[float]:
    """Samples around 1000 ns, evenly within ± `share`."""
    return [1000.0 * (1 + share * (2 * i / (count - 1) - 1)) for i in range(count)]


def test_asked_width_depends_on_the_device_unless_it_is_given() -> None:
    assert asked_width(RunSettings(), GPU) == 0.005
    assert asked_width(RunSettings(), CPU) == asked_width(RunSettings(), NULL) == 0.02
    assert asked_width(RunSettings(interval_width=0.1), GPU) == 0.1


def test_width_is_infinite_where_there_is_no_interval() -> None:
    assert math.isinf(relative_half_width([5.0]))
    assert math.isinf(relative_half_width([0.0, 0.0]))
    assert relative_half_width([5.0, 5.0]) == 0.0


def test_the_least_samples_are_spread_over_rounds_that_take_turns() -> None:
    policy = StopPolicy(RunSettings(), CPU)
    taken: list[float] = []
    sizes = []
    while len(taken) < 10:
        sizes.append(policy.next_count(taken, 0.001))
        taken += [1.0] * sizes[-1]
    assert sizes == [4, 4, 2]
    assert StopPolicy(RunSettings(), NULL).next_count([], 0.0) == 10


def test_stops_when_the_interval_is_narrow() -> None:
    policy = StopPolicy(RunSettings(), CPU)
    samples = _spread(10, 0.01)
    assert policy.next_count(samples, 0.1) == 0
    assert policy.reason(samples, 0.1) == "interval"


def test_asks_for_about_what_the_width_needs() -> None:
    policy = StopPolicy(RunSettings(), CPU)
    samples = _spread(40, 0.09)
    width = relative_half_width(samples)
    expected = math.ceil(40 * (width / 0.02) ** 2) - 40
    assert 10 <= expected <= 80, "the example must be within the limits of growth"
    assert policy.next_count(samples, 0.01) == expected


def test_growth_is_limited_where_the_estimate_is_poor() -> None:
    policy = StopPolicy(RunSettings(), CPU)
    assert policy.next_count(_spread(10, 0.9), 0.001) == 20


def test_time_budget_ends_sampling_and_limits_rounds() -> None:
    policy = StopPolicy(RunSettings(time_budget_s=2.0), CPU)
    samples = _spread(10, 0.9)
    assert policy.next_count(samples, 1.5) == 3, "0.15 s a sample, 0.5 s left"
    assert policy.next_count(samples, 1.9) == 0
    assert policy.reason(samples, 1.9) == "time_budget"
    assert policy.next_count([1.0, 1.1], 2.0) == 0, "even below the least number of samples"


def test_max_samples_ends_sampling() -> None:
    policy = StopPolicy(RunSettings(max_samples=12), CPU)
    samples = _spread(10, 0.9)
    assert policy.next_count(samples, 0.01) == 2
    samples = _spread(12, 0.9)
    assert policy.next_count(samples, 0.01) == 0
    assert policy.reason(samples, 0.01) == "max_samples"


def test_repetitions_are_exact_whatever_the_time() -> None:
    policy = StopPolicy(RunSettings(repetitions=7, time_budget_s=0.001), CPU)
    taken: list[float] = []
    sizes = []
    while count := policy.next_count(taken, 100.0):
        sizes.append(count)
        taken += [1.0] * count
    assert sizes == [3, 3, 1]
    assert policy.reason(taken, 100.0) == "max_samples"


@settings(deadline=None, max_examples=60)
@given(
    spread=st.floats(0.0, 3.0),
    sample_ns=st.floats(1.0, 1e9),
    min_samples=st.integers(1, 50),
    max_samples=st.integers(1, 200),
    kind=st.sampled_from([CPU, GPU, NULL]),
)
def test_sampling_always_ends_within_its_limits(
    spread, sample_ns, min_samples, max_samples, kind
) -> None:
    policy = StopPolicy(
        RunSettings(min_samples=min_samples, max_samples=max_samples, time_budget_s=0.5), kind
    )
    samples: list[float] = []
    seconds = 0.0
    for _ in range(100):
        count = policy.next_count(samples, seconds)
        if count == 0:
            break
        samples += [sample_ns * (1 + spread * (i % 7)) for i in range(count)]
        seconds += count * sample_ns / 1e9
    else:
        raise AssertionError("sampling did not end in 100 rounds")
    assert 1 <= len(samples) <= max_samples
    assert policy.reason(samples, seconds) in ("interval", "time_budget", "max_samples")


@pytest.mark.parametrize("spent", [0.0, 1e-12])
def test_no_time_spent_is_no_division_by_zero(spent: float) -> None:
    assert StopPolicy(RunSettings(), CPU).next_count(_spread(10, 0.5), spent) > 0
