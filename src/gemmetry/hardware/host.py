"""Processors, caches and memory of the host that this process may use.

All of this is read here: from Linux's sysfs and procfs, and from the control groups (v1 and v2) in
which a container or a batch system placed this process. Facts that no file shows (on macOS, or in a
container that hides them) are left out or assumed, as each function states.

Every function takes the `root` folder of those files, so that tests can create their own trees.

Pins a process to the processors that it computes on.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from pathlib import Path

from gemmetry.domain.tables import grouped
from gemmetry.domain.units import format_numbers

ROOT = Path("/")

FALLBACK_CACHE_BYTES = 32 * 2**20
"""Last-level cache assumed where the system does not show it: one slice of a current server
processor (AMD EPYC: 32 MiB per core complex). It is larger than a laptop's, so that rotating input
sets errs on the side of cold caches."""

FALLBACK_MEMORY_BYTES = 2**30
"""Free memory assumed where neither /proc nor sysconf shows it."""

LATELY_S = 0.02
"""Seconds for which a result of :func:`free_memory_bytes_lately` is reused. Memory is filled at
about 10 GB/s, so little of it can be taken in that time."""

_NO_LIMIT_BYTES = 2**62
"""More memory than any machine has; v1 reports nearly 2**63 where a group has no limit."""

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def usable_cpus() -> list[int]:
    """Logical processors that this process may run on, by number."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def usable_cores(root: Path = ROOT) -> int:
    """Number of logical processors that this process may keep busy: those it may run on, or fewer
    where a control group limits processor time (``docker run --cpus``), rounded up."""
    return max(1, min([len(usable_cpus()), *_granted_processors(root)]))


def physical_cores(root: Path = ROOT) -> int:
    """Number of physical cores of the usable processors: threads of one core share its vector
    units. Where the system does not show siblings, every processor counts as a core."""
    return min(len({core_of(cpu, root) for cpu in usable_cpus()}), usable_cores(root))


def core_of(cpu: int, root: Path = ROOT) -> str:
    """A key shared by exactly the logical processors of one core: their list, as Linux writes it,
    or the processor's own number where the system does not show the list."""
    return read_text(cpu_folder(cpu, root) / "topology" / "thread_siblings_list") or str(cpu)


def cpu_folder(cpu: int, root: Path = ROOT) -> Path:
    """Linux's description of one logical processor."""
    return root / "sys/devices/system/cpu" / f"cpu{cpu}"


def last_level_caches(root: Path = ROOT) -> tuple[int, ...]:
    """Bytes of each distinct last-level cache that the usable processors have; () if unknown.

    A processor's last cache is the one of its highest level. They may differ: in size (one chiplet
    with stacked cache next to one without) and in level (efficiency cores without the third).
    """
    return _last_level_caches(tuple(usable_cpus()), root)


@cache
def _last_level_caches(cpus: tuple[int, ...], root: Path) -> tuple[int, ...]:
    """Last-level caches of these processors. Cached, as every device of the host needs them and
    they do not change."""
    found: dict[tuple[int, str], int] = {}
    for cpu in cpus:
        caches = list(_caches(cpu_folder(cpu, root)))
        if caches:
            level, shared_by, size = max(caches)
            found[level, shared_by] = size
    return tuple(found[key] for key in sorted(found))


def last_level_cache_bytes(root: Path = ROOT) -> int:
    """Total last-level cache of the usable processors in bytes; ``FALLBACK_CACHE_BYTES`` where the
    system does not show it."""
    return sum(last_level_caches(root)) or FALLBACK_CACHE_BYTES


def total_memory_bytes(root: Path = ROOT) -> int:
    """Memory of the machine, or the lowest limit of this process's control groups where that is
    less; 0 if unknown."""
    limits = [limit for limit, _ in _memory_groups(root)]
    total = _meminfo(root).get("MemTotal") or _physical_memory_bytes()
    return min([total, *limits]) if total else min(limits, default=0)


def free_memory_bytes(root: Path = ROOT) -> int:
    """Bytes that can be allocated without swapping: the smallest of MemAvailable and the remainder
    of each control group, at least 0. File pages that a group could drop count as free, as they do
    in MemAvailable."""
    fields = _meminfo(root)
    available = fields.get("MemAvailable")
    if available is None:
        # Half of physical memory: without MemAvailable nothing shows how much others use.
        available = _physical_memory_bytes() // 2 or FALLBACK_MEMORY_BYTES
    # A group that may use all of the memory is no further limit, and the kernel takes long to sum
    # up its usage.
    total = fields.get("MemTotal", _NO_LIMIT_BYTES)
    left = [limit - used() for limit, used in _memory_groups(root) if limit < total]
    return max(0, min([available, *left]))


def free_memory_bytes_lately() -> int:
    """A result of :func:`free_memory_bytes` that is at most :data:`LATELY_S` old, for callers that
    need it hundreds of times per second: computing it reads a dozen files."""
    return _free_memory_in(int(time.monotonic() / LATELY_S))


@lru_cache(maxsize=1)
def _free_memory_in(_tick: int) -> int:
    return free_memory_bytes()


def oom_kills(root: Path = ROOT) -> int:
    """Number of processes that the kernel has killed since boot because memory ran out, including
    those of control groups; 0 if unknown."""
    match = re.search(r"^oom_kill (\d+)$", read_text(root / "proc/vmstat"), re.MULTILINE)
    return int(match[1]) if match else 0


def resident_bytes(pid: int, root: Path = ROOT) -> int:
    """Resident memory of a process in bytes; 0 if it has ended or the system does not show it."""
    fields = read_text(root / f"proc/{pid}/statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0


def read_text(path: Path) -> str:
    """A small file's text without surrounding white space; "" where it cannot be read."""
    try:
        # Without a text wrapper: some callers read a hundred times per second.
        return path.read_bytes().decode().strip()
    except (OSError, ValueError):
        return ""


def _caches(folder: Path) -> Iterator[tuple[int, str, int]]:
    """Level, sharing processors and size in bytes of each data cache of one processor.

    Where the system does not show which processors share a cache, all of them are assumed to:
    counting the cache once per processor would multiply it.
    """
    for index in folder.glob("cache/index*"):
        level, size = read_text(index / "level"), read_text(index / "size")
        match = re.fullmatch(r"(\d+)([KMG]?)", size)
        if level.isdigit() and match and read_text(index / "type") != "Instruction":
            shared_by = read_text(index / "shared_cpu_list") or read_text(index / "shared_cpu_map")
            size_bytes = int(match[1]) * _UNITS[match[2]]
            if size_bytes:
                yield int(level), shared_by, size_bytes


def _meminfo(root: Path) -> dict[str, int]:
    """The fields of /proc/meminfo in bytes."""
    text = read_text(root / "proc/meminfo")
    fields = re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)
    return {name: int(kib) * 1024 for name, kib in fields}


def _physical_memory_bytes() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 0


def _granted_processors(root: Path) -> Iterator[int]:
    """Processor time that each control group allows, in whole processors, rounded up (Linux
    Documentation/admin-guide/cgroup-v2.rst, cpu.max; scheduler/sched-bwc.rst)."""
    for folder in _groups("cpu", root):
        quota, _, period = read_text(folder / "cpu.max").partition(" ")
        if not quota:
            quota = read_text(folder / "cpu.cfs_quota_us")
            period = read_text(folder / "cpu.cfs_period_us")
        # "max" (v2) and "-1" (v1) mean no limit, and do not consist of digits.
        if quota.isdigit() and period.isdigit() and int(period):
            yield max(1, -(-int(quota) // int(period)))


def _used_bytes(folder: Path, used_name: str, droppable: str) -> int:
    """Memory that a control group uses, without the pages that it could drop."""
    used, stat = read_text(folder / used_name), read_text(folder / "memory.stat")
    match = re.search(rf"^{droppable} (\d+)$", stat, re.MULTILINE)
    return max(0, (int(used) if used.isdigit() else 0) - (int(match[1]) if match else 0))


def _memory_groups(root: Path) -> Iterator[tuple[int, Callable[[], int]]]:
    """The limit in bytes of each control group of this process that has one, and what returns the
    bytes in use (Linux Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst)."""
    for folder in _groups("memory", root):
        for limit_name, used_name, droppable in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit = read_text(folder / limit_name)
            if limit.isdigit():
                # "max" (v2, no limit) is not a number; v1 writes one near 2**63 instead.
                yield int(limit), partial(_used_bytes, folder, used_name, droppable)


def _groups(controller: str, root: Path) -> Iterator[Path]:
    """Folders of this process's control groups that may limit `controller`: its own and those
    above, of both versions. Inside a container the path may be one of the host's, which does not
    exist there; the mount point is then the container's own group, and comes last."""
    cgroups = root / "sys/fs/cgroup"
    for line in read_text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "":
            mounts = {cgroups, cgroups / "unified"}
        elif controller in controllers.split(","):
            mounts = {cgroups / controllers, cgroups / controller}
        else:
            continue
        names = [name for name in path.split("/") if name not in ("", ".", "..")]
        for mount in mounts:
            for depth in range(len(names), -1, -1):
                yield mount.joinpath(*names[:depth])


_TASKS = Path("/proc/self/task")

_ACTIVE_SHARE = 0.1
"""Minimum running time of a working thread, as a share of the busiest thread's."""


def choose_processors(threads: int, usable: Iterable[int], root: Path = ROOT) -> tuple[int, ...]:
    """`threads` of the `usable` processors: one of each physical core first, then their siblings
    (Linux lists siblings in ``topology/thread_siblings_list``), because two threads on one core
    share its units. Returns all usable processors if there are fewer than `threads`.
    """
    cores = grouped(sorted(usable), lambda processor: core_of(processor, root))
    ranked = [one for siblings in cores.values() for one in enumerate(siblings)]
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
    """Time for which each thread of this process has run, in ns (Linux,
    Documentation/scheduler/sched-stats.rst); {} where the system does not report it."""
    return _schedstat(0, tasks)


def waiting_times(tasks: Path = _TASKS) -> dict[int, int]:
    """Time for which each thread of this process was runnable without a processor, in ns; see
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


def spread_threads(ran_before: Mapping[int, int], tasks: Path = _TASKS) -> int:
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
    processors = sorted(usable)
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
