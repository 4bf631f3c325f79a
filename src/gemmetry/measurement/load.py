"""Untimed load: before a sustained measurement, and around the samples of each round."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gemmetry.domain.contracts import Device, Observer

MOST_LOAD_S = 6.0
"""Longest load before a sustained measurement begins. Clocks oscillate for the first seconds of a
load and then settle (measurement guidelines in NVIDIA's CUTLASS documentation: about 3 s)."""

RELOAD_S = 0.2
"""Load before each further round, as the device may have been idle between rounds."""

WINDOW_S = 0.25
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
"""Most submissions of a lead or tail. With the samples in between they stay below the 1024 after
which the driver makes the host wait."""

_POWER_REASONS = frozenset({"sw_power_cap", "hw_power_brake_slowdown"})
"""Throttle reasons of :class:`gemmetry.domain.record.Telemetry` that name the power."""


class Surroundings:
    """Number of untimed calls before and after the samples of each round."""

    def __init__(self) -> None:
        self._was_limited = self._is_free = False

    def observe(self, telemetry: Mapping[str, object]) -> None:
        """Shorten the lead if the device reports its power and that power never limits its
        clock."""
        reasons = telemetry.get("throttle_reasons", ())
        if isinstance(reasons, tuple) and not _POWER_REASONS.isdisjoint(reasons):
            self._was_limited = True
        self._is_free = "power_w" in telemetry and not self._was_limited

    def lead(self, sample_ns: float, submissions: int) -> int:
        """Calls right before the samples, of `submissions` entries in the device's queue each."""
        duration_ns = LEAD_NS if self._is_free else LIMITED_LEAD_NS
        return _calls(duration_ns, _MOST_LEADING, sample_ns, submissions)

    def tail(self, sample_ns: float, submissions: int) -> int:
        """Calls right after the samples."""
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


class Loader:
    """Keeps a device busy.

    Args:
        calls: returns the next calls of one sample each, for a given number.
        call_ns: approximate duration of one call.
        observers: queried for the clock between windows.
    """

    def __init__(
        self,
        device: Device,
        calls: Callable[[int], Sequence[Callable[[], object]]],
        call_ns: float,
        observers: Sequence[Observer] = (),
    ) -> None:
        self._device = device
        self._calls = calls
        self._call_ns = max(call_ns, 1.0)
        self._observers = observers

    def settle(self, most_s: float = MOST_LOAD_S) -> Load:
        """Load until clock and speed have settled, or for `most_s`."""
        began = time.perf_counter()
        clocks: list[float | None] = []
        durations: list[float] = []
        while True:
            for observer in self._observers:
                observer.start()
            seconds, count = self._window(WINDOW_S)
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
        began, count = time.perf_counter(), 0
        batch = max(1, min(1000, int(min(seconds, WINDOW_S) * 1e9 / 10 / self._call_ns)))
        while (elapsed := time.perf_counter() - began) < seconds or count == 0:
            for call in self._calls(batch):
                call()
            for observer in self._observers:
                observer.sample()  # while the device is still busy with submitted work
            self._device.synchronize()
            count += batch
        return elapsed, count

    def _clock(self) -> float | None:
        """The observers' clock of the last window; None where none reports it."""
        found = None
        for observer in self._observers:
            reported = observer.stop().get("sm_clock_hz")
            found = reported if isinstance(reported, float) else found
        return found


def _range(values: Sequence[float]) -> float:
    """Difference of the largest and smallest value, divided by their mean; 0 without values."""
    return (max(values) - min(values)) / ((max(values) + min(values)) / 2) if values else 0.0
