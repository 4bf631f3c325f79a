from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gemmetry.dispatches.comparison import compare_with_baseline, judged_speedups
from gemmetry.domain.errors import Outcome, Stage
from gemmetry.domain.record import ResultSet
from gemmetry.statistics.comparison import Difference, Pairing

SQUARE = "matmul_512x512x512_f32t_f32t_f32t"
ODD = "matmul_257x129x65_f32t_f32t_f32t"


@pytest.fixture
def results(make_record):
    """Two problems; iree is 20 % slower on one, and as fast as torch on the other."""
    drift = np.random.default_rng(1).normal(1.0, 0.1, 12)
    reads = []

    def rounds(record):
        reads.append(record)
        noise = np.random.default_rng(len(record.dispatch + record.provider)).normal(1, 1e-3, 12)
        level = record.measurement.median_ns
        return {turn: [level * drift[turn] * noise[turn]] * 5 for turn in range(12)}

    records = [
        make_record(SQUARE, provider="torch", gflops=120.0),
        make_record(SQUARE, provider="iree", gflops=100.0),
        make_record(ODD, provider="torch", gflops=100.0),
        make_record(ODD, provider="iree", gflops=100.0),
        make_record(ODD, provider="triton", outcome=Outcome.CRASH, stage=Stage.BUILD, reason="no"),
    ]
    return ResultSet(title="x", records=records, rounds=rounds), reads


def test_each_dispatch_is_compared_with_the_baseline_of_its_problem(results):
    result_set, reads = results
    comparison = compare_with_baseline(result_set, "torch")
    slower, same = comparison.candidates[0].changes
    assert (slower.before.provider, slower.after.provider) == ("torch", "iree")
    assert slower.comparison.pairing is Pairing.ROUNDS
    assert slower.comparison.verdict is Difference.SLOWER
    assert slower.ratio == pytest.approx(1.2, rel=0.01)
    assert same.comparison.verdict is Difference.NONE_SHOWN
    assert slower.comparison.family == same.comparison.family == 2
    assert not comparison.has_regression, "nothing changed"
    assert len(reads) == 4, "one reading each"


def test_speeds_come_with_their_verdicts(results):
    result_set, _ = results
    found = judged_speedups(result_set, "torch")
    base, slower, _, same, crashed = result_set.records
    assert found.difference(slower) is Difference.SLOWER
    assert found.difference(same) is Difference.NONE_SHOWN
    assert found.difference(base) is None
    assert found.difference(crashed) is None
    assert found.of(slower) == pytest.approx(1 / 1.2)


def test_the_relevant_difference_follows_the_device_and_the_methods(results, make_record):
    result_set, _ = results
    (candidate,) = compare_with_baseline(result_set, "torch").candidates
    assert candidate.changes[0].comparison.relevant == 0.02

    def change(base, other, **fields):
        records = [make_record(SQUARE, provider=provider, measured=measured, **fields)
                   for provider, measured in (("torch", base), ("iree", other))]  # fmt: skip
        view = dataclasses.replace(result_set, records=records)
        return compare_with_baseline(view, "torch").candidates[0].changes[0]

    for median_ns, relevant in ((1e6, 0.005), (6000.0, 0.01)):
        gpu = change(*[{"median_ns": median_ns}] * 2, target="cuda-sm_90")
        assert gpu.comparison.relevant == pytest.approx(relevant)
    found = change({"method": "graph", "median_ns": 8000.0}, {"method": "events"})
    assert found.comparison.relevant == pytest.approx(0.25), "2 µs of 8 µs"
    assert found.note.startswith("timed by graph and by events")
    # Intervals that lie apart around equal medians show nothing.
    apart = [{"median_ns": 1e6, "ci_low_ns": ns, "ci_high_ns": ns} for ns in (1e6, 2e6)]
    assert change(*apart).verdict == "undecided"
    requested = compare_with_baseline(result_set, "torch", threshold=0.5)
    assert requested.candidates[0].changes[0].verdict == "no difference shown"
