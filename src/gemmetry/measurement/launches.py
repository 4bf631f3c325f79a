"""Input and output buffers that launches rotate through, so that caches stay cold.

The timed launches: on rotating buffers, grouped into calls of one sample each.

Checks that the clock covers all of the work, and that the work is done: events against the wall
clock, threads that continue, and inputs that the executable has never seen.

Overhead of the harness: the duration that timing an empty call reports.

Waiting, before the launches, for a moment in which no other program uses the processors, and
untimed launches on a CPU until they take as long as undisturbed ones.
"""

from __future__ import annotations

import math
import os
import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from gemmetry.domain.contracts import (
    Buffer,
    Device,
    Executable,
    HostArray,
    RedZoneDevice,
    StreamDevice,
)
from gemmetry.domain.errors import LaunchError
from gemmetry.domain.operation import Conv2dShape, Operation, TensorSpec
from gemmetry.domain.units import format_ns
from gemmetry.hardware.host import running_times, spread_threads, usable_cpus, waiting_times
from gemmetry.numerics.inputs import (
    ChangeKind,
    Edit,
    InputChange,
    draw_change,
    edits,
    negative,
    prepared_edits,
)

MAX_SETS = 1024
"""Tiny operations would need tens of thousands of copies to exceed the cache; beyond this number,
creating them takes longer than sampling. Inputs that stay in the cache are marked."""

CLONE_BUDGET_S = 1.0
"""Time after which no further copies are created; the first two sets are always created."""

CACHE_FACTOR = 2
"""The sets together are this many times the last-level cache, as NVIDIA's "GEMM performance
measurement methodology" (CUTLASS documentation) requires."""

FEWEST_SETS = 2
"""Number of sets of inputs and outputs where a single set exceeds the cache. More would add no
information: times vary hardly more between sets than within one
(``benchmarks/process_times.py``)."""

KEPT_PART = 16
"""Inputs are kept on the device where the operation uses at most this share of free memory."""

ZONE_BYTES = 4096
"""Bytes on each side of a timed buffer that a kernel must not write to; the smallest zone that
verification uses too, so that no kernel can distinguish the two by how they are allocated."""

SENTINEL = 0xFF
"""Bytes of an output before its first launch: NaN in every float format, -1 in integers."""


@dataclass(slots=True, eq=False)
class BufferSet:
    """Buffers that one launch reads and writes."""

    inputs: tuple[Buffer, ...]
    output: Buffer
    launched: bool = False
    """Launches since the output was last poisoned."""
    poisoned: bool = False
    """Whether the output is wrong until a launch writes it: it holds a sentinel, or the result of
    other inputs."""
    change: InputChange | None = None
    """The changes that :class:`gemmetry.measurement.renewal.Renewal` made to the inputs."""


class Uploads:
    """Keeps the inputs of the last measured operation on the device: its next dispatch copies them
    there instead of uploading them again (the 256 MB of an 8192³ product take 0.2 s)."""

    def __init__(self) -> None:
        self._device: Device | None = None
        self._inputs: Sequence[HostArray] = ()
        self._buffers: tuple[Buffer, ...] = ()

    def clones(
        self, device: Device, operation: Operation, inputs: Sequence[HostArray]
    ) -> tuple[Buffer, ...]:
        """New buffers holding `inputs`; the kept buffers are never returned."""
        if self._device is not device or self._inputs is not inputs:
            self._device, self._inputs, self._buffers = None, (), ()
            uploaded = _upload(device, operation, inputs)
            if operation.bytes > device.free_memory_bytes() // KEPT_PART:
                return uploaded
            self._device, self._inputs, self._buffers = device, inputs, uploaded
        return _clones(device, self._buffers)


def wanted_sets(operation: Operation, device: Device, *, cold_cache: bool) -> int:
    """The number of sets that keeps caches cold, as far as memory and :data:`MAX_SETS` allow (>=
    1).

    Half of the free memory is left for the workspace of this and other executables.
    """
    if not cold_cache:
        return 1
    bytes_per_set = max(1, operation.bytes)
    for_cache = CACHE_FACTOR * device.last_level_cache_bytes // bytes_per_set + 1
    in_memory = device.free_memory_bytes() // 2 // bytes_per_set
    return max(1, min(max(FEWEST_SETS, for_cache), in_memory, MAX_SETS))


def make_sets(
    device: Device,
    operation: Operation,
    inputs: Sequence[HostArray],
    count: int,
    *,
    rotate_outputs: bool,
    uploads: Uploads | None = None,
) -> list[BufferSet]:
    """Upload `inputs` once, or reuse them from `uploads`, and clone them `count` - 1 times.

    Outputs are filled with a sentinel, which also touches their pages before anything is timed.
    Where the executable allocates its own output (`rotate_outputs` false), all sets share one.
    """
    began = time.perf_counter()
    upload = partial(uploads.clones if uploads else _upload, device, operation, inputs)
    sets = [BufferSet(upload(), _new_output(device, operation))]
    is_on_host = uploads is None and isinstance(device, RedZoneDevice)
    while len(sets) < count:
        if len(sets) >= FEWEST_SETS and time.perf_counter() - began > CLONE_BUDGET_S:
            break
        output = _new_output(device, operation) if rotate_outputs else sets[0].output
        # On the host a copy costs as much as an upload.
        copies = upload() if is_on_host else _clones(device, sets[0].inputs)
        sets.append(BufferSet(copies, output))
    device.synchronize()
    return sets


def fit_sets(
    device: Device,
    operation: Operation,
    sets: list[BufferSet],
    per_sample: int,
    *,
    rotate_outputs: bool,
) -> int:
    """Add or drop sets so that `sets` is a whole number of graphs of about `per_sample` launches.
    Returns the number of launches per graph.

    With more launches than sets, every graph cycles through all sets several times. Otherwise
    copies are added if they fit into a quarter of the free memory, else sets are dropped.
    """
    count = len(sets)
    if per_sample >= count:
        return -(-per_sample // count) * count
    missing = -count % per_sample
    if missing * operation.bytes <= device.free_memory_bytes() // 4:
        for _ in range(missing):
            copies = _clones(device, sets[0].inputs)
            output = _new_output(device, operation) if rotate_outputs else sets[0].output
            sets.append(BufferSet(copies, output))
        device.synchronize()
    else:
        del sets[count - count % per_sample :]
    return per_sample


def poison(
    device: Device, all_sets: Sequence[BufferSet], chosen: Sequence[BufferSet], *, wait: bool
) -> None:
    """Overwrite the outputs of `chosen` and reset which of `all_sets` were launched, so that any
    result read later was written by a later launch. `wait` for it, unless the following work is
    queued behind it anyway."""
    for buffers in all_sets:
        buffers.launched = buffers.poisoned = False
    for buffers in chosen:
        buffers.poisoned = True
    overwrite(device, chosen, wait=wait)


def overwrite(device: Device, sets: Sequence[BufferSet], *, wait: bool = True) -> None:
    """Fill the outputs of `sets` with the sentinel, and wait for the device."""
    for buffers in sets:
        device.fill_bytes(buffers.output, SENTINEL)
    if wait:
        device.synchronize()


def _upload(
    device: Device, operation: Operation, inputs: Sequence[HostArray]
) -> tuple[Buffer, ...]:
    pairs = zip(inputs, operation.inputs, strict=True)
    if not isinstance(device, RedZoneDevice):
        return tuple(device.upload(array, spec) for array, spec in pairs)
    uploaded = []
    for array, spec in pairs:
        uploaded.append(_allocate(device, spec))
        device.write(uploaded[-1], array, spec)
    return tuple(uploaded)


def _clones(device: Device, buffers: Sequence[Buffer]) -> tuple[Buffer, ...]:
    return tuple(device.clone(buffer) for buffer in buffers)


def _new_output(device: Device, operation: Operation) -> Buffer:
    output = _allocate(device, operation.output)
    device.fill_bytes(output, SENTINEL)
    return output


def _allocate(device: Device, spec: TensorSpec) -> Buffer:
    """A buffer that is allocated as verification's are."""
    if isinstance(device, RedZoneDevice):
        return device.allocate_with_red_zones(spec, zone_bytes=ZONE_BYTES)
    return device.allocate(spec)


def damaged(device: Device, operation: Operation, sets: Sequence[BufferSet]) -> tuple[str, ...]:
    """Roles of the tensors of `sets` with memory next to them that was written to."""
    if not isinstance(device, RedZoneDevice):
        return ()
    specs = (*operation.inputs, operation.output)
    found = {
        spec.role: None
        for one in sets
        for spec, buffer in zip(specs, (*one.inputs, one.output), strict=True)
        if not device.red_zones_intact(buffer)
    }
    return tuple(found)


Call = Callable[[], object]


class Launches:
    """An endless rotation through the buffer sets, returned piece by piece.

    After :meth:`capture`, samples are replays of graphs that hold `per_sample` launches each and
    together cycle through all sets.

    Args:
        neighbour: submitted ahead of each launch of a sample, so that launches are timed *apart*.

    A user's kernel follows other kernels, not itself: one that starts early would overlap with its
    own previous launch, which hides microseconds that no user saves. Events around each launch
    would add as many, so a sample holds all neighbours, and :meth:`neighbours` alone are timed
    next to the samples. The difference is what a launch adds to a stream.
    """

    def __init__(
        self, executable: Executable, sets: Sequence[BufferSet], neighbour: Call | None = None
    ) -> None:
        self._executable = executable
        self._sets = sets
        self._neighbour = neighbour
        self._alone: Call | None = None
        run = executable.run
        self._each: list[Call] = [partial(run, one.inputs, one.output) for one in sets]
        self._replays: list[Call] = []
        self._next = 0
        self.per_sample = 1

    @property
    def is_captured(self) -> bool:
        """True once samples are replays."""
        return bool(self._replays)

    @property
    def submissions(self) -> int:
        """Entries in the device's queue per sample: a replay is one, whatever it holds."""
        return 1 if self._replays else self.per_sample * (1 + self.are_apart)

    @property
    def are_apart(self) -> bool:
        """Whether a neighbour runs ahead of each launch of a sample."""
        return self._neighbour is not None

    def neighbours(self, count: int) -> list[Call]:
        """`count` calls of a sample without its launches; [] where launches are back to back."""
        if self._neighbour is None:
            return []
        return [self._alone or back_to_back([self._neighbour] * self.per_sample)] * count

    def without_neighbours(self, device: StreamDevice) -> Launches:
        """Samples of the same launches back to back.

        Raises:
            LaunchError: a launch cannot be captured.
        """
        found = Launches(self._executable, self._sets)
        found.per_sample = self.per_sample
        if self._replays:
            found.capture(device, self.per_sample)
        return found

    def single(self, count: int) -> list[Call]:
        """`count` calls of one launch each, continuing where the last call ended."""
        total = len(self._each)
        start, self._next = self._next, self._next + count
        self._mark(start, count)
        return [self._each[index % total] for index in range(start, self._next)]

    def samples(self, count: int) -> list[Call]:
        """`count` calls of one sample each, continuing where the last call ended."""
        if self.per_sample == 1 and not (self._replays or self._neighbour):
            return self.single(count)
        self._align()
        start, size = self._next, self.per_sample
        self._next += count * size
        self._mark(start, count * size)
        firsts = range(start, self._next, size)
        if self._replays:
            return [self._replays[first // size % len(self._replays)] for first in firsts]
        return [back_to_back(self._from(first, size)) for first in firsts]

    def last_used(self) -> tuple[Call, BufferSet]:
        """A launch on the set used last, and that set: launching on it again keeps the next sets
        cold."""
        index = (self._next - 1) % len(self._sets)
        return self._each[index], self._sets[index]

    def upcoming(self, samples: int, *, after: int = 0) -> list[BufferSet]:
        """The sets that the next `samples` samples launch on, in the order of their last use.

        Args:
            after: number of samples that come before these.
        """
        if self._replays:
            self._align()
        total, start = len(self._sets), self._next + after * self.per_sample
        end = start + samples * self.per_sample
        return [self._sets[index % total] for index in range(max(start, end - total), end)]

    def replayed_again(self) -> tuple[Call, BufferSet] | None:
        """A replay whose call returns its result, and the set that it launches on last; None where
        nothing was captured."""
        if not self._replays:
            return None
        return self._replays[0], self._sets[(self.per_sample - 1) % len(self._sets)]

    def capture(self, device: StreamDevice, per_sample: int) -> None:
        """Capture graphs of `per_sample` launches each, one for each part of the rotation; the
        number of sets must be a divisor or a multiple of `per_sample`.

        Raises:
            LaunchError: a launch cannot be captured; samples stay as they were.
        """
        count = max(1, len(self._sets) // per_sample)
        if count * per_sample % len(self._sets):
            raise ValueError(f"graphs of {per_sample} launches do not go round {len(self._sets)}")
        replays = [
            device.captured(
                back_to_back(self._from(place * per_sample, per_sample)), keeps_result=place == 0
            )
            for place in range(count)
        ]
        if self._neighbour is not None:
            self._alone = device.captured(back_to_back([self._neighbour] * per_sample))
        self._replays, self.per_sample, self._next = replays, per_sample, 0

    def clear(self) -> None:
        """Release graphs and buffers."""
        self._replays.clear()
        self._each.clear()
        self._alone = None

    def _from(self, first: int, count: int) -> list[Call]:
        before = [] if self._neighbour is None else [self._neighbour]
        each = (self._each[index % len(self._each)] for index in range(first, first + count))
        return [call for launch in each for call in (*before, launch)]

    def _align(self) -> None:
        """Advance to the next beginning of a graph: graphs begin at fixed places in the
        rotation."""
        if self._replays:
            self._next = math.ceil(self._next / self.per_sample) * self.per_sample

    def _mark(self, start: int, count: int) -> None:
        total = len(self._sets)
        for index in range(start, start + min(count, total)):
            self._sets[index % total].launched = True


def back_to_back(launches: Sequence[Call]) -> Call:
    """One call that makes all the calls in order and returns the result of the last one."""
    if len(launches) == 1:
        return launches[0]

    def sample() -> object:
        result: object = None
        for launch in launches:
            result = launch()
        return result

    return sample


UNSEEN_SHARE = 0.1
UNSEEN_NS = 500_000.0
"""Wall-clock time that the stream's events may miss: starting and waiting for the device take tens
of microseconds, or hundreds on a virtual machine."""

_SPAN_NS = 2e6
_MOST_LAUNCHES = 200
"""Duration of a check's launches, or their number: unseen work of 3 µs per launch then exceeds
:data:`UNSEEN_NS`."""

_TRIES = 3
"""Number of tries. The first undisturbed one counts, as another program may preempt the others."""

_TRIES_ON_SHARED = 12
"""Number of tries where waiting without launches shows that another program has the device too."""

_MOST_WAITS = 100
"""The most waits without launches that are to last as long as a try."""

_TRIES_OF_CHANGES = 32

REMEMBERED_RATIO = 1.5
"""Largest ratio between the time of launches on new inputs and that of others. Both follow a write,
and the shortest of three counts, so only cached results make them differ by more."""

PAIRS = 3
"""Number of launches on new inputs at a time."""

_ROUNDS_OF_PAIRS = 6
"""Number of tries after which a slow launch can no longer be a disturbance; a launch that is not
slow ends the tries after the first."""

_POLL_S = 0.002
_LONGEST_WAIT_S = 0.3
_RUNNING_SHARE = 0.2


def check_stream(device: StreamDevice, launches: Launches, launch_ns: float) -> float:
    """Compare the time of some launches by the stream's events with the wall-clock time until the
    whole device is idle. Returns the wall-clock time of one launch in ns, including its submission.

    Raises:
        LaunchError: the device is still busy when the timed stream is done, so that times by events
            would be too short, and without launches it is idle at least now and then.
    """
    count = int(min(_MOST_LAUNCHES, max(1.0, _SPAN_NS / max(launch_ns, 1.0))))
    unseen_ns = stream_ns = 0.0
    wall_ns = shortest_ns = math.inf
    for attempt in range(_TRIES_ON_SHARED):
        stream_ns, tried_ns = device.stream_and_wall_ns(launches.single(count))
        # A try that was preempted within the stream is longer, and must not allow more.
        wall_ns, shortest_ns = min(wall_ns, tried_ns), min(shortest_ns, stream_ns)
        unseen_ns = tried_ns - stream_ns
        if unseen_ns <= max(UNSEEN_NS, UNSEEN_SHARE * shortest_ns):
            return wall_ns / count
        if attempt + 1 >= _TRIES:
            delays = _delays_without_launches(device, tried_ns)
            if min(delays) > UNSEEN_NS:
                return wall_ns / count  # another program has the device
            if max(delays) <= UNSEEN_NS:
                break
    raise LaunchError(
        f"the device was still busy when the timed stream had finished: {count} launches took "
        f"{format_ns(stream_ns)} there and {format_ns(stream_ns + unseen_ns)} in all",
        hint="Launch on the current stream, or make it wait for the others "
        "(torch.cuda.Stream.wait_stream), so that the time includes all of the work.",
    )


def _delays_without_launches(device: StreamDevice, span_ns: float) -> list[float]:
    """Unseen time of waits for the idle device that take `span_ns` together, in ns."""
    delays: list[float] = []
    waited_ns = 0.0
    while len(delays) < _TRIES or (waited_ns < span_ns and len(delays) < _MOST_WAITS):
        seen_ns, wall_ns = device.stream_and_wall_ns([])
        delays.append(wall_ns - seen_ns)
        waited_ns += wall_ns
    return delays


def seconds_running_on(
    clock: Callable[[], float] = time.perf_counter,
    cpu_clock: Callable[[], float] = time.process_time,
    sleep: Callable[[float], None] = time.sleep,
) -> float:
    """Seconds for which other threads of this process stay busy after a launch on the CPU has
    returned, at most :data:`_LONGEST_WAIT_S`. Thread pools that spin while they wait do so for a
    millisecond or two; anything longer is work that the wall clock missed."""
    began = clock()
    while True:
        before, cpu_before = clock(), cpu_clock()
        sleep(_POLL_S)
        now = clock()
        if cpu_clock() - cpu_before < _RUNNING_SHARE * (now - before):
            return before - began
        if now - began > _LONGEST_WAIT_S:
            return now - began


_Element = tuple[int, ...]
"""The place of an element in an array."""


@dataclass(eq=False)
class NewInputs:
    """Launches on inputs that differ in one element, away from the edges, from all earlier ones. A
    launch that takes far longer than on known inputs shows that an executable recognises inputs by
    their content and returns a stored result. Places are drawn at random.

    Elements of the smaller operand are changed in place before a launch, and restored after it.

    Args:
        executable: has already been launched on `inputs`.
        inputs: host arrays, of which all sets hold copies.
        seen: called with the result of a launch on new inputs, and the set with the change.
    """

    executable: Executable
    operation: Operation
    inputs: Sequence[HostArray]
    seen: Callable[[BufferSet, Buffer], None]
    ratio: float | None = None
    """Largest ratio found so far between the times of launches on new and on known inputs."""

    def __post_init__(self) -> None:
        self._chance = np.random.default_rng()
        # A line of a convolution's A is a whole image, whose reference takes long to compute.
        is_image = isinstance(self.operation.shape, Conv2dShape)
        self._place = 1 if is_image else min((0, 1), key=lambda i: self.inputs[i].nbytes)
        self._array = self.inputs[self._place]
        self._past: set[frozenset[_Element]] = {frozenset()}
        """The elements by which inputs so far differed from `inputs`."""

    def try_on(self, one: BufferSet, *, pairs: int = PAIRS) -> None:
        """Time launches on known and on new inputs in turns, in the buffers of `one`; again where
        new ones seem slow, as another program may have delayed them."""
        ratio, flipped = 1.0, frozenset[_Element]()
        for attempt in range(_ROUNDS_OF_PAIRS):
            seen_ns, new_ns = [], []
            for pair in range(pairs):
                seen_ns.append(self._launch_ns(one, None))
                shown = None
                if attempt == pair == 0:
                    shown = draw_change(
                        self.operation, self.inputs, ChangeKind.ONE_ELEMENT, self._place,
                        self._chance,
                    )  # fmt: skip
                    flipped = self._elements_of(shown)
                else:
                    flipped = self._one_more(flipped)
                self._past.add(flipped)
                self._write(one, flipped, is_new=True)
                new_ns.append(self._launch_ns(one, shown))
                self._write(one, flipped, is_new=False)
            found = min(new_ns) / max(min(seen_ns), 1.0)
            ratio = found if attempt == 0 else min(ratio, found)
            if ratio <= REMEMBERED_RATIO:
                break
            pairs = PAIRS
        one.launched = False
        self.ratio = max(ratio, self.ratio or 0.0)

    def _elements_of(self, change: InputChange) -> frozenset[_Element]:
        """The elements whose bits a change flips."""
        found: set[_Element] = set()
        for edit in edits(self.operation, change):
            old, new = (np.ascontiguousarray(one).view(f"u{one.itemsize}")
                        for one in (self._array[edit.index], edit.contents))  # fmt: skip
            first = [one.start or 0 for one in edit.index]
            found |= set(map(tuple, (np.argwhere(old != new) + first).tolist()))
        return frozenset(found)

    def _one_more(self, flipped: frozenset[_Element]) -> frozenset[_Element]:
        """Such elements with one more of the inner ones, or without it, so that they were never
        seen before."""
        for _ in range(_TRIES_OF_CHANGES):
            size = self._array.size
            number = min(size // 4 + int(self._chance.integers(size // 2 + 1)), size - 1)
            at = tuple(map(int, np.unravel_index(number, self._array.shape)))
            if flipped ^ {at} not in self._past:
                break
        return flipped ^ {at}

    def _launch_ns(self, one: BufferSet, change: InputChange | None) -> float:
        device, results = self.executable.device, []
        device.synchronize()

        def launch() -> None:
            results.append(self.executable.run(one.inputs, one.output))

        durations, _ = device.time_calls([launch])
        if change is not None:
            one.change = change
            self.seen(one, results[0])
            one.change = None
        return durations[0]

    def _write(self, one: BufferSet, elements: Iterable[_Element], *, is_new: bool) -> None:
        """Write the negatives of elements, or what they were."""
        wanted = []
        for element in elements:
            index = tuple(slice(at, at + 1) for at in element)
            old = self._array[index]
            wanted.append(Edit(self._place, index, negative(old) if is_new else old))
        specs = self.operation.inputs
        for edit in prepared_edits(self.executable.device, specs, one.inputs, wanted):
            edit()


_REPEATS = 50


def measure_overhead(device: Device) -> float:
    """Median duration in ns that ``device.time_calls`` reports for an empty call.

    It is an upper bound of the time that reading the clock and calling through Python add to every
    sample; ``marks.py`` marks measurements where it exceeds 1 %.
    """
    durations, _ = device.time_calls([lambda: None] * _REPEATS)
    return statistics.median(durations)


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
"""Minimum total duration of a warm-up's launches. After three launches of 40 µs threads have not
reached their final processors, and the supposed shortest launch is 20 times too long: rounds then
count as settled although they are not (torch on two processors with another busy program)."""

WARM_SHARE = 0.1
"""Share of the time budget that a warm-up may use."""

_CHECK_NS = 1e6
_MOST_PER_CHECK = 100
"""Launches between two checks of the threads, which take tenths of a millisecond."""

_MOST_UNTIMED = 1000
"""Maximum launches of a warm-up, enough for launches that take a microsecond and use no threads."""


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
    while spent_ns + launch_ns <= limit_ns and launches < _MOST_UNTIMED:
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
