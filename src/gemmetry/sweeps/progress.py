"""Shows the progress of jobs that take minutes each, such as the points of a sweep."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.text import Text

from gemmetry.dispatches.progress import LiveLines
from gemmetry.engine.opaque import (
    JobEvent,
    JobFinished,
    JobOutcome,
    JobsPlanned,
    JobStarted,
    JobWarning,
)
from gemmetry.results.texts import printable

_STYLES = {JobOutcome.OK: "", JobOutcome.INTERRUPTED: "yellow"}


class JobProgress(LiveLines):
    """Listens to a run of jobs; use it as a context manager around the run.

    Each job that ended gets one line, with the estimated time left. A terminal also shows the job
    that runs, and for how long.
    """

    def __init__(
        self,
        noun: str,
        place: str,
        console: Console | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the listener.

        Args:
            noun: what a job is, in the plural, such as points.
            place: the folder of all jobs.
            console: where to print (default: stderr).
            clock: the time in seconds.
        """
        super().__init__(console, per_second=2)
        self._noun, self._place = noun, place
        self._clock = clock
        self._total = 0
        self._running: JobStarted | None = None
        self._began = 0.0
        self._seconds: list[float] = []

    def __call__(self, event: JobEvent) -> None:
        """Show one event of a run."""
        match event:
            case JobsPlanned(total, kept):
                self._total = total
                noun = self._noun.removesuffix("s") if total == 1 else self._noun
                suffix = f"; {kept} from an earlier run kept" if kept else ""
                self._line(Text(f"{total} {noun} in {printable(self._place)}{suffix}"))
            case JobStarted():
                self._running, self._began = event, self._clock()
                self._begin(f"running {event.job.title}")
                if self._console.is_terminal:
                    self._start_live(self._render)
            case JobFinished():
                self._finished(event)
            case JobWarning(text):
                self._line(Text(f"warning: {printable(text)}", style="yellow"))

    def _finished(self, event: JobFinished) -> None:
        self._running = None
        self._begin("")
        end = event.end
        self._seconds.append(end.seconds)
        remaining = self._total - event.number
        parts = [
            f"[{event.number:>{len(str(self._total))}}/{self._total}] {end.outcome}",
            printable(event.job.title),
            format_duration(end.seconds),
            printable(end.reason),
        ]
        if remaining and end.outcome is not JobOutcome.INTERRUPTED:
            parts.append(f"about {format_duration(remaining * self._mean())} left")
        text = "  ".join(part for part in parts if part)
        self._line(Text(text, style=_STYLES.get(end.outcome, "red")))

    def _mean(self) -> float:
        return sum(self._seconds) / len(self._seconds)

    def _render(self) -> Text:
        if self._running is None:
            return Text("")
        elapsed = self._clock() - self._began
        title = printable(self._running.job.title)
        text = f"[{self._running.number}/{self._total}] {title}  {format_duration(elapsed)}"
        if self._seconds:
            expected = (self._total - self._running.number + 1) * self._mean() - elapsed
            text += f"  about {format_duration(max(0.0, expected))} left"
        return Text(text, style="dim", no_wrap=True, overflow="ellipsis")


def format_duration(seconds: float) -> str:
    """For people: ``0.4 s``, ``12 s``, ``3 min 20 s``, ``2 h 05 min``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
