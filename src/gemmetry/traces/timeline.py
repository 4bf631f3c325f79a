"""Data for drawing a trace: one lane per stream, with the work on it; without GPU work, one lane
per thread of the host, with the innermost operator at each moment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gemmetry.formats.events import MISSING, GpuKind, Int64
from gemmetry.traces.gemms import link_gemms, operator_shapes
from gemmetry.traces.joins import NONE
from gemmetry.traces.model import Trace
from gemmetry.traces.names import GEMM_KINDS, KernelKind
from gemmetry.traces.operators.gemms import GemmShape, Integers, distinct_rows, is_gemm_operator
from gemmetry.traces.operators.host import find_nesting, innermost_pieces

KINDS = ("gemm", "attention", "other", "communication", "copy")
"""Kinds of work; a kind's number is its index here."""

KIND_OF = {
    **dict.fromkeys(GEMM_KINDS, "gemm"),
    KernelKind.ATTENTION: "attention",
    KernelKind.COLLECTIVE: "communication",
}
"""Purpose of a kernel -> kind of work; all others are ``other``."""

_LOOKED_AT = 512
"""Characters of an operator's name that are read: searching a malicious one of 16,000 takes half a
second."""

MOST_EVENTS = 100_000
"""Number of pieces of work of one trace up to which each is drawn; beyond it, neighbours are
joined."""

JOINED_PARTS = 20_000
"""Neighbours of one kind are joined where the gap between them is below this share of the window:
five times narrower than a pixel of a large screen."""

_COMMUNICATION = re.compile(r"\A(?:c10d::|nccl:|gloo:|mpi:|ucc:|record_param_comms)")
_ATTENTION = re.compile(
    r"(?i:attn|attention|fmha)\w*(?i:backward|bwd)|(?i:::\w*(?:flash_attn|attention|fmha|mha_))"
)
_COPY = re.compile(r"\Aaten::(?:copy_|_to_copy|to|clone|contiguous|fill_|zero_)\Z")


class Work(NamedTuple):
    """Properties shared by pieces of work."""

    name: str
    operator: str = ""
    """Operator that launched it; "" where it is not known, and for an operator itself."""
    shape: GemmShape | None = None
    """The shape of a product; None for other work."""
    inferred: bool = False
    """The shape comes from other instances (:mod:`~gemmetry.traces.gemms`)."""
    is_alone: bool = False
    """All FLOPs of the shape belong to this piece."""


@dataclass(frozen=True, slots=True)
class TimelineLane:
    """The work of one stream or thread, by start."""

    file: str
    rank: int | None
    device: int
    """Device; like `stream`, -1 for a thread of the host."""
    stream: int
    start_ns: Int64
    """Start, in ns since 1970 where the trace records the origin of its times."""
    duration_ns: Int64
    kind: Int64
    """Indices into :data:`KINDS`."""
    work: Int64
    """Indices into `works`."""
    row: Int64
    """Row of ``TraceRows.gpu`` of each piece, or of the first one that it represents; -1 for an
    operator of the host."""
    count: Int64
    """Number of pieces of work that each represents."""
    works: tuple[Work, ...]
    thread: str = ""
    """Process and thread of the host, as written in the trace; "" for a stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pieces:
    """Pieces of work of one trace."""

    device: Integers
    stream: Integers
    thread: Integers
    """Index into ``TraceRows.threads``; -1 for work on a stream, as the others for a thread."""
    start_ns: Int64
    duration_ns: Int64
    kind: Int64
    row: Int64
    about: Int64
    """(pieces, 5) names of the piece and its operator, shape, inferred, alone; numbers of texts
    and shapes, -1: none."""
    shapes: Sequence[GemmShape]
    short: Mapping[int, str]
    """Readable forms of names."""


def trace_lanes(trace: Trace, rank: int | None) -> list[TimelineLane]:
    """The lanes of `trace`, those with the most time first within a device."""
    pieces = _of_streams(trace) if trace.has_gpu_work else _of_threads(trace)
    # Largest gap in ns at which neighbours are joined; -1: they are not joined.
    gap = -1
    if len(pieces.start_ns) > MOST_EVENTS:
        window = int((pieces.start_ns + pieces.duration_ns).max() - pieces.start_ns.min())
        gap = window // JOINED_PARTS
    places, which = distinct_rows(pieces.device, pieces.stream, pieces.thread)
    lanes = [
        _lane(trace, rank, place, pieces, np.flatnonzero(which == number), gap)
        for number, place in enumerate(places.tolist())
    ]
    return sorted(lanes, key=lambda lane: (lane.device, -int(lane.duration_ns.sum())))


def operator_kind(name: str) -> str:
    """The kind of work of an operator of the host, one of :data:`KINDS`."""
    if is_gemm_operator(name):
        return "gemm"
    if _COMMUNICATION.search(name):
        return "communication"
    if _COPY.search(name):
        return "copy"
    return "attention" if _ATTENTION.search(name[:_LOOKED_AT]) else "other"


def _of_streams(trace: Trace) -> _Pieces:
    gpu, operators, launches = trace.rows.gpu, trace.rows.operators, trace.launches
    links = link_gemms(trace)
    operator = np.where(launches.from_graph, NONE, launches.operator)
    operator[links.row] = np.where(links.operator == NONE, operator[links.row], links.operator)
    about = np.full((len(gpu.name), 5), NONE, np.int64)
    about[:, 0] = gpu.name
    about[:, 1] = np.append(operators.name, NONE)[operator]
    about[links.row, 2] = links.shape
    about[links.row, 3] = links.inferred
    about[links.row, 4] = links.is_alone
    row = np.arange(len(gpu.name))
    return _Pieces(
        device=gpu.device, stream=gpu.stream, thread=np.full_like(row, MISSING),
        start_ns=gpu.start_ns, duration_ns=gpu.duration_ns, kind=_kinds(trace), row=row,
        about=about, shapes=links.shapes,
        short={i: facts.short for i, facts in trace.kernel_names.items() if facts.short},
    )  # fmt: skip


def _of_threads(trace: Trace) -> _Pieces:
    rows, operators = trace.rows, trace.rows.operators
    found = innermost_pieces(operators, find_nesting(operators, trace.launches.parent))
    of_name = np.array([KINDS.index(operator_kind(name)) for name in rows.names], np.int64)
    name = operators.name[found.operator].astype(np.int64)
    shapes, shape_of = operator_shapes(rows)
    about = np.full((len(name), 5), NONE, np.int64)
    about[:, 0] = name
    about[:, 2] = shape_of[found.operator]
    nowhere = np.full(len(name), NONE)
    return _Pieces(
        device=nowhere, stream=nowhere, thread=operators.thread[found.operator],
        start_ns=found.start_ns, duration_ns=found.duration_ns, kind=of_name[name], row=nowhere,
        about=about, shapes=shapes, short={},
    )  # fmt: skip


def _lane(
    trace: Trace, rank: int | None, place: list[int], pieces: _Pieces, chosen: Int64, gap: int
) -> TimelineLane:
    """The lane of the `chosen` pieces; `place` gives device, stream and thread."""
    device, stream, thread = place
    chosen = chosen[np.argsort(pieces.start_ns[chosen], kind="stable")]
    start, duration = pieces.start_ns[chosen], pieces.duration_ns[chosen]
    kind, names = pieces.kind[chosen], trace.rows.names
    parts = _joined(start, duration, kind, gap)
    distinct, work = distinct_rows(*pieces.about[chosen[parts]].T)
    works = tuple(
        Work(
            pieces.short.get(name, names[name]),
            names[operator] if operator != NONE else "",
            pieces.shapes[shape] if shape != NONE else None,
            inferred > 0,
            is_alone > 0,
        )
        for name, operator, shape, inferred, is_alone in distinct.tolist()
    )
    return TimelineLane(
        file=str(trace.file),
        rank=rank,
        device=device,
        stream=stream,
        start_ns=start[parts] + trace.rows.base_ns,
        duration_ns=np.maximum.reduceat(start + duration, parts) - start[parts],
        kind=kind[parts],
        work=work,
        row=pieces.row[chosen[parts]],
        count=np.diff(np.append(parts, len(chosen))),
        works=works,
        thread=trace.rows.threads[thread] if thread != MISSING else "",
    )


def _kinds(trace: Trace) -> Int64:
    gpu = trace.rows.gpu
    of_name = np.zeros(len(trace.rows.names) + 1, np.int64)
    for index, facts in trace.kernel_names.items():
        of_name[index] = KINDS.index(KIND_OF.get(facts.kind, "other"))
    result: Int64 = np.where(gpu.kind == GpuKind.KERNEL, of_name[gpu.name], KINDS.index("copy"))
    result[trace.is_gemm_of_convolution] = KINDS.index("other")
    return result


def _joined(start: Int64, duration: Int64, kind: Int64, gap: int) -> Int64:
    """Mask of starts of new pieces; every piece where `gap` is negative."""
    if gap < 0:
        return np.arange(len(start))
    reached = np.maximum.accumulate(start + duration)
    # A piece longer than the gap is never joined.
    begins = duration > gap
    begins[1:] |= begins[:-1].copy() | (kind[1:] != kind[:-1]) | (start[1:] - reached[:-1] > gap)
    begins[:1] = True
    return np.flatnonzero(begins)
