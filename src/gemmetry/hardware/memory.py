"""Memory of the host that is free for this process."""

from __future__ import annotations

import os
from pathlib import Path

FALLBACK_MEMORY_BYTES = 2**30
"""Free memory assumed where neither /proc nor sysconf tells."""

_CGROUPS = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")
_OWN_CGROUPS = Path("/proc/self/cgroup")


def free_memory_bytes(
    meminfo: Path = _MEMINFO, own_cgroups: Path = _OWN_CGROUPS, cgroups: Path = _CGROUPS
) -> int:
    """The smaller of MemAvailable and what the cgroup (v1 or v2) leaves; 0 at least."""
    room = [_available_memory_bytes(meminfo), *_cgroup_room(own_cgroups, cgroups)]
    return max(0, min(room))


def _available_memory_bytes(meminfo: Path) -> int:
    try:
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        # Physical memory, halved: without MemAvailable nothing tells what others use.
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (ValueError, OSError, AttributeError):
        return FALLBACK_MEMORY_BYTES


def _cgroup_room(own_cgroups: Path, cgroups: Path) -> list[int]:
    """Limit minus use for this process's memory cgroup and its ancestors; empty: no limit."""
    try:
        lines = own_cgroups.read_text().splitlines()
    except OSError:
        return []
    room = []
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "":
            root, limit, used = cgroups, "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            root, limit, used = cgroups / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        own = root / path.lstrip("/")
        for folder in (own, *own.parents):
            try:
                # "max" (v2, no limit) is no number; v1 writes a number near 2**63 instead.
                room.append(int((folder / limit).read_text()) - int((folder / used).read_text()))
            except (OSError, ValueError):
                pass
            if folder == root:
                break
    return room
