"""What is shown of sweeps and of their comparison: golden outputs of planted points."""

from __future__ import annotations

import copy
import io
import re

import pytest
from rich.console import Console

from gemmetry.sweeps.comparison import LabelledSweep, compare_sweeps
from gemmetry.sweeps.page import environments_of, sweep_page
from gemmetry.sweeps.points import analyse_sweep
from gemmetry.sweeps.report import (
    change_answers,
    change_sentences,
    print_sweep,
    print_sweep_comparison,
    sentences,
)
from gemmetry.sweeps.rows import sweep_result

pytest.importorskip("plotly")

SMALL = {"steps": 1, "layers": 1}
PLANTED = {
    "slowed": [{"slowed": 1.3}],
    "alike": [{}],
    "no_control": [{"has_control": False}],
    "best": [{"channels": channels, "comm_ns": comm, "repeat": repeat}
             for channels, comm in ((4, 400_000), (8, 260_000)) for repeat in (1, 2, 3)],
    "best_open": [{"repeat": repeat, "channels": channels} for channels in (4, 8)
                  for repeat in (1, 2, 3)],
    "axes": [{"channels": channels, "slowed": 1.3, "axes": {"NCCL_ALGO": "Ring"}}
             for channels in (8, 16)],
    "straggler": [{"delay_ns": {1: delay}, "channels": channels, "ranks": 3}
                  for channels, delay in ((4, 100_000), (8, 200_000))],
    "straggler_open": [{**SMALL, "delay_ns": {1: 200_000}}],
    "settings": [{**SMALL, "threads": threads, "channels": channels, "seen_threads": 288}
                 for threads in (256, 512) for channels in (4, 8)],
}  # fmt: skip


def _shown(show, *things, width=80):
    text = io.StringIO()
    show(*things, Console(file=text, width=width, force_terminal=True, color_system=None))
    assert max(map(len, text.getvalue().splitlines())) <= width
    return text.getvalue()


@pytest.mark.parametrize("case", PLANTED)
def test_a_sweep(case, sweeps, tmp_path, page_text, page_data, dumped, golden):
    points = []
    for one in PLANTED[case]:
        chosen = {key: value for key, value in one.items() if key != "slowed"}
        slowdown = {sweeps.UP.kernel: one.get("slowed", 1.0)}
        points.append(sweeps.MadePoint(slowdown=slowdown, **chosen))
    document = sweep_result(analyse_sweep(sweeps.write_sweep(tmp_path, points))).document()
    page = sweep_page(document | {"sweep": case})
    parts = ["\n".join(sentences(document)), _shown(print_sweep, document)]
    golden(
        f"sweep_{case}", "\f\n".join([*parts, page_text(page), dumped(*page_data(page)["figures"])])
    )


EFFECT = {"name": "channels", "before": "4", "after": "16", "pairs": 2, "ratio": 1.04,
          "ratio_ci_low": 1.03, "ratio_ci_high": 1.05}  # fmt: skip
LESS = EFFECT | {"after": "8", "ratio": 1.0, "ratio_ci_low": 0.999, "ratio_ci_high": 1.001,
                 "verdict": "no difference shown"}  # fmt: skip
NO_EFFECT = {"name": "channels", "verdict": "no effect", "reason": "channels had no effect."}


def test_effects_of_settings(golden):
    """One that changed nothing is left out unless its effect is shown."""
    empty = {"points": [], "best": {"step_ms": None}, "pooled_gemms": []}
    lost = {"verdict": "no control group", "slowdown_ci_low": None}
    one = empty | {"points": [{"ranks": [0], "stragglers": []}], "pooled_gemms": [lost]}
    found = [sentences(one)]
    for verdict in ("slower", "no difference shown", "undecided"):
        effects = [LESS, EFFECT | {"verdict": verdict}]
        found += [sentences(empty | {"settings": settings, "effects": effects})
                  for settings in ([], [NO_EFFECT])]  # fmt: skip
    golden("sweep_effects", "\n\n".join("\n".join(lines) for lines in found) + "\n")


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


def _last(document, **changes):
    document["points"][-1] |= changes
    return document


BOTH = ((8, [100, 101]), (16, [90, 91]))
PAIRS = {
    "slower": (made((8, [100, 100.1])), made((8, [110, 110.1]))),
    "faster": (made((8, [110, 110.1])), made((8, [100, 100.1]))),
    "single": (made((8, [100])), made((8, [110]))),
    "same": (made((8, [100])), made((8, [100]))),
    "other_points": (made(*BOTH), made((8, [100, 101]), (32, [9, 9.1]))),
    "failed": (made(*BOTH), _last(made((8, [100, 101]), (16, [90])), outcome="failed")),
    "left_out": (made(*BOTH), _last(made(*BOTH), left_out="no whole trace of rank 1")),
    "nothing_in_common": (made((8, [100, 101])), made((16, [90, 91]))),
    "gemm": (gemms(made((8, [100, 100.1]), (16, [90, 90.1])), 10, 12),
             gemms(made((8, [110, 110.1]), (16, [90, 90.1])), 10, 15)
             | {"environment": {"environment.packages.torch": "2.13"}}),
    "no_gemm": (gemms(made((8, [100, 100.1])), 10, 12), gemms(made((8, [100, 100.2])), 10, 12)),
}  # fmt: skip


def _labelled(*documents, labels="ABC"):
    return [LabelledSweep(label=label, document=document)
            for label, document in zip(labels, documents, strict=False)]  # fmt: skip


def test_comparisons(golden):
    """Environments that differ come first; a terminal shows every sentence of the page."""
    parts = []
    for case, pair in PAIRS.items():
        found = compare_sweeps(_labelled(*pair))
        (candidate,) = found.candidates
        text = _shown(print_sweep_comparison, found)
        joined = " ".join(text.split())
        assert [one for one in change_sentences(found, candidate) if one not in joined] == []
        answers = [f"{topic}: {answer}" for topic, answer in change_answers(found, candidate)]
        parts.append("\n".join([case, *answers, text]))
    # Labels may be headings of other columns.
    labelled = _labelled(*PAIRS["gemm"], labels=("change", "verdict"))
    parts.append(_shown(print_sweep_comparison, compare_sweeps(labelled)))
    golden("sweep_changes", "\f\n".join(parts))


def test_the_page_of_a_comparison(compared_page, page_text, page_data, dumped, golden):
    figures = dumped(*page_data(compared_page)["figures"])
    text = re.sub(r"/\S+/(before|after)\b", r"{here}/\1", page_text(compared_page))
    golden("sweep_compared", f"{text}\f\n{figures}")


def test_a_slowdown_that_is_not_the_quotient_of_the_medians_is_explained(documents):
    note = "a slowdown is the median over pairs of instances of one rank"
    document = copy.deepcopy(documents[0])
    assert note not in " ".join(_shown(print_sweep, document).split())
    slower = [one for one in document["pooled_gemms"] if one["verdict"] == "slower"]
    slower[0]["overlapped_median_us"] *= 1.2
    assert note in " ".join(_shown(print_sweep, document).split())


def test_environments_of_several_sweeps_have_a_column_each(documents):
    third = {**documents[1], "environment": {"environment.packages.torch": "2.13"}}
    labelled = _labelled(*documents, third, labels=("Base", "New", "Newer"))
    table = environments_of(compare_sweeps(labelled))
    assert [column.label for column in table.columns] == ["fact", "Base", "New", "Newer"]
    assert table.rows == [
        ["nccl_version", "2.28.9", "2.30.7", "2.30.7"],
        ["environment.packages.torch", "not recorded", "not recorded", "2.13"],
    ]
