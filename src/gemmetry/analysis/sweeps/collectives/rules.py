"""Launch sizes of the kernels of NCCL and RCCL under their settings.

Sources: NVIDIA/nccl 2.28.9 and 2.30.7, ``src/graph/tuning.cc`` (getNthreads, maxThreads,
threadThresholds), ``src/enqueue.cc`` (topoGetAlgoInfo, scheduleP2pTasksToPlan), ``src/graph/
connect.cc`` (MAXCHANNELS), ``src/device/generate.py`` (best_kernel), ``src/sym_kernels.cc``;
ROCm/rccl 2.21.5 ``src/graph/tuning.cc`` and ROCm/rocm-systems 2026 ``projects/rccl/src/
rccl_wrap.cc`` (rcclOptThreadBlockSize), ``rccl_common.h``. The table of ``docs/sweep-settings.md``
follows them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

WARP = 32
MOST_THREADS = 640
"""Threads of a block where NCCL_NTHREADS does not count: NCCL_MAX_NTHREADS."""
MOST_NTHREADS, LEAST_NTHREADS = 512, 64
"""Bounds of NCCL_NTHREADS; values that are no multiple of 32 count as the upper one."""
LEAST_BLOCK = 128
MOST_CHANNELS, MOST_CHANNELS_BEFORE_2_25 = 64, 32

BYTES_PER_THREAD = {"simple": 64, "ll128": 8, "ll": 8}
"""A message with fewer bytes per thread of all channels runs on fewer channels, and on a single
one with fewer threads; times the number of ranks for the ring with LL."""
LEAST_BYTES_A_CHANNEL = 16 << 10

RCCL_WARP = 64
RCCL_MOST_THREADS = 256
"""Threads of a block of RCCL on all architectures of these sources."""

FIXED_ALGORITHMS = {
    "tree": ("all_reduce",),
    "pat": ("all_gather", "reduce_scatter"),
    "nvls": ("all_reduce", "all_gather", "reduce_scatter"),
    "nvls_tree": ("all_reduce",),
    "collnet_direct": ("all_reduce", "all_gather", "reduce_scatter"),
    "collnet_chain": ("all_reduce",),
}
"""Algorithms whose blocks have :data:`MOST_THREADS` threads whatever NCCL_NTHREADS is, with the
collectives that they implement. The ring implements all."""


class Execution(NamedTuple):
    """One way to run a collective, with the block that it has."""

    algorithm: str
    protocol: str
    block: int
    is_set_by_threads: bool
    """Whether NCCL_NTHREADS decides the number of threads."""
    is_halved: bool = False
    """Fewer threads than set, as for a small message on a single channel."""


def obeyed_threads(requested: int) -> int:
    """The number of threads that NCCL uses for a value of NCCL_NTHREADS."""
    if requested % WARP or requested > MOST_NTHREADS:
        return MOST_NTHREADS
    return max(requested, LEAST_NTHREADS)


def obeyed_rccl_threads(requested: int) -> int:
    """The number of threads that RCCL uses for a value of RCCL_THREADS_PER_BLOCK: rounded up to
    wavefronts of 64, three at least."""
    rounded = -(-requested // RCCL_WARP) * RCCL_WARP
    return min(max(rounded, 3 * RCCL_WARP), RCCL_MOST_THREADS)


def channel_limit(version: str | None) -> int:
    """The most channels of NCCL; that of today where the version is not known."""
    numbers = version_numbers(version)
    return MOST_CHANNELS_BEFORE_2_25 if numbers and numbers < (2, 25) else MOST_CHANNELS


def version_numbers(version: str | None) -> tuple[int, ...]:
    """(2, 28, 9) for ``2.28.9``; () where it is not known."""
    parts = (version or "").split(".")
    return tuple(map(int, parts)) if all(part.isdigit() for part in parts) else ()


def executions(
    operation: str | None,
    algorithm: str | None,
    protocol: str | None,
    threads: int,
    *,
    is_no_tree: bool = False,
    ll128_threads: int = MOST_THREADS,
) -> list[Execution]:
    """The ways in which a collective can run, with their blocks under NCCL_NTHREADS = `threads`.

    `algorithm` and `protocol` restrict them where they are known. `is_no_tree`: the kernel's name
    excludes the tree.
    """
    found: list[Execution] = []
    counts = list(_halvings(obeyed_threads(threads)))
    for index, count in enumerate(counts):
        found.append(_ring("simple", max(count + WARP, 3 * WARP), index))
        found.append(_ring("ll", max(count, 3 * WARP), index))
    for index, count in enumerate(_halvings(ll128_threads)):
        found.append(Execution("ring", "ll128", count, False, index > 0))
    for name, operations in FIXED_ALGORITHMS.items():
        if operation is not None and operation not in operations:
            continue
        protocols = ("simple", "ll", "ll128") if name == "tree" else ("simple",)
        if not (name == "tree" and is_no_tree):
            found += [Execution(name, one, MOST_THREADS, False) for one in protocols]
        if name == "collnet_chain":
            found.append(Execution(name, "simple", MOST_THREADS // 2, False, True))
    return [
        one
        for one in found
        if algorithm in (None, one.algorithm) and protocol in (None, one.protocol)
    ]


def _ring(protocol: str, threads: int, halvings: int) -> Execution:
    return Execution("ring", protocol, max(threads, LEAST_BLOCK), True, halvings > 0)


def _halvings(threads: int) -> Iterator[int]:
    """`threads`, and what NCCL reduces it to for small messages."""
    yield threads
    while threads % (4 * WARP) == 0:
        threads //= 2
        yield threads


def small_below(channels: int, executed: Sequence[Execution], threads: int, ranks: int) -> int:
    """Messages with fewer bytes than this may use fewer than `channels` channels, by the protocols
    that are possible."""
    most = LEAST_BYTES_A_CHANNEL
    for one in executed:
        factor = ranks if (one.algorithm, one.protocol) == ("ring", "ll") else 1
        count = obeyed_threads(threads) if one.is_set_by_threads else one.block
        most = max(most, count * BYTES_PER_THREAD[one.protocol] * factor)
    return channels * most
