"""Does the clock see all of the work, and is it the work? Events against the wall clock, threads
that run on, inputs that were never seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from gemmetry.domain.contracts import Device, Executable, HostArray, StreamDevice
from gemmetry.domain.errors import LaunchError
from gemmetry.domain.operation import Operation
from gemmetry.domain.units import format_ns
from gemmetry.measurement.buffers import BufferSet
from gemmetry.measurement.launches import Launches

UNSEEN_SHARE = 0.1
UNSEEN_NS = 500_000.0
"""Wall-clock time that the stream's events may miss: starting and waiting for the device take some
tens of microseconds, on a virtualised machine some hundreds."""

_SPAN_NS = 2e6
_MOST_LAUNCHES = 200
"""Launches of a check last about so long, or are so many: work of 3 µs a launch that events do not
see then passes :data:`UNSEEN_NS`."""

_TRIES = 3
"""The least of so many tries counts: another program may take the host's processor from one."""

REMEMBERED_RATIO = 1.5
"""Launches on inputs that were never seen may take so many times as long as others: both follow on
a write, and the shortest of three is taken, so that only kept results make them differ by more."""

_PAIRS = 3
_ROUNDS_OF_PAIRS = 6
"""What is that slow so many times over was not disturbed each time; launches that are not stop
after the first."""

_POLL_S = 0.002
_LONGEST_WAIT_S = 0.3
_RUNNING_SHARE = 0.2


def check_stream(device: StreamDevice, launches: Launches, launch_ns: float) -> float:
    """Compare what the stream's events tell of some launches with the wall clock until the whole
    device is done; the wall-clock time of one launch in ns, its submission included.

    Raises:
        LaunchError: the device works on when the timed stream is done, so that a time by events
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
        f"the device was still busy when the timed stream was done: {count} launches took "
        f"{format_ns(stream_ns)} there and {format_ns(stream_ns + unseen_ns)} in all",
        hint="Launch on the current stream, or make it wait for the others "
        "(torch.cuda.Stream.wait_stream), so that the time holds all of the work.",
    )


def seconds_running_on(
    clock: Callable[[], float] = time.perf_counter,
    cpu_clock: Callable[[], float] = time.process_time,
    sleep: Callable[[float], None] = time.sleep,
) -> float:
    """How long other threads of this process work on after a launch on the CPU has returned, at
    most :data:`_LONGEST_WAIT_S`. Thread pools that wait by spinning do so for a millisecond or
    two; more is work that the wall clock did not see."""
    began = clock()
    while True:
        before, cpu_before = clock(), cpu_clock()
        sleep(_POLL_S)
        now = clock()
        if cpu_clock() - cpu_before < _RUNNING_SHARE * (now - before):
            return before - began
        if now - began > _LONGEST_WAIT_S:
            return now - began


def slowdown_on_new_inputs(
    executable: Executable,
    operation: Operation,
    inputs: Sequence[HostArray],
    buffers: BufferSet,
) -> float:
    """How many times as long a launch takes on inputs that differ in one element from all that were
    seen before, as on those that were. Far above 1 where an executable knows inputs again by their
    content and gives the result that it kept.

    Before each launch the smaller operand is written anew, in place; it is `inputs`' afterwards.

    Args:
        executable: was launched on `inputs` before.
        inputs: host arrays, of which `buffers` hold copies.
    """
    device = executable.device
    place = min((0, 1), key=lambda i: inputs[i].nbytes)
    spec, buffer, known = operation.inputs[place], buffers.inputs[place], inputs[place]
    changed = np.array(known)

    def launch_ns(array: HostArray) -> float:
        device.write(buffer, array, spec)
        device.synchronize()
        return _time_one(device, lambda: executable.run(buffers.inputs, buffers.output))

    ratio = 1.0
    for attempt in range(_ROUNDS_OF_PAIRS):
        seen_ns, new_ns = [], []
        for pair in range(_PAIRS):
            seen_ns.append(launch_ns(known))
            _change_one(changed, attempt * _PAIRS + pair)
            new_ns.append(launch_ns(changed))
        found = min(new_ns) / max(min(seen_ns), 1.0)
        ratio = found if attempt == 0 else min(ratio, found)
        if ratio <= REMEMBERED_RATIO:
            break
    device.write(buffer, known, spec)
    return ratio


def _time_one(device: Device, call: Callable[[], object]) -> float:
    durations, _ = device.time_calls([call])
    return durations[0]


def _change_one(array: HostArray, number: int) -> None:
    """Make the element of that number, counted from the middle, another number: 1, or 2 if it
    is 1."""
    flat = array.reshape(-1)
    index = (flat.size // 2 + number) % flat.size
    flat[index] = 2 if flat[index] == 1 else 1
