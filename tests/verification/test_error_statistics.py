from __future__ import annotations

import pytest

from gemmetry.verification.comparison import ErrorStatistics, RoundingBias


def test_parts_add_up():
    whole = ErrorStatistics(elements=10)
    whole.add(ErrorStatistics(4, bad_count=1, max_ratio=2.0, squared_error=1.0, first_bad="one"))
    whole.add(
        ErrorStatistics(6, warned_count=3, max_ratio=0.5, squared_reference=4.0, first_bad="two")
    )
    assert (whole.elements, whole.bad_count, whole.warned_count) == (10, 1, 3)
    assert whole.max_ratio == 2.0
    assert whole.first_bad == "one"
    assert whole.relative_frobenius == 0.5


def test_no_norm_where_the_reference_is_zero():
    assert ErrorStatistics(1, squared_error=1.0).relative_frobenius is None
    assert ErrorStatistics(1).relative_frobenius == 0.0


@pytest.mark.parametrize(
    ("outward", "upward", "words"),
    [(0.0, 0.0, ""), (29.0, -29.0, ""), (-5000.0, 0.0, "-0.5 ulp away from zero"),
     (0.0, 5000.0, "+0.5 ulp upward")],
)  # fmt: skip
def test_bias_of_stochastic_rounding(outward, upward, words):
    bias = RoundingBias(count=10_000, upward=upward, outward=outward, drift=10.0)
    assert (bias.problem == "") is (words == "")
    assert words in bias.problem
    statistics = ErrorStatistics(10_000)
    assert statistics.bias_problem == ""
    statistics.add(ErrorStatistics(10_000, rounding=bias))
    assert statistics.bias_problem == bias.problem


def test_scatter_of_the_accumulation_is_granted():
    assert RoundingBias(count=100, outward=50.0).problem
    assert not RoundingBias(count=100, outward=50.0, squared_scatter=400.0).problem
