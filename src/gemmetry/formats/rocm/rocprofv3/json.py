"""rocprofv3's ``results.json`` (the "rocprofiler-sdk-tool" document) -> :class:`TraceRows`.

The layout follows rocprofiler-sdk's ``rocprofv3_output_schema.json`` and real files: one element
per process, with names first, then ``buffer_records`` with one array per kind of record. The arrays
are streamed. The file stores grid sizes in work-items; they are converted to workgroups.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from typing import Any, BinaryIO

import msgspec
import numpy as np

from gemmetry.formats.events import MISSING, GpuKind, TraceRows
from gemmetry.formats.json.array import CHUNK_BYTES
from gemmetry.formats.json.repair import record_decoders
from gemmetry.formats.json.sections import SectionReader
from gemmetry.formats.naming import Numbers, short_name
from gemmetry.formats.readers.rocprofv3_json import KEY
from gemmetry.formats.rocm.rows import (
    LATEST_NS,
    HostKind,
    RowsBuilder,
    gpu_rows,
    integers,
    kernel_name,
    process_parts,
    rank_of,
    renumbered,
)

_GPU_AGENT = 2
"""``type`` of an agent; 1 is a CPU."""

_HOST = {
    "hip_api": HostKind.CALL,
    "hsa_api": HostKind.CALL,
    "rccl_api": HostKind.RCCL,
    "marker_api": HostKind.RANGE,
}
"""Arrays of the host -> what their records are."""

_ON_GPU = ("kernel_dispatch", "memory_copy")
"""Arrays of work on GPUs."""

_SKIPPED = (
    "memory_allocation", "scratch_memory", "rocdecode_api", "rocjpeg_api", "pc_sample_host_trap",
    "pc_sample_stochastic", "counter_collection", "code_objects", "host_functions",
)  # fmt: skip


class _Id(msgspec.Struct, gc=False):
    handle: int = 0


class _Correlation(msgspec.Struct, gc=False):
    internal: int = MISSING


class _Size(msgspec.Struct, gc=False):
    x: int = 0
    y: int = 0
    z: int = 0


class _Info(msgspec.Struct, gc=False):
    agent_id: _Id | None = None
    queue_id: _Id | None = None
    kernel_id: int = 0
    workgroup_size: _Size | None = None
    grid_size: _Size | None = None


class _Record(msgspec.Struct, gc=False):
    """Any entry of ``buffer_records``."""

    kind: int = 0
    operation: int = 0
    thread_id: int = 0
    correlation_id: _Correlation | None = None
    start_timestamp: int = MISSING
    end_timestamp: int = MISSING
    dispatch_info: _Info | None = None
    stream_id: _Id | None = None
    dst_agent_id: _Id | None = None
    src_agent_id: _Id | None = None
    bytes: int = MISSING


class _Symbol(msgspec.Struct, gc=False):
    kernel_id: int = MISSING
    formatted_kernel_name: str = ""
    demangled_kernel_name: str = ""
    kernel_name: str = ""


class _Skipped(msgspec.Struct, gc=False):
    """An entry of an array that is skipped."""


class _MarkerRecord(_Record, gc=False):
    """An entry of ``buffer_records.marker_api``, or of ``strings.marker_api``, which holds the
    texts."""

    key: int = MISSING
    value: str = ""


def read_rocprofv3_json(file: BinaryIO, *, chunk_bytes: int = CHUNK_BYTES) -> TraceRows | None:
    """The rows of a ``results.json``; several processes in one file are combined into one set of
    rows.

    Args:
        file: opened at its beginning, decompressed.
        chunk_bytes: number of bytes read at a time; does not affect the rows.

    Returns:
        None if it is another document.
    """
    decoders = {
        **{key: record_decoders(_Record) for key in _ON_GPU},
        **{
            key: record_decoders(_MarkerRecord if kind is HostKind.RANGE else _Record)
            for key, kind in _HOST.items()
        },
        "kernel_symbols": record_decoders(_Symbol),
        "agents": record_decoders(dict),
        **{key: record_decoders(_Skipped) for key in _SKIPPED},
    }
    reader = SectionReader(file, decoders, KEY, chunk_bytes=chunk_bytes)
    builder = _JsonRowsBuilder()
    for key, records in reader:
        builder.add(key, records)
    try:
        document = json.loads(reader.frame.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        document = None
        reader.text.note(reader.text.offset, "the part around the records is damaged")
    processes = document.get(KEY) if isinstance(document, dict) else None
    if not isinstance(processes, list) and not builder.events:
        return None
    processes = [p if isinstance(p, dict) else {} for p in processes or []]
    return builder.rows(processes, reader)


class _JsonRowsBuilder(RowsBuilder):
    """Collects columns; names and devices are stored as keys until the frame of the document is
    known."""

    def __init__(self) -> None:
        super().__init__()
        self._process = 0
        self._begun: set[str] = set()
        self._names = Numbers()
        self._devices: Numbers[tuple[int, int]] = Numbers()
        self._symbols: dict[tuple[int, int], str] = {}
        self._markers: dict[tuple[int, int], str] = {}

    def add(self, key: str, records: list[Any]) -> None:
        """Add one piece; an empty piece announces the array `key`."""
        if key in ("agents", "kernel_symbols") and not records:
            # Each process has each of them once, before its records.
            if key in self._begun:
                self._process += 1
                self._begun.clear()
            self._begun.add(key)
        elif key == "agents":
            for agent in records:
                self._add_agent(agent)
        elif key == "kernel_symbols":
            for symbol in records:
                name = symbol.formatted_kernel_name or symbol.demangled_kernel_name
                self._symbols[self._process, symbol.kernel_id] = kernel_name(
                    name or symbol.kernel_name
                )
        elif key not in _SKIPPED and records:
            if key == "marker_api":
                records = self._without_texts(records)
            self.events += len(records)
            timed = [r for r in records if 0 <= r.start_timestamp <= r.end_timestamp < LATEST_NS]
            if key in _ON_GPU and len(timed) < len(records):
                # Start and duration 0: left out and counted with such work of every format.
                for record in records:
                    if not 0 <= record.start_timestamp <= record.end_timestamp < LATEST_NS:
                        record.start_timestamp = record.end_timestamp = 0
                timed = records
            self._no_time += len(records) - len(timed)
            self._add(key, timed)

    def _without_texts(self, markers: list[_MarkerRecord]) -> list[_MarkerRecord]:
        """Add a piece of ``marker_api``. Two arrays have that name: texts, which are kept here, and
        records."""
        for marker in markers:
            if marker.key != MISSING:
                self._markers[self._process, marker.key] = short_name(marker.value)
        return [marker for marker in markers if marker.key == MISSING]

    def _add_agent(self, agent: dict[str, Any]) -> None:
        index = agent.get("gpu_index", agent.get("logical_node_type_id"))
        handle = _dict(agent.get("id")).get("handle")
        self._agents.add(
            (self._process, handle if isinstance(handle, int) else MISSING),
            is_gpu=agent.get("type") == _GPU_AGENT,
            index=index if isinstance(index, int) else None,
            product=str(agent.get("product_name") or agent.get("name") or ""),
            group=self._process,
        )

    def _add(self, key: str, records: list[_Record]) -> None:
        process = self._process
        start = np.array([r.start_timestamp for r in records], np.int64)
        duration = np.array([r.end_timestamp for r in records], np.int64) - start
        correlation = integers(
            [c.internal if (c := r.correlation_id) is not None else MISSING for r in records]
        )
        thread = self._on((process, r.thread_id) for r in records)
        if key == "kernel_dispatch":
            self._add_kernels(records, start, duration, correlation)
        elif key == "memory_copy":
            self._add_copies(records, start, duration, correlation)
        else:
            kind = _HOST[key]
            keys: list[tuple[Any, ...]] = [("call", process, r.kind, r.operation) for r in records]
            if kind is HostKind.RANGE:
                keys = [("marker", process, c) for c in correlation.tolist()]
            self._add_host(kind, start, duration, self._numbered(keys), thread, correlation)

    def _add_kernels(self, records: list[_Record], start: Any, duration: Any, corr: Any) -> None:
        process, devices = self._process, self._devices
        infos = [r.dispatch_info or _Info() for r in records]
        self._gpu.add(
            gpu_rows(
                start,
                duration,
                self._numbered([("kernel", process, info.kernel_id) for info in infos]),
                GpuKind.KERNEL,
                device=[devices[process, (i.agent_id or _Id()).handle] for i in infos],
                stream=[
                    (r.stream_id or i.queue_id or _Id()).handle
                    for r, i in zip(records, infos, strict=True)
                ],
                correlation=corr,
                work_items=[_sizes(info.grid_size) for info in infos],
                block=[_sizes(info.workgroup_size) for info in infos],
                part=process,
            )
        )

    def _add_copies(self, records: list[_Record], start: Any, duration: Any, corr: Any) -> None:
        process, devices = self._process, self._devices
        self._gpu.add(
            gpu_rows(
                start,
                duration,
                self._numbered([("call", process, r.kind, r.operation) for r in records]),
                GpuKind.MEMCPY,
                device=[
                    devices[process, (r.dst_agent_id or r.src_agent_id or _Id()).handle]
                    for r in records
                ],
                stream=[(r.stream_id or _Id()).handle for r in records],
                correlation=corr,
                size=[r.bytes for r in records],
                part=process,
            )
        )

    def rows(self, processes: list[dict[str, Any]], reader: SectionReader) -> TraceRows:
        """All collected rows, with the names from the frame."""
        texts: Numbers[str] = Numbers()
        of_name = np.array([texts[text] for text in self._texts(processes)], np.int32)
        metadata = [_dict(process.get("metadata")) for process in processes]
        pids = [recorded.get("pid", number) for number, recorded in enumerate(metadata)]
        environments = [_dict(recorded.get("environment")) for recorded in metadata]
        rank, world = rank_of(environments)
        hosts = [str(_dict(recorded.get("node")).get("hostname") or "") for recorded in metadata]
        self.events += reader.text.left_out
        self._problems += reader.text.all_problems()
        self._partial = reader.text.is_partial
        host = next(filter(None, hosts), None)
        rows = self._trace_rows("rocprofv3-json", "records", rank=rank, world_size=world, host=host)
        return dataclasses.replace(
            rows,
            names=tuple(texts),
            threads=tuple(
                f"{pids[process] if 0 <= process < len(pids) else process}/{thread}"
                for process, thread in self._threads
            ),
            gpu=renumbered(rows.gpu, of_name, self._agents.numbers(self._devices)),
            parts=process_parts(pids, environments, [process for process, _ in self._threads]),
            calls=renumbered(rows.calls, of_name),
            operators=renumbered(rows.operators, of_name),
            annotations=renumbered(rows.annotations, of_name),
        )

    def _texts(self, processes: list[dict[str, Any]]) -> list[str]:
        """The name of each numbered key."""
        operations = [
            _list(_dict(process.get("strings")).get("buffer_records")) for process in processes
        ]
        texts = []
        for what, process, *rest in self._names:
            if what == "kernel":
                text = self._symbols.get((process, rest[0]), f"kernel {rest[0]}")
            elif what == "marker":
                text = self._markers.get((process, rest[0]), "")
            else:
                text = _operation(operations, process, *rest)
            texts.append(text)
        return texts


def _operation(operations: list[list[Any]], process: int, kind: int, operation: int) -> str:
    """Names from ``strings.buffer_records``: one entry per kind of record, with its operations by
    number."""
    with contextlib.suppress(IndexError):
        if process >= 0 <= kind and operation >= 0:
            recorded = _dict(operations[process][kind])
            return short_name(str(_list(recorded.get("operations"))[operation]))
    return f"kind {kind} operation {operation}"


def _sizes(size: _Size | None) -> tuple[int, int, int]:
    return (size.x, size.y, size.z) if size is not None else (0, 0, 0)


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
