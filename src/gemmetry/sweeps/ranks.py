"""The facts of one trace of a sweep, and how they are read from it.

Facts (:class:`RankFacts`) are read once, by a worker process, and everything else is computed from
them. They hold arrays, which travel between processes as bytes (:func:`plain`), so that a thousand
ranks fit into memory.

In a trace with work on a GPU, GEMMs and communication are kernels. In a trace without, which a CPU
with gloo records, operators stand for kernels: the innermost operators that multiply, and the marks
``gloo:all_reduce`` that the process group leaves on its own threads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from gemmetry.domain.errors import RequestError
from gemmetry.formats.events import AnnotationRows, Bools, GpuRows, Int64
from gemmetry.sweeps.folder import RankFile
from gemmetry.sweeps.rows import GemmKind
from gemmetry.traces.collectives.summary import Collective, operation_name
from gemmetry.traces.gemms import gemm_dtype, gemm_layout, link_gemms
from gemmetry.traces.jobs import rank_trace
from gemmetry.traces.joins import NONE, Intervals, covered, enclosing_among, subtract, union, within
from gemmetry.traces.model import Trace
from gemmetry.traces.names import KernelKind
from gemmetry.traces.operators.gemms import distinct_rows
from gemmetry.traces.operators.host import find_nesting, innermost_products
from gemmetry.traces.reading import read_trace
from gemmetry.traces.summary import find_steps, host_marks
from gemmetry.traces.timeline import operator_kind

Marks = Sequence[tuple[int, int, int]]
"""Number, start and end of steps."""

MOST_KERNELS = 128
"""Number of kernels that are kept, those with the most time: the smallest of them then take less
than a hundredth of a step."""

_NAME_CHARACTERS = 60

_PEER_COPY = re.compile(r"\bPtoP\b")
"""Copies between GPUs, as CUPTI and roctracer name them: what a collective on copy engines is."""
_LOCAL_COPY = re.compile(r"\bDtoD\b")

_COLLECTIVE_OPERATOR = "record_param_comms"
"""The operator in which PyTorch launches a collective."""

_HOST_COLLECTIVE = re.compile(r"\A(?:gloo|mpi|ucc|nccl):(\w+)")


_NOTHING = np.zeros(0, np.int64)


def plain(value: Any) -> bytes | str:
    """An array or a path as a message between processes holds it."""
    return value.tobytes() if isinstance(value, np.ndarray) else str(value)


def typed(kind: Any, value: Any) -> Any:
    """The inverse of :func:`plain` for a value of type `kind`."""
    return Path(value) if kind is Path else np.frombuffer(value, np.int64)


class GemmInstances(msgspec.Struct, frozen=True, eq=False):
    """The GEMMs of a trace by start."""

    kind: Int64 = _NOTHING
    """Indices into :attr:`RankFacts.gemm_kinds`."""
    start_ns: Int64 = _NOTHING
    """Start, in ns since 1970 where the trace records the origin of its times."""
    duration_ns: Int64 = _NOTHING
    overlap_ns: Int64 = _NOTHING
    """Part of the duration during which communication ran on the same device."""
    step: Int64 = _NOTHING
    """Number of the step; -1: in no step."""
    pairs: Int64 = _NOTHING

    @property
    def overlapping(self) -> Int64:
        """(pairs, 3) index of a GEMM, index into :attr:`RankFacts.communication`, and the ns during
        which both ran."""
        return self.pairs.reshape(-1, 3)

    def __len__(self) -> int:
        return len(self.kind)


class StepFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a rank: its window on the GPU, and what ran on the device within it, in ns.

    The window is from the first start to the last end of the step's work (``traces/summary.py``);
    in a trace without work on a GPU it is the profiler's mark on the host. Compute, exposed
    communication, exposed copies and idle add up to the window exactly."""

    number: int
    start_ns: int
    """Start, like `end_ns` in ns since 1970 where the trace records the origin of its times."""
    end_ns: int
    compute_ns: int
    """Time in which anything computes: kernels that do not communicate, and fills."""
    exposed_comm_ns: int
    """Time in which communication runs and nothing computes."""
    exposed_copy_ns: int
    """Time in which copies run and nothing else."""
    idle_ns: int

    @property
    def window_ns(self) -> int:
        """Length of the step."""
        return self.end_ns - self.start_ns

    @property
    def busy_ns(self) -> int:
        """Time in which anything runs. In the rest of the longest window of any rank, this rank is
        idle: its own window is shorter if its first work is late."""
        return self.window_ns - self.idle_ns


class CommunicationKernel(msgspec.Struct, frozen=True, kw_only=True):
    """One communication kernel, a copy between GPUs, or an operator that communicates on the
    host."""

    collective: Collective
    """Data and time of the communication. A copy between GPUs has the operation ``copy``."""
    kernel: str
    """Full name."""
    written: str = ""
    """The operation as the trace names it (``_allgather_base``), else as PyTorch would; "" where it
    is not known."""
    grid: tuple[int, int, int]
    """Thread blocks; (0, 0, 0) where it is not known."""
    block: tuple[int, int, int]
    """Threads of a block; (0, 0, 0) where it is not known."""
    step: int
    """Number of the step; -1: in no step."""


class KernelTimes(msgspec.Struct, frozen=True, eq=False):
    """The time of each kernel in each step, without communication; of operators and annotations in
    a trace without work on a GPU."""

    names: tuple[str, ...] = ()
    """Readable forms; GEMMs with their shape."""
    sums: Int64 = _NOTHING

    @property
    def per_step(self) -> Int64:
        """(steps, kernels) in ns, by :attr:`RankFacts.steps` and :attr:`names`."""
        return self.sums.reshape(-1, len(self.names)) if self.names else self.sums.reshape(0, 0)


class RankFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the analysis of a sweep uses of one trace."""

    file: str
    rank: int | None
    """Rank from the trace, else from the path."""
    rank_source: str
    """``trace``, ``name`` or ""."""
    process: int | None = None
    """Number of the process in its operating system."""
    world_size: int | None
    job: str | None
    host: str | None
    device: str
    """Product name of the GPU; "" where it is not known."""
    gpus_of_node: int = 0
    """GPUs of the node that the trace lists; 0: it lists none."""
    on_gpu: bool
    """Whether the trace has work on a GPU; otherwise times are those of operators on the host."""
    versions: dict[str, str]
    """Versions recorded in the trace, by their keys there (``nccl_version`` ...)."""
    base_ns: int
    span: tuple[int, int]
    """First start and last end of work on GPUs, ns; (0, 0) without any."""
    partial: bool
    """Events are missing: the file ends early, or some of it cannot be read."""
    problems: tuple[str, ...]
    times: dict[str, int]
    """Row of TraceLens' ``gpu_timeline`` -> time of the whole trace in ns, as ``traces/summary.py``
    defines it; {} without work on a GPU."""
    steps: tuple[StepFacts, ...]
    gemm_kinds: tuple[GemmKind, ...]
    gemms: GemmInstances
    communication: tuple[CommunicationKernel, ...]
    """Communication kernels by start."""
    kernel_times: KernelTimes = KernelTimes()


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
    of_path = (file.rank, "" if file.rank is None else "name")
    rank, source = (rows.rank, "trace") if rows.rank is not None else of_path
    problems = [str(problem) for problem in rows.problems]
    if rows.rank is not None and file.rank is not None and rows.rank != file.rank:
        problems.append(f"the trace is of rank {rows.rank}, its path of rank {file.rank}")
    devices = {trace.device_name(device) for device in np.unique(rows.gpu.device).tolist()}
    found = rank_trace(trace)
    same = ("world_size", "job", "host", "base_ns", "span", "partial")
    return RankFacts(
        file=str(file.path),
        rank=rank,
        rank_source=source,
        process=_process(trace),
        device=", ".join(sorted(devices - {""})),
        gpus_of_node=found.devices,
        on_gpu=trace.has_gpu_work,
        versions=rows.versions,
        problems=tuple(problems),
        **{name: getattr(found, name) for name in same},
        **(_on_gpu(trace, found.collectives) if trace.has_gpu_work else _on_host(trace)),
    )


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


def _on_gpu(trace: Trace, collectives: Sequence[Collective]) -> dict[str, Any]:
    """What differs between traces with and without work on a GPU: GEMMs by kernel and shape, other
    kernels by name."""
    rows, gpu = trace.rows, trace.rows.gpu
    peer = _peer_copies(trace)
    is_comm = trace.is_communication | peer
    is_copy = trace.is_copy & ~peer
    lanes = _Lanes(
        trace.time_of(~is_copy & ~is_comm), trace.time_of(is_comm), trace.time_of(is_copy),
        trace.time_of(np.ones(len(gpu.name), bool)),
    )  # fmt: skip
    step_of = np.full(len(gpu.name), NONE, np.int64)
    steps = []
    for step in find_steps(trace):
        step_of[step.rows] = step.number
        steps.append(_step(trace, step.number, (step.start_ns, step.end_ns), lanes))
    links = link_gemms(trace)
    order = np.argsort(gpu.start_ns[links.row], kind="stable")
    row, shape = links.row[order], links.shape[order]
    distinct, kind = distinct_rows(gpu.name[row], shape)
    kinds = []
    for name, at in distinct.tolist():
        facts, found = trace.kernel_names[name], links.shapes[at] if at != NONE else None
        kinds.append(GemmKind.of_shape(
            found, kernel=rows.names[name], short=facts.short, dtype=gemm_dtype(found, facts),
            layout=gemm_layout(found, facts), is_helper=facts.kind is KernelKind.GEMM_REDUCTION,
        ))  # fmt: skip
    communication = _communication(trace, collectives, peer, step_of)
    short = [name[:_NAME_CHARACTERS] for name in rows.names]
    for index, known in trace.kernel_names.items():
        short[index] = known.short or short[index]
    label = gpu.name.astype(np.int64)
    label[row] = len(short) + kind
    texts = short + [f"{one.short} {one.shape}".rstrip() for one in kinds]
    counted = ~is_comm
    return {
        "times": _times(trace), "steps": tuple(steps), "gemm_kinds": tuple(kinds),
        "gemms": _instances(trace, kind, gpu.start_ns[row], gpu.duration_ns[row], step_of[row],
                            lanes.comm, communication),
        "communication": communication,
        "kernel_times": _summed(texts, label[counted], gpu.duration_ns[counted], step_of[counted],
                                steps),
    }  # fmt: skip


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


def _step(trace: Trace, number: int, window: tuple[int, int], lanes: _Lanes) -> StepFacts:
    inside = _Lanes._make(within(lane, *window) for lane in lanes)
    return StepFacts(
        number=number,
        start_ns=trace.rows.base_ns + window[0],
        end_ns=trace.rows.base_ns + window[1],
        compute_ns=inside.compute.length,
        exposed_comm_ns=subtract(inside.comm, inside.compute).length,
        exposed_copy_ns=subtract(subtract(inside.copies, inside.compute), inside.comm).length,
        idle_ns=window[1] - window[0] - inside.any.length,
    )


def _times(trace: Trace) -> dict[str, int]:
    """:attr:`RankFacts.times`, in which all copies count as copies."""
    gpu, is_copy, is_comm = trace.rows.gpu, trace.is_copy, trace.is_communication
    compute, comm = trace.time_of(~is_copy & ~is_comm), trace.time_of(is_comm)
    copies, busy = trace.time_of(is_copy), trace.time_of(np.ones(len(is_copy), bool)).length
    window = int((gpu.start_ns + gpu.duration_ns).max() - gpu.start_ns.min())
    return {
        "computation_time": compute.length,
        "exposed_comm_time": subtract(comm, compute).length,
        "exposed_memcpy_time": subtract(subtract(copies, compute), comm).length,
        "busy_time": busy,
        "idle_time": window - busy,
        "total_time": window,
        "total_comm_time": comm.length,
        "total_memcpy_time": copies.length,
    }


def _communication(
    trace: Trace, collectives: Sequence[Collective], peer: Bools, step_of: Int64
) -> tuple[CommunicationKernel, ...]:
    """The collectives, and copies between GPUs as collectives of bytes with the operation ``copy``,
    by start."""
    rows, gpu = trace.rows, trace.rows.gpu
    copies = [
        _bare_collective(
            trace, gpu, row, op="copy", stream=int(gpu.stream[row]),
            size=size if size >= 0 else None,
        )
        for row in np.flatnonzero(peer).tolist()
        for size in (int(gpu.bytes[row]),)
    ]  # fmt: skip
    found = [
        CommunicationKernel(
            collective=one,
            kernel=rows.names[gpu.name[one.row]],
            written=one.written or "",
            grid=tuple(gpu.grid[one.row].tolist()),
            block=tuple(gpu.block[one.row].tolist()),
            step=int(step_of[one.row]),
        )
        for one in (*collectives, *copies)
    ]
    return tuple(sorted(found, key=lambda one: one.collective.start_ns))


def _bare_collective(
    trace: Trace, work: GpuRows | AnnotationRows, row: int, *, op: str | None, stream: int,
    size: int | None = None,
) -> Collective:  # fmt: skip
    """The piece of work in a row, which communicates `size` bytes."""
    return Collective(
        row=row, op=op, dtype=None if size is None else "Byte", elements=size, in_elements=size,
        out_elements=size, group=None, algorithm=None, protocol=None, source="name",
        name=trace.rows.names[work.name[row]], stream=stream, device=0,
        start_ns=trace.rows.base_ns + int(work.start_ns[row]),
        duration_ns=int(work.duration_ns[row]),
    )  # fmt: skip


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
    return GemmInstances(*(column.astype(np.int64) for column in columns))


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
        found.append(np.column_stack([chosen + first, np.full(len(chosen), index), both[chosen]]))
    return np.concatenate(found)


def _on_host(trace: Trace) -> dict[str, Any]:
    """Facts of a trace without GPU work: self times of operators that compute, and time without any
    annotation on the host."""
    rows, operators, marked = trace.rows, trace.rows.operators, trace.rows.annotations
    marks = host_marks(trace)
    collectives = _host_collectives(trace, marks)
    comm = union(
        np.array([one.collective.start_ns - rows.base_ns for one in collectives], np.int64),
        np.array([one.collective.duration_ns for one in collectives], np.int64),
    )
    compute_names = [operator_kind(name) != "communication" for name in rows.names]
    chosen = np.array(compute_names or [False], bool)[operators.name]
    compute = union(operators.start_ns[chosen], operators.duration_ns[chosen])
    both = union(
        np.concatenate([compute.start, comm.start]),
        np.concatenate([compute.end - compute.start, comm.end - comm.start]),
    )
    lanes = _Lanes(compute, comm, union(_NOTHING, _NOTHING), both)
    steps = tuple(_step(trace, number, (start, end), lanes) for number, start, end in marks)
    shapes, shape_of = innermost_products(trace)
    row = np.flatnonzero(shape_of != NONE)
    row = row[np.argsort(operators.start_ns[row], kind="stable")]
    distinct, kind = distinct_rows(operators.name[row], shape_of[row])
    kinds = tuple(
        GemmKind.of_shape(shapes[at], kernel=rows.names[name], short=rows.names[name],
                          dtype=shapes[at].dtype, layout=shapes[at].layout)
        for name, at in distinct.tolist()
    )  # fmt: skip
    start = operators.start_ns[row]
    gemms = _instances(trace, kind, start, operators.duration_ns[row], _in_marks(start, marks),
                       comm, collectives)  # fmt: skip
    is_other = [not name.startswith("ProfilerStep") and not _HOST_COLLECTIVE.match(name)
                for name in rows.names]  # fmt: skip
    other = np.array(is_other or [False], bool)[marked.name] & (marked.on_gpu == 0)
    own = find_nesting(operators, trace.launches.parent).self_ns
    alone = marked.duration_ns - covered(marked.start_ns, marked.duration_ns, compute)
    names = np.concatenate([operators.name[chosen], marked.name[other]]).astype(np.int64)
    starts = np.concatenate([operators.start_ns[chosen], marked.start_ns[other]])
    kernel_times = _summed(rows.names, names, np.concatenate([own[chosen], alone[other]]),
                           _in_marks(starts, marks), steps)  # fmt: skip
    return {"times": {}, "steps": steps, "gemm_kinds": kinds, "gemms": gemms,
            "communication": collectives, "kernel_times": kernel_times}  # fmt: skip


def _host_collectives(trace: Trace, marks: Marks) -> tuple[CommunicationKernel, ...]:
    rows, annotations = trace.rows, trace.rows.annotations
    named = [_HOST_COLLECTIVE.match(name) is not None for name in rows.names]
    chosen = np.flatnonzero(
        np.array(named or [False], bool)[annotations.name] & (annotations.on_gpu == 0)
    )
    chosen = chosen[np.argsort(annotations.start_ns[chosen], kind="stable")]
    steps = _in_marks(annotations.start_ns[chosen], marks).tolist()
    found = []
    for row, step in zip(chosen.tolist(), steps, strict=True):
        name = rows.names[annotations.name[row]]
        operation, stream = operation_name(name), int(annotations.thread[row])
        found.append(CommunicationKernel(
            collective=_bare_collective(trace, annotations, row, op=operation, stream=stream),
            kernel=name, written=operation or "", grid=(0, 0, 0), block=(0, 0, 0), step=step,
        ))  # fmt: skip
    return tuple(found)


def _in_marks(moments: Int64, marks: Marks) -> Int64:
    """Number of the step that contains each of `moments`; -1: none."""
    result = np.full(len(moments), NONE, np.int64)
    for number, start, end in marks:
        result[(moments >= start) & (moments < end)] = number
    return result


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
    return KernelTimes(tuple(list(names)[i] for i in kept), table[:, kept])
