"""What is wrong with a sweep is named in the terminal, in ``analysis.json`` and on the page; the
rest is analysed."""

from __future__ import annotations

import html
import json
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("plotly")

pytestmark = pytest.mark.usefixtures("without_plots_and_workbooks")

CRASH = "Traceback (most recent call last):\nRuntimeError: NCCL error: unhandled system error\n"


def test_every_fault_is_named_everywhere(cli, tmp_path, sweeps):
    point = partial(sweeps.MadePoint, layers=1, steps=2)
    faults = [
        (point(channels=2, missing=(0, 1)), "no trace in torch_profiler/"),
        (point(channels=3, missing=(0, 1), log="done\n"), "no trace, although it has a log"),
        (point(channels=4, missing=(0, 1), log=CRASH),
         "run_output.log shows a crash: RuntimeError: NCCL error: unhandled system error"),
        (point(channels=5, missing=(1,)), "rank 1 of 2 has no trace that can be read"),
        (point(channels=6, cut=(1,)), "trace.pt.trace.json.gz is partial: events are missing"),
        (point(channels=7, steps_of={0: 1}), "ranks differ in their numbers of steps: 1, 2"),
    ]  # fmt: skip
    whole = [point(channels=8), point(channels=9, ranks=3, nccl="2.30.7")]
    sweeps.write_sweep(tmp_path / "sweep", [*(made for made, _ in faults), *whole])
    ended = cli("sweep", "analyze", "sweep", status=1)
    assert "5 of 8 points have traces: 10 in all." in ended.stdout
    document = json.loads(Path("sweep/analysis/analysis.json").read_text())
    assert {one["channels"] for one in document["gemms"]} == {5, 6, 7, 8, 9}
    problems = document["problems"]
    assert problems[:3] == [
        "points differ in their world sizes: 2, 3",
        "points differ in their versions of NCCL: 2.28.9, 2.30.7",
        "points differ in the number of steps that all ranks recorded: 1, 2",
    ]
    for made, fault in faults:
        label = f"256 threads, {made.channels} channels: "
        assert any(one.startswith(label) and fault in one for one in problems), (label, problems)
    page = html.unescape(Path("sweep/analysis/report.html").read_text())
    # A point that lacks traces is marked, and not chosen.
    chosen = "Left out of the choice: 256 threads, 5 channels (no whole trace of rank 1); 256"
    assert chosen in ended.stdout and chosen in page
    assert "256 threads, 5 channels (incomplete)" in " ".join(ended.stdout.split())
    assert "incomplete: no whole trace of rank 1" in page
    assert {document["best"]["channels"], document["best"]["next"]["channels"]} <= {7, 8, 9}
    for problem in problems:
        assert f"warning: {problem}\n" in ended.stderr
        assert problem in page
    for made in whole:
        assert not any(f", {made.channels} channels: " in one for one in problems)
