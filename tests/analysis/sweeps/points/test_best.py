"""The best configuration of a sweep."""

from __future__ import annotations

from gemmetry.sweeps.points import find_best
from gemmetry.sweeps.rows import SweepConfiguration

A, B, C = (SweepConfiguration(256, channels) for channels in (4, 8, 16))


def test_a_repeated_difference_is_shown():
    found = find_best({A: [[11.0] * 3, [11.01] * 3], B: [[10.0] * 3, [10.01] * 3],
                       C: [[12.0] * 3, [12.02] * 3]})  # fmt: skip
    assert (found.first.configuration, found.verdict) == (B, "faster")
    assert found.second.configuration == A
    assert found.second.comparison.ratio > 1.09
    assert found.second.comparison.ratio_low > 1.01
    assert found.as_good == ()
    assert [one.runs for one in found.ranked] == [2, 2, 2]


def test_noise_between_runs_is_no_difference():
    """The repeats of each configuration differ more than the configurations."""
    found = find_best({A: [[10.0] * 9, [10.6] * 9], B: [[10.1] * 9, [10.7] * 9],
                       C: [[10.05] * 9, [10.55] * 9]})  # fmt: skip
    assert found.verdict in ("undecided", "no difference shown")
    assert {one.configuration for one in found.as_good} == {A, B, C} - {found.first.configuration}


def test_single_runs_are_undecided_however_many_steps_they_have():
    """Repeats that agree exclude a difference."""
    found = find_best({A: [[10.0, 10.01] * 50], B: [[12.0, 12.01] * 50]})
    assert (found.first.configuration, found.verdict) == (A, "undecided")
    assert found.second.comparison.interval is None
    found = find_best({A: [[10.0], [10.01]], B: [[10.01], [10.02]], C: [[10.03], [10.02]]})
    assert found.verdict == "no difference shown"
    assert len(found.as_good) == 2


def test_one_configuration_and_none():
    found = find_best({A: [[10.0]], B: [[]]})
    assert (found.verdict, found.second, found.as_good) == ("the only one", None, ())
    assert find_best({}) is None
    assert find_best({A: []}) is None
