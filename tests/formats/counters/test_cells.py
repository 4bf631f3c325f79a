from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmetry.formats.counters.launches import integer, is_missing, number, triple


@given(st.one_of(st.integers(-(10**15), 10**15), st.floats(-1e12, 1e12).map(lambda x: round(x, 2))))
def test_thousands_separators_change_nothing(value):
    assert number(f"{value:,}") == number(str(value)) == value


@pytest.mark.parametrize("text", ["1,5", "1,2345", "12,34,567", ",123", "1,,234", "abc", "1 2"])
def test_what_is_not_a_number_with_separators_is_none(text):
    assert number(text) is None


@pytest.mark.parametrize(
    "text", ["", " ", "n/a", "N/A", "(!) n/a", "no data", "nan", "-nan", "inf", "-inf"]
)
def test_missing_values(text):
    assert is_missing(text)
    assert number(text) is None


@pytest.mark.parametrize("text", ["0", "No-CC", "all", "PolicySpread"])
def test_values_that_are_there(text):
    assert not is_missing(text)


def test_sizes_and_whole_numbers():
    assert triple("(384, 1, 1)") == (384, 1, 1)
    assert triple("384") is None
    assert integer("1,024") == 1024
    assert integer("1.5") is None
    assert integer("") is None
