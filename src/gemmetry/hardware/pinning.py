"""Holds a process to the processors that it shall compute on."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

_SYSFS_CPUS = Path("/sys/devices/system/cpu")
_TASKS = Path("/proc/self/task")


def choose_processors(
    threads: int, usable: Iterable[int], sysfs: Path = _SYSFS_CPUS
) -> tuple[int, ...]:
    """`threads` of the `usable` processors: one of each physical core first, then their siblings
    (Linux tells siblings in ``topology/thread_siblings_list``). Two threads on one core share its
    arithmetic units; two of fewer threads than cores need not. All of them if that is fewer.
    """
    seen: dict[str, int] = {}
    ranked = []
    for processor in sorted(usable):
        core = _core(processor, sysfs)
        ranked.append((seen.get(core, 0), processor))
        seen[core] = seen.get(core, 0) + 1
    chosen = sorted(ranked)[: threads or None]
    return tuple(sorted(processor for _, processor in chosen))


def pin_process(threads: int, sysfs: Path = _SYSFS_CPUS, tasks: Path = _TASKS) -> tuple[int, ...]:
    """Hold every thread of this process, and those it starts later, to `threads` processors.

    Returns them; () where the system has no such thing. Threads are held to the set, not one to
    one: libraries that bind their threads themselves (``OMP_PROC_BIND``) do so within it.
    """
    if not hasattr(os, "sched_setaffinity"):
        return ()
    processors = choose_processors(threads, os.sched_getaffinity(0), sysfs)
    try:
        found = [int(task.name) for task in tasks.iterdir()]
    except OSError:
        found = [0]
    for task in found:
        with contextlib.suppress(OSError):  # a thread may have ended meanwhile
            os.sched_setaffinity(task, processors)
    return processors


def format_processors(processors: Sequence[int]) -> str:
    """``0-3,8``: the list format of Linux (cpuset(7))."""
    parts: list[list[int]] = []
    for processor in sorted(processors):
        if parts and processor == parts[-1][-1] + 1:
            parts[-1].append(processor)
        else:
            parts.append([processor])
    return ",".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)


def _core(processor: int, sysfs: Path) -> str:
    try:
        topology = sysfs / f"cpu{processor}" / "topology"
        return (topology / "thread_siblings_list").read_text().strip()
    except OSError:
        return str(processor)
