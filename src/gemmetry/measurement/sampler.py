"""Takes the samples of one executable: cold inputs, warm-up, rounds of timed launches.

The engine creates one sampler per dispatch and calls ``sample_round`` of several in turn, so that
drift of the machine affects all candidates alike.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from gemmetry.domain.contracts import Buffer, Executable, HostArray, Observer, StreamDevice
from gemmetry.domain.errors import LaunchError
from gemmetry.domain.operation import Operation
from gemmetry.domain.settings import APART, BACK_TO_BACK, RunSettings
from gemmetry.hardware.host import running_times, spread_threads
from gemmetry.measurement import launches as buffers
from gemmetry.measurement import launches as integrity
from gemmetry.measurement import launches as overhead
from gemmetry.measurement.energy import (
    RELOAD_S,
    EnergyMeter,
    EnergyTaken,
    Load,
    Loader,
    UntimedCalls,
)
from gemmetry.measurement.launches import (
    WAIT_SHARE,
    Call,
    Launches,
    QuietGate,
    back_to_back,
    settle,
    warm_up,
)  # fmt: skip
from gemmetry.measurement.renewal import KeptResults, LeftOutput, Renewal, is_known, left_outputs
from gemmetry.measurement.stopping import Round
from gemmetry.numerics.storage import same_bytes

MIN_SAMPLE_NS = 100_000
"""Duration up to which launches are grouped into one wall-clock sample. Reading the clock twice and
calling through Python costs 0.1-0.5 µs (see ``overhead.py``), so that the error of a sample of 100
µs stays below 0.5 %."""

MAX_LAUNCHES_PER_SAMPLE = 1000

OVERHEAD_RATIO = 100
"""A sample timed by the device itself is at least this many times as long as an empty one."""

GRAPH_OVERHEAD_RATIO = 200
"""Ratio for replays: starting a graph adds about as much as an event pair."""

MAX_DEVICE_LAUNCHES_PER_SAMPLE = 12
"""Maximum launches per sample timed by events: devices queue about a thousand launches before the
host has to wait, and a timed batch holds up to 64 samples with two event records each."""

MAX_GRAPH_LAUNCHES = 128
"""Maximum launches per graph: a replay is one submission, so only the capture time limits it."""

MOST_POISONED = 32
"""Maximum number of outputs overwritten before a round: filling one takes microseconds on a GPU,
and all tiny sets would take longer than the round."""

_ROUND_WARMUP_NS = 50e6
"""A launch shorter than this runs untimed before each round: other candidates have run meanwhile,
so threads sleep, and instruction caches and TLBs hold the other candidates' entries."""

_NEW_INPUTS_SHARE = 0.03
"""A launch shorter than this share of the time budget is also tried on new inputs, six times."""

_TRIED_AGAIN = 1 / 6
_MOST_TRIED_AGAIN = 4
"""Probability that a round begins with one more try on new inputs, and the most of these tries:
whoever knew when they come could compute for them alone."""

_KEPT = 4
"""Maximum number of distinct results of timed launches to keep. A kernel that computes has one, and
another for changed inputs unless only the sign of a line differs."""

_INPUTS_LOOKED_AT = 8
_MOST_LOOKED_AT_BYTES = 64 << 20
"""Sets of which inputs are compared with what was uploaded, and the most bytes of them: as many as
are downloaded in some milliseconds."""

_POISONED_BETWEEN = 4
"""Outputs overwritten because a launch within the round writes them last before it is looked at."""

_SLICE_NS = 20e6
_HOST_SLICE_NS = 1e6
"""Approximate interval between two checks of telemetry and time; the second value is for CPUs,
where a round can take a hundred times as long as expected."""

_MAX_SLICES = 8

_NEIGHBOURS_TIMED = 3
"""Readings, right after the samples, of what runs between the launches of one; their median is
subtracted. The clock is then the same, and one disturbed reading does not count."""

_LEAST_SHARE = 0.01
"""The least part of a sample that is left where a launch takes no longer than nothing."""

_SAMPLES_IN_LOAD = 21
"""Samples from which the duration of a launch under load is taken, for its energy."""

_HELD_UP = 3
"""A round that takes this many times as long as expected ends with the samples it has: threads that
wait for each other's time slices stretch a launch from 50 µs to 5 ms, sample after sample, and one
such round of 16 samples is a quarter of a budget of 300 ms."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """Some samples of a round."""

    durations_ns: Sequence[float]
    seconds: float
    """Duration by the device's clock or the host's, whichever is longer: launches that compute on
    the host take longer than a device's events show."""
    renewal_s: float


@dataclass(eq=False)
class Sampler:
    """Times one executable on rotating buffers. Call ``prepare``, then ``sample_round``.

    Args:
        _executable: built on the device that this process owns.
        _operation: what it computes.
        _inputs: host arrays of ``operation.inputs``.
        _settings: budgets, warm-up, regime, timing method.
        _observers: telemetry; each is started, sampled and stopped once per round.
        _uploads: shared by the samplers of a process, so that one operation's inputs are uploaded
            to the device once.
        _on_launched: called after launches, outside the timed sections.
    """

    _executable: Executable
    _operation: Operation
    _inputs: Sequence[HostArray]
    _settings: RunSettings
    _observers: Sequence[Observer] = ()
    _uploads: buffers.Uploads | None = None
    _on_launched: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._device = device = self._executable.device
        operation, inputs = self._operation, self._inputs
        self._sets: list[buffers.BufferSet] = []
        self._launches = Launches(self._executable, ())
        self._neighbour: Call | None = None
        self._neighbours_ns = 0.0
        self._gate = QuietGate(WAIT_SHARE * self._settings.time_budget_s)
        self._renewal = Renewal(device, operation, inputs, self._settings.seed)
        self._last_result: tuple[Buffer, buffers.BufferSet] | None = None
        self._chance = random.Random()
        self._kept = KeptResults(device, operation, "timed result", _KEPT)
        self._kept_new = KeptResults(device, operation, "result of new inputs", 2)
        look_at = self._kept_new.look_at
        self._new_inputs = integrity.NewInputs(self._executable, operation, inputs, look_at)
        self._tried_again = 0
        self._owes_a_look = False
        """Whether a result of the last round is still to be looked at."""
        self._load: Load | None = None
        self._untimed = UntimedCalls()
        self._has_sampled = False
        self.method = ""
        self.launch_ns = 0.0
        """Estimated duration of one launch, from the warm-up."""
        self.first_launch_ns: float | None = None
        self.overhead_ns: float | None = None
        self.wall_launch_ns: float | None = None
        self.runs_on_s = 0.0
        self.capture_failure = ""

    @property
    def launches_per_sample(self) -> int:
        """Number of launches timed together."""
        return self._launches.per_sample

    @property
    def sample_s(self) -> float:
        """Estimated duration of one sample from the warm-up, in seconds; 0 for simulated ones."""
        return self._device_s([self._sample_ns])

    def prepare(self) -> None:
        """Upload and clone the inputs, time the first launch, warm up, check that the clock covers
        all of the work, and choose how samples are taken.

        Raises:
            LaunchError: the device rejected a launch, or does work that its clock does not cover.
            OutOfMemoryError: one set of buffers does not fit.
            DeviceLostError: the device is gone.
        """
        device, settings = self._device, self._settings
        count = buffers.wanted_sets(self._operation, device, cold_cache=settings.cold_cache)
        self._sets = buffers.make_sets(
            device, self._operation, self._inputs, count,
            rotate_outputs=self._executable.writes_output, uploads=self._uploads,
        )  # fmt: skip
        if settings.launches == APART and isinstance(device, StreamDevice):
            self._neighbour = device.neighbour()
        self._launches = Launches(self._executable, self._sets, self._neighbour)
        ran_before = running_times()
        durations, self.method = device.time_calls(self._launches.single(1))
        self._on_launched()
        self.first_launch_ns = self.launch_ns = durations[0]
        if self.method == "wall_clock":
            spread_threads(ran_before)
        self._warm_up()
        if self.method == "simulated":
            self._launches.per_sample = settings.launches_per_sample or 1
            return
        self.overhead_ns = overhead.measure_overhead(device)
        self._look_at_unchanged_inputs()
        # An executable that looks results up is fast.
        if self._is_short():
            self._new_inputs.try_on(self._sets[0])
        if self.method == "wall_clock":
            self.runs_on_s = integrity.seconds_running_on()
            self._launches.per_sample = self._fitting(MIN_SAMPLE_NS, MAX_LAUNCHES_PER_SAMPLE)
        elif isinstance(device, StreamDevice):
            self.wall_launch_ns = integrity.check_stream(device, self._launches, self.launch_ns)
            self._choose_device_samples(device)
        else:
            self._launches.per_sample = self._fitting_device()

    def _is_short(self) -> bool:
        """Whether a few more launches cost next to nothing."""
        longest_ns = _NEW_INPUTS_SHARE * self._settings.time_budget_s * 1e9
        return self.method != "simulated" and self.launch_ns < longest_ns

    def _try_new_inputs_again(self) -> None:
        """Launch once more on new inputs, before some rounds that no kernel can know."""
        if self._tried_again < _MOST_TRIED_AGAIN and self._chance.random() < _TRIED_AGAIN:
            self._tried_again += 1
            self._renewal.undo()
            self._new_inputs.try_on(self._chance.choice(self._sets), pairs=1)

    def sample_round(self, count: int, *, is_loaded: bool = False) -> Round:
        """Take up to `count` samples; fewer (at least one) if the time budget is too short, or if
        they take far longer than expected on a CPU.

        Args:
            is_loaded: another candidate's launches keep the device busy until now.

        Raises:
            LaunchError: the device rejected a launch.
            DeviceLostError: the device is gone.
        """
        began = time.perf_counter()
        count = max(1, count)
        self._untimed.is_loaded = is_loaded
        self._look_if_owed()
        if self._has_sampled and self._is_short():
            self._try_new_inputs_again()
        quiet_wait_s = self._gate.wait() if self.method == "wall_clock" else 0.0
        slices, looked_at = self._with_a_look(self._slices(count))
        load_s = self._before_round(count, sum(slices[: looked_at + 1]))
        per_sample = self.launches_per_sample
        for observer in self._observers:
            observer.start()
        samples: list[float] = []
        seconds = renewal_s = 0.0
        longest_s = self._longest_round_s(count)
        for number, size in enumerate(slices):
            taken = self._time(size)
            if number == looked_at:
                # At once, it would wait for what follows the samples on a stream, with which other
                # candidates get ready.
                self._owes_a_look = True
                if number < len(slices) - 1 or not isinstance(self._device, StreamDevice):
                    self._look_if_owed()
            self._on_launched()
            samples.extend(taken.durations_ns)
            seconds, renewal_s = seconds + taken.seconds, renewal_s + taken.renewal_s
            for observer in self._observers:
                observer.sample()
            if seconds > longest_s:
                break
        telemetry: dict[str, float | str | tuple[str, ...]] = {}
        for observer in self._observers:
            telemetry.update(observer.stop())
        self._gate.observe(telemetry)
        self._untimed.observe(telemetry)
        load = self._load
        return Round(
            samples_ns=tuple(duration / per_sample for duration in samples),
            method="graph" if self._launches.is_captured else self.method,
            telemetry=telemetry,
            launches=APART if self._launches.are_apart else BACK_TO_BACK,
            launches_per_sample=per_sample,
            input_sets=len(self._sets),
            first_launch_ns=self.first_launch_ns,
            overhead_ns=self.overhead_ns,
            wall_launch_ns=self.wall_launch_ns,
            bytes_per_set=self._operation.bytes,
            last_level_cache_bytes=self._device.last_level_cache_bytes,
            seconds=seconds,
            elapsed_s=time.perf_counter() - began,
            renewal_s=renewal_s,
            load_s=load_s,
            is_settled=None if load is None else load.is_settled,
            unsettled_change=0.0 if load is None or load.is_settled else load.change,
            quiet_wait_s=quiet_wait_s,
            runs_on_s=self.runs_on_s,
            new_inputs_ratio=self._new_inputs.ratio,
            capture_failure=self.capture_failure,
        )

    def damaged(self) -> str:
        """Forbidden writes of timed launches, as far as visible; "" if none: memory next to
        buffers, and inputs of some sets, which are chosen at random."""
        if self.method == "simulated":
            return ""
        self._look_if_owed()
        sets = self._sets if self._uploads is None else []  # copies on a GPU have no zones
        if roles := buffers.damaged(self._device, self._operation, sets):
            return f"wrote outside the buffer of {', '.join(roles)}"
        self._renewal.undo()
        few = self._chance.sample(self._sets, min(_INPUTS_LOOKED_AT, len(self._sets)))
        if sum(array.nbytes for array in self._inputs) * len(few) > _MOST_LOOKED_AT_BYTES:
            few = few[:1] if self._uploads is None else []
        for one in few:
            for spec, buffer, array in zip(
                self._operation.inputs, one.inputs, self._inputs, strict=True
            ):
                if not same_bytes(self._device.download(buffer, spec), array):
                    return f"changed {spec.role}"
        return ""

    def recheck(self, right: str = "") -> list[LeftOutput]:
        """Results of launches in the last round, to be verified again. Each output was overwritten
        before that round, and the inputs of some launches have changed since.

        Results that the device finds to be the one with the digest `right`, "" for none, are left
        out: it was verified.

        Outputs of the same inputs that are equal byte for byte are returned once. The same holds
        for an output of unchanged inputs and one of inputs with a negated line, if they differ only
        in the sign of that line, as they should. For an executable that allocates its own output,
        these are the results of the last timed launch and of one further launch, a replay where
        graphs were timed: keeping all results would have changed the timing.
        """
        self._look_if_owed()
        device, operation = self._device, self._operation
        if self._executable.writes_output:
            return left_outputs(device, operation, self._sets, right)
        return [
            LeftOutput(label, device.download(result, operation.output), one.change)
            for label, result, one in self._returned()
            if not is_known(device, operation, result, one.change, right)
        ]

    def kept_results(self, right: str = "") -> list[LeftOutput]:
        """Results of randomly chosen timed launches of any round, and of launches on new inputs,
        as far as they differ from each other and from the one with the digest `right`; to be
        verified too."""
        self._look_at_unchanged_inputs()
        return [*self._kept.left(right), *self._kept_new.left(right)]

    def right_result(self, right: str) -> HostArray | None:
        """A result of a timed launch that is the one with the digest `right`, on the host; None if
        none was kept."""
        return self._kept.right_result(right)

    def _returned(self) -> Iterator[tuple[str, Buffer, buffers.BufferSet]]:
        """Results of executables that allocate their own outputs: their descriptions and their
        sets."""
        if self._last_result is not None:
            yield "result of the last timed launch", *self._last_result
        first = self._sets[0]
        run: Call = partial(self._executable.run, first.inputs, first.output)
        call, one = self._launches.replayed_again() or (run, first)
        self._renewal.undo()
        for change in self._renewal.prepare([one], fills=False):
            change()
        yield "result after timing", call(), one

    def measure_energy(self, counter: Callable[[], float], windows: int) -> EnergyTaken:
        """The energy of the launches that were timed, made back to back for some seconds.

        Args:
            counter: see :class:`gemmetry.measurement.energy.EnergyMeter`.

        Raises:
            LaunchError: the device rejected a launch. DeviceLostError: the device is gone.
        """
        if self.method == "simulated":
            return EnergyTaken(reason="the simulated device uses no energy")
        self._look_if_owed()

        device, launches = self._device, self._launches
        if launches.are_apart and isinstance(device, StreamDevice):
            launches = launches.without_neighbours(device)

        def submit(calls: int) -> None:
            for call in launches.samples(calls):
                call()

        def loaded_ns() -> float:
            """Duration of a launch by the device's clock, on a device that is under load."""
            durations, _ = device.time_calls(launches.samples(_SAMPLES_IN_LOAD))
            return statistics.median(durations) / launches.per_sample

        self._renewal.undo()
        meter = EnergyMeter(
            counter, submit, device.synchronize, launches.per_sample, self.launch_ns,
            loaded_ns if isinstance(device, StreamDevice) else None,
        )  # fmt: skip
        return meter.measure(windows)

    def close(self) -> None:
        """Drop graphs and buffers and release their memory; the executable stays open."""
        self._launches.clear()
        self._last_result = None
        self._sets.clear()
        self._device.release()

    def _warm_up(self) -> None:
        budget_ns = self._settings.time_budget_s * 1e9
        affordable = int(budget_ns / max(self.launch_ns, 1.0))
        iterations = min(self._settings.warmup_iterations, affordable)
        if iterations == 0:
            return
        durations, self.method = self._device.time_calls(self._launches.single(iterations))
        self.launch_ns = min(durations)
        if self.method == "wall_clock":
            self.launch_ns = warm_up(self._device, self._launches.single, self.launch_ns, budget_ns)

    def _choose_device_samples(self, device: StreamDevice) -> None:
        """Use graphs for launches that events or the host would disturb, or if the settings require
        them; events where a launch cannot be captured."""
        settings, overhead_ns = self._settings, self.overhead_ns or 0.0
        is_short = self.launch_ns < OVERHEAD_RATIO * overhead_ns
        is_late = self.launch_ns < (self.wall_launch_ns or 0.0) / 2
        if settings.timing_method == "graph" or (
            settings.timing_method == "auto" and (is_short or is_late)
        ):
            wanted = self._fitting(GRAPH_OVERHEAD_RATIO * overhead_ns, MAX_GRAPH_LAUNCHES)
            try:
                self._capture(device, wanted)
                return
            except LaunchError as error:
                self.capture_failure = str(error)
        self._launches.per_sample = self._fitting_device()

    def _capture(self, device: StreamDevice, per_sample: int) -> None:
        size = buffers.fit_sets(
            self._device, self._operation, self._sets, per_sample,
            rotate_outputs=self._executable.writes_output,
        )  # fmt: skip
        self._launches = Launches(self._executable, self._sets, self._neighbour)
        self._launches.capture(device, size)
        durations, _ = self._device.time_calls(
            [*self._launches.samples(2), *self._launches.neighbours(_NEIGHBOURS_TIMED)]
        )
        self.launch_ns = min(self._of_launches(durations, 2)) / size

    def _fitting(self, length_ns: float, most: int) -> int:
        """Number of launches that fill a sample of `length_ns`, or as set in the settings."""
        if self._settings.launches_per_sample is not None:
            return self._settings.launches_per_sample
        return min(max(1, math.ceil(length_ns / max(self.launch_ns, 1.0))), most)

    def _fitting_device(self) -> int:
        most = MAX_DEVICE_LAUNCHES_PER_SAMPLE // (1 + self._launches.are_apart)
        return self._fitting(OVERHEAD_RATIO * (self.overhead_ns or 0.0), most)

    def _slices(self, count: int) -> list[int]:
        """Split `count` samples so that telemetry and the budget are checked in between."""
        expected_ns = count * self.launch_ns * self.launches_per_sample
        slice_ns = _HOST_SLICE_NS if self.method == "wall_clock" else _SLICE_NS
        slices = min(count, _MAX_SLICES, max(1, round(expected_ns / slice_ns)))
        if expected_ns > self._settings.time_budget_s * 1e9:
            slices = count
        size, longer = divmod(count, slices)
        return [size + (index < longer) for index in range(slices)]

    def _with_a_look(self, slices: list[int]) -> tuple[list[int], int]:
        """`slices`, on a CPU with one of them divided at a random place, and the number of the one
        after which a result is looked at. On a GPU every slice has a lead of its own."""
        at = self._chance.randrange(len(slices))
        if self.method != "wall_clock":
            return slices, at
        first = self._chance.randint(1, slices[at])
        rest = [slices[at] - first] if slices[at] > first else []
        return [*slices[:at], first, *rest, *slices[at + 1 :]], at

    def _look_if_owed(self) -> None:
        """Keep one of the results that the launches timed last have left, unless it is known."""
        is_owed, self._owes_a_look = self._owes_a_look, False
        if not is_owed or self.method == "simulated":
            return
        if self._executable.writes_output:
            if left := [one for one in self._sets if one.launched and one.poisoned]:
                one = self._chance.choice(left)
                self._kept.look_at(one, one.output)
        elif self._last_result is not None:
            result, one = self._last_result
            self._kept.look_at(one, result)

    def _look_at_unchanged_inputs(self) -> None:
        """Launch once more on the inputs as they were verified, without being timed, and look at
        the result."""
        if not self._is_short():
            return
        self._renewal.undo()
        one = self._sets[0]
        self._device.fill_bytes(one.output, buffers.SENTINEL)
        result = self._executable.run(one.inputs, one.output)
        self._device.synchronize()
        self._kept.look_at(one, result)
        one.launched = False

    def _longest_round_s(self, count: int) -> float:
        """Sampling time after which a round of `count` samples ends early."""
        settings, budget_s = self._settings, self._settings.time_budget_s
        if self.method != "wall_clock" or settings.repetitions or settings.min_samples:
            return budget_s
        return min(budget_s, _HELD_UP * count * self.sample_s)

    def _before_round(self, count: int, looked_at: int) -> float:
        """Launch untimed and poison outputs before a round of `count` samples, and what is looked
        at after `looked_at` of them. Returns the seconds of continuous load (0 in the burst
        regime)."""
        load_s = self._load_device() if self.method != "simulated" else 0.0
        lead = self._lead()
        upcoming = self._launches.upcoming(lead + count)[-MOST_POISONED:]
        between = self._launches.upcoming(lead + looked_at)[-_POISONED_BETWEEN:]
        upcoming += [one for one in between if one not in upcoming]
        writes = self._executable.writes_output
        if writes:
            buffers.poison(self._device, self._sets, upcoming, wait=lead == 0)
        is_warm = self._load is not None or self.launch_ns >= _ROUND_WARMUP_NS
        if self.method == "wall_clock" and not is_warm:
            # On the set used last, so that the next sets stay cold.
            call, used = self._launches.last_used()
            self.launch_ns = settle(self._device, call, self.launch_ns)
            if writes and used in upcoming:
                buffers.overwrite(self._device, [used])
        return load_s

    def _load_device(self) -> float:
        """Apply continuous load as the settings require, before the first round and before further
        ones. Returns the seconds it took."""
        settings, load_s = self._settings, 0.0
        if not self._has_sampled and settings.warmup_s > 0:
            load_s = self._loader().run(settings.warmup_s)
        self._has_sampled = True
        if settings.regime != "sustained":
            return load_s
        if self._load is None:
            self._load = self._loader().settle()
            return load_s + self._load.seconds
        return self._loader().run(RELOAD_S)

    def _time(self, count: int) -> _Taken:
        """Take `count` samples, surrounded by load where the device has a queue. Some inputs change
        right before the samples."""
        device, launches = self._device, self._launches
        lead = self._lead() if isinstance(device, StreamDevice) else 0
        writes = self._executable.writes_output
        marks = [time.perf_counter()]

        def mark() -> None:
            marks.append(time.perf_counter())

        self._renewal.undo()
        sets = launches.upcoming(count, after=lead)
        changes = self._renewal.prepare(sets, fills=writes, latest=not writes)
        trailing = self._untimed.tail(self._sample_ns, launches.submissions) if lead else 0
        calls = launches.samples(lead + count + trailing)
        before, timed, tail = calls[:lead], calls[lead : lead + count], calls[lead + count :]
        if not (writes or launches.is_captured):
            timed[-1] = self._keeping(timed[-1], sets[-1])
        timed += launches.neighbours(_NEIGHBOURS_TIMED)
        mark()
        if lead and isinstance(device, StreamDevice):
            before[-1] = back_to_back([before[-1], mark, *changes, mark])
            tail[0] = back_to_back([mark, tail[0]])
            durations = device.time_in_load(before, timed, tail, lead * self._sample_ns)
        else:
            mark()
            for change in changes:
                change()
            mark()
            durations, self.method = device.time_calls(timed)
            mark()
        began, prepared, before_changes, changed, ended = marks
        return _Taken(
            durations_ns=self._of_launches(durations, count),
            seconds=max(ended - changed, self._device_s(durations)),
            renewal_s=prepared - began + changed - before_changes,
        )

    def _of_launches(self, durations_ns: Sequence[float], count: int) -> list[float]:
        """The first `count` durations without what ran between the launches, which alone took the
        others."""
        samples, neighbours = durations_ns[:count], durations_ns[count:]
        if not neighbours:
            return list(samples)
        self._neighbours_ns = statistics.median(neighbours)
        return [max(one - self._neighbours_ns, _LEAST_SHARE * one) for one in samples]

    def _device_s(self, durations_ns: Sequence[float]) -> float:
        """Duration of the samples by the device's clock; 0 for simulated durations."""
        return 0.0 if self.method == "simulated" else sum(durations_ns) / 1e9

    def _keeping(self, call: Call, one: buffers.BufferSet) -> Call:
        """Make `call`, which launches on `one` last, and keep its result."""

        def kept() -> None:
            self._last_result = (call(), one)

        return kept

    @property
    def _sample_ns(self) -> float:
        return max(self.launch_ns * self.launches_per_sample + self._neighbours_ns, 1.0)

    def _lead(self) -> int:
        """Untimed calls right before the samples; on a CPU they came before the round."""
        if self.method in ("simulated", "wall_clock") or self.launch_ns >= _ROUND_WARMUP_NS:
            return 0
        return self._untimed.lead(self._sample_ns, self._launches.submissions)

    def _loader(self) -> Loader:
        call_ns = self.launch_ns * self.launches_per_sample
        return Loader(self._device, self._launches.samples, call_ns, self._observers)
