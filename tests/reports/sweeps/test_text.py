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


@pytest.mark.parametrize(
    ("planted", "texts"),
    [
        ({"slowed": 1.3}, ["slows 1 of 2 GEMMs", "0.18 ms of each step",
         "1024x4096x1024 with 256 threads, 8 channels: 100 µs alone, 130 µs next to"]),
        ({}, ["Communication is shown to slow none of 2 GEMMs that could be judged."]),
        ({"has_control": False}, ["2 GEMMs always ran next to communication", "--nproc 1"]),
    ],
)  # fmt: skip
def test_what_communication_costs(analysis_of, sweeps, planted, texts):
    slowed = {sweeps.UP.kernel: planted.pop("slowed")} if "slowed" in planted else {}
    found = " ".join(sentences(analysis_of(sweeps.MadePoint(slowdown=slowed, **planted))))
    assert [text for text in texts if text not in found] == []


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


def test_a_straggler_is_named_with_its_kernel(analysis_of, sweeps):
    found = sentences(analysis_of(sweeps.MadePoint(delay_ns={1: 200_000})))
    (sentence,) = [text for text in found if "delays the others" in text]
    assert sentence.startswith(
        "With 256 threads, 8 channels, rank 1 delays the others: it enters 100 % of its 18 "
        "collectives last, from step 3 on"
    )
    assert f"in {sweeps.SLEEP.partition('(')[0]}" in sentence


def test_a_single_step_leaves_open_whether_a_rank_is_late(analysis_of, sweeps):
    document = analysis_of(sweeps.MadePoint(steps=1, layers=1, delay_ns={1: 200_000}))
    assert [one["verdict"] for one in document["points"][0]["stragglers"]] == ["undecided"] * 2
    text = "No rank is shown to delay the others; at 1 of 1 point it is undecided after 1 step: "
    assert f"{text}record more." in sentences(document)


def test_settings_that_took_effect_and_one_that_did_not(analysis_of, sweeps):
    found = sentences(analysis_of(*(
        sweeps.MadePoint(threads=threads, channels=channels, seen_threads=288, layers=1, steps=1)
        for threads in (256, 512) for channels in (4, 8)
    )))  # fmt: skip
    assert "Took effect in every point: channels." in found
    assert any("threads" in text and "effect" in text and "Took" not in text for text in found)
