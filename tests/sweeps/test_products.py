"""The files of the sweep analysis document."""

from __future__ import annotations

from dataclasses import replace

import openpyxl
import pytest

from gemmetry.documents import sweep_plots as plots
from gemmetry.documents.sweep_workbooks import STEPS, check_steps, write_products
from gemmetry.domain.errors import RequestError
from gemmetry.results import tables as extras

VARIANCE = {f"top2_gemm_kernels_time_variance{rest}.csv"
            for rest in ("", "_with_collective_overlap", "_with_timestamps")}  # fmt: skip
SHEETS = {
    **{f"{place}ch.xlsx": [
        "nccl_summary_implicit_sync", "nccl_summary_long", "nccl_long", "nccl_implicit_sync",
        "straggler_summary", "columns",
    ] for place in ("256thread/collective_reports/collective_4",
                    "256thread/collective_reports/collective_8",
                    "512thread/collective_reports/collective_4")},
    "gpu_timeline_all_configs_mean.xlsx": [
        "All_Data", "Pivot_Time_ms", "Pivot_Percent", "Summary_By_Config", "columns"],
    "nccl_master_all_configs.xlsx": ["NCCL_Data", "columns"],
}  # fmt: skip
EVERYTHING = {*VARIANCE, *SHEETS, "nccl_master_all_configs.csv", *(
    f"plots/variance_{name}.png" for name in
    ("by_channels_boxplot", "by_ranks_boxplot", "by_threads_boxplot", "thread_channel_interaction",
     "violin_combined")
)}  # fmt: skip


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_every_file_under_its_name(products, tmp_path):
    written = write_products(products, tmp_path, top_k=2)
    assert files(tmp_path) == EVERYTHING
    assert {str(path.relative_to(tmp_path)) for path in written.paths} == EVERYTHING
    assert written.problems == []
    for name, sheets in SHEETS.items():
        assert openpyxl.load_workbook(tmp_path / name, read_only=True).sheetnames == sheets
    assert len((tmp_path / "nccl_master_all_configs.csv").read_text().splitlines()) == 1 + 3


@pytest.mark.parametrize(
    ("step", "name"),
    [("variance", "top5_gemm_kernels_time_variance.csv"),
     ("timeline", "gpu_timeline_all_configs_geomean.xlsx")],
)  # fmt: skip
def test_a_step_alone(products, tmp_path, step, name):
    write_products(products, tmp_path, [step], geometric=True)
    assert files(tmp_path) == {name}


def test_what_is_missing_is_named(products, tmp_path):
    """Workbooks do not show when a GEMM ran; a sweep without anything leaves empty tables."""
    points = [
        replace(point, gemms=tuple(replace(gemm, traced=None) for gemm in point.gemms))
        for point in products.points
    ]
    found = replace(products, points=points, is_traced=False)
    written = write_products(found, tmp_path / "a", ["variance", "timestamps", "overlap"], top_k=2)
    assert files(tmp_path / "a") == {"top2_gemm_kernels_time_variance.csv"}
    assert {one.split(" is ")[0] for one in written.problems} == VARIANCE - files(tmp_path / "a")
    empty = [replace(point, gemms=(), timelines={}) for point in products.points]
    found = replace(products, points=empty, collectives=lambda point: [])
    written = write_products(found, tmp_path / "b", top_k=2)
    assert len(written.problems) == len(STEPS)
    assert files(tmp_path / "b") == VARIANCE
    with pytest.raises(RequestError, match="'variances'") as caught:
        check_steps(["variances"])
    assert "variance, timestamps" in caught.value.hint


def test_a_missing_library_costs_its_files_only(products, tmp_path, monkeypatch):
    monkeypatch.setattr(
        extras.importlib.util, "find_spec", lambda name: None if name == "xlsxwriter" else object()
    )
    monkeypatch.setattr(plots, "sweep_plots", lambda points: {"plot.png": b""})
    written = write_products(products, tmp_path, top_k=2)
    assert files(tmp_path) == {"plots/plot.png", *VARIANCE}
    for problem, step in zip(written.problems, ("timeline", "collectives"), strict=True):
        assert problem.startswith(step) and "gemmetry[analysis]" in problem
    with pytest.raises(RequestError, match="xlsxwriter"):
        write_products(products, tmp_path, ["timeline"])
