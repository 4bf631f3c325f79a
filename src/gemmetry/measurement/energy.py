"""The energy of one launch, from an energy counter of the device that is rarely updated.

Launches follow each other for a few seconds, in batches, and the counter is read once in each,
while the device works. A window lasts from one update of the counter to another, and contains a
whole number of batches. The time of an update between two readings is uncertain, so a window's
resolution is the sum of the two gaps divided by the window's duration.

Untimed load: before a sustained measurement, and around the samples of each round.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from gemmetry.domain.contracts import Device, Observer
from gemmetry.domain.errors import EnergyUnavailableError
from gemmetry.domain.record import EnergyFacts
from gemmetry.statistics.intervals import median_interval

LOAD_S = 1.0
"""Load before the first window, after which clocks and power have settled
(:mod:`gemmetry.measurement.energy`)."""

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
    """Energy of one launch, including the idle power."""
    seconds: float
    launches: int
    resolution: float
    """Relative uncertainty from the counter's updates."""


@dataclass(frozen=True, slots=True)
class EnergyTaken:
    """Energy of a dispatch, measured by one process."""

    windows: tuple[EnergyWindow, ...] = ()
    idle_power_w: float | None = None
    reason: str = ""
    """Reason why there are no windows."""


class _Reading(NamedTuple):
    """An update of the counter, as it was seen."""

    seconds: float
    joules: float
    launches: int
    """Launches made until then."""
    gap_s: float
    """Time since the reading before, within which the update happened."""


@dataclass(slots=True)
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
        launches: how many have been made so far.
    """

    counter: Callable[[], float]
    submit: Callable[[int], None]
    wait: Callable[[], None]
    launches_per_call: int
    launch_ns: float
    loaded_ns: Callable[[], float] | None = None
    clock: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep
    launches: int = 0

    @property
    def _launch_s(self) -> float:
        return max(self.launch_ns, 1.0) / 1e9

    def measure(self, windows: int) -> EnergyTaken:
        """Idle power, then so many windows under load.

        Raises:
            LaunchError: the device rejected a launch. DeviceLostError: the device is gone.
        """
        try:
            self.sleep(IDLE_S)
            idle_w = self._idle_power()
            began = self.clock()
            while self.clock() - began < LOAD_S:
                self._launch()
                self.wait()
            loaded_s = 0.0 if self.loaded_ns is None else self.loaded_ns() / 1e9
            loaded_s = max(self._launch_s, loaded_s)
            found = tuple(self._window(loaded_s) for _ in range(windows))
        except EnergyUnavailableError as error:
            return EnergyTaken(reason=str(error))
        return EnergyTaken(found, idle_w)

    def _idle_power(self) -> float | None:
        """Idle power in W; None where the counter is not updated twice."""
        rest = partial(self.sleep, _POLL_S)
        try:
            first = last = self._update(rest, 2 * IDLE_S)
            while last.seconds - first.seconds < IDLE_S:
                last = self._update(rest, 2 * IDLE_S)
        except EnergyUnavailableError:
            self.counter()  # A device without a counter is reported.
            return None
        return (last.joules - first.joules) / (last.seconds - first.seconds)

    def _window(self, loaded_s: float) -> EnergyWindow:
        """`loaded_s`: the duration of a launch under load."""
        first = last = self._update(self._launch, MOST_S)
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
        if seconds > MOST_IDLE * launches * loaded_s:
            raise EnergyUnavailableError(
                f"back-to-back launches began every {seconds / launches * 1e6:.1f} µs, and each "
                f"took {loaded_s * 1e6:.1f} µs: the device was idle in between"
            )
        return EnergyWindow((last.joules - first.joules) / launches, seconds, launches, resolution)

    def _update(self, step: Callable[[], None], most_s: float) -> _Reading:
        """The next update of the counter that is seen between steps."""
        began = before = self.clock()
        start = self.counter()
        while True:
            step()
            joules, now = self.counter(), self.clock()
            self.wait()
            if joules < start:
                raise EnergyUnavailableError("the device's counter of energy was reset meanwhile")
            if joules > start:
                return _Reading(now, joules, self.launches, now - before)
            if now - began > most_s:
                raise EnergyUnavailableError(
                    f"the device's counter of energy was not updated within {most_s:.0f} s"
                )
            before = now

    def _launch(self) -> None:
        calls = max(1, int(BATCH_S / self._launch_s / self.launches_per_call))
        self.submit(calls)
        self.launches += calls * self.launches_per_call


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


MOST_LOAD_S = 6.0
"""Longest load before a sustained measurement begins. Clocks oscillate for the first seconds of a
load and then settle (measurement guidelines in NVIDIA's CUTLASS documentation: about 3 s)."""

RELOAD_S = 0.2
"""Load before each further round, as the device may have been idle between rounds."""

LOAD_WINDOW_S = 0.25
SETTLED_WINDOWS = 4
"""A second without a change counts as settled."""

SETTLED_CLOCK = 0.02
"""Relative range of the windows' clocks that counts as settled. Clocks change in steps of 15 MHz,
0.8 % of an H100's, and a power limit keeps them moving between two or three steps."""

SETTLED_SPEED = 0.01
"""Relative range of the windows' mean durations that counts as settled."""


LEAD_NS = 15e6
TAIL_NS = 10e6
"""On a device with a queue, untimed launches of about these durations run right before and right
after the samples, without waiting for the tail: the power of an idle device falls, and where power
limits the clock each turn of a candidate would begin at a different clock."""

LIMITED_LEAD_NS = 50e6
"""The lead where power limits the clock, which takes that long to settle. On an H200 the medians of
rounds of a 4096³ product in bf16 then differ by 0.7 to 0.8 % (standard deviation), instead of 2.2
to 2.4 % after 15 ms and 4.2 to 5.2 % after 5 ms; 100 ms improve it no further
(``benchmarks/round_spread.py``)."""

_MOST_LEADING, _MOST_TRAILING = 360, 240
"""Maximum number of submissions of a lead and of a tail. With the samples in between they stay
below the 1024 after which the driver makes the host wait."""

_POWER_REASONS = frozenset({"sw_power_cap", "hw_power_brake_slowdown"})
"""Throttle reasons of :class:`gemmetry.domain.record.Telemetry` that name the power."""


class UntimedCalls:
    """Number of untimed calls before and after the samples of each round."""

    def __init__(self) -> None:
        self._was_limited = self._is_free = False
        self.is_loaded = False
        """Whether other launches have kept the device busy until now."""

    def observe(self, telemetry: Mapping[str, object]) -> None:
        """Shorten the lead if the device reports its power and that power never limits its
        clock."""
        reasons = telemetry.get("throttle_reasons", ())
        if isinstance(reasons, tuple) and not _POWER_REASONS.isdisjoint(reasons):
            self._was_limited = True
        self._is_free = "power_w" in telemetry and not self._was_limited

    def lead(self, sample_ns: float, submissions: int) -> int:
        """Calls right before the samples, of `submissions` entries in the device's queue each."""
        is_short = self._is_free or self.is_loaded
        duration_ns = LEAD_NS if is_short else LIMITED_LEAD_NS
        return _calls(duration_ns, _MOST_LEADING, sample_ns, submissions)

    def tail(self, sample_ns: float, submissions: int) -> int:
        """Number of calls right after the samples."""
        return _calls(TAIL_NS, _MOST_TRAILING, sample_ns, submissions)


def _calls(duration_ns: float, most: int, sample_ns: float, submissions: int) -> int:
    return min(max(1, most // submissions), math.ceil(duration_ns / sample_ns))


@dataclass(frozen=True, slots=True)
class Load:
    """Result of a load."""

    seconds: float
    is_settled: bool
    change: float
    """Relative range of the observed clock or speed over the last windows."""


@dataclass(frozen=True, slots=True)
class Loader:
    """Keeps a device busy.

    Args:
        calls: returns the next calls of one sample each, for a given number.
        call_ns: approximate duration of one call.
        observers: queried for the clock between windows.
    """

    device: Device
    calls: Callable[[int], Sequence[Callable[[], object]]]
    call_ns: float
    observers: Sequence[Observer]

    def settle(self, most_s: float = MOST_LOAD_S) -> Load:
        """Load until clock and speed have settled, or for `most_s`."""
        began = time.perf_counter()
        clocks: list[float | None] = []
        durations: list[float] = []
        while True:
            for observer in self.observers:
                observer.start()
            seconds, count = self._window(LOAD_WINDOW_S)
            durations.append(seconds / count)
            clocks.append(self._clock())
            elapsed = time.perf_counter() - began
            change = _range(durations[-SETTLED_WINDOWS:])
            reported = [clock for clock in clocks[-SETTLED_WINDOWS:] if clock is not None]
            is_settled = (
                len(durations) >= SETTLED_WINDOWS
                and change <= SETTLED_SPEED
                and _range(reported) <= SETTLED_CLOCK
            )
            if is_settled or elapsed >= most_s:
                return Load(elapsed, is_settled, max(change, _range(reported)))

    def run(self, seconds: float) -> float:
        """Load for `seconds`. Returns the actual duration in seconds."""
        return self._window(seconds)[0]

    def _window(self, seconds: float) -> tuple[float, int]:
        began, count, call_ns = time.perf_counter(), 0, max(self.call_ns, 1.0)
        batch = max(1, min(1000, int(min(seconds, LOAD_WINDOW_S) * 1e9 / 10 / call_ns)))
        while (elapsed := time.perf_counter() - began) < seconds or count == 0:
            for call in self.calls(batch):
                call()
            for observer in self.observers:
                observer.sample()  # while the device is still busy with submitted work
            self.device.synchronize()
            count += batch
        return elapsed, count

    def _clock(self) -> float | None:
        """The observers' clock of the last window; None where none reports it."""
        found = None
        for observer in self.observers:
            reported = observer.stop().get("sm_clock_hz")
            found = reported if isinstance(reported, float) else found
        return found


def _range(values: Sequence[float]) -> float:
    """Difference of the largest and smallest value, divided by their mean; 0 without values."""
    return (max(values) - min(values)) / ((max(values) + min(values)) / 2) if values else 0.0
