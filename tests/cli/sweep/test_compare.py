"""``gemmetry sweep compare`` from folders to exit statuses and files."""

from __future__ import annotations

import base64
import html
import json
from pathlib import Path

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.sweeps.api import analyze


@pytest.fixture(autouse=True)
def without_plots(monkeypatch):
    """They take most of the time."""
    from gemmetry.documents import sweep_plots as plots

    monkeypatch.setattr(plots, "sweep_plots", lambda points: {"plot.png": b"made now"})


@pytest.fixture
def folders(tmp_path, sweeps):
    """``a``; ``b``: more runs of the same; ``slow``: with a slower GEMM; ``single``,
    ``another``: one run each."""
    first = {"layers": 2, "steps": 2}
    made = {
        "a": [sweeps.MadePoint(repeat=r, **first) for r in (1, 2, 3)],
        "b": [sweeps.MadePoint(repeat=r, **first) for r in (4, 5, 6)],
        "slow": [sweeps.MadePoint(repeat=r, slowdown={sweeps.UP.kernel: 1.5}, comm_ns=500_000,
                                  nccl="2.30.7", **first) for r in (1, 2, 3)],
        "single": [sweeps.MadePoint(**first)],
        "another": [sweeps.MadePoint(repeat=7, **first)],
    }  # fmt: skip
    for name, points in made.items():
        sweeps.write_sweep(tmp_path / name, points)
    return tmp_path


def test_an_analysis_is_compared_without_its_traces(cli, folders):
    (folders / "kept.json").write_text(json.dumps(analyze(folders / "a").document()))
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


def test_workbooks_and_an_analysis_without_traces_cannot_be_compared(cli, left, tmp_path):
    alone = tmp_path / "analysis.json"
    alone.write_text(json.dumps(analyze(left / "a").document()))
    ended = cli("sweep", "compare", "analysis.json", str(left / "left-slow"), status=2)
    assert "some of these sweeps have workbooks only" in ended.stderr
    assert "hint: Give the folders" in ended.stderr


def test_the_page_has_the_pictures_of_every_sweep(cli, folders):
    """Of the one that was analysed before those in its folder; of others they are made."""
    pytest.importorskip("plotly")
    analyze("a").write()
    Path("a/analysis/plots/plot.png").write_bytes(b"from the folder")
    cli("sweep", "compare", "a", "slow", "-o", "c.html")
    page = Path("c.html").read_text()
    for label, content in (("A", b"from the folder"), ("B", b"made now")):
        assert f"{label}: plot.png" in page
        assert f"data:image/png;base64,{base64.b64encode(content).decode()}" in page


def test_without_pictures_the_page_says_why(cli, folders, monkeypatch):
    pytest.importorskip("plotly")
    from gemmetry.documents import sweep_plots as plots

    def missing(points):
        raise RequestError("matplotlib is not installed")

    monkeypatch.setattr(plots, "sweep_plots", missing)
    cli("sweep", "compare", "single", "another", "-o", "c.html")
    page = html.unescape(Path("c.html").read_text())
    assert "B: there are no pictures: matplotlib is not installed" in page
