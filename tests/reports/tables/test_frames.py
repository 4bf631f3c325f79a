from __future__ import annotations

import dataclasses
import io

import pytest

from gemmetry.domain.columns import COLUMNS
from gemmetry.reports.tables.frames import to_parquet, to_polars

polars = pytest.importorskip("polars")


def test_frame_has_every_column_with_its_type(result_set):
    frame = to_polars(result_set)
    assert frame.height == len(result_set.records)
    assert frame.columns == ["note", *(c.name for c in COLUMNS if c.name != "tags")]
    assert frame.schema["median_ns"] == polars.Float64
    assert frame.schema["m"] == polars.Int64
    assert frame.schema["marks"] == polars.List(polars.String)
    assert frame["outcome"].value_counts().height == 8
    assert frame["registers"].null_count() == frame.height


def test_parquet_reads_back_the_same(result_set):
    frame = to_polars(result_set)
    assert polars.read_parquet(io.BytesIO(to_parquet(result_set))).equals(frame)


def test_frames_of_two_runs_can_be_stacked(result_set):
    ok = [r for r in result_set.records if r.measurement is not None]
    failed = [r for r in result_set.records if r.measurement is None]
    frames = [
        to_polars(dataclasses.replace(result_set, records=part), [c.name for c in COLUMNS[:-1]])
        for part in (ok, [dataclasses.replace(r, tags={}) for r in failed])
    ]
    stacked = polars.concat(
        [f.select(c for c in f.columns if c != "note") for f in frames], how="vertical_relaxed"
    )
    assert stacked.height == len(result_set.records)


def test_no_records_make_an_empty_frame_with_columns(result_set):
    frame = to_polars(dataclasses.replace(result_set, records=[]))
    assert frame.height == 0
    assert frame.columns == [c.name for c in COLUMNS]
