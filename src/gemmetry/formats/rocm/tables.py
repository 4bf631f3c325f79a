"""The tables that rocprofv3 writes, in the form that the readers of all its formats return, and the
reader of its CSV files.

Columns come and go between versions (``Stream_Id``, ``Accum_VGPR_Count``, ``Kernel_Id``, times in
counter files), and agents are written as ``4``, ``Agent 4`` or ``GPU 3``: nothing depends on a
column's position.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gemmetry.domain.files import short_name
from gemmetry.domain.opening import open_text
from gemmetry.domain.units import noun_for, plural
from gemmetry.formats.events import MISSING, Int32, Int64, ProblemKind, TraceProblem

ROWS_A_BLOCK = 50_000

_MOST_PROBLEMS = 100
_MARKS = ("[clone .kd]", "(.kd)", ".kd")
XYZ = ("X", "Y", "Z")


class Kind(Enum):
    """Kind of a row."""

    KERNEL = "kernel"
    COPY = "copy"
    CALL = "HIP or HSA call"
    RCCL = "RCCL call"
    RANGE = "ROCTx range"
    VALUE = "value of a counter for a kernel"


HOST = {"hip_api": Kind.CALL, "hsa_api": Kind.CALL, "rccl_api": Kind.RCCL,
         "marker_api": Kind.RANGE}  # fmt: skip
"""Tables of the host -> kind of their rows."""


@dataclass(slots=True)
class Block:
    """Some rows of a table, of one process.

    Columns are named as in CSV files. In addition, ``Name`` is a key for :meth:`Tables.name`,
    ``Device`` the number of the GPU, and ``Key`` links the values of counters to their kernel.
    """

    kind: Kind
    columns: Mapping[str, Sequence[Any]]
    process: int = 0

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def column(self, name: str) -> Sequence[Any]:
        """A column; empty texts where the file has no column of that name."""
        return self.columns.get(name) or [""] * len(self)

    def wholes(self, name: str) -> Int64:
        """A column of integers; ``MISSING`` where a field is not one."""
        return integers(self.column(name))

    def axes(self, name: str) -> list[str]:
        """Columns of sizes by dimension, or the column of their product, where the file has no
        others."""
        return [name] if name in self.columns else [f"{name}_{axis}" for axis in XYZ]

    def at(self, rows: Sequence[int]) -> Block:
        """The rows with these indices, in that order."""
        if len(rows) == len(self):
            return self
        columns = {name: [column[i] for i in rows] for name, column in self.columns.items()}
        return dataclasses.replace(self, columns=columns)


def whole_numbers(values: Sequence[Any]) -> Sequence[int]:
    """The values as whole numbers; ``MISSING`` for those that are none."""
    kinds = set(map(type, values))
    if kinds == {str}:
        with contextlib.suppress(ValueError):
            return list(map(int, values))
    return values if kinds == {int} else [v if type(v) is int else _whole(v) for v in values]


def integers(values: Sequence[Any]) -> Int64:
    """The values as 64-bit integers; ``MISSING`` for those that are none, or do not fit."""
    found = whole_numbers(values)
    try:
        return np.array(found, np.int64)
    except OverflowError:
        return np.array([v if -(2**63) <= v < 2**63 else MISSING for v in found], np.int64)


def _whole(value: object) -> int:
    try:
        return int(value) if isinstance(value, str) else MISSING
    except ValueError:
        return MISSING


def kernel_name(name: str) -> str:
    """The name without the suffix of a kernel descriptor (``.kd``), shortened where it is too
    long."""
    text = name.rstrip()
    mark = next((mark for mark in _MARKS if text.endswith(mark)), None)
    return short_name(name if mark is None else text.removesuffix(mark).rstrip())


def mapping(value: object) -> dict[str, Any]:
    """`value` if it is an object of JSON, else an empty one."""
    return value if isinstance(value, dict) else {}


GPU_FACTS = ("cu_count", "simd_count", "num_xcc", "max_waves_per_cu")
"""Columns with the numbers of :class:`CountedGpu`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedGpu:
    """GPU as recorded by rocprofv3; fields as in
    :class:`~gemmetry.hardware.amd_counters.AmdGpu`."""

    chip: str
    product: str
    units: int
    simds: int
    xccs: int
    waves_per_unit: int

    @property
    def facts(self) -> dict[str, int]:
        """The known numbers, under the names of rocprofv3's columns."""
        numbers = self.units, self.simds, self.xccs, self.waves_per_unit
        return {name: one for name, one in zip(GPU_FACTS, numbers, strict=True) if one}


class Agents:
    """GPUs as rocprofv3 lists them, numbered as HIP numbers them."""

    def __init__(self) -> None:
        self.products: dict[int, str] = {}
        self.gpus: dict[int, dict[int, CountedGpu]] = {}
        """Process -> number -> GPU, where the file describes it completely."""
        self._numbers: dict[Hashable, int] = {}
        self._counts: dict[int, int] = {}

    def add(
        self, key: Hashable, index: object, value: Callable[[str], Any], process: int = 0
    ) -> None:
        """Add one GPU.

        Args:
            key: identifies it in records.
            index: its number among the GPUs of the process, in whose order it is counted where this
                is no possible number.
            value: a property by its name, such as ``cu_count``.
            process: number of the process.
        """
        number = self._counts.get(process, 0)
        self._counts[process] = number + 1
        if isinstance(index, int) and 0 <= index < 2**31:
            number = index
        self._numbers[key] = number
        self.products.setdefault(number, str(value("product_name") or value("name") or ""))
        facts = whole_numbers([value(name) for name in GPU_FACTS])
        if min(facts) > 0:
            units, simds, xccs, waves = facts
            self.gpus.setdefault(process, {})[number] = CountedGpu(
                chip=str(value("name") or ""), product=str(value("product_name") or ""),
                units=units, simds=simds, xccs=xccs, waves_per_unit=waves,
            )  # fmt: skip

    def numbers(self, keys: Iterable[Hashable]) -> Int32:
        """The device number of each key; ``MISSING`` where the key is not that of a listed GPU."""
        return np.array([self._numbers.get(key, MISSING) for key in keys], np.int32)


@dataclass(slots=True)
class Process:
    """Process as stated in a file."""

    label: object
    """Number, for display."""
    pid: int | None = None
    host: str = ""
    environment: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""


class Tables(ABC):
    """The tables of a file, or of the files of one process; what it states besides them is known
    after the last block.

    Args:
        counters: read the values of counters, and not what ran on the host.
    """

    format: ClassVar[str]
    untimed: ClassVar[str] = "rows"
    """Format's word for the records of which some have no usable time."""

    def __init__(self, *, counters: bool) -> None:
        self.counters = counters
        self.events = 0
        self.problems: list[TraceProblem] = []
        self.partial = False
        self.agents = Agents()
        self.processes: list[Process] = []

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """All rows, in blocks."""

    def name(self, key: Any) -> str:
        """The text of a key in the column ``Name``."""
        return str(key)

    def devices(self, numbers: Int32) -> Int32:
        """The numbers of the GPUs in the column ``Device``."""
        return numbers


# CSV ---------------------------------------------------------------------------------------------

TABLES = (
    "kernel_trace", "counter_collection", "kernel_stats", "agent_info", "memory_copy_trace",
    "hip_api_trace", "hsa_api_trace", "marker_api_trace", "rccl_api_trace", "hip_stats",
    "hsa_stats", "hip_api_stats", "hsa_api_stats", "memory_copy_stats", "domain_stats",
    "marker_api_stats", "rccl_api_stats", "memory_allocation_trace", "scratch_memory_trace",
)  # fmt: skip
_FILE = re.compile(rf"(?P<prefix>.*?)_?(?P<table>{'|'.join(TABLES)})\.csv(?P<packed>\.gz|\.zst)?\Z")
_NEEDED = {
    "kernel_trace": {"Kernel_Name", "Start_Timestamp", "End_Timestamp", "Grid_Size_X"},
    "counter_collection": {"Kernel_Name", "Start_Timestamp", "End_Timestamp", "Dispatch_Id"},
}
_EXECUTION = ("Agent_Id", "Dispatch_Id", "Start_Timestamp", "End_Timestamp")
"""GPU and number of a dispatch, and the times of its execution: a replay has other times."""
_EARLIER = {"Stream_Id": "Queue_Id", "LDS_Block_Size": "Group_Segment_Size",
            "Scratch_Size": "Private_Segment_Size"}  # fmt: skip
"""Column -> the one that files without it have."""


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


def kernel_tables(path: Path) -> dict[str, Path]:
    """The file with the kernels of the process and their times, by its table; {} if none has.

    It is searched among `path` and the files in the same folder that share its prefix.

    Raises:
        RequestError: a file cannot be opened.
    """
    files = siblings(path) or dict.fromkeys(_NEEDED, path)
    for table, needed in _NEEDED.items():
        if table in files and needed <= set(next(_csv_columns(files[table], []), {})):
            return {table: files[table]}
    return {}


def is_of_kernels(name: str) -> bool:
    """Whether a file of this name has kernels."""
    found = table_of(name)
    return found is not None and found[1] in _NEEDED


def has_kernels(path: Path) -> bool:
    """Whether a file is the one from which the kernels of its process are read."""
    return path in kernel_tables(path).values()


def files_of_process(path: Path) -> list[Path]:
    """All files of the process to which a file belongs, in the order of their tables."""
    tables = siblings(path)
    return [tables[table] for table in sorted(tables)] or [path]


class CsvTables(Tables):
    """The CSV files of one process.

    Kernels come from ``kernel_trace.csv``; without one, from ``counter_collection.csv``, if it
    contains times (those of a serialised run). Counters are searched for in reverse order.

    Args:
        path: any of the process's CSV files; a file with another name is read alone, as the table
            that its columns identify.
    """

    format = "rocprofv3-csv"

    def __init__(self, path: Path, *, counters: bool = False) -> None:
        super().__init__(counters=counters)
        self._files = siblings(path)
        self.kernels = kernel_tables(path)
        """The files with kernels, by table."""
        if counters:
            found = self._files or {"counter_collection": path}
            self.kernels = {name: found[name] for name in reversed(_NEEDED) if name in found}
        self._seen: set[tuple[str, ...]] = set()

    def blocks(self) -> Iterator[Block]:
        """All rows, in blocks."""
        self.processes.append(Process(0))
        self._read_agents()
        for table, path in self.kernels.items():
            if not self._seen:
                for columns in self._columns(path):
                    yield from self._of_kernels(Block(Kind.KERNEL, columns), table)
        if self.counters:
            return
        for table, kind in {"memory_copy": Kind.COPY, **HOST}.items():
            if f"{table}_trace" in self._files:
                for columns in self._columns(self._files[f"{table}_trace"]):
                    yield self._of_host(Block(kind, columns))

    def _columns(self, path: Path) -> Iterator[dict[str, list[str]]]:
        problems: list[TraceProblem] = []
        for columns in _csv_columns(path, problems):
            self.events += len(next(iter(columns.values()), ()))
            for name, earlier in _EARLIER.items():
                if name not in columns and earlier in columns:
                    columns[name] = columns[earlier]
            yield columns
        self.partial |= any(
            "any further" in one.what or one.kind is not ProblemKind.DAMAGED for one in problems
        )
        self.problems += problems

    def _read_agents(self) -> None:
        """Read the processors in ``agent_info.csv``."""
        path = self._files.get("agent_info")
        for columns in _csv_columns(path, []) if path is not None else ():
            by_name = {name.lower(): column for name, column in columns.items()}
            block = Block(Kind.KERNEL, columns)
            kinds = block.column("Agent_Type")
            for row, (node, kind) in enumerate(zip(block.wholes("Node_Id").tolist(), kinds,
                                                   strict=True)):  # fmt: skip
                if kind == "GPU":
                    own = {name: column[row] for name, column in by_name.items()}
                    self.agents.add(node, None, own.get)

    def _of_kernels(self, block: Block, table: str) -> Iterator[Block]:
        """Yield each dispatch once; a file of counters has one row per counter."""
        pids = block.wholes("Process_Id")
        if self.processes[0].pid is None and len(pids) and pids[0] >= 0:
            self.processes[0].pid = int(pids[0])
        known = _EXECUTION if self.counters else ("Dispatch_Id",)
        keys = list(zip(*map(block.column, known), strict=True))
        dispatches = block
        if self.counters or table == "counter_collection":
            first = {key: row for row, key in reversed(list(enumerate(keys)))
                     if key not in self._seen}  # fmt: skip
            dispatches = block.at(sorted(first.values()))
            self._seen |= first.keys()
        kernels = {name: kernel_name(name) for name in set(dispatches.column("Kernel_Name"))}
        own: dict[str, Sequence[Any]] = {
            "Name": [kernels[name] for name in dispatches.column("Kernel_Name")],
            "Device": self._devices(dispatches.column("Agent_Id")),
        }
        if self.counters:
            every = dispatches is block
            own["Key"] = keys if every else list(zip(*map(dispatches.column, known), strict=True))
        yield dataclasses.replace(dispatches, columns={**dispatches.columns, **own})
        if self.counters and "Counter_Name" in block.columns:
            yield Block(Kind.VALUE, {**block.columns, "Key": keys})

    def _of_host(self, block: Block) -> Block:
        """Add the common columns to rows of copies, or of the host."""
        target, source = (
            self._devices(block.column(f"{end}_Agent_Id")) for end in ("Destination", "Source")
        )
        named = "Direction" if block.kind is Kind.COPY else "Function"
        devices = [t if t >= 0 else s for t, s in zip(target, source, strict=True)]
        own = {"Name": block.column(named), "Device": devices}
        return Block(block.kind, {**block.columns, **own})

    def _devices(self, texts: Sequence[str]) -> list[int]:
        distinct = {text: self._device(text) for text in set(texts)}
        return [distinct[text] for text in texts]

    def _device(self, text: str) -> int:
        """The GPU's number, of an agent such as ``4``, ``Agent 4`` or ``GPU 3``."""
        match = re.search(r"(\d{1,9})\s*\Z", text)
        number = int(match[1]) if match else MISSING
        # Without agent_info.csv the agent's own number is the best available name.
        if text.startswith("GPU") or not self.agents.products:
            return number
        return int(self.agents.numbers([number])[0])


def _csv_columns(path: Path, problems: list[TraceProblem]) -> Iterator[dict[str, list[str]]]:
    """The rows of a CSV file, ``ROWS_A_BLOCK`` at a time; rows with too few or too many fields are
    left out and noted.

    Raises:
        RequestError: the file cannot be opened.
    """

    def note(what: str, kind: ProblemKind = ProblemKind.DAMAGED) -> None:
        if len(problems) < _MOST_PROBLEMS:
            problems.append(TraceProblem(f"{path.name} line {reader.line_num}", what, kind))

    names: list[str] | None = None
    rows: list[list[str]] = []
    lost = 0
    with open_text(path) as text:
        reader = csv.reader(text)
        try:
            for row in reader:
                if names is None:
                    names = [name.strip() for name in row]
                elif row == names:
                    note("a second table begins here: not read; give each process's files their "
                         "own names", ProblemKind.SECOND_DOCUMENT)  # fmt: skip
                    break
                elif len(row) == len(names):
                    rows.append(row)
                elif row:
                    lost += 1
                    note(f"has {plural(len(row), 'field')} instead of {len(names)}: left out")
                if names is not None and len(rows) == ROWS_A_BLOCK:
                    yield dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
                    rows = []
        except (csv.Error, OSError) as error:
            note(f"cannot be read any further: {error}")
    if lost:
        what = f"{plural(lost, 'row')} cannot be read and {noun_for(lost, 'is', 'are')} lost"
        problems.insert(0, TraceProblem(f"{path.name} file", what, ProblemKind.LOST_EVENTS, lost))
    if names is not None and rows:
        yield dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
