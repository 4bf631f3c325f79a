"""Checks that the clock covers all of the work, and that the work is done: events against the wall
clock, threads that continue, and inputs that the executable has never seen."""

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
"""Wall-clock time that the stream's events may miss: starting and waiting for the device take tens
of microseconds, or hundreds on a virtual machine."""

_SPAN_NS = 2e6
_MOST_LAUNCHES = 200
"""Duration of a check's launches, or their number: unseen work of 3 µs per launch then exceeds
:data:`UNSEEN_NS`."""

_TRIES = 3
"""Number of tries, of which the smallest value counts: another program may preempt one of them."""

REMEMBERED_RATIO = 1.5
"""Largest ratio between the time of launches on new inputs and that of others. Both follow a write,
and the shortest of three counts, so only cached results make them differ by more."""

_PAIRS = 3
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


def slowdown_on_new_inputs(
    executable: Executable,
    operation: Operation,
    inputs: Sequence[HostArray],
    buffers: BufferSet,
) -> float:
    """Ratio between the time of a launch on inputs that differ in one element from all earlier
    inputs and that of a launch on known inputs. It is far above 1 where an executable recognises
    inputs by their content and returns a cached result.

    Before each launch the smaller operand is rewritten in place; afterwards it is restored to
    `inputs`.

    Args:
        executable: has already been launched on `inputs`.
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
    """Replace the element with that number, counted from the middle, by 1, or by 2 if it is 1."""
    flat = array.reshape(-1)
    index = (flat.size // 2 + number) % flat.size
    flat[index] = 2 if flat[index] == 1 else 1
