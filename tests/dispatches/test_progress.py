from __future__ import annotations

import dataclasses
import gc
import io
import time
import weakref

import pytest
from rich.console import Console

from gemmetry.dispatches import progress as progress_module
from gemmetry.dispatches.progress import CountProgress, ProgressListener
from gemmetry.domain.errors import Outcome, Stage
from gemmetry.domain.record import (
    BuildFacts,
    DispatchFinished,
    Doing,
    Message,
    PlanReady,
    Record,
    StageProgress,
    TraceFacts,
)

SQUARE = "matmul_512x512x512_f32t_f32t_f32t"


def _console(**options):
    return Console(file=io.StringIO(), width=100, highlight=False, **options)


@pytest.fixture
def events(make_record):
    return [
        PlanReady(total=12, kept=8, samples_kept=400, experiment="gemmetry-out/demo"),
        StageProgress(Stage.COMPILE, 1, 2, "iree"),
        StageProgress(Stage.COMPILE, 2, 2),
        DispatchFinished(make_record(SQUARE, gflops=100.0)),
        DispatchFinished(make_record(SQUARE, "fast", provider="iree", gflops=200.0)),
        Message("clock is low\x1b[31m", level="warning"),
        DispatchFinished(
            make_record(SQUARE, "bad", outcome=Outcome.WRONG, reason="[b]wrong[/b]\nmore")
        ),
        DispatchFinished(make_record(SQUARE, "slow", gflops=50.0)),
    ]


def _printed(*events, terminal=False, width=100, **options):
    """What is printed of these events."""
    console = Console(file=io.StringIO(), width=width, height=25, highlight=False,
                      force_terminal=terminal, color_system=None)  # fmt: skip
    with ProgressListener(console, **options) as listener:
        for event in events:
            listener(event)
    return console.file.getvalue()


def test_piped_output_is_one_plain_line_per_dispatch(events, make_record):
    facts = TraceFacts(folder="traces_matmul/config_0007", files=("CPU_trace.json",), operators=20,
                       kernels=0, input_sha256={}, output_sha256="")  # fmt: skip
    recorded = [
        DispatchFinished(make_record(SQUARE, gflops=None, trace=one))
        for one in (facts, dataclasses.replace(facts, kernels=5), None)
    ]
    assert _printed(*events, *recorded).splitlines() == [
        "12 dispatches in gemmetry-out/demo; 8 from an earlier run are kept (400 samples)",
        "compile: 2 of 2 dispatches",
        f"[ 9/12] ok torch:{SQUARE}_default  2.68 ms  100 GFLOP/s  passed",
        f"[10/12] ok iree:{SQUARE}_fast  1.34 ms  200 GFLOP/s  passed  best so far",
        "warning: clock is low\ufffd[31m",
        f"[11/12] wrong torch:{SQUARE}_bad: [b]wrong[/b]",
        f"[12/12] ok torch:{SQUARE}_slow  5.37 ms  50.0 GFLOP/s  passed",
        f"[13/12] ok torch:{SQUARE}_default  traces_matmul/config_0007  20 operators  not_verified",
        f"[14/12] ok torch:{SQUARE}_default  traces_matmul/config_0007  5 kernels  not_verified",
        f"[15/12] ok torch:{SQUARE}_default  not_verified",
    ]


def test_verbose_lists_choices_and_commands_line_by_line(make_record):
    facts = BuildFacts(default_configuration="tile = [8, 64]", compile_command="iree-compile x")
    record = dataclasses.replace(
        make_record(SQUARE), facts=facts, reproduce="gemmetry profile \x1b[31m"
    )
    events = (PlanReady(1, 0, 0, "e"), StageProgress(Stage.VERIFY, 1, 1), DispatchFinished(record))
    first, stage, done, *reported = _printed(*events, terminal=True, verbose=True).splitlines()
    assert (first, stage) == ("1 dispatch in e", "verify: 1 of 1 dispatch")
    assert done.startswith("[1/1] ok ")
    assert reported == [
        "    chosen by the compiler: tile = [8, 64]",
        "    compile: iree-compile x",
        "    reproduce it: gemmetry profile \ufffd[31m",
    ]


@pytest.mark.parametrize("width", [60, 80])
def test_lines_above_the_live_view_break_between_words(make_record, width):
    reason = "values: " + " ".join(f"element{number} is wrong" for number in range(12))
    wrong = make_record(SQUARE, outcome=Outcome.WRONG, reason=reason)
    events = (Message(f"It was not run: {reason}", level="warning"), DispatchFinished(wrong))
    text = _printed(*events, terminal=True, width=width)
    assert len(text.splitlines()) > 6
    assert all(len(line) <= width for line in text.splitlines())
    assert " ".join(text.split()) == (
        f"warning: It was not run: {reason} wrong torch:{SQUARE}_default: {reason}"
    )


def test_progress_goes_to_stderr(capsys):
    with ProgressListener() as listener:
        listener(PlanReady(1, 0, 0, "x"))
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)


def test_an_error_ends_the_live_view_and_a_finished_run_that_is_repeated_draws_none():
    console = _console(force_terminal=True, color_system=None)
    listener = ProgressListener(console)
    with pytest.raises(KeyboardInterrupt), listener:
        raise KeyboardInterrupt
    assert listener._live is None
    with listener:
        listener(PlanReady(total=4, kept=4, samples_kept=100, experiment="x"))
        assert listener._live is None
    assert console.file.getvalue().count("\n") == 1


def test_a_long_run_keeps_the_records_alone_that_it_shows(make_record):
    class Watched(Record):
        """A record to which weak references may exist: without slots of its own."""

    def watched(name, speed):
        record = make_record(name, gflops=speed)
        fields = dataclasses.fields(Record)
        return Watched(**{one.name: getattr(record, one.name) for one in fields})

    made = []
    with ProgressListener(_console(force_terminal=True)) as listener:
        listener(PlanReady(total=80, kept=0, samples_kept=0, experiment="e"))
        for size in range(1, 41):
            for speed in (100.0, 200.0):
                record = watched(f"matmul_{size}x8x8_f32t_f32t_f32t", speed)
                made.append(weakref.ref(record))
                listener(DispatchFinished(record))
        del record
        gc.collect()
        kept = [one.operation for one in (reference() for reference in made) if one is not None]
        view = _console()
        view.print(listener._render())
    shown = {f"matmul_{size}x8x8_f32t_f32t_f32t" for size in range(36, 41)}
    assert shown <= set(kept)
    assert len(kept) <= 10
    assert view.file.getvalue().count("200 GFLOP/s") == 5


@pytest.mark.parametrize("is_terminal", [True, False])
def test_counted_work_has_a_bar_or_a_line_for_each_item(is_terminal):
    console = _console(force_terminal=is_terminal)
    with CountProgress("read", console) as progress:
        for number in range(1, 13):
            progress(number, 12, f"rank{number}\x1b[31m.json")
    shown = console.file.getvalue()
    if is_terminal:
        assert "12/12" in shown
    else:
        assert len(shown.splitlines()) == 12
        assert shown.startswith("[ 1/12] read rank1")
    assert "\x1b[31m.json" not in shown


def test_long_work_without_a_live_view_says_what_it_does(monkeypatch):
    monkeypatch.setattr(progress_module, "QUIET_S", 0.05)
    console = _console()
    with ProgressListener(console) as listener:
        listener(Doing("verifying torch:slow"))
        until = time.monotonic() + 60
        while "torch:slow, for" not in console.file.getvalue() and time.monotonic() < until:
            time.sleep(0.01)
    assert "torch:slow, for" in console.file.getvalue()
