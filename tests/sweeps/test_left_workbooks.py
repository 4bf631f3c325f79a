"""A sweep of which only TraceLens' workbooks are left."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gemmetry.documents.sweep_files import (
    varying_gemms,
    varying_table,
    workbook_document,
)
from gemmetry.documents.sweep_workbooks import find_workbooks, workbook_sweep
from gemmetry.domain.errors import RequestError
from gemmetry.domain.tables import Column, Table
from gemmetry.results.tables import workbook
from gemmetry.sweeps.api import analyze
from gemmetry.sweeps.points import PointSelection

ALL = PointSelection()
WORKBOOKS = Path(__file__).parents[1] / "data" / "tracelens_workbooks"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, made_sweep):
    """The workbooks of the made sweep, without its traces."""
    place = tmp_path_factory.mktemp("left")
    analyze(made_sweep, analysis_dir=str(place / "tracelens_analysis"), workbooks=True).write(
        ["collectives"]
    )
    return place


@pytest.fixture(scope="module")
def found(folder):
    return workbook_sweep(find_workbooks(folder), ALL)


def test_workbooks_of_the_sweeps_in_a_folder_are_not_a_sweep(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "sweep")
    assert find_workbooks(tmp_path / "sweep") is not None
    assert find_workbooks(tmp_path) is None


def test_what_is_left_is_as_reviewed(found, products, dumped, golden):
    """Times are read from workbooks in whole ns; the slowest rank gives the whole trace."""
    document = workbook_document(found, "left")
    rows = [one for name in ("points", "pooled_gemms", "collectives") for one in document[name]]
    varying = varying_table("", varying_gemms(found.points, 5)).records()
    assert len(varying) == len(varying_gemms(products.points, 5))
    sheets = [sheet.records() for one in found.points for sheet in found.collectives(one)]
    golden("sweep_workbooks", dumped(*rows, *varying, *sheets))


def test_a_part_of_them(folder):
    part = workbook_sweep(find_workbooks(folder), PointSelection(threads=[256], ranks=[1]))
    assert [point.full_config for point in part.points] == ["256thread_4ch", "256thread_8ch"]
    assert {rank for point in part.points for rank in point.timelines} == {1}


def test_columns_are_found_by_name(tmp_path):
    kernel = {"name": "Cijk_Alik_Bljk_BBS_BH", "count": 3, "total_duration_us": 30.0,
              "median_duration_us": 9.0, "min_duration_us": 8.0,
              "max_duration_us": 13.0}  # fmt: skip
    cells = {"kernel_details__summarize_kernel_stats": repr([kernel]), "param: K": 8, "param: N": 4,
             "new column": 1, "param: M": 2, "name": "aten::mm"}  # fmt: skip
    tables = [
        Table("gpu_timeline", (Column("percent"), Column("type"), Column("time ms")),
              [(50.0, "busy_time", 4.0)]),
        Table("GEMM", tuple(map(Column, cells)), [tuple(cells.values())]),
    ]  # fmt: skip
    path = tmp_path / "256thread" / "individual_reports" / "perf_28ch_rank0.xlsx"
    path.parent.mkdir(parents=True)
    path.write_bytes(workbook(tables))
    (path.parent / "notes.xlsx").write_bytes(b"not one of them")
    (point,) = workbook_sweep(find_workbooks(tmp_path), ALL).points
    (gemm,) = point.gemms
    assert (gemm.kind.kernel, gemm.kind.m, gemm.kind.n, gemm.kind.k) == (kernel["name"], 2, 4, 8)
    assert (gemm.min_us, gemm.median_us, gemm.max_us, gemm.spread_us) == (8.0, 9.0, 13.0, 5.0)
    assert gemm.row["new column"] == 1
    assert point.timelines == {0: {"busy_time": (4.0, 50.0)}}


def test_a_damaged_workbook_is_named_and_the_rest_read(tmp_path):
    place = tmp_path / "256thread" / "individual_reports"
    place.mkdir(parents=True)
    (place / "perf_28ch_rank0.xlsx").write_bytes(b"PK damaged")
    with pytest.raises(RequestError, match="perf_28ch_rank0"):
        workbook_sweep(tmp_path, ALL)
    timeline = Table("gpu_timeline", tuple(map(Column, ("type", "time ms", "percent"))),
                     [("busy_time", 4.0, 50.0)])  # fmt: skip
    (place / "perf_28ch_rank1.xlsx").write_bytes(workbook([timeline]))
    found = workbook_sweep(tmp_path, ALL)
    assert list(found.points[0].timelines) == [1]
    assert len(found.problems) == 1
    assert "perf_28ch_rank0.xlsx" in found.problems[0]


def test_a_selection_without_workbooks_states_what_there_is(folder):
    with pytest.raises(RequestError) as caught:
        workbook_sweep(find_workbooks(folder), PointSelection(threads=[1024]))
    assert "256thread/individual_reports/perf_4ch_rank0.xlsx" in caught.value.hint


def test_workbooks_that_tracelens_wrote(tmp_path):
    place = tmp_path / "tracelens_analysis" / "256thread" / "individual_reports"
    place.mkdir(parents=True)
    shutil.copy(WORKBOOKS / "h200_fsdp_rank0of4_part.xlsx", place / "perf_28ch_rank0.xlsx")
    found = workbook_sweep(find_workbooks(tmp_path), ALL)
    first = varying_table("", varying_gemms(found.points, 5)).records()[0]
    assert (first["kernel_name"], first["m"], first["n"], first["k"]) == (
        "nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN", 16384, 12288, 4096,
    )  # fmt: skip
    assert first["time_diff_us"] == pytest.approx(2487.68 - 2161.76)
    assert first["col_name"] == "aten::mm"
    assert found.points[0].timelines[0]["busy_time"][0] > 0
    assert found.problems == []
