"""Untimed launches on a CPU until they take as long as undisturbed launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gemmetry.domain.contracts import Device
from gemmetry.hardware.pinning import running_times, spread_threads, waiting_times
from gemmetry.measurement.launches import Call
from gemmetry.measurement.quiet import RUN_DELAY_SHARE

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
