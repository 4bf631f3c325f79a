from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from gemmetry.engine.external import (
    ExternalJob,
    JobEnd,
    JobFinished,
    JobOutcome,
    JobsPlanned,
    JobStarted,
    JobWarning,
)
from gemmetry.sweeps.run import JobProgress, format_duration


def job(title):
    return ExternalJob(
        name=title, title=title, argv=("true",), environment={}, working_folder=Path(),
        log=Path("log"), deadline_s=None, lacks=lambda: "",
    )  # fmt: skip


def shown(*events, terminal=False, clock=lambda: 0.0):
    console = Console(file=io.StringIO(), width=80, force_terminal=terminal, color_system=None)
    with JobProgress("my-sweep", console, clock=clock) as listener:
        for event in events:
            listener(event)
    return console.file.getvalue()


def finished(number, title, outcome="ok", seconds=10.0, reason=""):
    end = JobEnd(outcome=JobOutcome(outcome), seconds=seconds, reason=reason)
    return JobFinished(job(title), number, end)


def test_each_job_gets_a_line_with_the_time_left():
    text = shown(
        JobsPlanned(total=12, kept=1), JobStarted(job("a"), 2), finished(2, "a"),
        finished(3, "b\x1b", "failed", 50.0, "exit status 1: ValueError: no"),
        JobWarning("the driver changed"), finished(12, "c"),
    )  # fmt: skip
    assert text.splitlines() == [
        "12 points in my-sweep; 1 from an earlier run kept",
        "[ 2/12] ok  a  10 s  about 1 min 40 s left",
        "[ 3/12] failed  b�  50 s  exit status 1: ValueError: no  about 4 min 30 s left",
        "warning: the driver changed",
        "[12/12] ok  c  10 s",
    ]
    # Nothing is left after an interrupt.
    assert shown(JobsPlanned(total=1, kept=0), finished(1, "a", "interrupted")).splitlines() == [
        "1 point in my-sweep", "[1/1] interrupted  a  10 s",
    ]  # fmt: skip


def test_a_terminal_shows_what_runs_and_for_how_long():
    times = iter([100.0, 103.0])
    text = shown(JobsPlanned(total=2, kept=0), JobStarted(job("256 threads"), 1),
                 terminal=True, clock=lambda: next(times, 103.0))  # fmt: skip
    assert "[1/2] 256 threads  3.0 s" in text


def test_durations():
    shown = {0.44: "0.4 s", 9.96: "10 s", 59.4: "59 s", 60: "1 min 00 s", 3599.6: "1 h 00 min",
             7500: "2 h 05 min"}  # fmt: skip
    assert {seconds: format_duration(seconds) for seconds in shown} == shown
