"""Takes the samples of one executable: cold inputs, warm-up, rounds of timed launches.

The engine makes one sampler a dispatch and calls ``sample_round`` of several in turn, so that
drift of the machine hits all candidates alike.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gemmetry.domain.contracts import Executable, HostArray, Observer
from gemmetry.domain.operation import Operation
from gemmetry.domain.settings import RunSettings
from gemmetry.measurement import buffers, overhead

MIN_SAMPLE_NS = 100_000
"""Length of a wall-clock sample that launches are gathered up to. Reading the clock twice and
calling through Python costs 0.1-0.5 µs (see ``overhead.py``), so that the error of a sample of
100 µs stays under 0.5 %."""

MAX_LAUNCHES_PER_SAMPLE = 1000

OVERHEAD_RATIO = 100
"""A sample timed by the device itself is at least this many times what an empty one reports."""

MAX_DEVICE_LAUNCHES_PER_SAMPLE = 12
"""Devices queue about a thousand launches before they make the host wait, and a timed batch holds
up to 64 samples with two event records each."""

SUSTAINED_LOAD_S = 2.0
"""Continuous load of a sustained measurement before it is sampled. Clocks oscillate for the first
seconds of a load and then settle (measurement guidelines in NVIDIA's CUTLASS documentation)."""

SUSTAINED_RELOAD_S = 0.2
"""Load before each sustained round: what happened between rounds may have idled the device."""

_ROUND_WARMUP_NS = 50e6
"""A launch shorter than this runs untimed before each round: other candidates ran meanwhile, so
threads sleep, and instruction caches and TLBs are theirs."""

_SETTLE_NS = 30e6
_SETTLED = 1.25
"""On a CPU the untimed launches go on until one takes at most so many times the shortest one seen,
or until that time is up: the threads of the candidate that ran before spin on for a while (OpenBLAS
for 2²⁶ cycles, about 20 ms; OpenMP for some ms) and take processors away from this one."""

_SLICE_NS = 20e6
"""Samples between two looks at the telemetry take about this long."""

_MAX_SLICES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round of samples; durations in ns per launch, in the order they were taken."""

    samples_ns: tuple[float, ...]
    method: str
    """``wall_clock``, ``events``, ``graph`` or ``simulated``."""
    telemetry: Mapping[str, float | str | tuple[str, ...]] = field(default_factory=dict)
    """Fields of :class:`gemmetry.domain.record.Telemetry`."""
    launches_per_sample: int = 1
    input_sets: int = 1
    first_launch_ns: float | None = None
    overhead_ns: float | None = None
    """What timing an empty call reports, per timed call."""
    bytes_per_set: int = 0
    last_level_cache_bytes: int = 0
    seconds: float = 0.0
    """Wall-clock time of the sampling itself."""
    load_s: float = 0.0
    """Continuous untimed load before this round (sustained regime); not part of `seconds`."""


class Sampler:
    """Times one executable on rotating buffers. Call ``prepare``, then ``sample_round``.

    Args:
        executable: built on the device that this process owns.
        operation: what it computes.
        inputs: host arrays of ``operation.inputs``.
        settings: budgets, warm-up, regime.
        observers: telemetry; each is started, sampled and stopped once a round.
    """

    def __init__(
        self,
        executable: Executable,
        operation: Operation,
        inputs: Sequence[HostArray],
        settings: RunSettings,
        observers: Sequence[Observer] = (),
    ) -> None:
        self._executable = executable
        self._device = executable.device
        self._operation = operation
        self._inputs = inputs
        self._settings = settings
        self._observers = observers
        self._sets: list[buffers.BufferSet] = []
        self._launches: list[Callable[[], object]] = []
        self._next = 0
        self.method = ""
        self.launches_per_sample = 1
        self.launch_ns = 0.0
        """Estimate of one launch from the warm-up."""
        self.first_launch_ns: float | None = None
        self.overhead_ns: float | None = None

    def prepare(self) -> None:
        """Upload and clone the inputs, time the first launch, warm up, choose the sample's length.

        Raises:
            LaunchError: the device rejected a launch.
            OutOfMemoryError: one set of buffers does not fit.
            DeviceLostError: the device is gone.
        """
        device, settings = self._device, self._settings
        count = buffers.wanted_sets(self._operation, device, cold_cache=settings.cold_cache)
        self._sets = buffers.make_sets(
            device,
            self._operation,
            self._inputs,
            count,
            rotate_outputs=self._executable.writes_output,
        )
        self._launches = [self._launcher(buffer_set) for buffer_set in self._sets]
        durations, self.method = device.time_calls(self._calls(1, 1))
        self.first_launch_ns = self.launch_ns = durations[0]
        self._warm_up()
        if self.method != "simulated":
            self.overhead_ns = overhead.measure_overhead(device)
        self.launches_per_sample = self._choose_launches_per_sample()
        if settings.regime == "sustained" and self.method != "simulated":
            self._load(SUSTAINED_LOAD_S)
        if self._executable.writes_output:
            buffers.poison_outputs(device, self._sets)

    def sample_round(self, count: int) -> Round:
        """Take up to `count` samples; fewer (at least one) when the time budget is too short.

        Raises:
            LaunchError: the device rejected a launch.
            DeviceLostError: the device is gone.
        """
        per_sample = self.launches_per_sample
        load_s = self._before_round()
        began = time.perf_counter()
        for observer in self._observers:
            observer.start()
        samples: list[float] = []
        for size in self._slices(max(1, count)):
            durations, self.method = self._device.time_calls(self._calls(size, per_sample))
            samples.extend(durations)
            for observer in self._observers:
                observer.sample()
            if time.perf_counter() - began > self._settings.time_budget_s:
                break
        seconds = time.perf_counter() - began
        telemetry: dict[str, float | str | tuple[str, ...]] = {}
        for observer in self._observers:
            telemetry.update(observer.stop())
        return Round(
            samples_ns=tuple(duration / per_sample for duration in samples),
            method=self.method,
            telemetry=telemetry,
            launches_per_sample=per_sample,
            input_sets=len(self._sets),
            first_launch_ns=self.first_launch_ns,
            overhead_ns=self.overhead_ns,
            bytes_per_set=self._operation.bytes,
            last_level_cache_bytes=self._device.last_level_cache_bytes,
            seconds=seconds,
            load_s=load_s,
        )

    def recheck(self) -> list[tuple[str, HostArray]]:
        """What the timed launches left behind, to be verified again: (name, host array) pairs.

        Outputs that are equal bit for bit are given once. An executable that allocates its own
        output is launched once more, as keeping its results would have changed the timing.
        """
        spec = self._operation.output
        if not self._executable.writes_output:
            first = self._sets[0]
            result = self._executable.run(first.inputs, first.output)
            return [("output after timing", self._device.download(result, spec))]
        found: list[tuple[str, HostArray]] = []
        seen: set[bytes] = set()
        for index, buffer_set in enumerate(self._sets):
            if not buffer_set.launched:
                continue
            array = self._device.download(buffer_set.output, spec)
            content = _digest(array)
            if content not in seen:
                seen.add(content)
                found.append((f"output {index} after timing", array))
        return found

    def close(self) -> None:
        """Drop all buffers and give the memory back; the executable stays open."""
        self._launches.clear()
        self._sets.clear()
        self._device.release()

    def _launcher(self, buffer_set: buffers.BufferSet) -> Callable[[], object]:
        run, inputs, output = self._executable.run, buffer_set.inputs, buffer_set.output

        def launch() -> object:
            return run(inputs, output)

        return launch

    def _calls(self, samples: int, per_sample: int) -> list[Callable[[], object]]:
        """`samples` calls of `per_sample` launches each, going on where the last round ended."""
        launches, total = self._launches, len(self._launches)
        start, self._next = self._next, self._next + samples * per_sample
        for index in range(start, min(self._next, start + total)):
            self._sets[index % total].launched = True
        if per_sample == 1:
            return [launches[index % total] for index in range(start, self._next)]
        return [
            _back_to_back([launches[(first + i) % total] for i in range(per_sample)])
            for first in range(start, self._next, per_sample)
        ]

    def _warm_up(self) -> None:
        iterations = self._settings.warmup_iterations
        affordable = int(self._settings.time_budget_s * 1e9 / max(self.launch_ns, 1.0))
        iterations = min(iterations, affordable)
        if iterations > 0:
            durations, self.method = self._device.time_calls(self._calls(iterations, 1))
            self.launch_ns = min(durations)

    def _choose_launches_per_sample(self) -> int:
        if self._settings.launches_per_sample is not None:
            return self._settings.launches_per_sample
        if self.method == "simulated":
            return 1
        if self.method == "wall_clock":
            length_ns, most = float(MIN_SAMPLE_NS), MAX_LAUNCHES_PER_SAMPLE
        else:
            length_ns, most = (
                OVERHEAD_RATIO * (self.overhead_ns or 0.0),
                MAX_DEVICE_LAUNCHES_PER_SAMPLE,
            )
        return min(max(1, math.ceil(length_ns / max(self.launch_ns, 1.0))), most)

    def _slices(self, count: int) -> list[int]:
        """Split `count` samples so that telemetry and the budget are looked at in between."""
        expected_ns = count * self.launch_ns * self.launches_per_sample
        slices = min(count, _MAX_SLICES, max(1, round(expected_ns / _SLICE_NS)))
        if expected_ns > self._settings.time_budget_s * 1e9:
            slices = count
        size, longer = divmod(count, slices)
        return [size + (index < longer) for index in range(slices)]

    def _before_round(self) -> float:
        """Untimed launches before a round; seconds of continuous load (0 in the burst regime)."""
        if self.method == "simulated":
            return 0.0
        if self._settings.regime == "sustained":
            return self._load(SUSTAINED_RELOAD_S)
        if self.launch_ns < _ROUND_WARMUP_NS:
            self._settle()
        return 0.0

    def _settle(self) -> None:
        """Launch on the set that was used last, so that the next one stays cold."""
        call = self._launches[(self._next - 1) % len(self._launches)]
        spent_ns = 0.0
        while spent_ns < _SETTLE_NS:
            durations, _ = self._device.time_calls([call])
            spent_ns += max(durations[0], 1.0)
            is_settled = durations[0] <= _SETTLED * self.launch_ns
            self.launch_ns = min(self.launch_ns, durations[0])
            if is_settled or self.method != "wall_clock":
                break

    def _load(self, seconds: float) -> float:
        """Launch without a pause for `seconds`; how long it really was."""
        began = time.perf_counter()
        batch = min(max(1, int(_SLICE_NS / max(self.launch_ns, 1.0))), MAX_LAUNCHES_PER_SAMPLE)
        while (elapsed := time.perf_counter() - began) < seconds:
            for call in self._calls(batch, 1):
                call()
            self._device.synchronize()
        return elapsed


def _back_to_back(launches: Sequence[Callable[[], object]]) -> Callable[[], object]:
    def sample() -> object:
        result: object = None
        for launch in launches:
            result = launch()
        return result

    return sample


def _digest(array: HostArray) -> bytes:
    """Bytes to compare by: NaN equals itself, and -0 differs from +0."""
    return hashlib.blake2b(np.ascontiguousarray(array).view(np.uint8).data).digest()
