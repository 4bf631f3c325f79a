"""Pins a process to the processors that it computes on."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gemmetry.domain.units import format_numbers
from gemmetry.hardware.host import ROOT, core_of

_TASKS = Path("/proc/self/task")

_ACTIVE_SHARE = 0.1
"""Least running time of a working thread, as a share of the busiest thread's."""


def choose_processors(threads: int, usable: Iterable[int], root: Path = ROOT) -> tuple[int, ...]:
    """`threads` of the `usable` processors: one of each physical core first, then their siblings
    (Linux lists siblings in ``topology/thread_siblings_list``), because two threads on one core
    share its arithmetic units. Returns all usable processors if there are fewer than `threads`.
    """
    seen: dict[str, int] = {}
    ranked = []
    for processor in sorted(usable):
        core = core_of(processor, root)
        ranked.append((seen.get(core, 0), processor))
        seen[core] = seen.get(core, 0) + 1
    chosen = sorted(ranked)[: threads or None]
    return tuple(sorted(processor for _, processor in chosen))


def pin_process(threads: int, root: Path = ROOT, tasks: Path = _TASKS) -> tuple[int, ...]:
    """Pin every thread of this process, and those it starts later, to a set of `threads`
    processors.

    Returns the set; () where the system has no affinity. Threads are pinned to the set as a whole,
    not one to one: libraries that bind their threads themselves (``OMP_PROC_BIND``) do so within
    it.
    """
    if not hasattr(os, "sched_setaffinity"):
        return ()
    processors = choose_processors(threads, os.sched_getaffinity(0), root)
    try:
        found = [int(task.name) for task in tasks.iterdir()]
    except OSError:
        found = [0]
    for task in found:
        with contextlib.suppress(OSError):  # a thread may have ended meanwhile
            os.sched_setaffinity(task, processors)
    return processors


def running_times(tasks: Path = _TASKS) -> dict[int, int]:
    """How long each thread of this process has run so far, in ns (Linux,
    Documentation/scheduler/sched-stats.rst); {} where the system does not report it."""
    return _schedstat(0, tasks)


def waiting_times(tasks: Path = _TASKS) -> dict[int, int]:
    """How long each thread of this process has been runnable without a processor so far, in ns; see
    :func:`running_times`."""
    return _schedstat(1, tasks)


def _schedstat(place: int, tasks: Path) -> dict[int, int]:
    found = {}
    with contextlib.suppress(OSError), os.scandir(tasks) as entries:
        for entry in entries:
            with contextlib.suppress(OSError, ValueError, IndexError):
                found[int(entry.name)] = int(read_status(f"{entry.path}/schedstat").split()[place])
    return found


def read_status(path: str) -> bytes:
    """A one-line file of ``/proc``, read in half the time that reading it as text takes.

    Raises:
        OSError: the file does not exist, or no longer exists.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)


def spread_threads(ran_before: Mapping[int, int], root: Path = ROOT, tasks: Path = _TASKS) -> int:
    """Move each thread that has worked since `ran_before` (:func:`running_times`) to a processor of
    its own, and leave them free to move again. Returns how many were moved.

    While another program occupies one of two processors, the system places both threads of a
    library on the other one and leaves them there: each waits for the other's time slice at every
    barrier, a millisecond instead of 50 µs. On separate processors, they only occasionally share
    with the other program. Threads that they or their library have already bound are not moved.
    """
    if not hasattr(os, "sched_setaffinity"):
        return 0
    ran = {task: ns - ran_before.get(task, 0) for task, ns in running_times(tasks).items()}
    least = _ACTIVE_SHARE * max(ran.values(), default=0)
    usable = os.sched_getaffinity(0)
    moved: list[int] = []
    processors = choose_processors(len(usable), usable, root)
    with contextlib.suppress(OSError):  # a thread may have ended meanwhile
        for task in sorted(ran, key=lambda task: -ran[task]):
            if ran[task] <= least or len(moved) == len(processors):
                break
            if os.sched_getaffinity(task) == usable:
                os.sched_setaffinity(task, {processors[len(moved)]})
                moved.append(task)
    for task in moved:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(task, usable)
    return len(moved)


def format_processors(processors: Sequence[int]) -> str:
    """``0-3,8``: the list format of Linux (cpuset(7))."""
    return format_numbers(sorted(processors), separator=",", fewest=2)
