"""Checks that the clock covers all of the work, and that the work is done: events against the wall
clock, threads that continue, and inputs that the executable has never seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from gemmetry.domain.contracts import Buffer, Executable, HostArray, StreamDevice
from gemmetry.domain.errors import LaunchError
from gemmetry.domain.operation import Conv2dShape, Operation
from gemmetry.domain.units import format_ns
from gemmetry.measurement.buffers import BufferSet
from gemmetry.measurement.launches import Launches
from gemmetry.numerics.changes import ChangeKind, InputChange, changed_inputs, negative
from gemmetry.numerics.drawing import draw_change

UNSEEN_SHARE = 0.1
UNSEEN_NS = 500_000.0
"""Wall-clock time that the stream's events may miss: starting and waiting for the device take tens
of microseconds, or hundreds on a virtual machine."""

_SPAN_NS = 2e6
_MOST_LAUNCHES = 200
"""Duration of a check's launches, or their number: unseen work of 3 µs per launch then exceeds
:data:`UNSEEN_NS`."""

_TRIES = 3
"""Number of tries, of which the smallest value counts: another program may preempt one of them."""

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
            would be too short.
    """
    count = int(min(_MOST_LAUNCHES, max(1.0, _SPAN_NS / max(launch_ns, 1.0))))
    unseen_ns = stream_ns = wall_ns = 0.0
    for attempt in range(_TRIES):
        stream_ns, tried_ns = device.stream_and_wall_ns(launches.single(count))
        wall_ns = tried_ns if attempt == 0 else min(wall_ns, tried_ns)
        unseen_ns = tried_ns - stream_ns
        if unseen_ns <= max(UNSEEN_NS, UNSEEN_SHARE * stream_ns):
            return wall_ns / count
    raise LaunchError(
        f"the device was still busy when the timed stream had finished: {count} launches took "
        f"{format_ns(stream_ns)} there and {format_ns(stream_ns + unseen_ns)} in all",
        hint="Launch on the current stream, or make it wait for the others "
        "(torch.cuda.Stream.wait_stream), so that the time includes all of the work.",
    )


def seconds_running_on(
    clock: Callable[[], float] = time.perf_counter,
    cpu_clock: Callable[[], float] = time.process_time,
    sleep: Callable[[float], None] = time.sleep,
) -> float:
    """How long other threads of this process remain busy after a launch on the CPU has returned, in
    seconds, at most :data:`_LONGEST_WAIT_S`. Thread pools that spin while they wait do so for a
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


class NewInputs:
    """Launches on inputs that differ in one element, away from the edges, from all earlier ones. A
    launch that takes far longer than on known inputs shows that an executable recognises inputs by
    their content and returns a stored result. Places are drawn at random.

    Before each launch the smaller operand is rewritten in place; afterwards it is restored.
    """

    def __init__(
        self,
        executable: Executable,
        operation: Operation,
        inputs: Sequence[HostArray],
        seen: Callable[[BufferSet, Buffer], None] = lambda one, result: None,
    ) -> None:
        """
        Args:
            executable: has already been launched on `inputs`.
            inputs: host arrays, of which all sets hold copies.
            seen: called with the result of a launch on new inputs, and the set with the change.
        """
        self._executable = executable
        self._operation = operation
        self._inputs = inputs
        self._seen = seen
        self._chance = np.random.default_rng()
        # A line of a convolution's A is a whole image, whose reference takes long to compute.
        is_image = isinstance(operation.shape, Conv2dShape)
        self._place = 1 if is_image else min((0, 1), key=lambda i: inputs[i].nbytes)
        self._past = {hash(inputs[self._place].tobytes())}
        self.ratio: float | None = None
        """Largest ratio found so far between the times of launches on new and on known inputs."""

    def try_on(self, one: BufferSet, *, pairs: int = PAIRS) -> None:
        """Time launches on known and on new inputs in turns, in the buffers of `one`; again where
        new ones seem slow, as another program may have delayed them."""
        ratio, array = 1.0, self._inputs[self._place]
        for attempt in range(_ROUNDS_OF_PAIRS):
            seen_ns, new_ns = [], []
            for pair in range(pairs):
                seen_ns.append(self._launch_ns(one, self._inputs[self._place], None))
                shown = self._one_change() if attempt == pair == 0 else None
                if shown is None:
                    array = self._changed_again(array)
                else:
                    array = changed_inputs(self._operation, self._inputs, shown)[self._place]
                    self._past.add(hash(array.tobytes()))
                new_ns.append(self._launch_ns(one, array, shown))
            found = min(new_ns) / max(min(seen_ns), 1.0)
            ratio = found if attempt == 0 else min(ratio, found)
            if ratio <= REMEMBERED_RATIO:
                break
            pairs = PAIRS
        self._write(one, self._inputs[self._place])
        one.launched = False
        self.ratio = max(ratio, self.ratio or 0.0)

    def _one_change(self) -> InputChange:
        return draw_change(
            self._operation, self._inputs, ChangeKind.ONE_ELEMENT, self._place, self._chance
        )

    def _changed_again(self, array: HostArray) -> HostArray:
        """`array` with the sign of one more inner element changed, so that it was never seen
        before."""
        for _ in range(_TRIES_OF_CHANGES):
            changed = np.array(array)
            flat = changed.reshape(-1)
            at = flat.size // 4 + int(self._chance.integers(flat.size // 2 + 1))
            flat[at : at + 1] = negative(flat[at : at + 1])
            key = hash(changed.tobytes())
            if key not in self._past:
                break
        self._past.add(key)
        return changed

    def _launch_ns(self, one: BufferSet, array: HostArray, change: InputChange | None) -> float:
        self._write(one, array)
        device, results = self._executable.device, []

        def launch() -> None:
            results.append(self._executable.run(one.inputs, one.output))

        durations, _ = device.time_calls([launch])
        if change is not None:
            one.change = change
            self._seen(one, results[0])
            one.change = None
        return durations[0]

    def _write(self, one: BufferSet, array: HostArray) -> None:
        device = self._executable.device
        device.write(one.inputs[self._place], array, self._operation.inputs[self._place])
        device.synchronize()
