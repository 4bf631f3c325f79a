from __future__ import annotations

import pytest

from gemmetry.domain.tables import Column, ColumnType, Table

COLUMNS = (
    Column("kernel", description="Name of the kernel."),
    Column("count", ColumnType.INTEGER),
    Column("sum_ns", ColumnType.NUMBER, "ns", format=lambda v: f"{v / 1e3:g} µs", absent="–"),
    Column("tags", ColumnType.TEXTS),
)
TABLE = Table("kernels", COLUMNS, [("a", 1, 2500.0, ["x", "y"]), ("b", 2, None, [])])


def test_records_select_and_values_follow_the_columns():
    records = [
        {"kernel": "a", "count": 1, "sum_ns": 2500.0, "tags": ["x", "y"]},
        {"kernel": "b", "count": 2, "sum_ns": None, "tags": []},
    ]
    assert TABLE.records() == records
    assert Table.from_records("kernels", COLUMNS, records).records() == records
    assert TABLE.values("sum_ns") == [2500.0, None]
    chosen = TABLE.select(["count", "kernel"])
    assert chosen.names == ("count", "kernel")
    assert chosen.rows == [[1, "a"], [2, "b"]]
    empty = Table("kernels", COLUMNS)
    assert empty.select(["count"]).names == ("count",)
    assert empty.records() == empty.values("count") == []


def test_what_is_missing_or_occurs_twice_is_named():
    for look_up in (lambda: TABLE.select(["kernel", "time"]), lambda: TABLE.values("time")):
        with pytest.raises(KeyError, match="kernels has no column 'time'"):
            look_up()
    with pytest.raises(ValueError, match="kernels: columns occur twice: count"):
        Table("kernels", (*COLUMNS, Column("count")))
    with pytest.raises(KeyError, match="count"):
        Table.from_records("kernels", COLUMNS, [{"kernel": "a"}])
    with pytest.raises(ValueError):
        Table("kernels", COLUMNS, [("a", 1)]).records()


def test_labels_and_meanings_have_the_unit_where_cells_do_not():
    assert COLUMNS[2].label == "sum"
    assert Column("sum_ns", ColumnType.NUMBER, "ns").label == "sum_ns"
    assert Column("gflops", heading="speed").label == "speed"
    assert Column("sum_us", unit="µs", description="total time").meaning == "total time (in µs)"
    assert Column("count", description="Calls.").meaning == "Calls"
    assert Column("x", unit="B").meaning == ""


@pytest.mark.parametrize(("column", "value", "text"), [
    (COLUMNS[2], 2500.0, "2.5 µs"),
    (COLUMNS[2], None, "–"),
    (COLUMNS[0], None, ""),
    (COLUMNS[1], 3, "3"),
    (COLUMNS[3], ["x", "y"], "x, y"),
    (Column("is_ok", ColumnType.BOOLEAN), True, "yes"),
    (Column("is_ok", ColumnType.BOOLEAN), False, "no"),
    (Column("parts", ColumnType.MAPPING), {"a": 1, "b": "c"}, "a=1, b=c"),
])  # fmt: skip
def test_values_are_formatted(column, value, text):
    assert column.text(value) == text
