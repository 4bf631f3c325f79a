from __future__ import annotations

import csv
import dataclasses
import errno
import io
import os

import fastexcel
import polars
import pytest

from gemmetry.dispatches.page import render_notebook_table
from gemmetry.dispatches.results import write
from gemmetry.domain.errors import RequestError, StorageError, UnknownNameError
from gemmetry.domain.record import ResultSet
from gemmetry.results.emit import every_form

MAGIC = {
    ".csv": b"note,dispatch,", ".json": b"{\n", ".parquet": b"PAR1", ".xlsx": b"PK\x03\x04",
    ".md": b"# ", ".html": b"<!doctype html>", ".xml": b"<?xml", ".png": b"\x89PNG",
    ".svg": b"<?xml",
}  # fmt: skip


@pytest.mark.parametrize("suffix", every_form())
def test_suffix_picks_the_format(result_set, small_result_set, tmp_path, suffix):
    if suffix == ".svg":  # drawn as .png is
        result_set = small_result_set
    path = tmp_path / f"out{suffix.upper() if suffix == '.csv' else suffix}"
    write(result_set, path)
    assert path.read_bytes().startswith(MAGIC[suffix])


@pytest.mark.parametrize("suffix", every_form())
def test_a_failed_write_leaves_the_old_file(small_result_set, tmp_path, monkeypatch, suffix):
    path = tmp_path / f"out{suffix}"
    path.write_bytes(b"old")

    def full(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError):
        write(small_result_set, path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_no_file_shows_an_interval_that_there_is_none_of(make_record, tmp_path):
    """For a single sample: empty cells, null, and n/a in readable formats."""
    record = make_record("matmul_64x64x64_f32t_f32t_f32t")
    single = dataclasses.replace(
        record.measurement, ci_low_ns=None, ci_high_ns=None, sample_count=1
    )
    results = ResultSet(title="x", records=[dataclasses.replace(record, measurement=single)])
    for suffix in (".csv", ".json", ".parquet", ".xlsx", ".md"):
        write(results, tmp_path / f"out{suffix}")
    [row] = csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text()))
    assert (row["ci_low_ns"], row["ci_high_ns"]) == ("", "")
    assert float(row["median_ns"]) == single.median_ns
    text = (tmp_path / "out.json").read_text().replace(" ", "")
    assert '"ci_low_ns":null' in text
    assert polars.read_parquet(tmp_path / "out.parquet")["ci_high_ns"].to_list() == [None]
    sheet = fastexcel.read_excel(tmp_path / "out.xlsx").load_sheet("records").to_polars()
    assert sheet["ci_low_ns\n[ns]"].to_list() == [None]
    assert sheet["median_ns\n[ns]"].to_list() == [pytest.approx(single.median_ns)]
    assert "n/a | n/a |" in (tmp_path / "out.md").read_text()
    assert " n/a" in render_notebook_table(results)
    assert "±" not in render_notebook_table(results)


def test_append_is_for_csv(small_result_set, tmp_path):
    path = tmp_path / "out.csv"
    write(small_result_set, path, append=True)
    once = path.read_text()
    write(small_result_set, path, append=True)
    assert path.read_text() == once + once.split("\n", 1)[1]
    with pytest.raises(RequestError, match="cannot append"):
        write(small_result_set, tmp_path / "out.json", append=True)


def test_columns_are_refused_where_they_mean_nothing(small_result_set, tmp_path):
    with pytest.raises(RequestError, match="columns"):
        write(small_result_set, tmp_path / "out.json", columns=["provider"])
    with pytest.raises(UnknownNameError):
        write(small_result_set, tmp_path / "out.csv", columns=["providre"])
    assert list(tmp_path.iterdir()) == []


def test_unknown_baseline_is_refused(small_result_set, tmp_path):
    with pytest.raises(UnknownNameError):
        write(small_result_set, tmp_path / "out.html", baseline="cublas")


def test_columns_and_baseline_take_effect(small_result_set, tmp_path):
    write(small_result_set, tmp_path / "out.csv", columns=["provider", "seed"])
    assert (tmp_path / "out.csv").read_text().startswith("provider,seed\niree,42\n")
    write(small_result_set, tmp_path / "out.html", baseline="iree")
    assert "geometric mean vs iree" in (tmp_path / "out.html").read_text()
