"""The tables of ``results.json``, the "rocprofiler-sdk-tool" document of rocprofv3.

The layout follows rocprofiler-sdk's ``rocprofv3_output_schema.json`` and real files: one element
per process, with names first, then ``buffer_records`` with one array per kind of record. The arrays
are streamed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, BinaryIO

import msgspec

from gemmetry.domain.files import Numbers, short_name
from gemmetry.formats.events import MISSING, Int32
from gemmetry.formats.json import CHUNK_BYTES, SectionReader, record_decoders
from gemmetry.formats.readers.rocprofv3 import KEY
from gemmetry.formats.rocm.tables import (
    HOST,
    XYZ,
    Block,
    Kind,
    Process,
    Tables,
    kernel_name,
    mapping,
)

_GPU_AGENT = 2
"""``type`` of an agent; 1 is a CPU."""

_SKIPPED = (
    "memory_allocation", "scratch_memory", "rocdecode_api", "rocjpeg_api", "pc_sample_host_trap",
    "pc_sample_stochastic", "code_objects", "host_functions",
)  # fmt: skip


class _Handle(msgspec.Struct, gc=False):
    """A reference to an agent, a queue, a stream or a counter."""

    handle: int = 0


class _Extent(msgspec.Struct, gc=False):
    """Work-items by dimension."""

    x: int = 0
    y: int = 0
    z: int = 0


class _DispatchInfo(msgspec.Struct, gc=False):
    agent_id: _Handle | None = None
    queue_id: _Handle | None = None
    kernel_id: int = 0
    dispatch_id: int = MISSING
    private_segment_size: int = MISSING
    group_segment_size: int = MISSING
    workgroup_size: _Extent | None = None
    grid_size: _Extent | None = None


class _Correlation(msgspec.Struct, gc=False):
    internal: int = MISSING


class _Record(msgspec.Struct, gc=False):
    """Any entry of ``buffer_records``, and the dispatch in one of ``counter_collection``."""

    kind: int = 0
    operation: int = 0
    thread_id: int = 0
    correlation_id: _Correlation | None = None
    start_timestamp: int = MISSING
    end_timestamp: int = MISSING
    dispatch_info: _DispatchInfo | None = None
    stream_id: _Handle | None = None
    dst_agent_id: _Handle | None = None
    src_agent_id: _Handle | None = None
    bytes: int = MISSING


class _MarkerRecord(_Record, gc=False):
    """An entry of ``buffer_records.marker_api``, or of ``strings.marker_api``, which holds the
    texts."""

    key: int = MISSING
    value: str = ""


class _Symbol(msgspec.Struct, gc=False):
    """An entry of ``kernel_symbols``."""

    kernel_id: int = MISSING
    formatted_kernel_name: str = ""
    demangled_kernel_name: str = ""
    kernel_name: str = ""
    arch_vgpr_count: int = MISSING
    accum_vgpr_count: int = MISSING
    sgpr_count: int = MISSING


class _Value(msgspec.Struct, gc=False):
    counter_id: _Handle | None = None
    value: float = 0.0


class _Counted(msgspec.Struct, gc=False):
    """An entry of ``counter_collection``."""

    dispatch_data: _Record | None = None
    records: list[_Value] = []
    arch_vgpr_count: int = MISSING
    sgpr_count: int = MISSING
    lds_block_size_v: int = MISSING


class _Skipped(msgspec.Struct, gc=False):
    """An entry of an array that is skipped."""


class JsonTables(Tables):
    """A ``results.json``; several processes in one file are combined.

    Names and devices of events are stored as keys until the frame of the document is known.

    Args:
        file: opened at its beginning, decompressed.
        chunk_bytes: number of bytes read at a time; does not affect the rows.
    """

    format = "rocprofv3-json"
    untimed = "records"

    def __init__(
        self, file: BinaryIO, *, counters: bool = False, chunk_bytes: int = CHUNK_BYTES
    ) -> None:
        super().__init__(counters=counters)
        kinds: dict[str, type] = {
            "kernel_dispatch": _Record, "memory_copy": _Record, **dict.fromkeys(HOST, _Record),
            "marker_api": _MarkerRecord, **dict.fromkeys(_SKIPPED, _Skipped),
            "counter_collection": _Skipped,
        }  # fmt: skip
        if counters:
            kinds = {
                **dict.fromkeys(kinds, _Skipped), "kernel_dispatch": _Record,
                "counter_collection": _Counted, "counters": dict,
            }  # fmt: skip
        self._read = {key for key, kind in kinds.items() if kind is not _Skipped}
        kinds |= {"agents": dict, "kernel_symbols": _Symbol}
        decoders = {key: record_decoders(kind) for key, kind in kinds.items()}
        self._reader = SectionReader(file, decoders, KEY, chunk_bytes=chunk_bytes)
        self._devices: Numbers[tuple[int, int]] = Numbers()
        self._symbols: dict[tuple[int, int], _Symbol] = {}
        self._texts: dict[tuple[str, int, int], str] = {}
        """Texts of markers and counters, by number."""
        self._operations: list[Any] = []
        """Operations by number, for each process and kind of record."""
        self.is_found = False
        """Whether the document is of this format."""

    def blocks(self) -> Iterator[Block]:
        """All rows, in blocks."""
        process = 0
        begun: set[str] = set()
        held: dict[int, dict[str, list[Any]]] = {}
        for key, records in self._reader:
            if key in ("agents", "kernel_symbols") and not records:
                # Each process has each of them once, before its records.
                if key in begun:
                    process += 1
                    begun.clear()
                begun.add(key)
            elif key in ("agents", "kernel_symbols", "counters"):
                self._describe(key, records, process)
            elif key in self._read and records and self.counters:
                held.setdefault(process, {}).setdefault(key, []).extend(records)
            elif key in self._read and records:
                yield from self._block(key, records, process)
        self._take_frame(process + 1 if begun else 0)
        for process, arrays in held.items():
            for key in ("counter_collection", "kernel_dispatch"):
                if key in arrays:
                    yield from self._block(key, arrays[key], process)
                    break

    def _describe(self, key: str, records: list[Any], process: int) -> None:
        for one in records:
            if key == "kernel_symbols":
                self._symbols[process, one.kernel_id] = one
            elif key == "counters":
                self._texts[key, process, _handle(one.get("id"))] = str(one.get("name", ""))
            elif one.get("type") == _GPU_AGENT:
                index = one.get("gpu_index", one.get("logical_node_type_id"))
                self.agents.add((process, _handle(one.get("id"))), index, one.get, process)

    def _block(self, key: str, records: list[Any], process: int) -> Iterator[Block]:
        if key == "marker_api":
            # Two arrays have that name: texts, which are kept here, and records.
            texts = [one for one in records if one.key != MISSING]
            self._texts |= {(key, process, one.key): short_name(one.value) for one in texts}
            records = [one for one in records if one.key == MISSING]
        self.events += len(records)
        counted = records if key == "counter_collection" else []
        records = [one.dispatch_data or _Record() for one in counted] or records
        columns: dict[str, Sequence[Any]] = {
            "Start_Timestamp": [one.start_timestamp for one in records],
            "End_Timestamp": [one.end_timestamp for one in records],
            "Correlation_Id": [
                c.internal if (c := one.correlation_id) is not None else MISSING for one in records
            ],
        }
        if key in ("kernel_dispatch", "counter_collection"):
            columns |= self._of_kernels(records, process)
            if self.counters:
                columns |= self._registers(records, counted, process)
            yield Block(Kind.KERNEL, columns, process)
        else:
            columns |= self._of_others(key, records, columns["Correlation_Id"], process)
            yield Block(HOST.get(key, Kind.COPY), columns, process)
        values = [(key, _handle_of(one.counter_id), one.value)
                  for key, found in enumerate(counted) for one in found.records]  # fmt: skip
        if values:
            names = {h: self._texts.get(("counters", process, h), f"counter {h}")
                     for _, h, _ in values}  # fmt: skip
            yield Block(Kind.VALUE, {
                "Key": [key for key, _, _ in values],
                "Counter_Name": [names[handle] for _, handle, _ in values],
                "Counter_Value": [value for *_, value in values],
            }, process)  # fmt: skip

    def _of_kernels(self, records: Sequence[_Record], process: int) -> dict[str, Sequence[Any]]:
        infos = [one.dispatch_info or _DispatchInfo() for one in records]
        return {
            "Name": [("kernel", process, info.kernel_id) for info in infos],
            "Device": [self._devices[process, _handle_of(info.agent_id)] for info in infos],
            "Stream_Id": [_handle_of(one.stream_id or info.queue_id)
                          for one, info in zip(records, infos, strict=True)],
            **_by_axis("Grid_Size", [info.grid_size or _Extent() for info in infos]),
            **_by_axis("Workgroup_Size", [info.workgroup_size or _Extent() for info in infos]),
        }  # fmt: skip

    def _of_others(
        self, key: str, records: Sequence[_Record], correlation: Sequence[int], process: int
    ) -> dict[str, Sequence[Any]]:
        names: list[tuple[Any, ...]] = [("", process, one.kind, one.operation) for one in records]
        if key == "marker_api":
            names = [(key, process, number) for number in correlation]
        own: dict[str, Sequence[Any]] = {
            "Name": names, "Process_Id": [None] * len(records),
            "Thread_Id": [one.thread_id for one in records],
        }  # fmt: skip
        if key == "memory_copy":
            agents = [_handle_of(one.dst_agent_id or one.src_agent_id) for one in records]
            own |= {
                "Device": [self._devices[process, agent] for agent in agents],
                "Stream_Id": [_handle_of(one.stream_id) for one in records],
                "Bytes": [one.bytes for one in records],
            }
        return own

    def _registers(
        self, records: Sequence[_Record], counted: Sequence[_Counted], process: int
    ) -> dict[str, Sequence[Any]]:
        """The columns of dispatches that only counters need."""
        infos = [one.dispatch_info or _DispatchInfo() for one in records]
        symbols = [self._symbols.get((process, info.kernel_id), _Symbol()) for info in infos]
        found = list(zip(infos, symbols, counted or [_Counted()] * len(records), strict=True))
        return {
            "Key": range(len(records)),
            "Dispatch_Id": [info.dispatch_id for info in infos],
            "LDS_Block_Size": [max(i.group_segment_size, c.lds_block_size_v) for i, _, c in found],
            "Scratch_Size": [info.private_segment_size for info in infos],
            "VGPR_Count": [max(s.arch_vgpr_count, c.arch_vgpr_count) for _, s, c in found],
            "Accum_VGPR_Count": [one.accum_vgpr_count for one in symbols],
            "SGPR_Count": [max(s.sgpr_count, c.sgpr_count) for _, s, c in found],
        }

    def _take_frame(self, begun: int) -> None:
        """Read what the document holds of each process around the records."""
        reader = self._reader
        try:
            document = json.loads(reader.frame.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            document = None
            reader.text.note(reader.text.offset, "the part around the records is damaged")
        frame = mapping(document).get(KEY)
        self.is_found = isinstance(frame, list) or self.events > 0
        listed = list(map(mapping, frame)) if isinstance(frame, list) else []
        for number, one in enumerate([*listed, *[{}] * (begun - len(listed))]):
            recorded = mapping(one.get("metadata"))
            pid, command = recorded.get("pid"), recorded.get("command")
            self.processes.append(Process(
                label=recorded.get("pid", number), pid=pid if isinstance(pid, int) else None,
                host=str(mapping(recorded.get("node")).get("hostname") or ""),
                environment=mapping(recorded.get("environment")),
                command=" ".join(map(str, command)) if isinstance(command, list) else "",
            ))  # fmt: skip
            self._operations.append(mapping(one.get("strings")).get("buffer_records"))
        self.events += reader.text.left_out
        self.problems += reader.text.all_problems()
        self.partial = reader.text.is_partial

    def name(self, key: tuple[Any, ...]) -> str:
        """The text of a key in the column ``Name``."""
        what, process, number, *rest = key
        if what == "kernel":
            found = self._symbols.get((process, number), _Symbol())
            text = found.formatted_kernel_name or found.demangled_kernel_name or found.kernel_name
            return kernel_name(text or f"kernel {number}")
        if what:
            return self._texts.get(key, "")
        (operation,) = rest
        with contextlib.suppress(IndexError, TypeError, KeyError):
            if number >= 0 and operation >= 0:
                return short_name(str(self._operations[process][number]["operations"][operation]))
        return f"kind {number} operation {operation}"

    def devices(self, numbers: Int32) -> Int32:
        """The numbers of the GPUs in the column ``Device``."""
        return self.agents.numbers(self._devices)[numbers]


def _handle_of(reference: _Handle | None) -> int:
    return reference.handle if reference is not None else 0


def _handle(identifier: object) -> int:
    handle = mapping(identifier).get("handle")
    return handle if isinstance(handle, int) else MISSING


def _by_axis(name: str, sizes: Sequence[_Extent]) -> dict[str, Sequence[int]]:
    return {f"{name}_{axis}": list(map(attrgetter(axis.lower()), sizes)) for axis in XYZ}
