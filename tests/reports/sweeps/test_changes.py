"""Sentences about what differs between sweeps, and how a terminal shows them."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from gemmetry.sweeps.comparison import LabelledSweep, compare_sweeps
from gemmetry.sweeps.report import change_answers, change_sentences, print_sweep_comparison


def made(*points):
    """A document of points (channels, steps in ms of its runs), whose steps are all compute."""
    entries = [
        {"threads": 256, "channels": channels, "axes": {}, "repeat": i, "outcome": "ok",
         "world_size": 2, "ranks": [0, 1], "device": "NVIDIA H200", "versions": {}, "folder": "",
         "step_ms": {"median": ms, "ci_low": None, "ci_high": None, "n": 3},
         "compute_ms": ms, "slowed_compute_ms": None, "exposed_comm_ms": 0.0,
         "exposed_copy_ms": 0.0, "idle_ms": 0.0}
        for channels, runs in points
        for i, ms in enumerate(runs, 1)
    ]  # fmt: skip
    return {"sweep": "made", "points": entries, "pooled_gemms": [], "collectives": []}


def gemms(document, alone, together):
    """Add one GEMM with these medians to every point."""
    document["pooled_gemms"] = [
        {"threads": 256, "channels": one["channels"], "axes": {}, "repeat": one["repeat"],
         "kernel": "nvjet", "m": 64, "n": 32, "k": 16, "batch": 1, "dtype": "bf16",
         "layout": "tt", "alone_median_us": alone + one["repeat"] / 100,
         "overlapped_median_us": together + one["repeat"] / 100, "slowdown": together / alone}
        for one in document["points"]
    ]  # fmt: skip
    return document


@pytest.fixture
def answers():
    def make(*documents):
        sweeps = [LabelledSweep(label=n, document=d) for n, d in zip("AB", documents, strict=True)]
        comparison = compare_sweeps(sweeps)
        return change_answers(comparison, comparison.candidates[0])

    return make


def test_a_slower_step_with_its_interval(answers):
    found = dict(answers(made((8, [100, 100.1])), made((8, [110, 110.1]))))
    assert found["Best point"] == (
        "The best point takes 100.05 ms in A with 256 threads, 8 channels, and 110.05 ms in B with "
        "the same point: +10.0 % (+9.7 % to +10.3 %), which is shown."
    )
    assert found["Steps"].startswith("Of 1 point that both have: 1 slower; the largest change is ")
    assert found["Parts of the step"].startswith("The part that changes most is compute: with 256 ")
    assert "lengthens the step by 10.0 %" in found["Parts of the step"]


def test_a_faster_step(answers):
    found = dict(answers(made((8, [110, 110.1])), made((8, [100, 100.1]))))
    assert "1 faster; the largest change is -9.1 %" in found["Steps"]
    assert "shortens the step by 9.1 %" in found["Parts of the step"]


def test_undecided_points_name_the_reason(answers):
    found = dict(answers(made((8, [100])), made((8, [110]))))
    assert found["Steps"].endswith("1 undecided: no point was run twice, so the spread between "
                                   "runs is not known; repeat the runs.")  # fmt: skip
    assert "Parts of the step" not in found


def test_points_that_only_one_sweep_has(answers):
    found = answers(made((8, [100, 101]), (16, [90, 91])), made((8, [100, 101]), (32, [9, 9.1])))
    assert [text for topic, text in found if topic == "Points"] == [
        "Only in A: 256 threads, 16 channels.", "Only in B: 256 threads, 32 channels.",
    ]  # fmt: skip


def test_a_point_that_fails_now(answers):
    second = made((8, [100, 101]), (16, [90]))
    second["points"][-1]["outcome"] = "failed"
    found = dict(answers(made((8, [100, 101]), (16, [90, 91])), second))
    assert found["Points"] == (
        "Compared in A, but failed or incomplete in B: 256 threads, 16 channels."
    )


def test_a_point_that_is_left_out(answers):
    second = made((8, [100, 101]), (16, [90, 91]))
    second["points"][-1]["left_out"] = "no whole trace of rank 1"
    found = answers(made((8, [100, 101]), (16, [90, 91])), second)
    assert [text for topic, text in found if topic == "Points"] == [
        "Left out in B: 256 threads, 16 channels, repeat 2 (no whole trace of rank 1)."
    ]


def test_no_common_point(answers):
    found = answers(made((8, [100, 101])), made((16, [90, 91])))
    assert [topic for topic, _ in found] == ["Points", "Best point"]
    assert "A and B have no point in common" in found[0][1]


def test_the_gemm_that_changed_most(answers):
    first = gemms(made((8, [100, 100.1])), 10, 12)
    second = gemms(made((8, [100, 100.1])), 10, 15)
    found = dict(answers(first, second))
    assert found["GEMMs"].startswith(
        "The GEMM that changed most is 64x32x16 with 256 threads, 8 channels: slowdown by "
        "communication 1.200× → 1.500×, +25.0 %"
    )
    assert found["GEMMs"].endswith("1 more comparison shows a difference.")


def test_no_gemm_changed(answers):
    first = gemms(made((8, [100, 100.1])), 10, 12)
    second = gemms(made((8, [100, 100.2])), 10, 12)
    assert dict(answers(first, second))["GEMMs"] == "No GEMM is shown to be slower or faster."


def test_a_sweep_against_itself(answers):
    assert answers(made((8, [100])), made((8, [100]))) == [
        ("Runs", "B holds the same runs as A: nothing can differ.")
    ]


def test_a_terminal_shows_environments_first_within_80_columns():
    second = gemms(made((8, [110, 110.1]), (16, [90, 90.1])), 10, 15)
    second["environment"] = {"environment.packages.torch": "2.13"}
    first = gemms(made((8, [100, 100.1]), (16, [90, 90.1])), 10, 12)
    sweeps = [
        LabelledSweep(label=n, document=d) for n, d in zip("AB", (first, second), strict=True)
    ]
    comparison, text = compare_sweeps(sweeps), io.StringIO()
    console = Console(file=text, width=80, force_terminal=True, color_system=None)
    print_sweep_comparison(comparison, console)
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1:3] == [
        "! the environments differ:",
        "    environment.packages.torch: not recorded vs 2.13",
    ]
    joined = " ".join(line.strip() for line in lines)
    for sentence in change_sentences(comparison, comparison.candidates[0]):
        assert sentence in joined
    row = r"256 threads, 8 channels +100\.05 +110\.05 +10\.0 \(9\.7 to 10\.3\) +slower"
    assert any(re.match(row, line) for line in lines)


def test_labels_may_be_headings_of_other_columns():
    documents = [gemms(made((8, [ms, ms + 0.1])), 10, ms / 8) for ms in (100, 110)]
    sweeps = [LabelledSweep(label=n, document=d)
              for n, d in zip(("change", "verdict"), documents, strict=True)]  # fmt: skip
    comparison, text = compare_sweeps(sweeps), io.StringIO()
    print_sweep_comparison(comparison, Console(file=text, width=80))
    assert "change ms" in text.getvalue()
