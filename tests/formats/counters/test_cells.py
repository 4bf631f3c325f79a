from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gemmetry.formats.counters.launches import (
    Columns,
    LaunchInfo,
    integer,
    is_missing,
    number,
    triple,
)


@given(st.one_of(st.integers(-(10**15), 10**15), st.floats(-1e12, 1e12).map(lambda x: round(x, 2))))
def test_thousands_separators_change_nothing(value):
    assert number(f"{value:,}") == number(str(value)) == value


def test_numbers_sizes_and_what_is_missing():
    for text in ("1,5", "1,2345", "12,34,567", ",123", "1,,234", "abc", "1 2"):
        assert number(text) is None, text
    for text in ("", " ", "n/a", "N/A", "(!) n/a", "no data", "nan", "-nan", "inf", "-inf"):
        assert is_missing(text) and number(text) is None, text
    assert not any(map(is_missing, ("0", "No-CC", "all", "PolicySpread")))
    assert (triple("(384, 1, 1)"), triple("384")) == ((384, 1, 1), None)
    assert [integer(text) for text in ("1,024", "1.5", "")] == [1024, None, None]


def test_numbers_that_no_float_holds_are_missing():
    columns = Columns(5)
    for row, value in enumerate((10**400, float("inf"), float("nan"), -(10**30), 2**64)):
        columns.put(row, "a", value)
    found = columns.table("ncu", [LaunchInfo(name="k")] * 5).values["a"]
    assert np.isnan(found[:3]).all()
    assert found[3:].tolist() == [-1e30, 2.0**64]
