"""Waits for a moment in which no other program uses the processors."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gemmetry.hardware.host import usable_cpus

RUN_DELAY_SHARE = 0.05
"""Largest unmarked ratio between the time that runnable threads waited for a processor and the
sampling time. On an idle machine it is below one percent; one other busy program raises it to tens
of percent."""

WAIT_SHARE = 0.25
"""Share of a dispatch's time budget that may be spent waiting for quiet."""

_SPIN_NS = 200_000
_LATE_NS = 500_000.0
"""A thread that moves to an idle processor runs there after 20-90 µs; a thread that moves to a busy
processor waits for the end of a time slice, 1-5 ms (60 moves with and without another busy program
on two processors of an AMD EPYC 9575F, Linux 6.18)."""

_LOST_SHARE = 0.2
"""Part of a spin of :data:`_SPIN_NS` that other programs may take."""

_MOST_PROBED = 8
_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class Visit:
    """A short spin on one processor."""

    late_ns: float
    """Time in ns until the thread ran there."""
    lost_share: float
    """Time in ns of the spin during which the thread did not run."""

    @property
    def is_disturbed(self) -> bool:
        return self.late_ns > _LATE_NS or self.lost_share > _LOST_SHARE


class QuietGate:
    """Starts a round of a CPU target when its processors are free, or when the waiting time is used
    up.

    It checks only where there is reason to: before the first round, and after a round whose threads
    had to wait for a processor.

    Args:
        budget_s: total waiting time allowed for one dispatch.
        visit: spins on a processor; replaced in tests.
    """

    def __init__(self, budget_s: float, visit: Callable[[int], Visit] | None = None) -> None:
        self._left_s = budget_s
        self._visit = visit or visit_processor
        self._is_suspicious = True

    def wait(self) -> float:
        """Wait for quiet. Returns the seconds it took, including the checks."""
        if not self._is_suspicious or self._left_s <= 0 or not hasattr(os, "sched_getaffinity"):
            return 0.0
        began = time.perf_counter()
        while not self._is_quiet() and time.perf_counter() - began < self._left_s:
            time.sleep(min(_PAUSE_S, self._left_s))
        spent = time.perf_counter() - began
        self._left_s -= spent
        return spent

    def observe(self, telemetry: Mapping[str, object]) -> None:
        """Decide from the telemetry of a round whether the next one needs a check first."""
        delay = telemetry.get("run_delay_share")
        self._is_suspicious = isinstance(delay, float) and delay > RUN_DELAY_SHARE

    def _is_quiet(self) -> bool:
        processors = usable_cpus()
        probed = random.sample(processors, min(len(processors), _MOST_PROBED))
        return not any(self._visit(processor).is_disturbed for processor in probed)


def visit_processor(processor: int) -> Visit:
    """Move the calling thread to `processor`, spin there briefly, and move it back."""
    home = os.sched_getaffinity(0)
    began = time.perf_counter_ns()
    try:
        os.sched_setaffinity(0, {processor})
        arrived, ran_before = time.perf_counter_ns(), time.thread_time_ns()
        now = arrived
        while now - arrived < _SPIN_NS:
            now = time.perf_counter_ns()
        ran = time.thread_time_ns() - ran_before
    finally:
        os.sched_setaffinity(0, home)
    return Visit(float(arrived - began), max(0.0, 1 - ran / (now - arrived)))
