"""The first screen of a sweep's analysis."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from gemmetry.analysis.sweeps.analysis import analyse_sweep
from gemmetry.analysis.sweeps.document import sweep_document
from gemmetry.reports.sweeps.sentences import sentences
from gemmetry.reports.sweeps.text import print_sweep


@pytest.fixture
def analysis_of(tmp_path, sweeps):
    def make(*points):
        return sweep_document(analyse_sweep(sweeps.write_sweep(tmp_path, points)))

    return make


def test_a_shown_slowdown_in_a_sentence(analysis_of, sweeps):
    found = sentences(analysis_of(sweeps.MadePoint(slowdown={sweeps.UP.kernel: 1.3})))
    (sentence,) = [text for text in found if text.startswith("Communication slows")]
    assert "slows 1 of 2 GEMMs" in sentence
    assert "1024x4096x1024 with 256 threads, 8 channels: 100 µs alone, 130 µs next to" in sentence
    assert "0.18 ms of each step" in sentence


def test_no_slowdown_is_stated(analysis_of, sweeps):
    found = sentences(analysis_of(sweeps.MadePoint()))
    assert "Communication is shown to slow none of 2 GEMMs that could be judged." in found


def test_a_missing_control_group_names_the_run_that_would_show_it(analysis_of, sweeps):
    found = sentences(analysis_of(sweeps.MadePoint(has_control=False)))
    assert any("2 GEMMs always ran next to communication" in text for text in found)
    assert any("--nproc 1" in text for text in found)


@pytest.mark.parametrize(
    ("slow", "verdict"), [(400_000, "which is shown"), (260_000, "no difference is shown")]
)
def test_the_best_point_with_its_verdict(analysis_of, sweeps, slow, verdict):
    points = [
        sweeps.MadePoint(channels=channels, comm_ns=comm, repeat=repeat)
        for channels, comm in ((4, slow), (8, 260_000))
        for repeat in (1, 2, 3)
    ]
    found = sentences(analysis_of(*points))
    (sentence,) = [text for text in found if text.startswith("Shortest step")]
    assert verdict in sentence


def test_it_fits_80_columns(analysis_of, sweeps):
    points = [
        sweeps.MadePoint(channels=c, slowdown={sweeps.UP.kernel: 1.3}, axes={"NCCL_ALGO": "Ring"})
        for c in (8, 16)
    ]
    text = io.StringIO()
    print_sweep(
        analysis_of(*points), Console(file=text, width=80, force_terminal=True, color_system=None)
    )
    assert "slowed GEMM" in text.getvalue()
    assert max(map(len, text.getvalue().splitlines())) <= 80
