"""Devices on which providers of other packages can build their executables.

Detects work that continues in other threads of this process after a launch on the host has
ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from gemmetry.domain.contracts import Device
from gemmetry.domain.units import plural
from gemmetry.hardware.host import read_status, running_times


def host_device() -> Device:
    """Host memory: buffers are C-contiguous numpy arrays of the tensor's storage shape."""
    from gemmetry.hardware.host_device import HostDevice

    return HostDevice()


def torch_device(kind: str, index: int = 0) -> Device:
    """Memory through torch on ``cpu``, ``cuda`` or ``hip``: buffers are contiguous tensors of the
    tensor's storage shape.

    Raises:
        ImportError: torch is not installed.
    """
    from gemmetry.hardware.torch_device import TorchDevice

    return TorchDevice(kind, index)


Snapshot = TypeVar("Snapshot")

WAIT_S = 0.03
"""Delay after a launch that is enough to find what a running thread writes: starting a Python
thread takes about 0.1 ms, a 1024³ product on one core 30 ms."""

LONGEST_WAIT_S = 1.0
"""Longest wait for a thread that the launch started, as it may sleep first."""

_STEP_S = 0.01

_TASKS = Path("/proc/self/task")


def late_work(
    launch: Callable[[], object],
    look: Callable[[object], Snapshot],
    is_same: Callable[[Snapshot, Snapshot], bool],
) -> str:
    """Launch, and report whether the result changes afterwards; "" if not.

    Additional threads prove nothing, as pools start when first needed; they only lengthen the wait,
    up to :data:`LONGEST_WAIT_S`, until they end or the result changes. Where no other thread has
    run since the launch began, or is about to run, there is no wait.

    Args:
        launch: must finish its work before it returns, as all work on the host does.
        look: returns a copy of the result, given what the launch returned.
        is_same: whether two such copies hold the same bytes.
    """
    before, ran_before = thread_ids(), running_times()
    returned = launch()
    # Listed before the result is copied: a thread may write and end between the two.
    started = thread_ids() - before
    first = look(returned)
    began = time.monotonic()
    if not started and not _others_ran(ran_before):
        return ""
    time.sleep(WAIT_S)
    while True:
        # Checked before the result is copied: a thread may write and end between the copy and the
        # check.
        is_over = not (started & thread_ids()) or time.monotonic() - began > LONGEST_WAIT_S
        if not is_same(first, look(returned)):
            break
        if is_over:
            return ""
        time.sleep(_STEP_S)
    waited_ms = (time.monotonic() - began) * 1e3
    own = f"{plural(len(started), 'thread')} that it started"
    return (
        f"the result changed within {waited_ms:.0f} ms after the launch was over: "
        f"{own if started else 'another thread'} continued to write"
    )


def _others_ran(ran_before: Mapping[int, int]) -> bool:
    """Whether another thread has run since `ran_before`, or is waiting for a processor; True where
    the system does not report it."""
    caller = threading.get_native_id()
    if caller not in ran_before:
        return True
    # Times are read after states: a thread that was woken and sleeps again has run in between.
    if any(_is_runnable(task) for task in ran_before if task != caller):
        return True
    ran_after = running_times()
    # A thread that has ended meanwhile has run to do so.
    return any(
        task not in ran_after or ran_after[task] > ran_before.get(task, 0)
        for task in ran_before.keys() | ran_after.keys()
        if task != caller
    )


def _is_runnable(task: int) -> bool:
    """Whether the task runs or waits for a processor: state R (proc(5))."""
    try:
        status = read_status(f"{_TASKS}/{task}/stat")
    except OSError:
        return False
    return status.rpartition(b")")[2].split()[:1] == [b"R"]


def thread_ids() -> frozenset[int]:
    """The threads of this process: all of them on Linux, only Python's elsewhere."""
    try:
        return frozenset(int(task.name) for task in _TASKS.iterdir())
    except OSError:
        return frozenset(thread.ident or 0 for thread in threading.enumerate())
