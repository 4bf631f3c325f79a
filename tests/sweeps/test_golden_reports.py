"""What is shown of sweeps and of their comparison: golden outputs of planted points."""

from __future__ import annotations

import copy
import re

import pytest

from gemmetry.sweeps.page import sweep_page
from gemmetry.sweeps.points import analyse_sweep
from gemmetry.sweeps.report import (
    print_sweep,
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


@pytest.mark.parametrize("case", PLANTED)
def test_a_sweep(case, sweeps, tmp_path, page_text, page_data, dumped, golden, console_text):
    points = []
    for one in PLANTED[case]:
        chosen = {key: value for key, value in one.items() if key != "slowed"}
        slowdown = {sweeps.UP.kernel: one.get("slowed", 1.0)}
        points.append(sweeps.MadePoint(slowdown=slowdown, **chosen))
    document = sweep_result(analyse_sweep(sweeps.write_sweep(tmp_path, points))).document()
    page = sweep_page(document | {"sweep": case})
    printed = console_text(lambda console: print_sweep(document, console), terminal=True)
    parts = ["\n".join(sentences(document)), printed]
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


def test_the_page_of_a_comparison(compared_page, page_text, page_data, dumped, golden):
    figures = dumped(*page_data(compared_page)["figures"])
    text = re.sub(r"/\S+/(before|after)\b", r"{here}/\1", page_text(compared_page))
    golden("sweep_compared", f"{text}\f\n{figures}")


def test_a_slowdown_that_is_not_the_quotient_of_the_medians_is_explained(documents, console_text):
    def shown():
        text = console_text(lambda console: print_sweep(document, console), terminal=True)
        return " ".join(text.split())

    note = "a slowdown is the median over pairs of instances of one rank"
    document = copy.deepcopy(documents[0])
    assert note not in shown()
    slower = [one for one in document["pooled_gemms"] if one["verdict"] == "slower"]
    slower[0]["overlapped_median_us"] *= 1.2
    assert note in shown()
