from __future__ import annotations

import numpy as np
import pytest

from gemmetry.dispatches.comparison import compare
from gemmetry.domain.errors import Outcome, RequestError, Stage
from gemmetry.domain.record import ResultSet
from gemmetry.statistics.comparison import Difference

SQUARE = "matmul_512x512x512_f32t_f32t_f32t"
ODD = "matmul_257x129x65_f32t_f32t_f32t"


def _samples(record):
    noise = np.random.default_rng(7).normal(1.0, 0.01, 40)
    return [] if record.measurement is None else list(record.measurement.median_ns * noise)


def _experiment(title, records, **fields):
    return ResultSet(title=title, records=records, samples=_samples, **fields)


def _pair(make_record, *speeds, **fields):
    """Experiments of one record each, with these speeds."""
    return [_experiment(title, [make_record(SQUARE, gflops=speed, **fields)])
            for title, speed in zip("abc", speeds, strict=False)]  # fmt: skip


def test_a_small_difference_is_a_regression_where_the_reader_requests_it(make_record):
    """What is slower, faster and the same is in the golden outputs of comparisons."""
    pair = _pair(make_record, 100.0, 98.8)
    [change] = compare(pair).candidates[0].changes
    assert (change.verdict, change.is_regression) == ("no difference shown", False)
    assert "2 %" in change.note
    assert change.ratio == pytest.approx(100 / 98.8, rel=0.02)
    assert change.comparison.ratio_low < change.ratio < change.comparison.ratio_high
    assert compare(pair, threshold=0.0).has_regression


def test_a_dispatch_that_is_no_longer_ok_is_a_regression_and_one_that_is_ok_again_none(make_record):
    (before,) = _pair(make_record, 200.0)
    (broken,) = _pair(make_record, None, outcome=Outcome.CRASH, reason="signal 11",
                      stage=Stage.VERIFY)  # fmt: skip
    [change] = compare([before, broken]).candidates[0].changes
    assert (change.verdict, change.note, change.is_regression) == ("ok → crash", "signal 11", True)
    assert not compare([broken, before]).has_regression


def test_dispatches_of_one_side_and_several_candidates(make_record):
    before = _experiment("a", [make_record(SQUARE), make_record(ODD)])
    after = _experiment("b", [make_record(SQUARE), make_record(ODD, provider="iree")])
    candidate = compare([before, after]).candidates[0]
    assert [key[2:] for key in candidate.only_first] == [("torch", f"{ODD}_default")]
    assert [key[2:] for key in candidate.only_candidate] == [("iree", f"{ODD}_default")]
    candidates = compare(_pair(make_record, 100.0, 120.0, 80.0)).candidates
    assert [(one.label, one.changes[0].verdict) for one in candidates] == [
        ("B", "faster"), ("C", "slower"),
    ]  # fmt: skip


def test_what_cannot_be_compared_is_refused(make_record):
    first = _experiment("a", [make_record(SQUARE)])
    other = _experiment("b", [make_record(SQUARE, distribution="normal", seed=7)])
    for given, why in (([first], "nothing to compare"), ([first, other], "b on normal"),
                       ([first, _experiment("c", [make_record(ODD)])], "in common")):  # fmt: skip
        with pytest.raises(RequestError, match=why):
            compare(given)
    candidate = compare([first, other], allow_different_inputs=True).candidates[0]
    assert candidate.input_differences == (
        "distribution: offset_uniform vs normal", "seed: 42 vs 7",
    )  # fmt: skip
    apart = _experiment("d", [make_record(SQUARE, measured={"launches": "apart"})])
    with pytest.raises(RequestError, match=SQUARE) as refused:
        compare([first, apart], allow_different_inputs=True)
    assert "--launches" in refused.value.hint
    assert compare([apart, apart]).candidates


def test_devices_are_joined_separately_unless_runs_are_distributed_over_them(make_record):
    def on(device, gflops=100.0, dispatch=SQUARE):
        return make_record(dispatch, target="cuda-sm_90", device=device, gflops=gflops)

    before = _experiment("a", [on("cuda:0"), on("cuda:1", 200.0)])
    after = _experiment("b", [on("cuda:1", 200.0), on("cuda:0")])
    changes = compare([before, after]).candidates[0].changes
    assert [change.before.device for change in changes] == ["cuda:0", "cuda:1"]
    assert [change.ratio for change in changes] == pytest.approx([1.0, 1.0])
    distributed = [_experiment("x", [on(one), on(other, dispatch=ODD)])
                   for one, other in (("cuda:0", "cuda:1"), ("cuda:1", "cuda:0"))]  # fmt: skip
    assert len(compare(distributed).candidates[0].changes) == 2


def _disturbed(make_record, mark, samples):
    record = make_record(SQUARE, measured={"marks": (mark,) if mark else ()})
    return ResultSet(title="x", records=[record], samples=lambda _: list(samples))


@pytest.mark.parametrize("mark", ["busy: in 9 of 9 rounds", "two modes: 1 and 2", ""])
def test_disturbed_samples_show_a_difference_only_if_the_fastest_do(make_record, mark):
    quiet = np.random.default_rng(3).uniform(100, 103, 40)
    shared = np.concatenate([quiet[:8], 30 * quiet[8:]])
    before, after = _disturbed(make_record, mark, shared), _disturbed(make_record, "", quiet)
    [change] = compare([before, after]).candidates[0].changes
    if not mark:
        assert change.verdict == "faster", "nobody was seen to disturb"
        return
    assert change.verdict == "undecided"
    assert "0.991" in change.note
    assert change.comparison.ratio_low < 0.05 < 0.99 < change.comparison.ratio_high
    assert not compare([after, before]).has_regression
    really = _disturbed(make_record, "", quiet / 2)
    assert compare([before, really]).candidates[0].changes[0].verdict == "faster"
    slower = _disturbed(make_record, mark, 2 * shared)
    assert compare([after, slower]).has_regression


def test_a_difference_smaller_than_that_between_processes_does_not_count(make_record):
    """Unless the reader requests another threshold."""
    before = _experiment("a", [make_record(SQUARE, gflops=100.0)])
    spread = {"processes": 3, "process_spread": 0.08}
    after = _experiment("b", [make_record(SQUARE, gflops=95.0, measured=spread)])
    steady = _experiment("c", [make_record(SQUARE, gflops=95.0)])
    assert compare([before, steady]).has_regression
    for pair in ([before, after], [after, before]):
        [change] = compare(pair).candidates[0].changes
        assert change.verdict == "no difference shown"
        assert "by more than 8 %" in change.note
    assert compare([before, after], threshold=0.02).has_regression


def test_far_apart_medians_are_never_called_no_difference(make_record):
    """The rounds that both share are alike; those that A took after B had ended are faster, and
    decide A's median and its interval."""
    noise = np.random.default_rng(5).normal(1, 1e-3, (2, 48))
    rounds = {
        "a": {turn: [1e6 * noise[0][turn] * (1 if turn < 12 else 0.8)] for turn in range(48)},
        "b": {turn: [1e6 * noise[1][turn]] for turn in range(12)},
    }

    def experiment(name):
        ns = float(np.median([value for (value,) in rounds[name].values()]))
        interval = {"median_ns": ns, "ci_low_ns": 0.99 * ns, "ci_high_ns": 1.01 * ns}
        record = make_record(SQUARE, measured=interval)
        return ResultSet(title=name, records=[record], rounds=lambda _: rounds[name])

    comparison = compare([experiment("a"), experiment("b")])
    [change] = comparison.candidates[0].changes
    assert change.verdict == "undecided"
    assert change.ratio == pytest.approx(1.0, abs=0.01)
    assert change.comparison.ratio_high == pytest.approx(1.25, abs=0.01)
    assert "ratio 1.25" in change.note
    [change] = compare([experiment("b")] * 2).candidates[0].changes
    assert change.verdict == "no difference shown"


def test_a_large_family_needs_more_rounds_and_says_so(make_record):
    """Among 20 comparisons, six rounds per side show a 40-fold difference and five do not; it is
    never shown as ≈."""

    def experiment(title, level, count):
        records = [make_record(f"matmul_{n}x8x8_f32t_f32t_f32t") for n in range(1, 21)]
        rounds = {turn + 100 * level: [level * (1e3 + turn)] for turn in range(count)}
        return ResultSet(title=title, records=records, rounds=lambda _: rounds)

    enough = compare([experiment("a", 1, 6), experiment("b", 40, 6)])
    assert enough.candidates[0].counted(Difference.SLOWER) == 20
    few = compare([experiment("a", 1, 5), experiment("b", 40, 5)])
    assert few.candidates[0].counted(Difference.UNDECIDED) == 20
    assert few.has_undecided
    [change, *_] = few.candidates[0].changes
    assert change.comparison.family == 20
    assert "at least 6" in change.note
