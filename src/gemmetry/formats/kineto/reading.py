"""Kineto traces (``*.pt.trace.json``, plain or compressed) -> :class:`TraceRows`.

PyTorch 1.8 writes the categories ``Kernel``, ``Operator`` and ``Runtime``; later versions write
``kernel``, ``cpu_op`` and ``cuda_runtime``. Both are read. Events are streamed, so memory holds the
columns and one piece of the file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, BinaryIO, NamedTuple, TypeVar

import msgspec
import numpy as np

from gemmetry.domain.units import counted
from gemmetry.formats.events import (
    MISSING,
    AnnotationRows,
    CallRows,
    CollectiveCall,
    GpuKind,
    GpuRows,
    Int32,
    Int64,
    OperatorRows,
    ProblemKind,
    TraceProblem,
    TraceRows,
)
from gemmetry.formats.host_rows import host_rows
from gemmetry.formats.json.array import CHUNK_BYTES, DECODE_ERRORS, ArrayReader, outer_object
from gemmetry.formats.json.repair import repaired
from gemmetry.formats.kineto import events as typed
from gemmetry.formats.kineto.grids import LaunchGrids, workgroups
from gemmetry.formats.kineto.processes import with_parts
from gemmetry.formats.naming import Names, Numbers, short_name
from gemmetry.formats.nanoseconds import nanoseconds, texts
from gemmetry.formats.spool import Spool

_GPU = {
    "kernel": GpuKind.KERNEL, "gpu_memcpy": GpuKind.MEMCPY, "gpu_memset": GpuKind.MEMSET,
    "Kernel": GpuKind.KERNEL, "Memcpy": GpuKind.MEMCPY, "Memset": GpuKind.MEMSET,
}  # fmt: skip
_CALLS = (
    "cuda_runtime",
    "cuda_driver",
    "hip_runtime",
    "hip_driver",
    "Runtime",
    "privateuse1_runtime",
)
_OPERATORS = ("cpu_op", "Operator")
_ON_HOST = "user_annotation"
_ANNOTATIONS = {_ON_HOST: 0, "gpu_user_annotation": 1}

_TABLES: dict[str, Sequence[str]] = {
    "gpu": tuple(_GPU),
    "calls": _CALLS,
    "operators": _OPERATORS,
    "annotations": tuple(_ANNOTATIONS),
}

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

_TABLE_OF = {category: table for table, categories in _TABLES.items() for category in categories}

_EVENTS = msgspec.json.Decoder(list[typed.Event])
_EVENT = msgspec.json.Decoder(typed.Event)
_CATEGORY = attrgetter("cat")

Args = TypeVar("Args", typed.GpuArgs, typed.CallArgs, typed.OperatorArgs)


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
    reader = ArrayReader(file, "traceEvents", _EVENTS.decode, _rescue, chunk_bytes=chunk_bytes)
    builder = _KinetoBuilder()
    for events in reader:
        builder.add(events)
    if not reader.found:
        return None
    return builder.rows(reader)


class _Fault(NamedTuple):
    """The first event with this fault."""

    place: int
    """Index of the event among those that could be read, from 0."""
    name: str


class _KinetoBuilder:
    """Collects columns piece by piece."""

    def __init__(self) -> None:
        self._events = 0
        self._piece: Sequence[typed.Event] = ()
        self._names = Names()
        self._threads: Numbers[tuple[bytes, bytes]] = Numbers()
        self._lanes: Numbers[bytes] = Numbers()
        self._arguments: Numbers[tuple[bytes, bytes, bytes, bytes]] = Numbers()
        self._collectives: dict[tuple[Any, ...], int] = {}
        self._calls_of_collectives: list[CollectiveCall] = []
        self._gpu = Spool(GpuRows)
        self._calls = Spool(CallRows)
        self._operators = Spool(OperatorRows)
        self._annotations = Spool(AnnotationRows)
        self._launched: list[Int64] = [np.zeros(0, np.int64)]
        self._grids: list[Int32] = [np.zeros((0, 3), np.int32)]
        self._blocks: list[Int32] = [np.zeros((0, 3), np.int32)]
        self._of_graphs: list[Int64] = [np.zeros((0, 3), np.int64)]
        """Process, graph and correlation of the kernels of graphs."""
        self._faults: dict[str, tuple[_Fault, int]] = {}
        self._adders = {
            "gpu": self._add_gpu,
            "calls": self._add_calls,
            "operators": self._add_operators,
            "annotations": self._add_annotations,
        }

    def add(self, events: Sequence[typed.Event]) -> None:
        """Add one piece."""
        self._piece = events
        groups: dict[str, list[typed.Event]] = {name: [] for name in _TABLES}
        tables = map(_TABLE_OF.get, map(_CATEGORY, events))
        for table, event in zip(tables, events, strict=True):
            if table is not None and event.ph == "X":
                groups[table].append(event)
        for table, group in groups.items():
            if group:
                self._adders[table](group)
        self._events += len(events)

    def _gpu_times(self, events: list[typed.Event]) -> tuple[Int64, Int64]:
        """Start and duration in ns; both are 0 for work without a usable time, which
        :mod:`gemmetry.traces.missing` leaves out and counts."""
        start, no_start = nanoseconds([event.ts for event in events])
        duration, no_duration = nanoseconds([event.dur for event in events])
        bad = duration < 0
        bad[no_start + no_duration] = True
        start[bad] = duration[bad] = 0
        return start, duration

    def _times(self, events: list[typed.Event]) -> tuple[list[typed.Event], Int64, Int64]:
        """The events that have a time, with start and duration in ns."""
        start, no_start = nanoseconds([event.ts for event in events])
        duration, no_duration = nanoseconds([event.dur for event in events])
        if no_start or no_duration:
            keep = np.ones(len(events), bool)
            keep[no_start + no_duration] = False
            self._fault("no usable time: left out", events, ~keep)
            events = [event for event, kept in zip(events, keep, strict=True) if kept]
            start, duration = start[keep], duration[keep]
        if duration.size and duration.min() < 0:
            self._fault("a negative duration: taken as 0", events, duration < 0)
            duration = np.maximum(duration, 0)
        return events, start, duration

    def _fault(self, what: str, events: Sequence[typed.Event], where: Any) -> None:
        """Record the first event with a fault and the number of such events."""
        event = events[int(np.flatnonzero(where)[0])]
        place = self._events + next(i for i, one in enumerate(self._piece) if one is event)
        name = short_name(str(event.name), 60)
        first, count = self._faults.get(what, (_Fault(place, name), 0))
        # Kinds of events are processed one after the other, so a fault found later may come earlier
        # in the file.
        self._faults[what] = (min(first, _Fault(place, name)), count + int(where.sum()))

    def _name_ids(self, events: list[typed.Event]) -> Any:
        found: list[Any] = [event.name for event in events]
        if set(map(type, found)) != {str}:
            found = ["" if name is None else str(name) for name in found]
        return np.array(list(map(self._names.__getitem__, found)), np.int32)

    def _thread_ids(self, events: list[typed.Event]) -> Any:
        threads = self._threads
        pids, tids = texts([e.pid for e in events]), texts([e.tid for e in events])
        return np.array([threads[pair] for pair in zip(pids, tids, strict=True)], np.int32)

    def _collective_ids(self, args: Sequence[typed.GpuArgs | typed.OperatorArgs]) -> Any:
        ids = np.full(len(args), MISSING, np.int32)
        for index, one in enumerate(args):
            if one.operation is not None:
                key = one.collective_key()
                number = self._collectives.get(key)
                if number is None:
                    number = self._collectives[key] = len(self._calls_of_collectives)
                    self._calls_of_collectives.append(one.collective())
                ids[index] = number
        return ids

    def _add_gpu(self, events: list[typed.Event]) -> None:
        start, duration = self._gpu_times(events)
        args = _decode_args(events, typed.GpuArgs)
        lanes = [self._lanes[pid] for pid in texts([event.pid for event in events])]
        of_graphs = [
            (lane, typed.whole(a.graph), typed.whole(a.correlation))
            for lane, a in zip(lanes, args, strict=True)
            if a.graph is not None
        ]
        if of_graphs:
            self._of_graphs.append(np.array(of_graphs, np.int64))
        self._gpu.add(
            GpuRows(
                start_ns=start,
                duration_ns=duration,
                name=self._name_ids(events),
                kind=np.array([_GPU[e.cat or ""] for e in events], np.int8),
                device=_small([a.device for a in args]),
                stream=_wholes([a.stream for a in args]),
                correlation=_wholes([a.correlation for a in args]),
                external_id=np.array([typed.external_id(a) for a in args], np.int64),
                grid=_triples([a.grid for a in args]),
                block=_triples([a.block for a in args]),
                bytes=_wholes([a.bytes for a in args]),
                collective=self._collective_ids(args),
                part=np.array(lanes, np.int64).astype(np.int16),
            )
        )

    def _add_calls(self, events: list[typed.Event]) -> None:
        events, start, duration = self._times(events)
        args = _decode_args(events, typed.CallArgs)
        correlation = _wholes([a.correlation for a in args])
        recorded = np.array([i for i, a in enumerate(args) if a.grid is not None], np.intp)
        if len(recorded):
            self._launched.append(correlation[recorded])
            self._grids.append(_triples([args[i].grid for i in recorded]))
            self._blocks.append(_triples([args[i].block for i in recorded]))
        self._calls.add(
            CallRows(
                start_ns=start,
                duration_ns=duration,
                name=self._name_ids(events),
                thread=self._thread_ids(events),
                correlation=correlation,
                external_id=np.array([typed.external_id(a) for a in args], np.int64),
            )
        )

    def _add_operators(self, events: list[typed.Event]) -> None:
        events, start, duration = self._times(events)
        args = _decode_args(events, typed.OperatorArgs)
        number = self._arguments
        recorded_of = (
            texts([a.shapes for a in args]), texts([a.dtypes for a in args]),
            texts([a.strides for a in args]), texts([a.values for a in args]),
        )  # fmt: skip
        self._operators.add(
            OperatorRows(
                start_ns=start,
                duration_ns=duration,
                name=self._name_ids(events),
                thread=self._thread_ids(events),
                external_id=_wholes([a.external for a in args]),
                sequence=_wholes([a.sequence for a in args]),
                forward_thread=_wholes([a.forward_thread for a in args]),
                arguments=np.array(
                    [number[recorded] for recorded in zip(*recorded_of, strict=True)], np.int32
                ),
                collective=self._collective_ids(args),
            )
        )

    def _add_annotations(self, events: list[typed.Event]) -> None:
        # PyTorch records a collective's tensors in an operator up to 1.12, and in an annotation
        # since.
        collectives = [e for e in events if e.cat == _ON_HOST and str(e.name)[:5] == "nccl:"]
        if collectives:
            self._add_operators(collectives)
        events, start, duration = self._times(events)
        self._annotations.add(
            AnnotationRows(
                start_ns=start,
                duration_ns=duration,
                name=self._name_ids(events),
                thread=self._thread_ids(events),
                on_gpu=np.array([_ANNOTATIONS[e.cat or ""] for e in events], np.int8),
            )
        )

    def rows(self, reader: ArrayReader[typed.Event]) -> TraceRows:
        """All collected rows, with the information from the document's other keys."""
        outer, damaged = outer_object(reader.head, reader.tail, _METADATA)
        for half in damaged:
            place = 0 if half == "before" else reader.text.offset
            reader.text.note(place, f"the part {half} the events is damaged")
        stated = _stated_losses(reader.head, reader.tail)
        distributed = outer.get("distributedInfo")
        distributed = distributed if isinstance(distributed, dict) else {}
        names = tuple(self._names)
        launches = LaunchGrids(
            correlation=np.concatenate(self._launched),
            grid=np.concatenate(self._grids),
            block=np.concatenate(self._blocks),
        )
        threads = [(_process_name(pid), _process_name(tid)) for pid, tid in self._threads]
        lanes = list(map(_process_name, self._lanes))
        gpu, parts = with_parts(self._gpu.all(), lanes, threads, self._calls, self._operators)
        gpu = workgroups(gpu, launches, names, self._calls.pieces())
        calls, operators, left_out = host_rows(gpu, self._calls, self._operators, names)
        return TraceRows(
            format="kineto",
            events=self._events + reader.text.left_out,
            base_ns=_at_least_0(outer.get("baseTimeNanoseconds")) or 0,
            names=names,
            arguments=tuple(typed.operator_arguments(raws) for raws in self._arguments),
            collectives=tuple(self._calls_of_collectives),
            threads=tuple(map("/".join, threads)),
            gpu=gpu,
            calls=calls,
            operators=operators,
            annotations=self._annotations.all(),
            rank=_at_least_0(distributed.get("rank")),
            world_size=_at_least_0(distributed.get("world_size")),
            host=_text(outer.get("host_name")),
            job=_text(outer.get("trace_id")),
            devices=_devices(outer.get("deviceProperties")),
            versions=_versions(outer, distributed),
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
        if len(self._of_graphs) == 1:
            return found
        every = np.concatenate(self._of_graphs)
        every = every[(every[:, 1:] > 0).all(axis=1)]
        launches, kernels = np.unique(every, axis=0, return_counts=True)
        for graph in sorted(set(map(tuple, launches[:, :2].tolist()))):
            counts = kernels[(launches[:, :2] == graph).all(axis=1)]
            most = int(counts.max())
            lost = int((most - counts).sum())
            if lost:
                short, whole = int((counts < most).sum()), len(counts)
                what = (
                    f"{short:,} of {counted(whole, 'launch', 'launches')} have fewer kernels than "
                    f"the others, which have {most:,}: {lost:,} are not in the file"
                )
                found.append(TraceProblem(f"graph {graph[1]}", what, ProblemKind.NO_WORK, lost))
        return found

    def _problems(self) -> list[TraceProblem]:
        found = []
        for what, (first, count) in sorted(self._faults.items(), key=lambda item: item[1]):
            more = f" (so have {count - 1} more)" if count > 1 else ""
            where = f"event {first.place} ({first.name!r})"
            found.append(TraceProblem(where, f"has {what}{more}", ProblemKind.DAMAGED, count))
        return found


def _decode_args(events: Sequence[typed.Event], kind: type[Args]) -> list[Args]:
    """Decode all at once, which is several times faster than one by one; one by one where some are
    invalid."""
    raws = [event.args for event in events]
    try:
        return msgspec.json.decode(b"[" + b",".join(raws) + b"]", type=list[kind])  # type: ignore[valid-type]
    except DECODE_ERRORS:
        return [_decode_one(bytes(raw), kind) for raw in raws]


def _decode_one(text: bytes, kind: type[Args]) -> Args:
    try:
        return msgspec.json.decode(text, type=kind)
    except DECODE_ERRORS:
        found = repaired(text, lambda better: msgspec.json.decode(better, type=kind))
        return kind() if isinstance(found, str) else found


def _rescue(text: bytes) -> typed.Event | str:
    """Decode an event that is not valid JSON or has unusual types: NaN, invalid UTF-8 ..."""
    found = repaired(text, _EVENT.decode)
    return f"left out, as it is no event: {found}" if isinstance(found, str) else found


def _wholes(values: Sequence[typed.Number]) -> Int64:
    found = [v if type(v) is int else MISSING if v is None else typed.whole(v) for v in values]
    try:
        return np.array(found, np.int64)
    except OverflowError:
        return np.array([typed.whole(v) for v in found], np.int64)


def _triples(values: Sequence[Any]) -> Int32:
    if all(type(one) is list and len(one) == 3 for one in values):
        sizes = list(chain.from_iterable(values))
        if set(map(type, sizes)) == {int} and min(sizes) >= 0 and max(sizes) < 2**31:
            return np.array(sizes, np.int32).reshape(-1, 3)
    return np.array([typed.triple(one) for one in values], np.int32).reshape(-1, 3)


def _small(values: Sequence[typed.Number]) -> Any:
    return np.clip(_wholes(values), -1, 2**31 - 1).astype(np.int32)


def _stated_losses(*texts: bytes) -> list[TraceProblem]:
    """What the recorder itself states to be missing, in a key of the document."""
    found = []
    for key, text in (match.groups() for one in texts for match in _LOSS.finditer(one)):
        count = 1 if text == b"true" else int(text[:18])
        if count:
            what = f"its recorder states {key.decode()}: {text.decode()[:18]}"
            found.append(TraceProblem("file", what, ProblemKind.LOST_EVENTS, count))
    return found


def _process_name(text: bytes) -> str:
    return text.decode("utf-8", "replace").strip('"')


def _at_least_0(value: Any) -> int | None:
    found = typed.whole(value) if isinstance(value, (int, float, str)) else -1
    return found if found >= 0 else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _versions(outer: dict[str, Any], distributed: dict[str, Any]) -> dict[str, str]:
    found = {key: str(outer[key]) for key in _VERSIONS if key in outer}
    nccl = _text(distributed.get("nccl_version"))
    return found if nccl is None else {**found, "nccl_version": nccl}


def _devices(properties: object) -> dict[int, str]:
    if not isinstance(properties, list):
        return {}
    return {
        int(one["id"]): str(one["name"])
        for one in properties
        if isinstance(one, dict) and isinstance(one.get("id"), int) and "name" in one
    }
