"""What a picture of a trace is drawn from: one lane a stream, with the work on it; without work on
a GPU one lane a thread of the host, with the innermost operator at each moment."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from gemmetry.formats.events import NOT_TOLD, GpuKind, Int64
from gemmetry.kernel_names import GEMM_KINDS, KernelKind
from gemmetry.traces.gemm_operators import is_gemm_operator
from gemmetry.traces.host_operators import find_nesting, innermost_pieces
from gemmetry.traces.launchers import operator_category
from gemmetry.traces.model import Trace

KINDS = ("gemm", "attention", "other", "communication", "copy")
"""What a piece of work is; its number is its place here."""

MOST_EVENTS = 100_000
"""Pieces of work of one trace that are drawn one by one; of more, neighbours are joined."""

JOINED_PARTS = 20_000
"""Neighbours of one kind are joined where the gap between them is below this part of the
window: five times narrower than a pixel of a large screen."""

_COMMUNICATION = re.compile(r"\A(?:c10d::|nccl:|gloo:|mpi:|ucc:|record_param_comms)")
_COPY = re.compile(r"\Aaten::(?:copy_|_to_copy|to|clone|contiguous|fill_|zero_)\Z")


@dataclass(frozen=True, slots=True)
class Lane:
    """The work of one stream or thread, by start."""

    file: str
    rank: int | None
    device: int
    """-1 for a thread of the host, as `stream`."""
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
    thread: str = ""
    """Process and thread of the host, as the trace writes them; "" for a stream."""


@dataclass(frozen=True, slots=True)
class _Work:
    """Pieces of work of one trace; names are indices into ``TraceRows.names``."""

    start_ns: Int64
    duration_ns: Int64
    kind: Int64
    name: Int64


def trace_lanes(trace: Trace, rank: int | None) -> list[Lane]:
    """The lanes of `trace`, those with the most time first within a device."""
    lanes = _of_streams(trace, rank) if trace.has_gpu_work else _of_threads(trace, rank)
    return sorted(lanes, key=lambda lane: (lane.device, -int(lane.duration_ns.sum())))


def operator_kind(name: str) -> str:
    """What an operator of the host does, one of :data:`KINDS`."""
    if is_gemm_operator(name):
        return "gemm"
    if _COMMUNICATION.search(name):
        return "communication"
    if _COPY.search(name):
        return "copy"
    return "attention" if operator_category(name, "").startswith("SDPA") else "other"


def _of_streams(trace: Trace, rank: int | None) -> list[Lane]:
    gpu = trace.rows.gpu
    work = _Work(gpu.start_ns, gpu.duration_ns, _kinds(trace), gpu.name.astype(np.int64))
    short = {i: told.short for i, told in trace.kernel_names.items() if told.short}
    gap = _gap(work)
    found = []
    for device, stream in np.unique(np.column_stack([gpu.device, gpu.stream]), axis=0).tolist():
        chosen = np.flatnonzero((gpu.device == device) & (gpu.stream == stream))
        found.append(_lane(trace, rank, (device, stream, ""), work, chosen, gap, short))
    return found


def _of_threads(trace: Trace, rank: int | None) -> list[Lane]:
    rows, operators = trace.rows, trace.rows.operators
    pieces = innermost_pieces(operators, find_nesting(operators, trace.launches.parent))
    of_name = np.array([KINDS.index(operator_kind(name)) for name in rows.names], np.int64)
    name = operators.name[pieces.operator].astype(np.int64)
    kind = of_name[name] if len(name) else name
    work = _Work(pieces.start_ns, pieces.duration_ns, kind, name)
    thread = operators.thread[pieces.operator]
    gap = _gap(work)
    return [
        _lane(trace, rank, (NOT_TOLD, NOT_TOLD, rows.threads[one]), work,
              np.flatnonzero(thread == one), gap, {})
        for one in np.unique(thread).tolist()
    ]  # fmt: skip


def _gap(work: _Work) -> int:
    """Up to which gap neighbours are joined, ns; -1: they are not."""
    if len(work.start_ns) <= MOST_EVENTS:
        return -1
    window = int((work.start_ns + work.duration_ns).max() - work.start_ns.min())
    return window // JOINED_PARTS


def _lane(
    trace: Trace,
    rank: int | None,
    place: tuple[int, int, str],
    work: _Work,
    chosen: Int64,
    gap: int,
    short: dict[int, str],
) -> Lane:
    """Of the `chosen` pieces; `place` tells device, stream and thread."""
    device, stream, thread = place
    chosen = chosen[np.argsort(work.start_ns[chosen], kind="stable")]
    used, name = np.unique(work.name[chosen], return_inverse=True)
    start, duration = work.start_ns[chosen], work.duration_ns[chosen]
    kind = work.kind[chosen]
    parts = _joined(start, duration, kind, gap)
    ends = np.maximum.reduceat(start + duration, parts)
    return Lane(
        file=str(trace.file),
        rank=rank,
        device=device,
        stream=stream,
        start_ns=start[parts] + trace.rows.base_ns,
        duration_ns=ends - start[parts],
        kind=kind[parts],
        name=name[parts],
        count=np.diff(np.append(parts, len(chosen))),
        names=tuple(short.get(i, trace.rows.names[i]) for i in used.tolist()),
        thread=thread,
    )


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
    result: Int64 = np.where(gpu.kind == GpuKind.KERNEL, of_name[gpu.name], KINDS.index("copy"))
    result[trace.is_gemm_of_convolution] = KINDS.index("other")
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
