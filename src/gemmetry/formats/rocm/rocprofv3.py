"""Reads the CSV files of every version of rocprofv3 as columns by name.

Columns come and go between versions (``Stream_Id``, ``Accum_VGPR_Count``, ``Kernel_Id``, times in
counter files), and agents are written as ``4``, ``Agent 4`` or ``GPU 3``: nothing here depends on a
column's position.

The CSV files that rocprofv3 writes for one process -> :class:`TraceRows`.

rocprofv3's ``results.json`` (the "rocprofiler-sdk-tool" document) -> :class:`TraceRows`.

The layout follows rocprofiler-sdk's ``rocprofv3_output_schema.json`` and real files: one element
per process, with names first, then ``buffer_records`` with one array per kind of record. The arrays
are streamed. The file stores grid sizes in work-items; they are converted to workgroups.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

from gemmetry.domain.files import Numbers, short_name
from gemmetry.domain.opening import open_text
from gemmetry.domain.units import counted, noun_for
from gemmetry.formats.events import (
    MISSING,
    GpuKind,
    Int32,
    Int64,
    ProblemKind,
    TraceProblem,
    TraceRows,
)
from gemmetry.formats.json import CHUNK_BYTES, SectionReader, record_decoders
from gemmetry.formats.readers.rocprofv3_json import KEY
from gemmetry.formats.rocm.rows import (
    LATEST_NS,
    Agents,
    CountedGpu,
    HostKind,
    RowsBuilder,
    Triples,
    counted_gpu,
    gpu_rows,
    integers,
    kernel_name,
    mapping,
    process_parts,
    rank_of,
    renumbered,
    usable_times,
)

TABLES = (
    "kernel_trace", "counter_collection", "kernel_stats", "agent_info", "memory_copy_trace",
    "hip_api_trace", "hsa_api_trace", "marker_api_trace", "rccl_api_trace", "hip_stats",
    "hsa_stats", "hip_api_stats", "hsa_api_stats", "memory_copy_stats", "domain_stats",
    "marker_api_stats", "rccl_api_stats", "memory_allocation_trace", "scratch_memory_trace",
)  # fmt: skip

ROWS_A_BLOCK = 50_000

_MOST_PROBLEMS = 100
_FILE = re.compile(rf"(?P<prefix>.*?)_?(?P<table>{'|'.join(TABLES)})\.csv(?P<packed>\.gz|\.zst)?\Z")


@dataclass(slots=True)
class RowBlock:
    """Some rows of a table."""

    columns: dict[str, list[str]]
    first_line: int
    problems: list[TraceProblem] = field(default_factory=list)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def texts(self, name: str) -> list[str]:
        """A column; empty texts where the file has no column of that name."""
        return self.columns.get(name) or [""] * len(self)

    def integers(self, name: str) -> list[int]:
        """A column of integers; ``MISSING`` where a field is not one."""
        return [_integer(text) for text in self.texts(name)]


def table_of(name: str) -> tuple[str, str] | None:
    """(prefix, table) of a file name of rocprofv3, such as ``1234_kernel_trace.csv``; None for
    other names."""
    match = _FILE.match(name)
    return (match["prefix"], match["table"]) if match else None


def siblings(path: Path) -> dict[str, Path]:
    """The files of the same process in the folder of `path`, including `path`, by table."""
    own = table_of(path.name)
    if own is None:
        return {}
    found: dict[str, Path] = {}
    # A folder whose files may be opened but not listed counts as having no others.
    with contextlib.suppress(OSError):
        for file in sorted(path.parent.iterdir()):
            described = table_of(file.name)
            if described is not None and described[0] == own[0] and file.is_file():
                found.setdefault(described[1], file)
    return found | {own[1]: path}


def columns(path: Path) -> set[str]:
    """Names of the columns of a table that has rows.

    Raises:
        RequestError: the file cannot be opened.
    """
    return set(next((block.columns for block in blocks(path)), {}))


def blocks(path: Path) -> Iterator[RowBlock]:
    """The rows of a CSV file, ``ROWS_A_BLOCK`` at a time; rows with too few or too many fields are
    left out and noted.

    Raises:
        RequestError: the file cannot be opened.
    """
    with open_text(path) as text:
        yield from _blocks(text)


def chosen_rows(block: RowBlock, rows: list[int]) -> RowBlock:
    """The rows of `block` with these indices, in that order."""
    if len(rows) == len(block):
        return block
    columns = {name: [column[i] for i in rows] for name, column in block.columns.items()}
    return RowBlock(columns, block.first_line)


def _blocks(text: Iterable[str]) -> Iterator[RowBlock]:
    reader = csv.reader(text)
    problems: list[TraceProblem] = []
    names: list[str] | None = None
    rows: list[list[str]] = []
    first = 2
    lost = 0
    while True:
        try:
            row = next(reader)
        except StopIteration:
            break
        except (csv.Error, OSError) as error:
            _note(problems, reader.line_num, f"cannot be read any further: {error}")
            break
        if names is None:
            names = [name.strip() for name in row]
        elif row == names:
            what = "a second table begins here: not read; give each process's files their own names"
            place = f"line {reader.line_num}"
            problems.append(TraceProblem(place, what, ProblemKind.SECOND_DOCUMENT))
            break
        elif len(row) == len(names):
            rows.append(row)
        elif row:
            lost += 1
            described = f"has {counted(len(row), 'field')} instead of {len(names)}: left out"
            _note(problems, reader.line_num, described)
        if names is not None and len(rows) == ROWS_A_BLOCK:
            yield _block(names, rows, first, problems)
            rows, problems, first = [], [], reader.line_num + 1
    if lost:
        what = f"{counted(lost, 'row')} cannot be read and {noun_for(lost, 'is', 'are')} lost"
        problems.insert(0, TraceProblem("file", what, ProblemKind.LOST_EVENTS, lost))
    if names is not None and (rows or problems):
        yield _block(names, rows, first, problems)


def _note(problems: list[TraceProblem], line: int, what: str) -> None:
    if len(problems) < _MOST_PROBLEMS:
        problems.append(TraceProblem(f"line {line}", what))


def _block(
    names: Sequence[str], rows: list[list[str]], first: int, problems: list[TraceProblem]
) -> RowBlock:
    columns = zip(*rows, strict=True) if rows else [() for _ in names]
    return RowBlock(
        {name: list(column) for name, column in zip(names, columns, strict=True)}, first, problems
    )


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return MISSING


_NEEDED = {
    "kernel_trace": {"Kernel_Name", "Start_Timestamp", "End_Timestamp", "Grid_Size_X"},
    "counter_collection": {"Kernel_Name", "Start_Timestamp", "End_Timestamp", "Dispatch_Id"},
}
_HOST = {
    "hip_api_trace": HostKind.CALL,
    "hsa_api_trace": HostKind.CALL,
    "rccl_api_trace": HostKind.RCCL,
    "marker_api_trace": HostKind.RANGE,
}
"""Tables of the host -> what their rows are."""

_XYZ = ("X", "Y", "Z")


def read_rocprofv3_csv(path: Path) -> TraceRows | None:
    """The rows of a process: of `path` and of the files in the same folder that share its prefix.

    Kernels come from ``kernel_trace.csv``; without one, from ``counter_collection.csv``, if it
    contains times (those of a serialised run).

    Args:
        path: any of the process's CSV files; a file with another name is read alone, as the table
            that its columns identify.

    Returns:
        None if the files contain no kernels of rocprofv3.

    Raises:
        RequestError: a file cannot be opened.
    """
    found = kernel_tables(path)
    if not found:
        return None
    files = siblings(path)
    builder = _CsvRowsBuilder(read_agents(files.get("agent_info"))[0])
    for file, table in found.items():
        is_trace = table == "kernel_trace"
        builder.read(file, builder.kernels if is_trace else builder.counted_kernels)
    if "memory_copy_trace" in files:
        builder.read(files["memory_copy_trace"], builder.copies)
    for table, kind in _HOST.items():
        if table in files:
            builder.read(files[table], partial(builder.host, kind))
    return builder.rows()


def kernel_tables(path: Path) -> dict[Path, str]:
    """The file with the kernels of the process and their times, among `path` and the files in the
    same folder that share its prefix, and which table it is; {} if there is none.

    Raises:
        RequestError: a file cannot be opened.
    """
    files = siblings(path) or {"kernel_trace": path, "counter_collection": path}
    for table, needed in _NEEDED.items():
        if table in files and needed <= columns(files[table]):
            return {files[table]: table}
    return {}


class _CsvRowsBuilder(RowsBuilder):
    def __init__(self, agents: Agents) -> None:
        super().__init__()
        self._agents = agents
        self._seen: set[str] = set()

    def read(self, path: Path, add: Callable[[RowBlock], None]) -> None:
        """Add all rows of a file."""
        for block in blocks(path):
            self.events += len(block)
            for problem in block.problems:
                self._partial |= (
                    "any further" in problem.what or problem.kind is not ProblemKind.DAMAGED
                )
                where = f"{path.name} {problem.where}"
                self._problems.append(dataclasses.replace(problem, where=where))
            add(block)

    def kernels(self, block: RowBlock) -> None:
        """Add rows of ``kernel_trace.csv``."""
        self._add_kernels(block, lambda name, block: _triples(block, name))

    def counted_kernels(self, block: RowBlock) -> None:
        """Add each dispatch of ``counter_collection.csv`` once; the file has one row per
        counter."""
        first = []
        for index, number in enumerate(block.texts("Dispatch_Id")):
            if number not in self._seen:
                self._seen.add(number)
                first.append(index)
        self._add_kernels(
            chosen_rows(block, first),
            lambda name, block: [(max(0, n), 1, 1) for n in block.integers(name)],
        )

    def _add_kernels(self, block: RowBlock, sizes: Callable[[str, RowBlock], Triples]) -> None:
        start, duration = self._gpu_times(block)
        self._gpu.add(
            gpu_rows(
                start,
                duration,
                self._numbered([kernel_name(name) for name in block.texts("Kernel_Name")]),
                GpuKind.KERNEL,
                device=self._devices(block.texts("Agent_Id")),
                stream=self._streams(block),
                correlation=integers(block.integers("Correlation_Id")),
                work_items=sizes("Grid_Size", block),
                block=sizes("Workgroup_Size", block),
            )
        )

    def copies(self, block: RowBlock) -> None:
        """Add rows of ``memory_copy_trace.csv``."""
        start, duration = self._gpu_times(block)
        target = self._devices(block.texts("Destination_Agent_Id"))
        source = self._devices(block.texts("Source_Agent_Id"))
        self._gpu.add(
            gpu_rows(
                start,
                duration,
                self._numbered(block.texts("Direction")),
                GpuKind.MEMCPY,
                device=[t if t >= 0 else s for t, s in zip(target, source, strict=True)],
                stream=self._streams(block),
                correlation=integers(block.integers("Correlation_Id")),
            )
        )

    def host(self, kind: HostKind, block: RowBlock) -> None:
        """Add rows of a table of :data:`_HOST`."""
        block, start, duration = self._timed(block)
        name = self._numbered(block.texts("Function"))
        correlation = integers(block.integers("Correlation_Id"))
        self._add_host(kind, start, duration, name, self._thread(block), correlation)

    @staticmethod
    def _gpu_times(block: RowBlock) -> tuple[Int64, Int64]:
        """Start and duration in ns; both are 0 for work without a usable time."""
        start = integers(block.integers("Start_Timestamp"))
        end = integers(block.integers("End_Timestamp"))
        return usable_times(start, end)

    def _timed(self, block: RowBlock) -> tuple[RowBlock, Int64, Int64]:
        """The rows that have a time, with start and duration in ns."""
        start = integers(block.integers("Start_Timestamp"))
        end = integers(block.integers("End_Timestamp"))
        good = np.flatnonzero((start >= 0) & (end >= start) & (end < LATEST_NS))
        self._no_time += len(start) - len(good)
        return chosen_rows(block, good.tolist()), start[good], (end - start)[good]

    def _thread(self, block: RowBlock) -> Int32:
        return self._on(zip(block.texts("Process_Id"), block.texts("Thread_Id"), strict=True))

    def _devices(self, texts: list[str]) -> list[int]:
        distinct = {text: device_number(self._agents, text) for text in set(texts)}
        return [distinct[text] for text in texts]

    @staticmethod
    def _streams(block: RowBlock) -> list[int]:
        return block.integers("Stream_Id" if "Stream_Id" in block.columns else "Queue_Id")

    def rows(self) -> TraceRows:
        """All collected rows."""
        return self._trace_rows("rocprofv3-csv")


def read_agents(path: Path | None) -> tuple[Agents, dict[int, CountedGpu]]:
    """The processors in ``agent_info.csv``, and what it records of each GPU, by number."""
    agents, gpus = Agents(), {}
    for block in blocks(path) if path is not None else ():
        by_name = {name.lower(): column for name, column in block.columns.items()}
        nodes, kinds = block.integers("Node_Id"), block.texts("Agent_Type")
        products, names = block.texts("Product_Name"), block.texts("Name")
        for row, (node, kind) in enumerate(zip(nodes, kinds, strict=True)):
            product = products[row] or names[row]
            agents.add(node, is_gpu=kind == "GPU", index=None, product=product)
            gpu = counted_gpu({name: column[row] for name, column in by_name.items()}.get)
            if gpu is not None and kind == "GPU":
                gpus[int(agents.numbers([node])[0])] = gpu
    return agents, gpus


def device_number(agents: Agents, text: str) -> int:
    """The GPU's number, of an agent such as ``4``, ``Agent 4`` or ``GPU 3``."""
    match = re.search(r"(\d{1,9})\s*\Z", text)
    number = int(match[1]) if match else MISSING
    # Without agent_info.csv the agent's own number is the best available name.
    if text.startswith("GPU") or not agents.products():
        return number
    return int(agents.numbers([number])[0])


def _triples(block: RowBlock, name: str) -> list[tuple[int, int, int]]:
    x, y, z = (block.integers(f"{name}_{axis}") for axis in _XYZ)
    return [(max(0, a), max(0, b), max(0, c)) for a, b, c in zip(x, y, z, strict=True)]


GPU_AGENT = 2
"""``type`` of an agent; 1 is a CPU."""

_JSON_HOST = {
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


class Handle(msgspec.Struct, gc=False):
    """A reference to an agent, a queue, a stream or a counter."""

    handle: int = 0


class Extent(msgspec.Struct, gc=False):
    """Work-items by dimension."""

    x: int = 0
    y: int = 0
    z: int = 0

    @property
    def sizes(self) -> tuple[int, int, int]:
        """All three."""
        return self.x, self.y, self.z


class DispatchInfo(msgspec.Struct, gc=False):
    """The description of a kernel's execution."""

    agent_id: Handle | None = None
    queue_id: Handle | None = None
    kernel_id: int = 0
    dispatch_id: int = MISSING
    private_segment_size: int = MISSING
    group_segment_size: int = MISSING
    workgroup_size: Extent | None = None
    grid_size: Extent | None = None


class _Correlation(msgspec.Struct, gc=False):
    internal: int = MISSING


class Record(msgspec.Struct, gc=False):
    """Any entry of ``buffer_records``, and the dispatch in one of ``counter_collection``."""

    kind: int = 0
    operation: int = 0
    thread_id: int = 0
    correlation_id: _Correlation | None = None
    start_timestamp: int = MISSING
    end_timestamp: int = MISSING
    dispatch_info: DispatchInfo | None = None
    stream_id: Handle | None = None
    dst_agent_id: Handle | None = None
    src_agent_id: Handle | None = None
    bytes: int = MISSING


class Symbol(msgspec.Struct, gc=False):
    """An entry of ``kernel_symbols``."""

    kernel_id: int = MISSING
    formatted_kernel_name: str = ""
    demangled_kernel_name: str = ""
    kernel_name: str = ""
    arch_vgpr_count: int = MISSING
    accum_vgpr_count: int = MISSING
    sgpr_count: int = MISSING

    @property
    def name(self) -> str:
        """The kernel's name, the most readable that is recorded; "" for none."""
        return self.formatted_kernel_name or self.demangled_kernel_name or self.kernel_name


class Skipped(msgspec.Struct, gc=False):
    """An entry of an array that is skipped."""


class _MarkerRecord(Record, gc=False):
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
        **{key: record_decoders(Record) for key in _ON_GPU},
        **{
            key: record_decoders(_MarkerRecord if kind is HostKind.RANGE else Record)
            for key, kind in _JSON_HOST.items()
        },
        "kernel_symbols": record_decoders(Symbol),
        "agents": record_decoders(dict),
        **{key: record_decoders(Skipped) for key in _SKIPPED},
    }
    reader = SectionReader(file, decoders, KEY, chunk_bytes=chunk_bytes)
    builder = _JsonRowsBuilder()
    for key, records in reader:
        builder.add(key, records)
    processes = frame_processes(reader)
    if processes is None and not builder.events:
        return None
    return builder.rows(processes or [], reader)


def frame_processes(reader: SectionReader) -> list[dict[str, Any]] | None:
    """What the document holds of each process around the records; None if it lists none."""
    try:
        document = json.loads(reader.frame.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        document = None
        reader.text.note(reader.text.offset, "the part around the records is damaged")
    processes = mapping(document).get(KEY)
    return list(map(mapping, processes)) if isinstance(processes, list) else None


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
                self._symbols[self._process, symbol.kernel_id] = kernel_name(symbol.name)
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
        handle = mapping(agent.get("id")).get("handle")
        self._agents.add(
            (self._process, handle if isinstance(handle, int) else MISSING),
            is_gpu=agent.get("type") == GPU_AGENT,
            index=index if isinstance(index, int) else None,
            product=str(agent.get("product_name") or agent.get("name") or ""),
            group=self._process,
        )

    def _add(self, key: str, records: list[Record]) -> None:
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
            kind = _JSON_HOST[key]
            keys: list[tuple[Any, ...]] = [("call", process, r.kind, r.operation) for r in records]
            if kind is HostKind.RANGE:
                keys = [("marker", process, c) for c in correlation.tolist()]
            self._add_host(kind, start, duration, self._numbered(keys), thread, correlation)

    def _add_kernels(self, records: list[Record], start: Any, duration: Any, corr: Any) -> None:
        process, devices = self._process, self._devices
        infos = [r.dispatch_info or DispatchInfo() for r in records]
        self._gpu.add(
            gpu_rows(
                start,
                duration,
                self._numbered([("kernel", process, info.kernel_id) for info in infos]),
                GpuKind.KERNEL,
                device=[devices[process, (i.agent_id or Handle()).handle] for i in infos],
                stream=[
                    (r.stream_id or i.queue_id or Handle()).handle
                    for r, i in zip(records, infos, strict=True)
                ],
                correlation=corr,
                work_items=[(info.grid_size or Extent()).sizes for info in infos],
                block=[(info.workgroup_size or Extent()).sizes for info in infos],
                part=process,
            )
        )

    def _add_copies(self, records: list[Record], start: Any, duration: Any, corr: Any) -> None:
        process, devices = self._process, self._devices
        self._gpu.add(
            gpu_rows(
                start,
                duration,
                self._numbered([("call", process, r.kind, r.operation) for r in records]),
                GpuKind.MEMCPY,
                device=[
                    devices[process, (r.dst_agent_id or r.src_agent_id or Handle()).handle]
                    for r in records
                ],
                stream=[(r.stream_id or Handle()).handle for r in records],
                correlation=corr,
                size=[r.bytes for r in records],
                part=process,
            )
        )

    def rows(self, processes: list[dict[str, Any]], reader: SectionReader) -> TraceRows:
        """All collected rows, with the names from the frame."""
        texts: Numbers[str] = Numbers()
        of_name = np.array([texts[text] for text in self._texts(processes)], np.int32)
        metadata = [mapping(process.get("metadata")) for process in processes]
        pids = [recorded.get("pid", number) for number, recorded in enumerate(metadata)]
        environments = [mapping(recorded.get("environment")) for recorded in metadata]
        rank, world = rank_of(environments)
        hosts = [str(mapping(recorded.get("node")).get("hostname") or "") for recorded in metadata]
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
            _list(mapping(process.get("strings")).get("buffer_records")) for process in processes
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
            recorded = mapping(operations[process][kind])
            return short_name(str(_list(recorded.get("operations"))[operation]))
    return f"kind {kind} operation {operation}"


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
