from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.dispatches.analysis import (
    baseline_label,
    check_baseline,
    default_baseline,
    fastest,
    fastest_per_provider,
    geometric_mean,
    group_by_problem,
    speedups,
)
from gemmetry.domain.errors import Outcome, UnknownNameError
from gemmetry.domain.record import BuildFacts

SQUARE = "matmul_512x512x512_f32t_f32t_f32t"
ODD = "matmul_257x129x65_f32t_f32t_f32t"


def test_ratios_and_their_geometric_mean_over_what_both_solved(make_record):
    """A ratio is the baseline's best over the record's time."""
    slow = make_record(SQUARE, "a", gflops=50.0)
    best = make_record(SQUARE, "b", gflops=100.0)
    other = make_record(SQUARE, provider="iree", gflops=400.0)
    rest = [make_record(ODD, gflops=100.0), make_record(ODD, provider="iree", gflops=100.0),
            make_record("matmul_8x8x8_f32t_f32t_f32t", provider="iree", gflops=1.0)]  # fmt: skip
    relative = speedups([slow, best, other, *rest], "torch", {})
    assert [relative.of(one) for one in (slow, best, other)] == pytest.approx([0.5, 1.0, 4.0])
    mean = relative.means["iree"]
    assert (mean.ratio, mean.problems) == (pytest.approx(2.0), 2)


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


def test_a_configuration_as_baseline_is_compared_with_its_own_provider_too(make_record):
    records = [
        make_record(SQUARE, "default", provider="iree", gflops=100.0, marks=("noisy: x",)),
        make_record(SQUARE, "tile", provider="iree", gflops=150.0),
        make_record(SQUARE, provider="torch", gflops=300.0),
        make_record(ODD, "tile", provider="iree", gflops=1.0),
    ]
    relative = speedups(records, "iree:default", {})
    assert relative.of(records[1]) == pytest.approx(1.5)
    assert relative.of(records[3]) is None
    assert relative.means["iree"].ratio == pytest.approx(1.5)
    assert relative.means["torch"].ratio == pytest.approx(3.0)
    assert (relative.means["torch"].problems, relative.means["torch"].marked) == (1, 1)
    for wrong in ("iree:defaut", "torhc"):
        with pytest.raises(UnknownNameError, match=r"default|torch"):
            check_baseline(records, wrong)


def test_a_baseline_that_was_chosen_of_several_is_named_with_their_number(make_record):
    def best(tried, name=SQUARE):
        return make_record(
            name, "best", provider="cublaslt", facts=BuildFacts(algorithms_tried=tried)
        )

    default = make_record(SQUARE, "default", provider="cublaslt")
    both = [best(8), best(3, ODD)]
    assert baseline_label(both, "cublaslt:best") == "cublaslt:best (best of up to 8)"
    assert baseline_label([best(None)], "cublaslt:best") == "cublaslt:best"
    assert baseline_label([default, best(8)], "cublaslt:default") == "cublaslt:default"
    # The fastest dispatch of a provider need not be the one that was chosen of several.
    assert baseline_label([default, best(8)], "cublaslt") == "cublaslt"
