"""Progress of a run on stderr: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from gemmetry.dispatches.labels import noted_checks, operation_title, reason_line
from gemmetry.domain import units
from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.errors import Outcome
from gemmetry.domain.record import (
    DispatchFinished,
    Doing,
    Event,
    Message,
    PlanReady,
    Record,
    StageProgress,
)
from gemmetry.results.lines import print_line, safe_console
from gemmetry.results.texts import printable

_INDENT = 4
"""Columns by which the continuation of a line that exceeds the terminal's width is indented."""

_SHOWN_OPERATIONS = 5
"""Operations whose best dispatch the live view shows: those whose best changed last."""


QUIET_S = 10.0
"""Time without a line after which one says what is being done, where there is no live view."""


class LiveLines:
    """A console that gets lines, below them a live view; a context manager, which ends the view.

    Where there is no live view, a line every :data:`QUIET_S` seconds says what runs, and for
    how long.
    """

    def __init__(self, console: Console | None, per_second: float) -> None:
        """`console`: by default stderr. The view is drawn `per_second` times a second."""
        self._console = console or safe_console(stderr=True)
        self._per_second = per_second
        self._live: Live | None = None
        self._doing, self._since = "", time.monotonic()
        self._last_line = self._since
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._speak_up, daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _begin(self, doing: str) -> None:
        """Note what is being done from now on."""
        self._doing, self._since = printable(doing), time.monotonic()

    def _lasting(self, now: float) -> str:
        """Current activity, with its duration if it has lasted more than a moment."""
        seconds = now - self._since
        return self._doing if seconds < 2 else f"{self._doing}, for {seconds:.0f} s"

    def _speak_up(self) -> None:
        while not self._ended.wait(QUIET_S / 10):
            now = time.monotonic()
            if self._doing and self._live is None and now - self._last_line > QUIET_S:
                self._line(Text(self._lasting(now), style="dim"))

    def _start_live(self, render: Callable[[], RenderableType]) -> None:
        if self._live is None:
            self._live = Live(get_renderable=render, console=self._console, transient=True,
                              refresh_per_second=self._per_second)  # fmt: skip
            self._live.start()

    def _line(self, text: Text) -> None:
        self._last_line = time.monotonic()
        print_line(text, self._console, indent=_INDENT)  # above a live view, if there is one


class CountProgress(LiveLines):
    """Shows how much of some work is done; use it as a context manager around the work.

    A terminal shows a bar with the estimated time left, and the latest item. Elsewhere each item
    gets one line.
    """

    def __init__(self, done: str, console: Console | None = None) -> None:
        """`done` says what happened to each item, such as `read`; the default console is stderr."""
        super().__init__(console, per_second=8)
        self._current = ""
        self._progress = _bar(self._console)
        self._task = self._progress.add_task(done, total=None)
        self._done = done

    def __call__(self, done: int, total: int, current: str = "") -> None:
        """Show that `done` of `total` items are done, the latest of which is `current`."""
        self._current = printable(current)
        self._begin(f"{total - done} of {total} are left")
        self._progress.update(self._task, total=total, completed=done)
        if self._console.is_terminal:
            self._start_live(self._render)
        else:
            self._line(Text(f"[{done:>{len(str(total))}}/{total}] {self._done} {self._current}"))

    def _render(self) -> Group:
        current = Text(self._current, style="dim", no_wrap=True, overflow="ellipsis")
        return Group(current, self._progress)


def _bar(console: Console, left: ProgressColumn | None = None) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        *((TextColumn("left"), TimeRemainingColumn()) if left is None else (left,)),
        console=console,
        expand=True,
    )


class ProgressListener(LiveLines):
    """Listens to a run's events and shows them; use it as a context manager around the run.

    A terminal shows a bar with the share that is done and the estimated time left. Below it are the
    stage, failures, and the best dispatch of the latest operations. Elsewhere each finished
    dispatch gets one line.
    """

    def __init__(self, console: Console | None = None, *, verbose: bool = False) -> None:
        """Create the listener.

        Args:
            console: where to print (default: stderr).
            verbose: print every stage, and for every dispatch what its compiler chose and the
                commands that reproduce it, also on a terminal without a live view.
        """
        super().__init__(console, per_second=8)
        self._is_live = self._console.is_terminal and not verbose
        self._is_verbose = verbose
        self._total = self._done = self._failures = self._kept = self._batch = 0
        self._stage = ""
        self._began_s = time.monotonic()
        self._ends_s: float | None = None
        """When the run began, and when the dispatches that are open are expected to end."""
        self._best_ns: dict[str, float] = {}
        """Operation -> its shortest median; the records of a long run would not fit into memory."""
        self._latest_best: dict[str, Record] = {}
        self._progress = _bar(self._console, TextColumn("{task.fields[left]}"))
        self._task = self._progress.add_task("dispatches", total=None, left="")

    def __call__(self, event: Event) -> None:
        """Show one event of the engine."""
        match event:
            case PlanReady():
                self._plan_ready(event)
            case StageProgress():
                self._stage_progress(event)
            case Doing(text):
                self._begin(text)
            case DispatchFinished(record):
                self._finished(record)
            case Message(text, level):
                prefix = "" if level == "info" else f"{level}: "
                style = {"warning": "yellow", "error": "red"}.get(level, "")
                self._line(Text(f"{prefix}{printable(text)}", style=style))

    def _plan_ready(self, event: PlanReady) -> None:
        self._total, self._done = event.total, event.kept
        self._kept, self._began_s = event.kept, time.monotonic()
        self._progress.update(self._task, total=event.total, completed=event.kept)
        kept = ""
        if event.kept or event.samples_kept:
            kept = f"; {event.kept} from an earlier run are kept ({event.samples_kept} samples)"
        count = f"{event.total} {units.noun_for(event.total, 'dispatch', 'dispatches')}"
        self._line(Text(f"{count} in {printable(event.experiment)}{kept}"))

        # A run that is repeated after it finished has nothing to show.
        if self._is_live and event.kept < event.total:
            self._start_live(self._render)

    def _status(self) -> str:
        """The latest stage, and any activity that lasts longer than a moment."""
        now = time.monotonic()
        self._progress.update(self._task, left=self._left(now))
        if not self._doing or now - self._since < 2:
            return self._stage
        return super()._lasting(now)

    def _lasting(self, now: float) -> str:
        left = self._left(now)
        return super()._lasting(now) + (f", {left}" if left else "")

    def _left(self, now: float) -> str:
        """Estimate of the time left of the run; "" if nothing is known."""
        if self._ends_s is None:
            return ""
        # Further dispatches are expected to take as long as those that are done.
        further = self._total - self._done - max(0, self._batch)
        each_s = (now - self._began_s) / max(1, self._done - self._kept)
        if self._done == self._kept:
            each_s = max(self._ends_s - self._began_s, 0.0) / max(1, self._batch)
        return f"about {max(1.0, self._ends_s - now + max(0, further) * each_s):.0f} s left"

    def _stage_progress(self, event: StageProgress) -> None:
        self._stage = f"{event.stage} {event.done}/{event.total}"
        if event.current:
            self._stage += f"  {printable(event.current)}"
        self._begin(self._stage)
        self._batch = event.total
        self._ends_s = None if event.left_s is None else time.monotonic() + event.left_s
        if not self._is_live and event.done == event.total:
            noun = units.noun_for(event.total, "dispatch", "dispatches")
            self._line(Text(f"{event.stage}: {event.done} of {event.total} {noun}"))

    def _finished(self, record: Record) -> None:
        self._begin("")
        self._done, self._batch = self._done + 1, self._batch - 1
        self._progress.update(self._task, completed=self._done)
        if record.outcome.is_failure:
            self._failures += 1
        improved = self._note_best(record)
        if not self._is_live:
            count = f"[{self._done:>{len(str(self._total))}}/{self._total}]"
            note = "  best so far" if improved else ""
            self._line(Text(f"{count} {_describe(record)}{note}"))
        elif record.outcome.is_failure:
            self._line(Text(_describe(record), style="red"))
        named = (
            ("chosen by the compiler", record.facts.default_configuration),
            ("compile", record.facts.compile_command),
            ("the provider's own benchmark", record.facts.run_command),
            ("reproduce it", record.reproduce),
        )
        for name, text in named if self._is_verbose else ():
            if text:
                self._line(Text(f"    {name}: {printable(text)}", style="dim"))

    def _note_best(self, record: Record) -> bool:
        """Remember a record that is the fastest of its operation; True if it replaced another."""
        if record.measurement is None:
            return False
        title = f"{record.target} {record.operation}"
        old_ns, new_ns = self._best_ns.get(title), record.measurement.median_ns
        if old_ns is not None and old_ns <= new_ns:
            return False
        self._best_ns[title] = new_ns
        self._latest_best.pop(title, None)  # so that it moves to the end
        self._latest_best[title] = record
        if len(self._latest_best) > _SHOWN_OPERATIONS:
            del self._latest_best[next(iter(self._latest_best))]
        return old_ns is not None

    def _render(self) -> Group:
        failures = Text(f"{self._failures} failed" if self._failures else "", style="red")
        status = Text(self._status(), style="dim", no_wrap=True, overflow="ellipsis")
        best = Table.grid(padding=(0, 2, 0, 0))
        best.add_column(no_wrap=True, overflow="ellipsis")
        best.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        best.add_column(justify="right", no_wrap=True)
        for record in list(self._latest_best.values()):  # the live view has a thread of its own
            best.add_row(
                Text(operation_title(parse_operation(record.operation))),
                Text(f"{record.provider} {record.configuration}", style="cyan"),
                Text(units.format_gflops(record.gflops), style="green"),
            )
        heading = [Text("best so far", style="bold")] if self._latest_best else []
        parts = [failures] if self._failures else []
        return Group(*heading, best, *parts, status, self._progress)


def _describe(record: Record) -> str:
    name = printable(f"{record.provider}:{record.dispatch}")
    if record.outcome is not Outcome.OK:
        return f"{record.outcome} {name}: {reason_line(record)}"
    facts = []
    if record.trace is not None:
        trace = record.trace
        noun = "kernel" if trace.kernels else "operator"
        facts = [trace.folder, units.plural(trace.kernels or trace.operators, noun)]
    elif record.measurement is not None:
        facts = [units.format_ns(record.median_ns, even=True),
                 units.format_gflops(record.gflops, even=True)]  # fmt: skip
    refused = record.verdict.refused_shapes
    cut, found = (list(noted_checks([record], word)) for word in ("incomplete", "property"))
    notes = [f"{refused} small {units.noun_for(refused, 'shape')} refused"] if refused else []
    notes += [f"cut short: {', '.join(cut)}"] if cut else []
    notes += [f"properties: {', '.join(found)}"] if found else []
    status = [str(record.verdict.status), f"({'; '.join(notes)})" if notes else ""]
    return "  ".join((f"ok {name}", *facts, " ".join(filter(None, status))))
