"""Kineto traces (``*.pt.trace.json``, plain or compressed) -> :class:`TraceRows`.

PyTorch 1.8 writes the categories ``Kernel``, ``Operator`` and ``Runtime``; later versions write
``kernel``, ``cpu_op`` and ``cuda_runtime``. Both are read. Events are streamed, so memory holds the
columns and one piece of the file. Numbers whose type varies are accepted as any type and converted
by :func:`whole`; arrays stay JSON text until they are needed.

Grids of AMD kernels are copied unchanged from the launch, where their meaning varies:

- ``hipExtModuleLaunchKernel``, which launches all Tensile GEMMs, takes work-items. Example: a GEMM
  of 15360 x 6144 with macro tile 256 x 192 has 60 x 32 workgroups of 256 and the "grid" 491520.
- Recorded through rocprofiler-sdk (MI350, ROCm 7.0), "grid" is the size of a workgroup and "block"
  the work-items. Example: an element-wise kernel with the "block" 524288, although the maximum is
  1024.
- With ROCm 6.2 the kernels of the MI250 trace have no sizes, but the launches do.

A file may have the events of several processes, such as the ranks of a job that were merged. Each
counts correlations and external ids from the same small numbers, so a kernel of one must not be
linked to a launch of another. Merged files label their processes: SGLang writes ``[TP01] 9000`` as
the process of rank 1, and ``[TP01] 1`` as that of its GPU 1. Where there are no labels, the numbers
that only one process used show which process each GPU worked for.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, BinaryIO, TypeAlias, TypeVar

import msgspec
import numpy as np

from gemmetry.domain.files import Names, Numbers, short_name
from gemmetry.domain.units import plural
from gemmetry.formats.events import (
    MISSING,
    MOST_RANKS,
    AnnotationRows,
    CallRows,
    CollectiveCall,
    GpuKind,
    GpuRows,
    Int32,
    Int64,
    OperatorArguments,
    OperatorRows,
    ProblemKind,
    Spool,
    TracePart,
    TraceProblem,
    TraceRows,
    host_rows,
    nanoseconds,
    texts,
)
from gemmetry.formats.json import (
    CHUNK_BYTES,
    DECODE_ERRORS,
    ArrayReader,
    outer_object,
    record_decoders,
)

NOTHING = msgspec.Raw(b"")
NO_ARGS = msgspec.Raw(b"{}")

Number: TypeAlias = int | float | str | bool | None


class Event(msgspec.Struct, gc=False):
    """One entry of ``traceEvents``."""

    ph: str = ""
    cat: str | None = ""
    name: str | int | float | None = ""
    ts: msgspec.Raw = NOTHING
    dur: msgspec.Raw = NOTHING
    pid: msgspec.Raw = NOTHING
    tid: msgspec.Raw = NOTHING
    args: msgspec.Raw = NO_ARGS


class CallArgs(msgspec.Struct, gc=False):
    """Arguments of runtime and driver calls."""

    external: Number = msgspec.field(default=None, name="External id")
    external_2021: Number = msgspec.field(default=None, name="external id")
    correlation: Number = None
    grid: Any = None
    """Arguments of HIP launches."""
    block: Any = None


class _CollectiveArguments(msgspec.Struct, gc=False):
    operation: Number = msgspec.field(default=None, name="Collective name")
    element_type: Number = msgspec.field(default=None, name="dtype")
    in_elements: Number = msgspec.field(default=None, name="In msg nelems")
    out_elements: Number = msgspec.field(default=None, name="Out msg nelems")
    group_size: Number = msgspec.field(default=None, name="Group size")
    group_name: Number = msgspec.field(default=None, name="Process Group Name")
    group_ranks: msgspec.Raw = msgspec.field(default=NOTHING, name="Process Group Ranks")
    in_splits: msgspec.Raw = msgspec.field(default=NOTHING, name="In split size")
    out_splits: msgspec.Raw = msgspec.field(default=NOTHING, name="Out split size")
    destination: Number = msgspec.field(default=None, name="Dst Rank")
    source: Number = msgspec.field(default=None, name="Src Rank")
    number: Number = msgspec.field(default=None, name="Seq")

    def collective_key(self) -> tuple[object, ...]:
        """A key that is equal for events with the same information about their collectives."""
        values = map(self.__getattribute__, _CollectiveArguments.__struct_fields__)
        return tuple(bytes(one) if isinstance(one, msgspec.Raw) else one for one in values)

    def collective(self) -> CollectiveCall:
        """The event's information about a collective."""
        peer = self.destination if self.destination is not None else self.source
        return CollectiveCall(
            operation=str(self.operation),
            dtype=None if self.element_type is None else str(self.element_type),
            in_elements=_known(self.in_elements),
            out_elements=_known(self.out_elements),
            group_size=_known(self.group_size),
            group_name=None if self.group_name is None else str(self.group_name),
            group_ranks=ranks_of(self.group_ranks, whole(self.group_size)),
            in_splits=integers(self.in_splits),
            out_splits=integers(self.out_splits),
            peer=_known(peer),
            sequence=_known(self.number),
        )


class GpuArgs(_CollectiveArguments, gc=False):
    """Arguments of kernels, copies and fills."""

    external: Number = msgspec.field(default=None, name="External id")
    external_2021: Number = msgspec.field(default=None, name="external id")
    correlation: Number = None
    device: Number = None
    stream: Number = None
    grid: Any = None
    block: Any = None
    bytes: Number = None
    graph: Number = msgspec.field(default=None, name="graph id")


class OperatorArgs(_CollectiveArguments, gc=False):
    """Arguments of operators."""

    external: Number = msgspec.field(default=None, name="External id")
    sequence: Number = msgspec.field(default=None, name="Sequence number")
    forward_thread: Number = msgspec.field(default=None, name="Fwd thread id")
    shapes: msgspec.Raw = msgspec.field(default=NOTHING, name="Input Dims")
    dtypes: msgspec.Raw = msgspec.field(default=NOTHING, name="Input type")
    strides: msgspec.Raw = msgspec.field(default=NOTHING, name="Input Strides")
    values: msgspec.Raw = msgspec.field(default=NOTHING, name="Concrete Inputs")


def _external_ids(args: Sequence[CallArgs | GpuArgs]) -> Int64:
    """External ids of the operators that were running at the launches."""
    return _wholes([a.external_2021 if a.external is None else a.external for a in args])


def whole(value: Number) -> int:
    """`value` as a 64-bit integer; ``MISSING`` where it is not one."""
    if type(value) is int:
        return value if -(2**63) <= value < 2**63 else MISSING
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(?:stream\s+)?(-?\d{1,18})\s*", value)
        return int(match[1]) if match else MISSING
    if isinstance(value, float) and math.isfinite(value) and abs(value) < 2**53:
        return int(value)
    return MISSING


def integers(raw: msgspec.Raw) -> tuple[int, ...]:
    """The integers of a JSON array, or of a string that contains one, as both occur; () otherwise,
    and for abbreviated lists of ranks such as ``[0, 1, ..., 7]``, which are ambiguous."""
    text = bytes(raw).strip().strip(b'"')
    if not re.fullmatch(rb"\[\s*(?:-?\d{1,18}\s*(?:,\s*-?\d{1,18}\s*)*)?\]", text):
        return ()
    return tuple(int(part) for part in re.findall(rb"-?\d+", text))


def ranks_of(raw: msgspec.Raw, size: int) -> tuple[int, ...]:
    """Ranks of a group of `size`. PyTorch writes more than 30 ranks as the first 29, ``...`` and
    the last; the rest are filled in where those written are evenly spaced and consistent with
    `size`."""
    text = bytes(raw).strip().strip(b'"')
    if b"..." not in text:
        return integers(raw)
    written = [int(part) for part in re.findall(rb"-?\d{1,18}", text)]
    if len(written) < 3 or not len(written) <= size <= MOST_RANKS or written[1] <= written[0]:
        return ()
    ranks = range(written[0], written[-1] + 1, written[1] - written[0])
    is_even = len(ranks) == size and ranks[-1] == written[-1]
    return tuple(ranks) if is_even and list(ranks[: len(written) - 1]) == written[:-1] else ()


def triple(values: object) -> tuple[int, int, int]:
    """Sizes of a grid or block; zeros where they are not specified."""
    if not isinstance(values, list) or len(values) != 3:
        return (0, 0, 0)
    found = [whole(value) for value in values]
    return (found[0], found[1], found[2]) if all(0 <= v < 2**31 for v in found) else (0, 0, 0)


def _known(value: Any, least: int = -(2**63)) -> int | None:
    found = whole(value)
    return None if found == MISSING or found < least else found


_IN_WORK_ITEMS = ("hipExtModuleLaunchKernel", "hipHccModuleLaunchKernel")
_MOST_THREADS = 1024
"""Maximum number of threads of a workgroup or block, on all GPUs of AMD and NVIDIA."""


def workgroups(
    gpu: GpuRows, launches: Int64, names: Sequence[str], calls: Iterable[CallRows]
) -> GpuRows:
    """`gpu` with grids in workgroups.

    Args:
        gpu: rows as recorded in the file.
        launches: (calls, 7) correlation, grid and block recorded with calls.
        names: of calls and kernels.
        calls: all calls, in pieces.
    """
    wanted = [names.index(name) for name in _IN_WORK_ITEMS if name in names]
    if not wanted and not len(launches) and not _is_swapped(gpu.grid, gpu.block):
        return gpu
    grid, block = _filled(gpu, launches)
    if _is_swapped(grid, block):
        grid, block = _rounded_up(block, grid), grid
    elif wanted:
        numbers = [piece.correlation[np.isin(piece.name, wanted)] for piece in calls]
        rows = np.isin(gpu.correlation, np.concatenate([np.zeros(0, np.int64), *numbers]))
        rows &= (gpu.correlation >= 0) & (block > 0).all(axis=1)
        grid = np.where(rows[:, None], _rounded_up(grid, block), grid)
    return dataclasses.replace(gpu, grid=grid, block=block)


def _filled(gpu: GpuRows, launches: Int64) -> tuple[Int32, Int32]:
    """Sizes, taken from the launches where the kernels have none."""
    empty = (gpu.grid == 0).all(axis=1) & (gpu.kind == GpuKind.KERNEL) & (gpu.correlation >= 0)
    rows = np.flatnonzero(empty)
    if not len(rows) or not len(launches):
        return gpu.grid, gpu.block
    order = np.argsort(launches[:, 0], kind="stable")
    place = np.searchsorted(launches[:, 0], gpu.correlation[rows], sorter=order)
    found = launches[order[np.minimum(place, len(order) - 1)]]
    fits = found[:, 0] == gpu.correlation[rows]
    grid, block = gpu.grid.copy(), gpu.block.copy()
    grid[rows[fits]], block[rows[fits]] = found[fits, 1:4], found[fits, 4:]
    return grid, block


def _is_swapped(grid: Int32, block: Int32) -> bool:
    """Whether blocks exceed every GPU's limit, while all "grids" are possible blocks."""
    threads = block.astype(np.int64).prod(axis=1)
    return bool(
        len(threads)
        and (threads > _MOST_THREADS).any()
        and (grid.astype(np.int64).prod(axis=1) <= _MOST_THREADS).all()
    )


def _rounded_up(items: Int32, size: Int32) -> Int32:
    return np.where(size > 0, -(-items // np.maximum(size, 1)), 0).astype(np.int32)


_WHOLE = re.compile(r"(.*)", re.DOTALL)
_LABELS = (re.compile(r"(.*\D)\d+"), re.compile(r"\d+(\D.*)"), _WHOLE)
"""Label in a process's name: the part before or after its number, or all of it."""


def _label(pattern: re.Pattern[str], pid: str) -> str:
    found = pattern.fullmatch(pid)
    return found[1] if found else ""


def with_parts(
    gpu: GpuRows,
    lanes: Sequence[str],
    threads: Sequence[tuple[str, str]],
    calls: Spool[CallRows],
    operators: Spool[OperatorRows],
) -> tuple[GpuRows, tuple[TracePart, ...]]:
    """`gpu` with its column ``part``, and the parts; () where the file has one process, or several
    that cannot be distinguished.

    Args:
        gpu: rows whose ``part`` is the index of their process in `lanes`.
        lanes: processes of rows on GPUs, as the file writes them.
        threads: process and thread of the host, and of annotations on GPUs.
        calls, operators: rows on the host.
    """
    alone = np.zeros(len(gpu.start_ns), np.int16)
    processes = {pid for pid, _ in threads}
    if all(pid.isdecimal() for pid in processes.union(lanes)) and len(processes - {*lanes}) < 2:
        return dataclasses.replace(gpu, part=alone), ()
    columns = [one.thread for one in calls.pieces()] + [one.thread for one in operators.pieces()]
    hosts = sorted({threads[thread][0] for one in columns for thread in np.unique(one).tolist()})
    for pattern in _LABELS:
        on_gpu, on_host = ([_label(pattern, pid) for pid in pids] for pids in (lanes, hosts))
        names = sorted({*on_gpu, *on_host})
        # It distinguishes at least two processes, and assigns each GPU to one of them.
        is_complete = {*on_gpu} <= {*on_host} if hosts else pattern is not _WHOLE
        if len(names) > 1 and "" not in names and is_complete:
            part = np.array([names.index(one) for one in on_gpu], np.int16)[gpu.part]
            of_thread = [_label(pattern, pid) for pid, _ in threads]
            return dataclasses.replace(gpu, part=part), _parts(names, of_thread)
    of_row = _by_numbers(gpu, hosts, threads, calls) if len(hosts) > 1 else None
    if of_row is None:
        return dataclasses.replace(gpu, part=alone), ()
    pids = [pid for pid, _ in threads]
    parts = (TracePart(f"process {pid}", None, _indices(pids, pid)) for pid in hosts)
    return dataclasses.replace(gpu, part=of_row.astype(np.int16)), tuple(parts)


def _parts(names: Sequence[str], of_thread: Sequence[str]) -> tuple[TracePart, ...]:
    """The parts that labels name; their ranks are the numbers in the labels or, where these have
    several (``TP00-DP01``) or do not differ, the places in their order."""
    numbers = [re.findall(r"\d+", name) for name in names]
    ranks = [int(found[0]) if len(found) == 1 else MISSING for found in numbers]
    if MISSING in ranks or len(set(ranks)) < len(ranks):
        ranks = list(range(len(names)))
    return tuple(
        TracePart(name.strip(" \t[]()_-:/.,"), rank if all(numbers) else None,
                  _indices(of_thread, name))
        for name, rank in zip(names, ranks, strict=True)
    )  # fmt: skip


def _indices(of_thread: Sequence[str], name: str) -> tuple[int, ...]:
    return tuple(index for index, one in enumerate(of_thread) if one == name)


def _by_numbers(
    gpu: GpuRows,
    hosts: Sequence[str],
    threads: Sequence[tuple[str, str]],
    calls: Spool[CallRows],
) -> Int64 | None:
    """The process of each row: the only one that used its correlation number, else the only one for
    which the row's GPU worked; None where a row's is not certain."""
    of_thread = np.array([hosts.index(p) if p in hosts else MISSING for p, _ in threads], np.int64)
    pairs = [np.column_stack([rows.correlation, of_thread[rows.thread]]) for rows in calls.pieces()]
    used = np.unique(np.concatenate([np.zeros((0, 2), np.int64), *pairs]), axis=0)
    used = used[used[:, 0] > 0]
    numbers, first, count = np.unique(used[:, 0], return_index=True, return_counts=True)
    place = np.minimum(np.searchsorted(numbers, gpu.correlation), max(len(numbers) - 1, 0))
    result = np.full(len(gpu.start_ns), MISSING, np.int64)
    if len(numbers):
        certain = (numbers[place] == gpu.correlation) & (count[place] == 1)
        result[certain] = used[first[place[certain]], 1]
    for lane in np.unique(gpu.part).tolist():
        rows = gpu.part == lane
        found = np.unique(result[rows & (result != MISSING)])
        if len(found) == 1:
            result[rows] = found[0]
    return None if (result == MISSING).any() else result


_GPU = {
    "kernel": GpuKind.KERNEL, "gpu_memcpy": GpuKind.MEMCPY, "gpu_memset": GpuKind.MEMSET,
    "Kernel": GpuKind.KERNEL, "Memcpy": GpuKind.MEMCPY, "Memset": GpuKind.MEMSET,
}  # fmt: skip
_CALLS = ("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "Runtime",
          "privateuse1_runtime")  # fmt: skip
_OPERATORS = ("cpu_op", "Operator")
_ON_HOST = "user_annotation"
_ANNOTATIONS = {_ON_HOST: 0, "gpu_user_annotation": 1}

_VERSIONS = (
    "cuda_runtime_version", "cuda_driver_version", "cupti_version", "hip_runtime_version",
    "hip_driver_version", "roctracer_version", "rocprofiler-sdk_version", "schemaVersion",
)  # fmt: skip

_METADATA = (
    *_VERSIONS, "distributedInfo", "baseTimeNanoseconds", "host_name", "trace_id",
    "deviceProperties",
)  # fmt: skip

_LOSS = re.compile(
    rb'(?<!\\)"([\w .:-]{0,40}(?:dropped|lost|discarded|data.?loss|buffer.?overflow)'
    rb'[\w .:-]{0,40})"\s*:\s*"?(\d{1,30}|true)\b',
    re.IGNORECASE,
)
"""Keys of a document that count what its recorder could not keep."""

_TABLE_OF = {
    category: table
    for table, categories in enumerate((_GPU, _CALLS, _OPERATORS, _ANNOTATIONS))
    for category in categories
}
"""Category -> the table of its events: 0 for work on GPUs, then calls, operators, annotations."""

_DECODERS = {
    kind: record_decoders(kind, "event") for kind in (Event, GpuArgs, CallArgs, OperatorArgs)
}
_CATEGORY = attrgetter("cat")

Args = TypeVar("Args", GpuArgs, CallArgs, OperatorArgs)


def read_kineto(file: BinaryIO, *, chunk_bytes: int = CHUNK_BYTES) -> TraceRows | None:
    """The rows of a Kineto trace.

    Args:
        file: opened at its beginning, decompressed.
        chunk_bytes: number of bytes read at a time; does not affect the rows.

    Returns:
        None if the document has no ``traceEvents``.

    Raises:
        OSError: the temporary file for the part of a very large trace that does not fit into memory
            cannot be written.
    """
    reader = ArrayReader(file, "traceEvents", *_DECODERS[Event], chunk_bytes=chunk_bytes)
    builder = _KinetoBuilder()
    for events in reader:
        builder.add(events)
    return builder.rows(reader) if reader.found else None


class _KinetoBuilder:
    """Collects columns piece by piece."""

    def __init__(self) -> None:
        self._events = 0
        self._piece: Sequence[Event] = ()
        self._names = Names()
        self._threads: Numbers[tuple[bytes, bytes]] = Numbers()
        self._lanes: Numbers[bytes] = Numbers()
        self._arguments: Numbers[tuple[bytes, bytes, bytes, bytes]] = Numbers()
        self._collectives: Numbers[tuple[object, ...]] = Numbers()
        self._calls_of_collectives: list[CollectiveCall] = []
        self._gpu = Spool(GpuRows)
        self._calls = Spool(CallRows)
        self._operators = Spool(OperatorRows)
        self._annotations = Spool(AnnotationRows)
        self._launched: list[Int64] = [np.zeros((0, 7), np.int64)]
        self._of_graphs: list[Int64] = [np.zeros((0, 3), np.int64)]
        """Process, graph and correlation of the kernels of graphs."""
        self._faults: dict[str, tuple[tuple[int, str], int]] = {}
        """Fault -> the first event with it, as its index among those that could be read and its
        name, and the number of such events."""

    def add(self, events: Sequence[Event]) -> None:
        """Add one piece."""
        self._piece = events
        adders = (self._add_gpu, self._add_calls, self._add_operators, self._add_annotations)
        groups: list[list[Event]] = [[] for _ in adders]
        tables = map(_TABLE_OF.get, map(_CATEGORY, events))
        for table, event in zip(tables, events, strict=True):
            if table is not None and event.ph == "X":
                groups[table].append(event)
        for add, group in zip(adders, groups, strict=True):
            if group:
                add(group)
        self._events += len(events)

    def _timed(self, events: list[Event]) -> tuple[list[Event], dict[str, Any]]:
        """The events that have a time, and the columns that all tables of the host have."""
        start, duration, untimed = _start_and_duration(events)
        if untimed:
            keep = np.ones(len(events), bool)
            keep[untimed] = False
            self._fault("no usable time: left out", events, ~keep)
            events = [event for event, kept in zip(events, keep, strict=True) if kept]
            start, duration = start[keep], duration[keep]
        if duration.size and duration.min() < 0:
            self._fault("a negative duration: taken as 0", events, duration < 0)
            duration = np.maximum(duration, 0)
        names = self._name_ids(events)
        ids = zip(texts([e.pid for e in events]), texts([e.tid for e in events]), strict=True)
        threads = np.array(list(map(self._threads.__getitem__, ids)), np.int32)
        columns = {"start_ns": start, "duration_ns": duration, "name": names, "thread": threads}
        return events, columns

    def _fault(self, what: str, events: Sequence[Event], where: Any) -> None:
        """Record the first event with a fault and the number of such events."""
        event = events[int(np.flatnonzero(where)[0])]
        place = self._events + next(i for i, one in enumerate(self._piece) if one is event)
        found = (place, short_name(str(event.name), 60))
        first, count = self._faults.get(what, (found, 0))
        # Kinds of events are processed one after the other, so a fault found later may come earlier
        # in the file.
        self._faults[what] = (min(first, found), count + int(where.sum()))

    def _name_ids(self, events: list[Event]) -> Any:
        found: list[Any] = [event.name for event in events]
        if set(map(type, found)) != {str}:
            found = ["" if name is None else str(name) for name in found]
        return np.array(list(map(self._names.__getitem__, found)), np.int32)

    def _collective_ids(self, args: Sequence[GpuArgs | OperatorArgs]) -> Any:
        ids = np.full(len(args), MISSING, np.int32)
        for index, one in enumerate(args):
            if one.operation is not None:
                number = ids[index] = self._collectives[one.collective_key()]
                if number == len(self._calls_of_collectives):
                    self._calls_of_collectives.append(one.collective())
        return ids

    def _add_gpu(self, events: list[Event]) -> None:
        start, duration, untimed = _start_and_duration(events)
        bad = duration < 0
        bad[untimed] = True
        # gemmetry.traces.model leaves out and counts them.
        start[bad] = duration[bad] = 0
        args = _decode_args(events, GpuArgs)
        lanes = [self._lanes[pid] for pid in texts([event.pid for event in events])]
        of_graphs = [
            (lane, whole(a.graph), whole(a.correlation))
            for lane, a in zip(lanes, args, strict=True)
            if a.graph is not None
        ]
        self._of_graphs.append(np.array(of_graphs, np.int64).reshape(-1, 3))
        self._gpu.add(
            GpuRows(
                start_ns=start,
                duration_ns=duration,
                name=self._name_ids(events),
                kind=np.array([_GPU[e.cat or ""] for e in events], np.int8),
                device=np.clip(_wholes([a.device for a in args]), -1, 2**31 - 1).astype(np.int32),
                stream=_wholes([a.stream for a in args]),
                correlation=_wholes([a.correlation for a in args]),
                external_id=_external_ids(args),
                grid=_triples([a.grid for a in args]),
                block=_triples([a.block for a in args]),
                bytes=_wholes([a.bytes for a in args]),
                collective=self._collective_ids(args),
                part=np.array(lanes, np.int64).astype(np.int16),
            )
        )

    def _add_calls(self, events: list[Event]) -> None:
        events, columns = self._timed(events)
        args = _decode_args(events, CallArgs)
        correlation = _wholes([a.correlation for a in args])
        recorded = [i for i, a in enumerate(args) if a.grid is not None]
        if recorded:
            sizes = (_triples([getattr(args[i], size) for i in recorded])
                     for size in ("grid", "block"))  # fmt: skip
            self._launched.append(np.column_stack([correlation[recorded], *sizes]))
        self._calls.add(
            CallRows(**columns, correlation=correlation, external_id=_external_ids(args))
        )

    def _add_operators(self, events: list[Event]) -> None:
        events, columns = self._timed(events)
        args = _decode_args(events, OperatorArgs)
        recorded = zip(
            texts([a.shapes for a in args]), texts([a.dtypes for a in args]),
            texts([a.strides for a in args]), texts([a.values for a in args]), strict=True,
        )  # fmt: skip
        self._operators.add(
            OperatorRows(
                **columns,
                external_id=_wholes([a.external for a in args]),
                sequence=_wholes([a.sequence for a in args]),
                forward_thread=_wholes([a.forward_thread for a in args]),
                arguments=np.array(list(map(self._arguments.__getitem__, recorded)), np.int32),
                collective=self._collective_ids(args),
            )
        )

    def _add_annotations(self, events: list[Event]) -> None:
        # PyTorch records a collective's tensors in an operator up to 1.12, and in an annotation
        # since.
        collectives = [e for e in events if e.cat == _ON_HOST and str(e.name)[:5] == "nccl:"]
        if collectives:
            self._add_operators(collectives)
        events, columns = self._timed(events)
        on_gpu = np.array([_ANNOTATIONS[e.cat or ""] for e in events], np.int8)
        self._annotations.add(AnnotationRows(**columns, on_gpu=on_gpu))

    def rows(self, reader: ArrayReader[Event]) -> TraceRows:
        """All collected rows, with the information from the document's other keys."""
        outer, damaged = outer_object(reader.head, reader.tail, _METADATA)
        for half in damaged:
            place = 0 if half == "before" else reader.text.offset
            reader.text.note(place, f"the part {half} the events is damaged")
        stated = _stated_losses(reader.head, reader.tail)
        distributed = outer.get("distributedInfo")
        distributed = distributed if isinstance(distributed, dict) else {}
        versions = {key: str(outer[key]) for key in _VERSIONS if key in outer}
        if nccl := _text(distributed.get("nccl_version")):
            versions["nccl_version"] = nccl
        names = tuple(self._names)
        threads = [(_process_name(pid), _process_name(tid)) for pid, tid in self._threads]
        lanes = list(map(_process_name, self._lanes))
        gpu, parts = with_parts(self._gpu.all(), lanes, threads, self._calls, self._operators)
        gpu = workgroups(gpu, np.concatenate(self._launched), names, self._calls.pieces())
        calls, operators, left_out = host_rows(gpu, self._calls, self._operators, names)
        return TraceRows(
            format="kineto",
            events=self._events + reader.text.left_out,
            base_ns=_known(outer.get("baseTimeNanoseconds"), 0) or 0,
            names=names,
            arguments=tuple(
                OperatorArguments(*(raw.decode("utf-8", "replace") for raw in raws))
                for raws in self._arguments
            ),
            collectives=tuple(self._calls_of_collectives),
            threads=tuple(map("/".join, threads)),
            gpu=gpu,
            calls=calls,
            operators=operators,
            annotations=self._annotations.all(),
            rank=_known(distributed.get("rank"), 0),
            world_size=_known(distributed.get("world_size"), 0),
            host=_text(outer.get("host_name")),
            job=_text(outer.get("trace_id")),
            devices=_devices(outer.get("deviceProperties")),
            versions=versions,
            problems=(
                *stated,
                *reader.text.all_problems(),
                *self._problems(),
                *self._graph_problems(),
            ),
            partial=reader.text.is_partial or bool(stated),
            parts=parts,
            host_rows_left_out=left_out,
        )

    def _graph_problems(self) -> list[TraceProblem]:
        """Launches of graphs that have fewer kernels than other launches of the same graph."""
        found: list[TraceProblem] = []
        every = np.concatenate(self._of_graphs)
        every = every[(every[:, 1:] > 0).all(axis=1)]
        launches, kernels = np.unique(every, axis=0, return_counts=True)
        for graph in sorted(set(map(tuple, launches[:, :2].tolist()))):
            counts = kernels[(launches[:, :2] == graph).all(axis=1)]
            most = int(counts.max())
            if lost := int((most - counts).sum()):
                short, whole = int((counts < most).sum()), len(counts)
                what = (
                    f"{short:,} of {plural(whole, 'launch', 'launches')} have fewer kernels than "
                    f"the others, which have {most:,}: {lost:,} are not in the file"
                )
                found.append(TraceProblem(f"graph {graph[1]}", what, ProblemKind.NO_WORK, lost))
        return found

    def _problems(self) -> list[TraceProblem]:
        found = []
        for what, ((place, name), count) in sorted(self._faults.items(), key=lambda item: item[1]):
            more = f" (so have {count - 1} more)" if count > 1 else ""
            where = f"event {place} ({name!r})"
            found.append(TraceProblem(where, f"has {what}{more}", ProblemKind.DAMAGED, count))
        return found


def _start_and_duration(events: Sequence[Event]) -> tuple[Int64, Int64, list[int]]:
    """Start and duration in ns, and the indices of events without a usable time."""
    start, no_start = nanoseconds([event.ts for event in events])
    duration, no_duration = nanoseconds([event.dur for event in events])
    return start, duration, no_start + no_duration


def _decode_args(events: Sequence[Event], kind: type[Args]) -> list[Args]:
    """Decode all at once, which is several times faster than one by one; one by one where some are
    invalid."""
    decode, rescue = _DECODERS[kind]
    raws = [event.args for event in events]
    try:
        return decode(b"[" + b",".join(raws) + b"]")
    except DECODE_ERRORS:
        found = (rescue(bytes(raw)) for raw in raws)
        return [kind() if isinstance(one, str) else one for one in found]


def _wholes(values: Sequence[Number]) -> Int64:
    found = [v if type(v) is int else MISSING if v is None else whole(v) for v in values]
    try:
        return np.array(found, np.int64)
    except OverflowError:
        return np.array([whole(v) for v in found], np.int64)


def _triples(values: Sequence[Any]) -> Int32:
    if all(type(one) is list and len(one) == 3 for one in values):
        sizes = list(chain.from_iterable(values))
        if set(map(type, sizes)) == {int} and min(sizes) >= 0 and max(sizes) < 2**31:
            return np.array(sizes, np.int32).reshape(-1, 3)
    return np.array([triple(one) for one in values], np.int32).reshape(-1, 3)


def _stated_losses(*texts: bytes) -> list[TraceProblem]:
    """Losses that the recorder itself states, in a key of the document."""
    found = []
    for key, text in (match.groups() for one in texts for match in _LOSS.finditer(one)):
        count = 1 if text == b"true" else int(text[:18])
        if count:
            what = f"its recorder states {key.decode()}: {text.decode()[:18]}"
            found.append(TraceProblem("file", what, ProblemKind.LOST_EVENTS, count))
    return found


def _process_name(text: bytes) -> str:
    return text.decode("utf-8", "replace").strip('"')


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _devices(properties: object) -> dict[int, str]:
    return {
        int(one["id"]): str(one["name"])
        for one in (properties if isinstance(properties, list) else ())
        if isinstance(one, dict) and isinstance(one.get("id"), int) and "name" in one
    }
