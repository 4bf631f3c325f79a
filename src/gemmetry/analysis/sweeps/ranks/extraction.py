"""Reads one trace of a sweep, once, into the facts that the analysis uses.

In a trace with work on a GPU, GEMMs and communication are kernels. In a trace without, which a CPU
with gloo records, operators stand for kernels: the innermost operators that multiply, and the marks
``gloo:all_reduce`` that the process group leaves on its own threads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gemmetry.analysis.sweeps.model import (
    CommunicationKernel,
    GemmInstances,
    GemmKind,
    KernelTimes,
    RankFacts,
    RankFile,
    StepFacts,
    TraceTimes,
)
from gemmetry.analysis.sweeps.ranks.kernel_times import gpu_kernel_times, host_kernel_times
from gemmetry.domain.errors import RequestError
from gemmetry.formats.events import Bools, Int64
from gemmetry.kernel_names import KernelKind
from gemmetry.traces.collectives.summary import Collective, collectives_of, operation_name
from gemmetry.traces.gemms.joins import NONE
from gemmetry.traces.gemms.links import link_gemms
from gemmetry.traces.gemms.summary import gemm_dtype, gemm_layout
from gemmetry.traces.intervals import Intervals, covered, subtract, union, within
from gemmetry.traces.model import Trace
from gemmetry.traces.operators.gemms import GemmShape
from gemmetry.traces.operators.grouped import distinct_rows
from gemmetry.traces.operators.host import innermost_products
from gemmetry.traces.operators.launchers import enclosing_among
from gemmetry.traces.reading import read_trace
from gemmetry.traces.steps import find_steps, host_marks
from gemmetry.traces.timeline import operator_kind
from gemmetry.traces.tracelens.collectives import communication_names, written_name

_PEER_COPY = re.compile(r"\bPtoP\b")
"""Copies between GPUs, as CUPTI and roctracer name them: what a collective on copy engines is."""
_LOCAL_COPY = re.compile(r"\bDtoD\b")

_COLLECTIVE_OPERATOR = "record_param_comms"
"""The operator in which PyTorch launches a collective."""

_HOST_COLLECTIVE = re.compile(r"\A(?:gloo|mpi|ucc|nccl):(\w+)")

_NO_SIZE = (0, 0, 0)


def read_facts(file: RankFile) -> tuple[Trace, RankFacts]:
    """The trace of one rank, and its facts.

    Raises:
        RequestError: the file is not a trace, or contains those of several ranks.
    """
    rows = read_trace(file.path, use_cache=False)
    if rows.parts:
        names = ", ".join(part.name for part in rows.parts[:4])
        raise RequestError(
            f"{file.path} contains the traces of {len(rows.parts)} processes ({names} ...)",
            hint="A sweep has a file for each rank; gemmetry trace summary reads such a file.",
        )
    trace = Trace(file.path, rows)
    return trace, facts_of(trace, file)


def facts_of(trace: Trace, file: RankFile) -> RankFacts:
    """The facts of `trace`, which is that of `file`."""
    rows = trace.rows
    rank, source = (rows.rank, "trace") if rows.rank is not None else (file.rank, file.rank_source)
    problems = [str(problem) for problem in rows.problems]
    if rows.rank is not None and file.rank is not None and rows.rank != file.rank:
        problems.append(f"the trace is of rank {rows.rank}, its path of rank {file.rank}")
    parts = _on_gpu(trace) if trace.has_gpu_work else _on_host(trace)
    return RankFacts(
        file=str(file.path),
        rank=rank,
        rank_source=source,
        process=_process(trace),
        world_size=rows.world_size,
        job=rows.job,
        host=rows.host,
        device=_device(trace),
        gpus_of_node=len(rows.devices),
        on_gpu=trace.has_gpu_work,
        versions=rows.versions,
        events=rows.events,
        base_ns=rows.base_ns,
        span=_span(trace),
        partial=rows.partial,
        problems=tuple(problems),
        times=parts.times,
        steps=parts.steps,
        gemm_kinds=parts.kinds,
        gemms=parts.gemms,
        communication=parts.communication,
        kernel_times=parts.kernel_times,
    )


class _Parts(NamedTuple):
    """What differs between traces with and without work on a GPU."""

    times: TraceTimes
    steps: tuple[StepFacts, ...]
    kinds: tuple[GemmKind, ...]
    gemms: GemmInstances
    communication: tuple[CommunicationKernel, ...]
    kernel_times: KernelTimes


class _Lanes(NamedTuple):
    """When each kind of work runs."""

    compute: Intervals
    comm: Intervals
    copies: Intervals
    any: Intervals


def _process(trace: Trace) -> int | None:
    """The process of the first thread that called the GPU's library, or ran an operator."""
    rows = trace.rows
    for threads in (rows.calls.thread, rows.operators.thread):
        if len(threads):
            number = rows.threads[int(threads[0])].partition("/")[0]
            return int(number) if number.isdecimal() else None
    return None


def _device(trace: Trace) -> str:
    devices = np.unique(trace.rows.gpu.device).tolist()
    return ", ".join(sorted({trace.device_name(device) for device in devices} - {""}))


def _span(trace: Trace) -> tuple[int, int]:
    gpu = trace.rows.gpu
    if not len(gpu.start_ns):
        return 0, 0
    end = int((gpu.start_ns + gpu.duration_ns).max())
    return trace.rows.base_ns + int(gpu.start_ns.min()), trace.rows.base_ns + end


def _on_gpu(trace: Trace) -> _Parts:
    gpu = trace.rows.gpu
    peer = _peer_copies(trace)
    is_comm = trace.is_communication | peer
    is_copy = trace.is_copy & ~peer
    lanes = _Lanes(
        trace.time_of(~is_copy & ~is_comm),
        trace.time_of(is_comm),
        trace.time_of(is_copy),
        trace.time_of(np.ones(len(gpu.name), bool)),
    )
    step_of = np.full(len(gpu.name), NONE, np.int64)
    steps = []
    for step in find_steps(trace):
        step_of[step.rows] = step.number
        window = (step.start_ns, step.end_ns)
        steps.append(_step(trace, step.number, window, step.source, lanes))
    links = link_gemms(trace)
    order = np.argsort(gpu.start_ns[links.row], kind="stable")
    row, shape = links.row[order], links.shape[order]
    distinct, kind = distinct_rows(gpu.name[row], shape)
    kinds = tuple(
        _kernel_kind(trace, name, links.shapes[at] if at != NONE else None)
        for name, at in distinct.tolist()
    )
    communication = _communication(trace, peer, step_of)
    gemms = _instances(trace, kind, gpu.start_ns[row], gpu.duration_ns[row], step_of[row],
                       lanes.comm, communication)  # fmt: skip
    kernel_times = gpu_kernel_times(trace, ~is_comm, row, kind, kinds, step_of, steps)
    return _Parts(_times(trace), tuple(steps), kinds, gemms, communication, kernel_times)


def _peer_copies(trace: Trace) -> Bools:
    """Copies that are communication: those between GPUs according to their names, and those within
    a device that a collective without a kernel launched, as memory of other GPUs may be mapped."""
    rows, launches = trace.rows, trace.launches
    between = np.array([bool(_PEER_COPY.search(name)) for name in rows.names] or [False], bool)
    local = np.array([bool(_LOCAL_COPY.search(name)) for name in rows.names] or [False], bool)
    result: Bools = trace.is_copy & between[rows.gpu.name]
    candidates = np.flatnonzero(trace.is_copy & local[rows.gpu.name])
    is_collective = np.array([name == _COLLECTIVE_OPERATOR for name in rows.names], bool)
    if not len(candidates) or not is_collective[rows.operators.name].any():
        return result
    operators = np.arange(len(rows.operators.name))
    number = np.where(is_collective[rows.operators.name], operators, NONE)
    origin = enclosing_among(launches.operator, launches.parent, number)
    with_kernel = np.unique(origin[trace.is_communication])
    chosen = origin[candidates]
    result[candidates[(chosen != NONE) & ~np.isin(chosen, with_kernel)]] = True
    return result


def _step(
    trace: Trace, number: int, window: tuple[int, int], source: str, lanes: _Lanes
) -> StepFacts:
    inside = _Lanes._make(within(lane, *window) for lane in lanes)
    exposed_copies = subtract(subtract(inside.copies, inside.compute), inside.comm)
    return StepFacts(
        number=number,
        start_ns=trace.rows.base_ns + window[0],
        end_ns=trace.rows.base_ns + window[1],
        source=source,
        compute_ns=inside.compute.length,
        exposed_comm_ns=subtract(inside.comm, inside.compute).length,
        exposed_copy_ns=exposed_copies.length,
        idle_ns=window[1] - window[0] - inside.any.length,
        comm_ns=inside.comm.length,
    )


def _times(trace: Trace) -> TraceTimes:
    """Those of TraceLens' ``gpu_timeline``, which counts all copies as copies."""
    gpu, is_copy, is_comm = trace.rows.gpu, trace.is_copy, trace.is_communication
    compute, comm = trace.time_of(~is_copy & ~is_comm), trace.time_of(is_comm)
    copies, busy = trace.time_of(is_copy), trace.time_of(np.ones(len(is_copy), bool)).length
    window = int((gpu.start_ns + gpu.duration_ns).max() - gpu.start_ns.min())
    return TraceTimes(
        window_ns=window,
        busy_ns=busy,
        compute_ns=compute.length,
        comm_ns=comm.length,
        exposed_comm_ns=subtract(comm, compute).length,
        copy_ns=copies.length,
        exposed_copy_ns=subtract(subtract(copies, compute), comm).length,
        idle_ns=window - busy,
    )


def _kernel_kind(trace: Trace, name: int, shape: GemmShape | None) -> GemmKind:
    kernel, facts = trace.rows.names[name], trace.kernel_names[name]
    is_helper = facts.kind is KernelKind.GEMM_REDUCTION
    return _kind(kernel, facts.short, shape, gemm_dtype(shape, facts), gemm_layout(shape, facts),
                 is_helper=is_helper)  # fmt: skip


def _kind(
    kernel: str,
    short: str,
    shape: GemmShape | None,
    dtype: str | None,
    layout: str | None,
    *,
    is_helper: bool = False,
) -> GemmKind:
    m, n, k, batch = shape[:4] if shape is not None else (None,) * 4
    return GemmKind(kernel, short, m, n, k, batch, dtype, layout, is_helper)


def _communication(trace: Trace, peer: Bools, step_of: Int64) -> tuple[CommunicationKernel, ...]:
    rows, gpu, names = trace.rows, trace.rows.gpu, communication_names(trace)
    found = [
        CommunicationKernel(
            collective=one,
            kernel=rows.names[gpu.name[one.row]],
            written=written_name(one, names) or "",
            grid=_three(gpu.grid[one.row].tolist()),
            block=_three(gpu.block[one.row].tolist()),
            step=int(step_of[one.row]),
        )
        for one in (*collectives_of(trace), *_copies(trace, np.flatnonzero(peer)))
    ]
    return tuple(sorted(found, key=lambda one: one.collective.start_ns))


def _three(sizes: Sequence[int]) -> tuple[int, int, int]:
    return sizes[0], sizes[1], sizes[2]


def _copies(trace: Trace, rows: Int64) -> list[Collective]:
    """Copies between GPUs, as collectives of bytes with the operation ``copy``."""
    gpu = trace.rows.gpu
    sizes = [size if size >= 0 else None for size in gpu.bytes[rows].tolist()]
    return [
        _bare_collective(
            row, "copy", trace.rows.names[gpu.name[row]], int(gpu.stream[row]),
            trace.rows.base_ns + int(gpu.start_ns[row]), int(gpu.duration_ns[row]), size,
        )
        for row, size in zip(rows.tolist(), sizes, strict=True)
    ]  # fmt: skip


def _bare_collective(
    row: int,
    op: str | None,
    name: str,
    stream: int,
    start_ns: int,
    duration_ns: int,
    size: int | None = None,
) -> Collective:
    return Collective(
        row=row,
        op=op,
        dtype=None if size is None else "Byte",
        elements=size,
        in_elements=size,
        out_elements=size,
        group=None,
        algorithm=None,
        protocol=None,
        source="name",
        name=name,
        stream=stream,
        device=0,
        start_ns=start_ns,
        duration_ns=duration_ns,
    )


def _instances(
    trace: Trace,
    kind: Int64,
    start: Int64,
    duration: Int64,
    step: Int64,
    comm: Intervals,
    communication: Sequence[CommunicationKernel],
) -> GemmInstances:
    """GEMMs by start, next to the time of communication; `start` as in the trace."""
    base = trace.rows.base_ns
    pairs = _pairs(start + base, duration, communication)
    columns = (kind, start + base, duration, covered(start, duration, comm), step, pairs)
    return GemmInstances(*(column.astype(np.int64).tobytes() for column in columns))


def _pairs(start: Int64, duration: Int64, communication: Sequence[CommunicationKernel]) -> Int64:
    """:attr:`GemmInstances.overlapping` of GEMMs by start."""
    end = start + duration
    # GEMMs of several streams may end in another order than they begin.
    reached = np.maximum.accumulate(end) if len(end) else end
    found = [np.zeros((0, 3), np.int64)]
    for index, one in enumerate(communication):
        begin, until = one.collective.start_ns, one.collective.end_ns
        first = int(np.searchsorted(reached, begin, side="right"))
        last = int(np.searchsorted(start, until, side="left"))
        both = np.minimum(end[first:last], until) - np.maximum(start[first:last], begin)
        chosen = np.flatnonzero(both > 0)
        number = np.full(len(chosen), index)
        found.append(np.column_stack([chosen + first, number, both[chosen]]))
    return np.concatenate(found)


def _on_host(trace: Trace) -> _Parts:
    rows, operators = trace.rows, trace.rows.operators
    marks = host_marks(trace)
    collectives = _host_collectives(trace, marks)
    comm = union(
        np.array([one.collective.start_ns - rows.base_ns for one in collectives], np.int64),
        np.array([one.collective.duration_ns for one in collectives], np.int64),
    )
    kinds_of_names = [operator_kind(name) for name in rows.names]
    is_compute = np.array([kind != "communication" for kind in kinds_of_names] or [False], bool)
    chosen = is_compute[operators.name]
    compute = union(operators.start_ns[chosen], operators.duration_ns[chosen])
    nothing = union(np.zeros(0, np.int64), np.zeros(0, np.int64))
    both = union(
        np.concatenate([compute.start, comm.start]),
        np.concatenate([compute.end - compute.start, comm.end - comm.start]),
    )
    lanes = _Lanes(compute, comm, nothing, both)
    steps = tuple(_step(trace, number, (start, end), "host", lanes) for number, start, end in marks)
    shapes, shape_of = innermost_products(trace)
    row = np.flatnonzero(shape_of != NONE)
    row = row[np.argsort(operators.start_ns[row], kind="stable")]
    distinct, kind = distinct_rows(operators.name[row], shape_of[row])
    kinds = tuple(
        _kind(rows.names[name], rows.names[name], shapes[at], shapes[at].dtype, shapes[at].layout)
        for name, at in distinct.tolist()
    )
    start = operators.start_ns[row]
    gemms = _instances(trace, kind, start, operators.duration_ns[row], _in_marks(start, marks),
                       comm, collectives)  # fmt: skip
    marked = rows.annotations
    is_named = np.array([_is_plain(name) for name in rows.names] or [False], bool)
    kernel_times = host_kernel_times(
        trace, chosen, compute, _in_marks(operators.start_ns, marks),
        _in_marks(marked.start_ns, marks), is_named[marked.name] & (marked.on_gpu == 0), steps,
    )  # fmt: skip
    return _Parts(TraceTimes(), steps, kinds, gemms, collectives, kernel_times)


def _is_plain(annotation: str) -> bool:
    """Whether it marks neither a step nor a collective."""
    return not annotation.startswith("ProfilerStep") and not _HOST_COLLECTIVE.match(annotation)


def _host_collectives(
    trace: Trace, marks: Sequence[tuple[int, int, int]]
) -> tuple[CommunicationKernel, ...]:
    rows, annotations = trace.rows, trace.rows.annotations
    found = [_HOST_COLLECTIVE.match(name) for name in rows.names]
    named = np.array([one is not None for one in found] or [False], bool)
    chosen = np.flatnonzero(named[annotations.name] & (annotations.on_gpu == 0))
    chosen = chosen[np.argsort(annotations.start_ns[chosen], kind="stable")]
    steps = _in_marks(annotations.start_ns[chosen], marks).tolist()
    return tuple(
        CommunicationKernel(
            collective=_bare_collective(
                row, operation_name(name), name, int(annotations.thread[row]),
                rows.base_ns + int(annotations.start_ns[row]), int(annotations.duration_ns[row]),
            ),
            kernel=name,
            written=operation_name(name) or "",
            grid=_NO_SIZE,
            block=_NO_SIZE,
            step=step,
        )
        for row, step in zip(chosen.tolist(), steps, strict=True)
        for name in (rows.names[annotations.name[row]],)
    )  # fmt: skip


def _in_marks(moments: Int64, marks: Sequence[tuple[int, int, int]]) -> Int64:
    """Number of the step that contains each of `moments`; -1: none."""
    result = np.full(len(moments), NONE, np.int64)
    for number, start, end in marks:
        result[(moments >= start) & (moments < end)] = number
    return result
