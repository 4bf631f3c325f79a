"""The first screen of a sweep's analysis."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from gemmetry.sweeps.points import analyse_sweep
from gemmetry.sweeps.report import print_sweep, sentences
from gemmetry.sweeps.rows import sweep_result


@pytest.fixture
def analysis_of(tmp_path, sweeps):
    def make(*points):
        return sweep_result(analyse_sweep(sweeps.write_sweep(tmp_path, points))).document()

    return make


def _printed(document):
    text = io.StringIO()
    print_sweep(document, Console(file=text, width=80))
    return " ".join(text.getvalue().split())


def test_a_slowdown_that_is_not_the_quotient_of_the_medians_is_explained(analysis_of, sweeps):
    document = analysis_of(sweeps.MadePoint(slowdown={sweeps.UP.kernel: 1.3}))
    note = "a slowdown is the median over pairs of instances of one rank"
    assert note not in _printed(document)
    (gemm,) = [one for one in document["pooled_gemms"] if one["verdict"] == "slower"]
    gemm["overlapped_median_us"] *= 1.2
    assert note in _printed(document)


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


@pytest.mark.parametrize(
    ("verdict", "start"),
    [
        ("slower", "The step depends on channels: +4.0 % (+3.0 % to +5.0 %) from 4 to 16, over 2 "),
        ("no difference shown", "The step is not shown to depend on channels: +4.0 % "),
        ("undecided", "Whether the step depends on channels is undecided: +4.0 % "),
    ],
)
def test_the_effect_of_a_setting(analysis_of, sweeps, verdict, start):
    document = analysis_of(sweeps.MadePoint(layers=1, steps=1))
    smaller = {
        "name": "channels",
        "before": "4",
        "after": "8",
        "pairs": 2,
        "ratio": 1.0,
        "ratio_ci_low": 0.999,
        "ratio_ci_high": 1.001,
        "verdict": "no difference shown",
    }
    larger = smaller | {"after": "16", "ratio": 1.04, "ratio_ci_low": 1.03, "ratio_ci_high": 1.05,
                        "verdict": verdict}  # fmt: skip
    (sentence,) = [text for text in sentences(document | {"effects": [smaller, larger]})
                   if "depend" in text]  # fmt: skip
    assert sentence.startswith(start)


@pytest.mark.parametrize(("verdict", "count"), [("undecided", 0), ("slower", 1)])
def test_the_effect_of_a_setting_that_changed_nothing_is_left_out_unless_shown(verdict, count):
    setting = {"name": "channels", "verdict": "no effect", "reason": "channels had no effect."}
    effect = {"name": "channels", "before": "4", "after": "8", "pairs": 2, "ratio": 1.0,
              "ratio_ci_low": 0.9, "ratio_ci_high": 1.1, "verdict": verdict}  # fmt: skip
    found = sentences({"points": [], "best": {"step_ms": None}, "pooled_gemms": [],
                       "settings": [setting], "effects": [effect]})  # fmt: skip
    assert "channels had no effect." in found
    assert sum("depend" in text for text in found) == count
