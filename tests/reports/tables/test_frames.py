from __future__ import annotations

import dataclasses
import io
import math

import pytest

from gemmetry.dispatches.results import record_table
from gemmetry.domain.columns import COLUMNS
from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.results.tables import frame as frame_of
from gemmetry.results.tables import parquet

polars = pytest.importorskip("polars")


def test_frame_has_every_column_with_its_type(result_set):
    frame = frame_of(record_table(result_set.records))
    assert frame.height == len(result_set.records)
    assert frame.columns == ["note", *(c.name for c in COLUMNS if c.name != "tags")]
    assert frame.schema["median_ns"] == polars.Float64
    assert frame.schema["m"] == polars.Int64
    assert frame.schema["marks"] == polars.List(polars.String)
    assert frame["outcome"].value_counts().height == 8
    assert frame["registers"].null_count() == frame.height


def test_parquet_reads_back_the_same(result_set):
    frame = frame_of(record_table(result_set.records))
    assert polars.read_parquet(io.BytesIO(parquet(record_table(result_set.records)))).equals(frame)


def test_frames_of_two_runs_can_be_stacked(result_set):
    ok = [r for r in result_set.records if r.measurement is not None]
    failed = [r for r in result_set.records if r.measurement is None]
    frames = [
        frame_of(record_table(part, [c.name for c in COLUMNS[:-1]]))
        for part in (ok, [dataclasses.replace(r, tags={}) for r in failed])
    ]
    stacked = polars.concat([f.select(c for c in f.columns if c != "note") for f in frames])
    assert stacked.height == len(result_set.records)


def test_no_records_make_an_empty_frame_with_columns():
    frame = frame_of(record_table([]))
    assert frame.height == 0
    assert frame.columns == [c.name for c in COLUMNS]


def test_types_follow_the_columns_whatever_the_rows_hold():
    columns = (
        Column("count", ColumnType.INTEGER), Column("share", ColumnType.NUMBER),
        Column("is_ok", ColumnType.BOOLEAN), Column("name"), Column("parts", ColumnType.TEXTS),
        Column("tags", ColumnType.MAPPING),
    )  # fmt: skip
    rows = [(1, 2, True, "\ud800", ("a",), {"k": 1}), (None, math.inf, None, 7, [], {})]
    frame, empty = frame_of(Table("t", columns, rows)), frame_of(Table("t", columns))
    assert frame.schema == empty.schema
    assert frame.dtypes == [
        polars.Int64, polars.Float64, polars.Boolean, polars.String,
        polars.List(polars.String), polars.String,
    ]  # fmt: skip
    assert frame.rows() == [
        (1, 2.0, True, "\ufffd", ["a"], "k=1"), (None, None, None, "7", [], ""),
    ]  # fmt: skip
    large = frame_of(Table("t", columns[:1], [(2**70,), (None,)]))
    assert large["count"].to_list() == [2.0**70, None]
