from __future__ import annotations

import numpy as np
import pytest
from tests.dispatches.conftest import noisy_samples

from gemmetry.dispatches.comparison import compare
from gemmetry.domain.errors import RequestError
from gemmetry.domain.record import ResultSet
from gemmetry.statistics.comparison import Difference

SQUARE = "matmul_512x512x512_f32t_f32t_f32t"


def _experiment(title, records, **fields):
    return ResultSet(title=title, records=records, samples=noisy_samples, **fields)


def test_comparisons(case, record_of):
    """Lines are records of experiments a, b and c, and options of ``compare``. What is slower,
    faster and the same is in the golden outputs of comparisons."""
    records, options = {}, {}
    for what, plain, given in case.calls():
        if what == "option":
            options |= given
        else:
            records.setdefault(what, []).append(record_of(plain[0], plain[1:], given))
    lines = []
    try:
        found = compare([_experiment(*one) for one in records.items()], **options)
    except RequestError as error:
        case.check([f"error: {error.message}", f"hint: {error.hint}"])
        return
    for one in found.candidates:
        for change in one.changes:
            ends = {"low": change.comparison and change.comparison.ratio_low,
                    "high": change.comparison and change.comparison.ratio_high}  # fmt: skip
            place = f"{one.label} {change.before.operation} on {change.before.device}"
            lines.append((place, {"verdict": change.verdict, "ratio": change.ratio, **ends,
                                  "regression": change.is_regression,
                                  "note": change.note}))  # fmt: skip
        lines.append((one.label, {"only_first": one.only_first, "only": one.only_candidate,
                                  "inputs": one.input_differences}))  # fmt: skip
    case.check([*lines, ("all", {"has_regression": found.has_regression})])


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
