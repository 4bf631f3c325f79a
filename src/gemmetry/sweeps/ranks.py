"""The time of each kernel of a trace per step, by which ranks are compared with each other.

Reads one trace of a sweep, once, into the facts that the analysis uses.

In a trace with work on a GPU, GEMMs and communication are kernels. In a trace without, which a CPU
with gloo records, operators stand for kernels: the innermost operators that multiply, and the marks
``gloo:all_reduce`` that the process group leaves on its own threads.

Statistics of each GEMM of a rank: a kernel with a shape, over all its instances in a trace.

The sheet ``GEMM`` of a trace, small enough to travel between processes and to be kept for every
rank of a sweep.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from gemmetry.domain.errors import RequestError
from gemmetry.domain.tables import Table
from gemmetry.formats.events import Bools, Int64
from gemmetry.statistics.intervals import median
from gemmetry.sweeps.cause import cause_of, family_size
from gemmetry.sweeps.model import (
    CommunicationKernel,
    GemmInstances,
    KernelTimes,
    RankFacts,
    RankFile,
    StepFacts,
    TraceTimes,
)
from gemmetry.sweeps.rows import GemmKind, GemmStatistics
from gemmetry.traces.collectives.summary import Collective, collectives_of, operation_name
from gemmetry.traces.gemms import gemm_dtype, gemm_layout, link_gemms, quantile_of_sorted
from gemmetry.traces.joins import NONE, Intervals, covered, enclosing_among, subtract, union, within
from gemmetry.traces.model import Trace
from gemmetry.traces.names import KernelKind
from gemmetry.traces.operators.gemms import GemmShape, distinct_rows
from gemmetry.traces.operators.host import find_nesting, innermost_products
from gemmetry.traces.reading import read_trace
from gemmetry.traces.summary import find_steps, host_marks
from gemmetry.traces.timeline import operator_kind

MOST_KERNELS = 128
"""Number of kernels that are kept, those with the most time: the smallest of them then take less
than a hundredth of a step."""

_NAME_CHARACTERS = 60


def gpu_kernel_times(
    trace: Trace, is_counted: Bools, gemm_rows: Int64, gemm_kind: Int64, kinds: Sequence[GemmKind],
    step_of: Int64, steps: Sequence[StepFacts],
) -> KernelTimes:  # fmt: skip
    """Those of the GPU's rows that `is_counted` selects: GEMMs by kernel and shape, others by name.

    Args:
        gemm_rows: rows of the GEMMs, with the index of each one's kind in `gemm_kind`.
        step_of: number of each row's step.
    """
    gpu = trace.rows.gpu
    names = [name[:_NAME_CHARACTERS] for name in trace.rows.names]
    for index, known in trace.kernel_names.items():
        names[index] = known.short or names[index]
    texts = names + [f"{kind.short} {kind.shape}".rstrip() for kind in kinds]
    label = gpu.name.astype(np.int64)
    label[gemm_rows] = len(names) + gemm_kind
    chosen = np.flatnonzero(is_counted)
    return _summed(texts, label[chosen], gpu.duration_ns[chosen], step_of[chosen], steps)


def host_kernel_times(
    trace: Trace, is_compute: Bools, busy: Intervals, step_of: Int64,
    step_of_annotation: Int64, is_counted: Bools, steps: Sequence[StepFacts],
) -> KernelTimes:  # fmt: skip
    """Those of a trace without work on a GPU: self times of the operators that compute, and of
    annotations the time in which none runs.

    Args:
        is_compute: (operators,) whether it computes.
        busy: when any of them runs.
        step_of: number of each operator's step.
        is_counted: (annotations,) those on the host that are neither steps nor collectives.
    """
    rows = trace.rows
    own = find_nesting(rows.operators, trace.launches.parent).self_ns
    marks = rows.annotations
    alone = marks.duration_ns - covered(marks.start_ns, marks.duration_ns, busy)
    return _summed(
        rows.names,
        np.concatenate([rows.operators.name[is_compute], marks.name[is_counted]]).astype(np.int64),
        np.concatenate([own[is_compute], alone[is_counted]]),
        np.concatenate([step_of[is_compute], step_of_annotation[is_counted]]),
        steps,
    )


def _summed(
    texts: Sequence[str], label: Int64, duration: Int64, step: Int64, steps: Sequence[StepFacts]
) -> KernelTimes:
    """The largest sums of durations by text, in each step."""
    index = {one.number: place for place, one in enumerate(steps)}
    place = np.array([index.get(number, NONE) for number in step.tolist()], np.int64)
    inside = place != NONE
    used = np.unique(label[inside])
    names = {text: number for number, text in enumerate(dict.fromkeys(texts[i] for i in used))}
    number_of = np.zeros(len(texts), np.int64)
    number_of[used] = [names[texts[i]] for i in used]
    cell = place[inside] * len(names) + number_of[label[inside]]
    sums = np.bincount(cell, duration[inside], minlength=len(steps) * len(names))
    table = sums.astype(np.int64).reshape(len(steps), len(names))
    kept = np.argsort(-table.sum(axis=0), kind="stable")[:MOST_KERNELS]
    listed = list(names)
    return KernelTimes(tuple(listed[i] for i in kept), table[:, kept].tobytes())


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
    sizes = {} if shape is None else dict(zip(("m", "n", "k", "batch"), shape[:4], strict=True))
    return GemmKind(kernel=kernel, short=short, dtype=dtype, layout=layout, is_helper=is_helper,
                    **sizes)  # fmt: skip


def _communication(trace: Trace, peer: Bools, step_of: Int64) -> tuple[CommunicationKernel, ...]:
    rows, gpu = trace.rows, trace.rows.gpu
    found = [
        CommunicationKernel(
            collective=one,
            kernel=rows.names[gpu.name[one.row]],
            written=one.written or "",
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


def gemm_statistics(facts: RankFacts) -> tuple[GemmStatistics, ...]:
    """Of every GEMM of a trace, those with the most time first."""
    members = members_of(facts)
    family = family_size(facts, members)
    found = [_statistics(facts, index, chosen, family) for index, chosen in enumerate(members)]
    return tuple(sorted(found, key=lambda one: -one.sum_us))


def members_of(facts: RankFacts) -> list[Int64]:
    """The instances of each kind of GEMM, by start."""
    kind = facts.gemms.kind
    order = np.argsort(kind, kind="stable")
    counts = np.bincount(kind, minlength=len(facts.gemm_kinds))
    return np.split(order, np.cumsum(counts)[:-1]) if len(counts) else []


def _statistics(facts: RankFacts, index: int, chosen: Int64, family: int) -> GemmStatistics:
    duration, step = facts.gemms.duration_ns[chosen], facts.gemms.step[chosen]
    ordered = np.sort(duration) / 1000
    middle = quantile_of_sorted(ordered, 0.5)
    first = min((one.number for one in facts.steps), default=None)
    in_first, later = duration[step == first] if first is not None else [], duration[:0]
    if first is not None:
        later = duration[step > first]
    early = median(in_first) / 1000 if len(in_first) else None
    late = median(later) / 1000 if len(later) else None
    return GemmStatistics(
        kind=facts.gemm_kinds[index],
        index=index,
        count=len(ordered),
        sum_us=float(duration.sum()) / 1000,
        min_us=float(ordered[0]),
        max_us=float(ordered[-1]),
        median_us=middle,
        p5_us=quantile_of_sorted(ordered, 0.05),
        p95_us=quantile_of_sorted(ordered, 0.95),
        mad_us=quantile_of_sorted(np.sort(np.abs(ordered - middle)), 0.5),
        cv=float(ordered.std(ddof=1) / ordered.mean()) if len(ordered) > 1 else None,
        max_minus_min_us=float(ordered[-1] - ordered[0]),
        first_step_median_us=early,
        later_steps_median_us=late,
        first_step_ratio=early / late if early is not None and late else None,
        cause=cause_of(facts, facts.gemm_kinds[index], chosen, family),
    )


def packed_sheet(table: Table | None) -> bytes:
    """The rows of a table; b"" if there is none. Lists of kernels shrink to about a tenth."""
    if table is None or not table.rows:
        return b""
    return zlib.compress(msgspec.msgpack.encode((table.names, table.rows)), 1)


def gemm_rows(packed: bytes) -> list[dict[str, Any]]:
    """The rows, as dictionaries by the names of the columns."""
    if not packed:
        return []
    names, rows = msgspec.msgpack.decode(zlib.decompress(packed))
    return [dict(zip(names, row, strict=True)) for row in rows]
