"""The files that ``gemmetry sweep analyze`` writes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gemmetry.documents import sweep_plots

TOP = "top5_gemm_kernels_time_variance"


@pytest.fixture
def folder(tmp_path, sweeps):
    points = [
        sweeps.MadePoint(channels=channels, slowdown={sweeps.UP.kernel: 1.3}, layers=3, steps=2)
        for channels in (4, 8)
    ]
    return sweeps.write_sweep(tmp_path / "sweep", points)


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_all_files_of_the_document(cli, folder, quick_plots):
    (folder / "tracelens_analysis").mkdir()
    ended = cli("sweep", "analyze", "sweep", "--top-k", "1", "--geo-mean", status=0)
    assert files(folder / "tracelens_analysis") == {
        "analysis.json",
        "report.html",
        *(f"256thread/individual_reports/perf_{channels}ch_rank{rank}.xlsx"
          for channels in (4, 8) for rank in (0, 1)),
        *(f"256thread/collective_reports/collective_{channels}ch.xlsx" for channels in (4, 8)),
        *(f"top1_gemm_kernels_time_variance{suffix}.csv"
          for suffix in ("", "_with_timestamps", "_with_collective_overlap")),
        "gpu_timeline_all_configs_geomean.xlsx",
        "nccl_master_all_configs.xlsx", "nccl_master_all_configs.csv",
        *(f"plots/{name}" for name in sweep_plots.sweep_plots(())),
    }  # fmt: skip
    assert "wrote sweep/tracelens_analysis/nccl_master_all_configs.csv\n" in ended.stderr
    assert "individual_reports/*.xlsx (4), plots/*.png (5), collective_reports/*.xlsx (2)\n" in (
        ended.stderr
    )


def test_from_workbooks_alone(cli, folder, quick_plots):
    cli("sweep", "analyze", "sweep", status=0)
    shutil.copytree(folder / "analysis/256thread", "left/tracelens_analysis/256thread")
    ended = cli("sweep", "analyze", "left", status=0)
    assert "left has no traces" in ended.stderr
    assert f"warning: {TOP}_with_timestamps.csv is not written" in ended.stderr
    assert {path.name for path in Path("left/tracelens_analysis").iterdir() if path.is_file()} == {
        f"{TOP}.csv", "gpu_timeline_all_configs_mean.xlsx", "nccl_master_all_configs.xlsx",
        "nccl_master_all_configs.csv",
    }  # fmt: skip
    assert not list(Path("left").rglob("analysis.json"))
