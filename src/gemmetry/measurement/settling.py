"""Waits for a moment in which no other program uses the processors.

Untimed launches on a CPU until they take as long as undisturbed launches.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gemmetry.domain.contracts import Device
from gemmetry.hardware.host import running_times, spread_threads, usable_cpus, waiting_times
from gemmetry.measurement.launches import Call

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


SETTLE_NS = 30e6
SETTLED = 1.25
"""Before a round, untimed launches continue until one takes at most this many times as long as the
shortest one so far, or until the time limit: the threads of the previous candidate keep spinning
for a while (OpenBLAS for 2²⁶ cycles, about 20 ms; OpenMP for a few ms) and occupy processors
meanwhile."""

WARM_NS = 10e6
"""Least total duration of a warm-up's launches. After three launches of 40 µs threads have not
reached their final processors, and the supposed shortest launch is 20 times too long: rounds then
count as settled although they are not (torch on two processors with another busy program)."""

WARM_SHARE = 0.1
"""Share of the time budget that a warm-up may use."""

_CHECK_NS = 1e6
_MOST_PER_CHECK = 100
"""Launches between two checks of the threads, which take tenths of a millisecond."""

_MOST_LAUNCHES = 1000
"""Most launches of a warm-up: enough for launches that take a microsecond and use no threads."""


def warm_up(
    device: Device, calls: Callable[[int], Sequence[Call]], launch_ns: float, budget_ns: float
) -> float:
    """Launch until :data:`WARM_NS` have passed and no thread had to wait for a processor in the
    last launches, or until :data:`SETTLE_NS` have passed. Returns the duration of the shortest
    launch in ns.

    :func:`settle` later uses it to decide whether a candidate has its processors to itself. Threads
    that waited are moved to separate processors.

    Args:
        calls: returns the next launches, for a given number.
        launch_ns: the shortest launch seen so far.
        budget_ns: the dispatch's time budget, of which :data:`WARM_SHARE` is taken at most.
    """
    limit_ns, spent_ns, launches = min(SETTLE_NS, WARM_SHARE * budget_ns), 0.0, 0
    while spent_ns + launch_ns <= limit_ns and launches < _MOST_LAUNCHES:
        count = max(1, min(_MOST_PER_CHECK, int(_CHECK_NS / max(launch_ns, 1.0))))
        ran_before, waited_before = running_times(), waiting_times()
        durations, _ = device.time_calls(calls(count))
        took_ns = max(sum(durations), 1.0)
        spent_ns, launches = spent_ns + took_ns, launches + count
        launch_ns = min(launch_ns, *durations)
        waited_ns = sum(ns - waited_before.get(thread, 0) for thread, ns in waiting_times().items())
        if waited_ns > RUN_DELAY_SHARE * took_ns:
            spread_threads(ran_before)
        elif spent_ns >= WARM_NS:
            break
    return launch_ns


def settle(device: Device, call: Call, launch_ns: float) -> float:
    """Launch until a launch takes about as long as the shortest one so far (:data:`SETTLED`), or
    until :data:`SETTLE_NS` have passed. Returns the duration of the shortest launch in ns. Threads
    that obstructed each other are moved to separate processors.

    Args:
        launch_ns: the shortest launch seen so far.
    """
    spent_ns, ran_before = 0.0, running_times()
    while spent_ns < SETTLE_NS:
        durations, _ = device.time_calls([call])
        spent_ns += max(durations[0], 1.0)
        is_settled = durations[0] <= SETTLED * launch_ns
        launch_ns = min(launch_ns, durations[0])
        if is_settled:
            break
        spread_threads(ran_before)
    return launch_ns
