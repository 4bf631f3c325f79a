from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.counters.api import read_reports
from gemmetry.domain.errors import RequestError

DATA = Path(__file__).parents[2] / "data" / "counters"
RAW = DATA / "h200_cublas_bf16_4096_raw.csv.gz"
VCOPY = DATA / "mi300x_vcopy_pmc_perf.csv.gz"


def test_reports_of_different_tools_as_one_table():
    reports = read_reports([RAW, VCOPY], ["dram__bytes_read.sum", "SQ_WAVES", "launch__func_*"])
    rows = reports.wide().records()
    assert [row["tool"] for row in rows] == ["ncu"] + ["rocprof-compute"] * 3
    assert [row["SQ_WAVES"] for row in rows] == [None, 16384, 16384, 16384]
    assert rows[0]["dram__bytes_read.sum"] == pytest.approx(148_237_568)
    assert rows[0]["launch__func_cache_config"] == "CachePreferNone"
    assert (rows[0]["grid_x"], rows[0]["grid_y"], rows[0]["cluster_x"]) == (2, 66, 2)
    assert rows[1]["cluster_x"] is None
    assert rows[0]["duration_ns"] == 180_992


def test_the_document_has_everything():
    reports = read_reports([RAW])
    (report,) = reports.document()["reports"]
    (launch,) = report["launches"]
    assert report["file"] == str(RAW)
    assert launch["kernel"].startswith("nvjet_sm90")
    assert launch["grid"] == (2, 66, 1)
    assert len(launch["metrics"]) > 2200
    assert set(launch["metrics"]) <= set(report["units"])
    assert launch["texts"]["device__attribute_display_name"] == "NVIDIA H200"


def test_a_text_of_one_launch_where_another_has_a_number(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text('"ID","Kernel Name","a"\n"","",""\n"0","k","5"\n"1","k","text"\n"2","k",""\n')
    assert [row["a"] for row in read_reports([file]).wide().records()] == ["5", "text", None]


def test_a_file_that_cannot_be_read_next_to_others(tmp_path):
    other = tmp_path / "a.txt"
    other.write_text("x")
    reports = read_reports([other, RAW], ["gpu__time_duration.sum"])
    assert [table.source for table in reports.tables] == [RAW]
    assert list(reports.errors) == [str(other)]
    assert reports.document()["errors"][0]["file"] == str(other)
    assert "no hardware counters" in reports.problems()[0]


def test_no_report_and_no_such_metric(tmp_path):
    with pytest.raises(RequestError, match="cannot be read"):
        read_reports([tmp_path / "absent"])
    with pytest.raises(RequestError, match="none of 2 reports can be read"):
        read_reports([tmp_path / "absent", tmp_path / "other"])
    for pattern in ("dram__nonesuch", "nonesuch*"):
        with pytest.raises(RequestError, match="no launch has a metric"):
            read_reports([RAW], [pattern])
