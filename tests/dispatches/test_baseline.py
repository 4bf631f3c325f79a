"""Speeds relative to a baseline, and who is fastest, of the records of ``baseline.txt``."""

from __future__ import annotations

import math
import zlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.dispatches.analysis import (
    baseline_label,
    default_baseline,
    find_run_marks,
    geometric_mean,
    group_by_problem,
)
from gemmetry.dispatches.comparison import compare_with_baseline, find_leader, judged_speedups
from gemmetry.domain.record import BuildFacts, ResultSet

SQUARE = "matmul_512x512x512_f32t_f32t_f32t"
ODD = "matmul_257x129x65_f32t_f32t_f32t"
LEADER = ("name", "is_configuration", "operations", "fastest", "shown", "ratio", "marked",
          "unverified")  # fmt: skip


def shown(records, baseline, **options):
    reads, drift = [], np.random.default_rng(1).normal(1.0, 0.1, 12)

    def rounds(one):
        reads.append(one)
        seed = zlib.crc32(f"{one.provider}{one.dispatch}".encode())
        noise = drift * np.random.default_rng(seed).normal(1, 1e-3, 12)
        return {turn: [one.measurement.median_ns * noise[turn]] * 5 for turn in range(12)}

    results = ResultSet(title="x", records=records, rounds=rounds)
    leader = find_leader(results, find_run_marks(records))
    problems = {"problems": len(group_by_problem(records)), "default": default_baseline(records)}
    yield "all", {**problems, **{name: getattr(leader, name, None) for name in LEADER}}
    reads.clear()
    comparison = compare_with_baseline(results, baseline, **options)
    yield "read", {"times": len(reads), "regression": comparison.has_regression}
    for change in (one for found in comparison.candidates for one in found.changes):
        judged = change.comparison
        yield f"{change.after.provider} over {change.before.provider}", {
            "verdict": change.verdict, "ratio": change.ratio, "relevant": judged.relevant,
            "family": judged.family, "pairing": judged.pairing, "note": change.note,
        }  # fmt: skip
    found = judged_speedups(results, baseline)
    for one in records:
        values = {"ratio": found.of(one), "difference": found.difference(one)}
        yield f"{one.provider} {one.dispatch} {one.environment_id}", values
    for name, mean in found.means.items():
        yield name, {"mean": mean.ratio, "problems": mean.problems, "marked": mean.marked}


def test_relative_speeds(case, record_of):
    records, options = [], {"baseline": "torch"}
    for what, plain, fields in case.calls():
        if what == "option":
            options |= fields
        else:
            records.append(record_of(what, plain, fields))
    case.check(shown(records, **options))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=20))
def test_geometric_mean_lies_between_its_values_and_inverts_with_them(values):
    mean = geometric_mean(values)
    assert min(values) * (1 - 1e-9) <= mean <= max(values) * (1 + 1e-9)
    assert math.isclose(geometric_mean([1 / v for v in values]), 1 / mean, rel_tol=1e-9)
    assert geometric_mean([]) is None


def test_a_baseline_that_was_chosen_of_several_is_named_with_their_number(make_record):
    """Not that of a whole provider, whose fastest dispatch need not be the chosen one."""
    one, other, unknown = (
        make_record(name, "best", provider="cublaslt", facts=BuildFacts(algorithms_tried=tried))
        for name, tried in ((SQUARE, 8), (ODD, 3), (SQUARE, None))
    )
    default = make_record(SQUARE, "default", provider="cublaslt")
    assert baseline_label([one, other], "cublaslt:best") == "cublaslt:best (best of up to 8)"
    for records, name in (([unknown], "cublaslt:best"), ([default, one], "cublaslt:default"),
                          ([default, one], "cublaslt")):  # fmt: skip
        assert baseline_label(records, name) == name
