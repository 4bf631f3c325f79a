"""Many comparisons that are judged together."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gemmetry.dispatches.analysis import ComparisonEvidence
from gemmetry.statistics.comparison import MOST_TOGETHER, Difference, compare, verdict_of

NAME = "matmul_512x512x512_f32t_f32t_f32t"
SHOWN = (Difference.FASTER, Difference.SLOWER)


def pair(make_record, random, ratio, *, noise=0.01, rounds=12, by_rounds=True):
    """The evidence about two dispatches, the second of which takes `ratio` times as long."""
    sides = [
        {turn: level * np.exp(noise * random.normal() + 0.005 * random.normal(size=5))
         for turn in range(place * 100, place * 100 + rounds)}
        for place, level in enumerate((1e5, ratio * 1e5))
    ]  # fmt: skip
    record = make_record(NAME)
    samples = tuple(np.concatenate(list(side.values())) for side in sides)
    return ComparisonEvidence(
        before=record, after=record, rounds=tuple(sides) if by_rounds else None, samples=samples,
        relevant=0.02,
    )  # fmt: skip


def same(make_record, values):
    record = make_record(NAME)
    return ComparisonEvidence(before=record, after=record, rounds=None, samples=(values, values),
                              relevant=0.02)  # fmt: skip


def test_hundreds_of_equal_dispatches_are_shown_to_be_equal(make_record):
    """All intervals of a thousand together would decide nothing."""
    random = np.random.default_rng(1)
    found = [same(make_record, np.exp(0.13 * random.normal(size=60))) for _ in range(400)]
    judged = compare(found)
    verdicts = [one.verdict for one in judged]
    assert verdicts.count(Difference.NONE_SHOWN) >= 380
    assert not any(verdict in SHOWN for verdict in verdicts)
    jointly = [one.compare(0.95, 1000).verdict for one in found[:50]]
    assert jointly.count(Difference.UNDECIDED) >= 45


@pytest.mark.parametrize("by_rounds", [True, False])
def test_few_verdicts_of_many_are_false_and_each_is_that_of_its_interval(make_record, by_rounds):
    """240 dispatches, 40 of which take 1.1 times as long, with runs that differ as those of one
    binary do."""
    random = np.random.default_rng(2)
    noise = 0.008 if by_rounds else 0.002
    ratios = [1.1] * 40 + [1.0] * 200
    found = [pair(make_record, random, ratio, noise=noise, by_rounds=by_rounds) for ratio in ratios]
    judged = compare(found)
    assert len(judged) == len(ratios) > MOST_TOGETHER
    for one in judged:
        assert one.verdict is verdict_of(one.interval, one.relevant)
        if one.p_value is not None:
            assert (one.adjusted_p_value <= 0.05 + 1e-9) == (one.verdict in SHOWN)
    shown = [ratio for ratio, one in zip(ratios, judged, strict=True) if one.verdict in SHOWN]
    assert shown.count(1.1) >= 38
    assert shown.count(1.0) <= 0.1 * len(shown)
    equal = [ratio for ratio, one in zip(ratios, judged, strict=True)
             if one.verdict is Difference.NONE_SHOWN]  # fmt: skip
    assert len(equal) >= 190
    covered = sum(one.interval[0] <= ratio <= one.interval[1]
                  for ratio, one in zip(ratios, judged, strict=True)
                  if one.verdict is not Difference.UNDECIDED)  # fmt: skip
    assert covered >= 0.93 * (len(shown) + len(equal))


def test_noise_alone_shows_no_difference_among_many(make_record):
    """One of 120 equal dispatches may be called different in 5 of 100 families; in 2 of 10."""
    random = np.random.default_rng(3)
    false = 0
    for _ in range(10):
        found = [pair(make_record, random, 1.0, noise=0.03) for _ in range(120)]
        false += any(one.verdict in SHOWN for one in compare(found))
    assert false <= 2


def test_a_family_of_a_hundred_holds_together(make_record):
    random = np.random.default_rng(4)
    found = [pair(make_record, random, 1.0) for _ in range(MOST_TOGETHER)]
    assert {one.divisor for one in compare(found)} == {float(MOST_TOGETHER)}


@pytest.mark.parametrize("ratio", [1.135, 1 / 1.135])
def test_a_verdict_against_the_printed_medians_is_undecided(make_record, ratio):
    """Rounds in common say one thing, and the medians, which rest on further rounds, another."""
    one = pair(make_record, np.random.default_rng(6), ratio, noise=0.001)
    medians = (241e3, 376e3) if ratio < 1 else (376e3, 241e3)
    names = ("median_ns", "ci_low_ns", "ci_high_ns")
    records = [make_record(NAME, measured=dict.fromkeys(names, median)) for median in medians]
    apart = dataclasses.replace(one, before=records[0], after=records[1])
    found = apart.compare(0.95, 1)
    assert found.verdict is Difference.UNDECIDED
    assert found.interval[0] <= medians[1] / medians[0] <= found.interval[1]
    assert "the other way" in found.note
    agreeing = dataclasses.replace(one, before=records[1], after=records[0])
    assert agreeing.compare(0.95, 1).verdict in SHOWN
