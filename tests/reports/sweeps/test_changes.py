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


def _failed(document):
    document["points"][-1]["outcome"] = "failed"
    return document


def _left_out(document):
    document["points"][-1]["left_out"] = "no whole trace of rank 1"
    return document


BOTH = ((8, [100, 101]), (16, [90, 91]))


@pytest.mark.parametrize(
    ("first", "second", "sentences"),
    [
        (made((8, [100, 100.1])), made((8, [110, 110.1])), [
            "The best point takes 100.05 ms in A with 256 threads, 8 channels, and 110.05 ms in B "
            "with the same point: +10.0 % (+9.7 % to +10.3 %), which is shown.",
            "Of 1 point that both have: 1 slower; the largest change is ",
            "The part that changes most is compute: with 256 threads, 8 channels it lengthens the "
            "step by 10.0 %",
        ]),
        (made((8, [110, 110.1])), made((8, [100, 100.1])), [
            "1 faster; the largest change is -9.1 %", "shortens the step by 9.1 %",
        ]),
        (made((8, [100])), made((8, [110])), [
            "1 undecided: no point was run twice, so the spread between runs is not known; repeat "
            "the runs.",
        ]),
        (made(*BOTH), made((8, [100, 101]), (32, [9, 9.1])), [
            "Only in A: 256 threads, 16 channels.", "Only in B: 256 threads, 32 channels.",
        ]),
        (made(*BOTH), _failed(made((8, [100, 101]), (16, [90]))), [
            "Compared in A, but failed or incomplete in B: 256 threads, 16 channels.",
        ]),
        (made(*BOTH), _left_out(made(*BOTH)), [
            "Left out in B: 256 threads, 16 channels, repeat 2 (no whole trace of rank 1).",
        ]),
        (made((8, [100, 101])), made((16, [90, 91])), ["A and B have no point in common"]),
        (gemms(made((8, [100, 100.1])), 10, 12), gemms(made((8, [100, 100.1])), 10, 15), [
            "The GEMM that changed most is 64x32x16 with 256 threads, 8 channels: slowdown by "
            "communication 1.200× → 1.500×, +25.0 %", "1 more comparison shows a difference.",
        ]),
        (gemms(made((8, [100, 100.1])), 10, 12), gemms(made((8, [100, 100.2])), 10, 12), [
            "No GEMM is shown to be slower or faster.",
        ]),
        (made((8, [100])), made((8, [100])), [
            "B holds the same runs as A: nothing can differ.",
        ]),
    ],
)  # fmt: skip
def test_sentences(answers, first, second, sentences):
    text = " ".join(sentence for _, sentence in answers(first, second))
    assert [one for one in sentences if one not in text] == []


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
