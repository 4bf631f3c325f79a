from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.dispatches.analysis import (
    baseline_label,
    default_baseline,
    fastest,
    fastest_per_provider,
    geometric_mean,
    group_by_problem,
    speedups,
)
from gemmetry.domain.errors import Outcome
from gemmetry.domain.record import BuildFacts

SQUARE = "matmul_512x512x512_f32t_f32t_f32t"
ODD = "matmul_257x129x65_f32t_f32t_f32t"


def test_problems_keep_targets_devices_and_distributions_apart(make_record):
    records = [
        make_record(SQUARE),
        make_record(SQUARE, target="cuda-sm_90", device="cuda:0"),
        make_record(SQUARE, target="cuda-sm_90", device="cuda:1"),
        make_record(SQUARE, distribution="normal"),
    ]
    assert len(group_by_problem(records)) == 4


def test_failed_dispatches_are_never_the_fastest(make_record):
    wrong = make_record(SQUARE, "a", outcome=Outcome.WRONG, reason="wrong")
    right = make_record(SQUARE, "b", gflops=1.0)
    assert fastest([wrong, right]) is right
    assert fastest([wrong]) is None
    assert fastest_per_provider([wrong]) == {}


def test_a_dispatch_in_two_environments_has_two_ratios(make_record):
    base = make_record(SQUARE, provider="torch", gflops=100.0)
    old = make_record(SQUARE, provider="iree", gflops=50.0, environment_id="old")
    new = make_record(SQUARE, provider="iree", gflops=200.0, environment_id="new")
    relative = speedups([base, old, new], "torch", {})
    assert relative.of(old) == pytest.approx(0.5)
    assert relative.of(new) == pytest.approx(2.0)


def test_default_baseline_is_a_library_measured_alongside_others(make_record):
    torch, numpy = make_record(SQUARE), make_record(SQUARE, provider="numpy")
    iree, triton = make_record(SQUARE, provider="iree"), make_record(SQUARE, provider="triton")
    assert default_baseline([torch, numpy, iree]) == "torch"
    assert default_baseline([numpy, iree]) == "numpy"
    assert default_baseline([torch]) is None
    assert default_baseline([iree, triton]) is None


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
