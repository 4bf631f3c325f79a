"""``gemmetry sweep analyze`` from a folder to what users see."""

from __future__ import annotations

import pytest

from gemmetry.cli.sweep import parse_numbers
from gemmetry.domain.errors import RequestError
from gemmetry.sweeps.options import parse_counts

pytestmark = pytest.mark.usefixtures("without_plots_and_workbooks")


@pytest.fixture
def folder(tmp_path, sweeps):
    """A sweep of which one point did not run."""
    grid = [(256, 4), (256, 8), (512, 4)]
    points = [sweeps.MadePoint(threads=t, channels=c, steps=1, layers=1) for t, c in grid]
    return sweeps.write_sweep(tmp_path / "sweep", points)


def test_the_selection_and_the_folder(cli, folder):
    found = cli.json("sweep", "analyze", "sweep", "--channels", "8", "--ranks", "1",
                     "--analysis-dir", "mine")  # fmt: skip
    assert {point["channels"] for point in found["points"]} == {8}
    assert {gemm["rank"] for gemm in found["gemms"]} == {1}
    assert (folder / "mine" / "analysis.json").is_file()
    assert not (folder / "analysis").exists()


def test_a_point_that_did_not_run_is_shown_as_missing(cli, folder):
    ended = cli("sweep", "analyze", "sweep", status=0)
    assert "512 threads, 8 channels (not run)" in ended.stdout


def test_a_folder_that_cannot_be_written_is_refused_before_reading(cli, folder):
    (folder / "analysis").write_text("a file")
    ended = cli("sweep", "analyze", "sweep", status=3)
    assert "cannot write" in ended.stderr and ended.stdout == ""


def test_numbers():
    assert parse_numbers("28, 42,", "--channels") == (28, 42)
    for parse, bad in (
        *((parse_numbers, text) for text in ("", "4-8", "x", "9" * 5000)),
        (parse_counts, ["9" * 5000]),  # Nothing has as many.
    ):
        with pytest.raises(RequestError):
            parse(bad, "--channels")
