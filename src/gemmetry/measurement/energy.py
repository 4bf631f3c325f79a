"""The energy of one launch, from a counter of the device's energy that is updated seldom.

Launches follow each other for a few seconds, in batches, and the counter is read once in each,
while the device works. A window lasts from one update of the counter to another, and contains a
whole number of batches. What is uncertain is when the counter was updated between two readings, so
a window's resolution is the sum of these two gaps divided by its duration.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gemmetry.domain.errors import EnergyUnavailableError
from gemmetry.domain.record import EnergyFacts
from gemmetry.statistics.intervals import median_interval

LOAD_S = 1.0
"""Load before the first window, after which clocks and power have settled
(:mod:`gemmetry.measurement.load`)."""

WINDOW_S = 2.0
"""Shortest window: with batches of :data:`BATCH_S` its resolution is 1 %. Long launches make the
windows longer."""

BATCH_S = 0.01
"""Duration of the launches between two readings. Waiting for the device after each batch leaves it
idle for some tens of microseconds, less than 1 % of the time; reading takes up to a millisecond."""

IDLE_S = 0.5
"""The device is left alone for this long, and then observed for as long, before the load."""

MOST_S = 10.0
"""Longest window, and the longest time between two updates of a counter that is used."""

COARSEST = 0.02
"""A window whose resolution is worse does not count."""

MOST_IDLE = 1.6
"""Launches that follow each other at this many times their duration leave the device idle between
them; their energy is not that of a busy device. The duration is that under this load, since power
limits the clock."""

_POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class EnergyWindow:
    """Energy over some seconds of back-to-back launches."""

    joules: float
    """Of one launch, what the idle device uses included."""
    seconds: float
    launches: int
    resolution: float
    """Relative uncertainty from the counter's updates."""


@dataclass(frozen=True, slots=True)
class EnergyTaken:
    """What one process measured of a dispatch."""

    windows: tuple[EnergyWindow, ...] = ()
    idle_power_w: float | None = None
    reason: str = ""
    """Why there are no windows."""


class _Reading(NamedTuple):
    """An update of the counter, as it was seen."""

    seconds: float
    joules: float
    launches: int
    """Launches made until then."""
    gap_s: float
    """Time since the reading before, within which the update happened."""


class EnergyMeter:
    """Measures the energy of launches.

    Args:
        counter: returns the energy in J that the device has used so far, or raises
            EnergyUnavailableError.
        submit: submits so many calls to the device.
        wait: waits for the device.
        launches_per_call: of `submit`.
        launch_ns: the usual duration of a launch.
        loaded_ns: times a launch by the device's clock while it is under load; None: no device's
            clock, and `launch_ns` is its duration under load too.
        clock, sleep: replaced in tests.
    """

    def __init__(
        self,
        counter: Callable[[], float],
        submit: Callable[[int], None],
        wait: Callable[[], None],
        launches_per_call: int,
        launch_ns: float,
        loaded_ns: Callable[[], float] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._counter = counter
        self._submit = submit
        self._wait = wait
        self._per_call = launches_per_call
        self._launch_s = max(launch_ns, 1.0) / 1e9
        self._loaded_ns = loaded_ns
        self._loaded_s = self._launch_s
        self._clock = clock
        self._sleep = sleep
        self._launches = 0

    def measure(self, windows: int) -> EnergyTaken:
        """Idle power, then so many windows under load.

        Raises:
            LaunchError: the device rejected a launch. DeviceLostError: the device is gone.
        """
        try:
            self._sleep(IDLE_S)
            idle_w = self._idle_power()
            began = self._clock()
            while self._clock() - began < LOAD_S:
                self._launch()
                self._wait()
            if self._loaded_ns is not None:
                self._loaded_s = max(self._launch_s, self._loaded_ns() / 1e9)
            found = tuple(self._window() for _ in range(windows))
        except EnergyUnavailableError as error:
            return EnergyTaken(reason=str(error))
        return EnergyTaken(found, idle_w)

    def _idle_power(self) -> float | None:
        """In W; None where the counter is not updated twice."""
        try:
            first = self._update(self._rest, 2 * IDLE_S)
            last = first
            while last.seconds - first.seconds < IDLE_S:
                last = self._update(self._rest, 2 * IDLE_S)
        except EnergyUnavailableError:
            self._counter()  # A device without a counter is reported.
            return None
        return (last.joules - first.joules) / (last.seconds - first.seconds)

    def _window(self) -> EnergyWindow:
        first = self._update(self._launch, MOST_S)
        last = first
        seconds, resolution = 0.0, 1.0
        while seconds < WINDOW_S or (resolution > COARSEST and seconds < MOST_S):
            last = self._update(self._launch, MOST_S)
            seconds = last.seconds - first.seconds
            resolution = (first.gap_s + last.gap_s) / seconds
        launches = last.launches - first.launches
        if resolution > COARSEST:
            raise EnergyUnavailableError(
                f"one launch takes so long that a window of {seconds:.1f} s resolves "
                f"{100 * resolution:.1f} % only; {100 * COARSEST:.0f} % are required"
            )
        if seconds > MOST_IDLE * launches * self._loaded_s:
            raise EnergyUnavailableError(
                f"back-to-back launches began every {seconds / launches * 1e6:.1f} µs, and each "
                f"took {self._loaded_s * 1e6:.1f} µs: the device was idle in between"
            )
        return EnergyWindow((last.joules - first.joules) / launches, seconds, launches, resolution)

    def _update(self, step: Callable[[], None], most_s: float) -> _Reading:
        """The next update of the counter that is seen between steps."""
        began = before = self._clock()
        start = self._counter()
        while True:
            step()
            joules, now = self._counter(), self._clock()
            self._wait()
            if joules < start:
                raise EnergyUnavailableError("the device's counter of energy was reset meanwhile")
            if joules > start:
                return _Reading(now, joules, self._launches, now - before)
            if now - began > most_s:
                raise EnergyUnavailableError(
                    f"the device's counter of energy was not updated within {most_s:.0f} s"
                )
            before = now

    def _launch(self) -> None:
        calls = max(1, int(BATCH_S / self._launch_s / self._per_call))
        self._submit(calls)
        self._launches += calls * self._per_call

    def _rest(self) -> None:
        self._sleep(_POLL_S)


def summarize_energy(taken: Sequence[EnergyTaken]) -> EnergyFacts | None:
    """The median over the windows of all processes, with its interval where there are enough
    windows for one; None without any."""
    windows = [window for one in taken for window in one.windows]
    idle = [one.idle_power_w for one in taken if one.idle_power_w is not None]
    reasons = dict.fromkeys(one.reason for one in taken if one.reason)
    if not windows:
        return EnergyFacts(reason="; ".join(reasons)) if reasons else None
    joules = np.array([window.joules for window in windows])
    interval = median_interval(joules)
    return EnergyFacts(
        energy_j=float(np.median(joules)),
        ci_low_j=interval and interval[0],
        ci_high_j=interval and interval[1],
        windows=len(windows),
        window_s=min(window.seconds for window in windows),
        resolution=max(window.resolution for window in windows),
        idle_power_w=float(np.median(idle)) if idle else None,
        reason="; ".join(reasons),
    )
