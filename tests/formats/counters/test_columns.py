from __future__ import annotations

import numpy as np

from gemmetry.formats.counters.launches import Columns, LaunchInfo


def test_values_texts_and_what_is_missing():
    columns = Columns(3)
    columns.put(0, "a", 1, "ns")
    columns.put(2, "a", 2.5, "ns")
    columns.put(1, "b", "text")
    columns.put(1, "c", None, "byte")
    columns.put(0, "d", "")
    table = columns.table("ncu", [LaunchInfo(name="k")] * 3, problems=["p"])
    assert [one.metrics() for one in table] == [{"a": 1}, {}, {"a": 2.5}]
    assert [one.texts() for one in table] == [{}, {"b": "text"}, {}]
    assert table.units == {"a": "ns", "c": "byte"}
    assert table.problems == ["p"]


def test_numbers_that_no_float_holds_are_missing():
    columns = Columns(5)
    for row, value in enumerate((10**400, float("inf"), float("nan"), -(10**30), 2**64)):
        columns.put(row, "a", value)
    found = columns.table("ncu", [LaunchInfo(name="k")] * 5).values["a"]
    assert np.isnan(found[:3]).all()
    assert found[3:].tolist() == [-1e30, 2.0**64]
