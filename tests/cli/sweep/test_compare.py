"""``gemmetry sweep compare`` from folders to exit statuses and files."""

from __future__ import annotations

import base64
import html
import json
from pathlib import Path

import pytest

from gemmetry.documents import sweep_plots
from gemmetry.domain.errors import RequestError
from gemmetry.sweeps.api import analyze

pytestmark = pytest.mark.usefixtures("quick_plots")


@pytest.fixture
def folders(tmp_path, sweeps):
    """``a``, and ``b`` with more runs of the same."""
    for name, repeats in (("a", (1, 2, 3)), ("b", (4, 5, 6))):
        points = [sweeps.MadePoint(repeat=r, layers=2, steps=2) for r in repeats]
        sweeps.write_sweep(tmp_path / name, points)


def test_an_analysis_is_compared_without_its_traces(cli, folders):
    Path("kept.json").write_text(json.dumps(analyze("a").document()))
    ended = cli("sweep", "compare", "kept.json", "b", status=0)
    assert "Of 1 point that both have: 1 no difference shown." in ended.stdout


@pytest.fixture(scope="module")
def left(tmp_path_factory, sweeps):
    """Two sweeps, ``a`` and ``slow``, and their workbooks without traces: ``left-a`` ..."""
    pytest.importorskip("xlsxwriter")
    place = tmp_path_factory.mktemp("left")
    changes = {"a": {}, "slow": {"slowdown": {sweeps.UP.kernel: 1.5}, "comm_ns": 500_000}}
    for name, change in changes.items():
        points = [sweeps.MadePoint(repeat=r, layers=2, steps=1, **change) for r in (1, 2)]
        sweeps.write_sweep(place / name, points)
        analysis = place / f"left-{name}" / "tracelens_analysis"
        analyze(place / name, analysis_dir=str(analysis), workbooks=True).write(["collectives"])
    return place


@pytest.mark.parametrize("first", ["left-a", "a"])
def test_sweeps_of_which_workbooks_are_left(cli, left, first):
    """Whether the first one has its traces or not, workbooks are what both have."""
    pytest.importorskip("plotly")
    ended = cli("sweep", "compare", str(left / first), str(left / "left-slow"), "-o",
                "c.html,c.json", status=1)  # fmt: skip
    assert "Workbooks show no steps: whole traces are compared" in ended.stdout
    (candidate,) = json.loads(Path("c.json").read_text())["candidates"]
    verdicts = {(row["group"], row["measure"]): row["verdict"] for row in candidate["rows"]}
    assert verdicts["step", "trace_ms"] == "slower"
    assert verdicts["collectives", "latency_us"] == "slower"
    assert {measure for group, measure in verdicts if group == "gemms"} == {"median_us"}
    assert "whole trace" in Path("c.html").read_text()


def test_workbooks_and_an_analysis_without_traces_cannot_be_compared(cli, left):
    Path("analysis.json").write_text(json.dumps(analyze(left / "a").document()))
    ended = cli("sweep", "compare", "analysis.json", str(left / "left-slow"), status=2)
    assert "some of these sweeps have workbooks only" in ended.stderr
    assert "hint: Give the folders" in ended.stderr


def test_the_page_has_the_pictures_of_every_sweep_or_says_why_not(cli, folders, monkeypatch):
    """Of the one that was analysed before those in its folder; of others they are made."""
    pytest.importorskip("plotly")
    analyze("a").write()
    (picture, *_) = sweep_plots.sweep_plots(())
    Path("a/analysis/plots", picture).write_bytes(b"from the folder")
    cli("sweep", "compare", "a", "b", "-o", "c.html")
    page = Path("c.html").read_text()
    for label, content in (("A", b"from the folder"), ("B", b"made now")):
        assert f"{label}: {picture}" in page
        assert f"data:image/png;base64,{base64.b64encode(content).decode()}" in page

    def missing(points):
        raise RequestError("matplotlib is not installed")

    monkeypatch.setattr(sweep_plots, "sweep_plots", missing)
    cli("sweep", "compare", "a", "b", "-o", "c.html")
    page = html.unescape(Path("c.html").read_text())
    assert "B: there are no pictures: matplotlib is not installed" in page
