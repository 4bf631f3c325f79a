"""The files of the sweep analysis document."""

from __future__ import annotations

import csv
from dataclasses import replace

import openpyxl
import pytest

from gemmetry.documents import sweep_plots as plots
from gemmetry.documents.sweep_products import STEPS, check_steps, write_products
from gemmetry.domain.errors import RequestError
from gemmetry.results import tables as extras

EVERYTHING = {
    "256thread/collective_reports/collective_4ch.xlsx",
    "256thread/collective_reports/collective_8ch.xlsx",
    "512thread/collective_reports/collective_4ch.xlsx",
    "gpu_timeline_all_configs_mean.xlsx",
    "nccl_master_all_configs.csv",
    "nccl_master_all_configs.xlsx",
    "plots/variance_by_channels_boxplot.png",
    "plots/variance_by_ranks_boxplot.png",
    "plots/variance_by_threads_boxplot.png",
    "plots/variance_thread_channel_interaction.png",
    "plots/variance_violin_combined.png",
    "top2_gemm_kernels_time_variance.csv",
    "top2_gemm_kernels_time_variance_with_collective_overlap.csv",
    "top2_gemm_kernels_time_variance_with_timestamps.csv",
}


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_every_file_under_its_name(made_products, tmp_path):
    written = write_products(made_products, tmp_path, top_k=2)
    assert files(tmp_path) == EVERYTHING
    assert {str(path.relative_to(tmp_path)) for path in written.paths} == EVERYTHING
    assert written.problems == []
    for plot in (tmp_path / "plots").iterdir():
        assert plot.read_bytes().startswith(b"\x89PNG")
    book = openpyxl.load_workbook(tmp_path / "gpu_timeline_all_configs_mean.xlsx")
    assert book.sheetnames == ["All_Data", "Pivot_Time_ms", "Pivot_Percent", "Summary_By_Config",
                               "columns"]  # fmt: skip
    master = openpyxl.load_workbook(tmp_path / "nccl_master_all_configs.xlsx")["NCCL_Data"]
    with (tmp_path / "nccl_master_all_configs.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == [cell.value for cell in master[1]]
    assert len(rows) == master.max_row == 1 + 3
    book = openpyxl.load_workbook(
        tmp_path / "256thread/collective_reports/collective_4ch.xlsx", read_only=True
    )
    assert book.sheetnames == [
        "nccl_summary_implicit_sync", "nccl_summary_long", "nccl_long", "nccl_implicit_sync",
        "straggler_summary", "columns",
    ]  # fmt: skip


@pytest.mark.parametrize("step", [step for step in STEPS if step not in ("plots", "collectives")])
def test_a_step_alone(made_products, tmp_path, step):
    written = write_products(made_products, tmp_path, [step], geometric=True)
    (path,) = written.paths
    name = {
        "variance": "top5_gemm_kernels_time_variance.csv",
        "timestamps": "top5_gemm_kernels_time_variance_with_timestamps.csv",
        "overlap": "top5_gemm_kernels_time_variance_with_collective_overlap.csv",
        "timeline": "gpu_timeline_all_configs_geomean.xlsx",
    }[step]
    assert files(tmp_path) == {path.name} == {name}


def test_workbooks_leave_out_what_they_do_not_show(made_products, tmp_path):
    points = [
        replace(point, gemms=tuple(replace(gemm, traced=None) for gemm in point.gemms))
        for point in made_products.points
    ]
    found = replace(made_products, points=points, is_traced=False)
    written = write_products(found, tmp_path, ["variance", "timestamps", "overlap", "collectives"])
    assert files(tmp_path) == {
        "top5_gemm_kernels_time_variance.csv", "nccl_master_all_configs.csv",
        "nccl_master_all_configs.xlsx",
    }  # fmt: skip
    assert [problem.split(" is ")[0] for problem in written.problems] == [
        "top5_gemm_kernels_time_variance_with_timestamps.csv",
        "top5_gemm_kernels_time_variance_with_collective_overlap.csv",
    ]


def test_a_sweep_without_anything_names_what_is_missing(made_products, tmp_path):
    points = [replace(point, gemms=(), timelines={}) for point in made_products.points]
    found = replace(made_products, points=points, collectives=lambda point: [])
    written = write_products(found, tmp_path)
    assert len(written.problems) == len(STEPS)
    assert files(tmp_path) == {name.replace("top2", "top5") for name in EVERYTHING
                               if name.startswith("top2")}  # fmt: skip


def test_an_unknown_step():
    with pytest.raises(RequestError, match="no step 'variances'") as caught:
        check_steps(["variances"])
    assert "variance, timestamps" in caught.value.hint


def test_a_missing_library_costs_its_files_only(made_products, tmp_path, monkeypatch):
    monkeypatch.setattr(
        extras.importlib.util, "find_spec", lambda name: None if name == "xlsxwriter" else object()
    )
    monkeypatch.setattr(plots, "sweep_plots", lambda points: {"plot.png": b""})
    written = write_products(made_products, tmp_path, top_k=2)
    assert files(tmp_path) == {"plots/plot.png", *(n for n in EVERYTHING if n.startswith("top2"))}
    assert [problem.partition(" ")[0] for problem in written.problems] == [
        "timeline",
        "collectives",
    ]
    assert all("gemmetry[analysis]" in problem for problem in written.problems)
    with pytest.raises(RequestError, match="xlsxwriter"):
        write_products(made_products, tmp_path, ["timeline"])
