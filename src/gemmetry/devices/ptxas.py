"""What ptxas prints about the kernels that it assembles, alone or as the last stage of NVRTC."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SLOWER = re.compile(r"wgmma\b.*\bserialized|setmaxnreg\b.*\bignored|\(C75\d\d\)")
"""Notes that a kernel does not run as it was written: matrix instructions wait for each other
(C7510 to C7514), or registers are not moved between warps (C7508)."""


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """What one thread or block of a kernel needs."""

    registers: int
    """Of a thread."""
    spill_bytes: int
    """Stored to local memory by a thread because registers did not suffice."""
    local_bytes: int
    """Local memory of a thread: its stack, which holds spilled registers and indexed arrays."""
    shared_bytes: int
    """Shared memory of a block that the source declares with its size."""


def ptxas_usage(printed: str) -> dict[str, ResourceUsage]:
    """Symbol -> what the kernel needs, from the lines of ``ptxas -v``."""
    found = {}
    for part in re.split(r"Compiling entry function '", printed)[1:]:
        symbol = part.partition("'")[0]
        registers = _number(r"Used (\d+) registers", part)
        spilled = _number(r"(\d+) bytes spill stores", part)
        if registers is not None and spilled is not None:
            local = _number(r"(\d+) bytes stack frame", part) or 0
            shared = _number(r"(\d+) bytes smem", part) or 0
            found[symbol] = ResourceUsage(registers, spilled, local, shared)
    return found


def _number(pattern: str, text: str) -> int | None:
    match = re.search(pattern, text)
    return int(match[1]) if match else None


def performance_notes(printed: str) -> list[str]:
    """The lines that report a kernel that is slower than its source promises: matrix instructions
    that wait for each other, or a request for registers that is ignored."""
    return [line.strip() for line in printed.splitlines() if _SLOWER.search(line)]
