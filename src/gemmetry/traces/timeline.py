"""What a picture of a trace is drawn from: one lane a stream, with the work on it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmetry.formats.events import GpuKind, Int64
from gemmetry.kernel_names import GEMM_KINDS, KernelKind
from gemmetry.traces.model import Trace

KINDS = ("gemm", "attention", "other", "communication", "copy")
"""What a piece of work is; its number is its place here."""

MOST_EVENTS = 100_000
"""Pieces of work of one trace that are drawn one by one; of more, neighbours are joined."""

JOINED_PARTS = 20_000
"""Neighbours of one kind are joined where the gap between them is below this part of the
window: five times narrower than a pixel of a large screen."""


@dataclass(frozen=True, slots=True)
class Lane:
    """The work of one stream, by start."""

    file: str
    rank: int | None
    device: int
    stream: int
    start_ns: Int64
    """Since 1970 where the trace tells what its times count from."""
    duration_ns: Int64
    kind: Int64
    """Places in :data:`KINDS`."""
    name: Int64
    """Places in `names`."""
    count: Int64
    """Pieces of work that each stands for."""
    names: tuple[str, ...]


def trace_lanes(trace: Trace, rank: int | None) -> list[Lane]:
    """The lanes of `trace`, those with the most time first within a device."""
    rows, gpu = trace.rows, trace.rows.gpu
    kinds = _kinds(trace)
    short = {i: told.short or rows.names[i] for i, told in trace.kernel_names.items()}
    window = 0
    if len(gpu.start_ns):
        window = int((gpu.start_ns + gpu.duration_ns).max() - gpu.start_ns.min())
    gap = window // JOINED_PARTS if len(gpu.start_ns) > MOST_EVENTS else -1
    found = []
    lanes = np.column_stack([gpu.device, gpu.stream])
    for device, stream in np.unique(lanes, axis=0).tolist():
        chosen = np.flatnonzero((gpu.device == device) & (gpu.stream == stream))
        chosen = chosen[np.argsort(gpu.start_ns[chosen], kind="stable")]
        used, name = np.unique(gpu.name[chosen], return_inverse=True)
        start, duration = gpu.start_ns[chosen], gpu.duration_ns[chosen]
        kind = kinds[chosen]
        parts = _joined(start, duration, kind, gap)
        ends = np.maximum.reduceat(start + duration, parts)
        found.append(Lane(
            file=str(trace.file),
            rank=rank,
            device=device,
            stream=stream,
            start_ns=start[parts] + rows.base_ns,
            duration_ns=ends - start[parts],
            kind=kind[parts],
            name=name[parts],
            count=np.diff(np.append(parts, len(chosen))),
            names=tuple(short.get(i, rows.names[i]) for i in used.tolist()),
        ))  # fmt: skip
    return sorted(found, key=lambda lane: (lane.device, -int(lane.duration_ns.sum())))


def _kinds(trace: Trace) -> Int64:
    gpu = trace.rows.gpu
    of_name = np.full(len(trace.rows.names) + 1, KINDS.index("other"), np.int64)
    for index, told in trace.kernel_names.items():
        if told.kind in GEMM_KINDS:
            of_name[index] = KINDS.index("gemm")
        elif told.kind is KernelKind.COLLECTIVE:
            of_name[index] = KINDS.index("communication")
        elif told.kind is KernelKind.ATTENTION:
            of_name[index] = KINDS.index("attention")
    result: Int64 = np.where(
        gpu.kind == GpuKind.KERNEL, of_name[gpu.name], KINDS.index("copy")
    )
    return result


def _joined(start: Int64, duration: Int64, kind: Int64, gap: int) -> Int64:
    """Where a new piece begins; every one where `gap` is negative."""
    if gap < 0:
        return np.arange(len(start))
    reached = np.maximum.accumulate(start + duration)
    begins = np.ones(len(start), bool)
    begins[1:] = (kind[1:] != kind[:-1]) | (start[1:] - reached[:-1] > gap)
    # A piece longer than the gap stands alone.
    long = duration > gap
    begins |= long
    begins[1:] |= long[:-1]
    result: Int64 = np.flatnonzero(begins)
    return result
