"""``gemmetry sweep analyze`` from a folder to what users see."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.usefixtures("without_plots_and_workbooks")


@pytest.fixture
def folder(tmp_path, sweeps):
    """A sweep of two channel counts, with one slowed GEMM."""
    points = [
        sweeps.MadePoint(channels=channels, slowdown={sweeps.UP.kernel: 1.3}, layers=3)
        for channels in (4, 8)
    ]
    return sweeps.write_sweep(tmp_path / "sweep", points)


def test_the_first_screen_and_the_file(cli, folder):
    ended = cli("sweep", "analyze", "sweep")
    assert ended.status == 0, ended.stderr
    assert "2 of 2 points have traces: 4 in all." in ended.stdout
    assert "Shortest step:" in ended.stdout
    assert "1024x4096x1024" in ended.stdout
    assert "256 threads, 4 channels" in ended.stdout
    lines = ended.stderr.splitlines()
    assert [line.partition(" read ")[0] for line in lines[:4]] == [
        "[1/4]",
        "[2/4]",
        "[3/4]",
        "[4/4]",
    ]
    assert lines[4] == "wrote sweep/analysis/analysis.json"
    written = json.loads((folder / "analysis" / "analysis.json").read_text())
    assert len(written["points"]) == 2


def test_json_is_the_file(cli, folder):
    ended = cli("sweep", "analyze", "sweep", "--json")
    assert ended.status == 0
    assert json.loads(ended.stdout) == json.loads((folder / "analysis/analysis.json").read_text())


def test_the_selection_and_the_folder(cli, folder):
    ended = cli("sweep", "analyze", "sweep", "--channels", "8", "--ranks", "1", "--json",
                "--analysis-dir", "mine")  # fmt: skip
    found = json.loads(ended.stdout)
    assert [point["channels"] for point in found["points"]] == [8]
    assert {gemm["rank"] for gemm in found["gemms"]} == {1}
    assert (folder / "mine" / "analysis.json").is_file()
    assert not (folder / "analysis").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--base-path", "sweep/tracelens_analysis", "--threads", "256", "512", "--channels", "4",
         "8", "--ranks", "0", "1", "--top-k", "5"],
        ["--base-path", "sweep", "--input-csv",
         "sweep/tracelens_analysis/top5_gemm_kernels_time_variance.csv"],
        ["--csv-path", "sweep/tracelens_analysis/top5_gemm_kernels_time_variance.csv"],
        ["--tracelens-path", "sweep/tracelens_analysis"],
        ["--sweep-dir", "sweep"],
        ["sweep/tracelens_analysis", "--channels", "4,8"],
    ],
)  # fmt: skip
def test_the_old_scripts_arguments(cli, folder, arguments):
    (folder / "tracelens_analysis").mkdir()
    ended = cli("sweep", "analyze", *arguments)
    assert ended.status == 0, ended.stderr
    assert "4 in all" in ended.stdout
    assert (folder / "tracelens_analysis" / "analysis.json").is_file()


def test_a_point_that_did_not_run_is_shown_as_missing(cli, tmp_path, sweeps):
    grid = [(256, 4), (256, 8), (512, 4)]
    points = [sweeps.MadePoint(threads=t, channels=c, steps=1, layers=1) for t, c in grid]
    sweeps.write_sweep(tmp_path / "sweep", points)
    ended = cli("sweep", "analyze", "sweep")
    assert ended.status == 0
    assert "512 threads, 8 channels (not run)" in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no sweep was given"),
        (["nowhere"], "nowhere does not exist"),
        (["."], "has no point of a sweep; these folders in it have: sweep"),
        (["sweep", "--channels", "many"], "--channels takes whole numbers"),
        (["sweep", "--threads", "1024"], "no point with the selected threads and channels"),
        (["sweep", "--sweep-dir", "other"], "name different sweeps: sweep, other"),
    ],
)
def test_mistakes_name_what_is_wrong_and_write_nothing(cli, folder, arguments, message):
    ended = cli("sweep", "analyze", *arguments)
    assert ended.status == 2
    assert message in ended.stderr
    assert "hint: " in ended.stderr
    assert not (folder / "analysis").exists()


def test_a_folder_that_cannot_be_written_is_refused_before_reading(cli, folder):
    (folder / "analysis").write_text("a file")
    ended = cli("sweep", "analyze", "sweep")
    assert ended.status == 3
    assert "cannot write" in ended.stderr
    assert ended.stdout == ""
