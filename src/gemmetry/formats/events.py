"""The normal form of a trace file: columns of integers, times in whole nanoseconds.

Every reader of traces returns one :class:`TraceRows`. Times count from ``base_ns``; repeated texts
(kernel names, operator names) are stored once and referenced by index; -1 means that the file does
not specify the value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Bools: TypeAlias = npt.NDArray[np.bool_]
Int8: TypeAlias = npt.NDArray[np.int8]
Int16: TypeAlias = npt.NDArray[np.int16]
Int32: TypeAlias = npt.NDArray[np.int32]
Int64: TypeAlias = npt.NDArray[np.int64]

MISSING = -1

MOST_RANKS = 1 << 18
"""Largest number of ranks in a job or group: the largest known have about 10⁵. Larger numbers are
treated as damage."""

MOST_ELEMENTS = 1 << 40
"""Largest number of elements of a tensor or message, which is terabytes. Larger numbers are treated
as damage."""


class GpuKind(IntEnum):
    """What kind of work a row of :class:`GpuRows` is."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2


@dataclass(frozen=True, slots=True)
class GpuRows:
    """Work on GPUs: kernels, copies and fills."""

    start_ns: Int64
    duration_ns: Int64
    name: Int32
    kind: Int8
    device: Int32
    stream: Int64
    correlation: Int64
    external_id: Int64
    """External id of the operator that was running at the launch, where the file specifies it."""
    grid: Int32
    """(rows, 3) thread blocks of the grid; 0 where it is not specified."""
    block: Int32
    """(rows, 3) threads of a block; 0 where it is not specified."""
    bytes: Int64
    collective: Int32
    """Index into ``TraceRows.collectives``."""
    part: Int16
    """Index into ``TraceRows.parts``; 0 where the file has only one part."""


@dataclass(frozen=True, slots=True)
class CallRows:
    """Calls of the CUDA or HIP runtime and driver on the host."""

    start_ns: Int64
    duration_ns: Int64
    name: Int32
    thread: Int32
    correlation: Int64
    external_id: Int64


@dataclass(frozen=True, slots=True)
class OperatorRows:
    """Operators of the framework on the host (``aten::mm`` ...)."""

    start_ns: Int64
    duration_ns: Int64
    name: Int32
    thread: Int32
    external_id: Int64
    sequence: Int64
    """Number that a forward operator shares with its backward operator."""
    forward_thread: Int64
    arguments: Int32
    """Index into ``TraceRows.arguments``."""
    collective: Int32


@dataclass(frozen=True, slots=True)
class AnnotationRows:
    """User annotations (``ProfilerStep#3`` ...), on the host or on a GPU."""

    start_ns: Int64
    duration_ns: Int64
    name: Int32
    thread: Int32
    on_gpu: Int8


@dataclass(frozen=True, slots=True)
class OperatorArguments:
    """Arguments of an operator as recorded in the file, as JSON texts ("" where they are
    missing)."""

    shapes: str = ""
    dtypes: str = ""
    strides: str = ""
    values: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCall:
    """What the file records about one collective; None where a field is missing."""

    operation: str | None = None
    """As written in the file: ``_allgather_base``, ``allreduce``, ``all_to_all`` ..."""
    dtype: str | None = None
    in_elements: int | None = None
    out_elements: int | None = None
    group_size: int | None = None
    group_name: str | None = None
    group_ranks: tuple[int, ...] = ()
    in_splits: tuple[int, ...] = ()
    out_splits: tuple[int, ...] = ()
    peer: int | None = None
    """The peer of a send or receive, or the root of a rooted collective."""
    sequence: int | None = None
    """Sequence number within the group, the same on all ranks."""


class ProblemKind(StrEnum):
    """What is missing from a trace, or wrong with it."""

    DAMAGED = "damaged"
    """Text that is not valid, or a value that is impossible."""
    LOST_EVENTS = "lost_events"
    """Events that the file contains, but that cannot be read: how many in all."""
    NO_TIME = "no_time"
    """Work on a GPU without a time, or with one that is impossible: left out."""
    NO_WORK = "no_work"
    """Launches whose work on the GPU is not in the file."""
    TIME_BASE = "time_base"
    """Work on a GPU that appears to have another time base than the rest."""
    AMBIGUOUS = "ambiguous"
    """Work on a GPU that may have been launched by any of several processes."""
    SECOND_DOCUMENT = "second_document"
    """Documents after the first one, which are not read."""


INCOMPLETE = (ProblemKind.LOST_EVENTS, ProblemKind.NO_TIME, ProblemKind.NO_WORK)
"""Kinds of problems because of which the GPU was busy for longer than the rows show."""


@dataclass(frozen=True, slots=True)
class TraceProblem:
    """A part of the file that could not be used, or that is missing."""

    where: str
    """``byte 1234`` or ``event 17``."""
    what: str
    kind: ProblemKind = ProblemKind.DAMAGED
    count: int = 1
    """Number of events, pieces of work or places with this problem."""
    part: int | None = None
    """Index into ``TraceRows.parts``; None: the whole file."""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True, slots=True)
class TracePart:
    """One of several processes, such as the ranks of a job, whose events are in the same file."""

    name: str
    """As the file labels it: ``TP00``, ``process 1234``."""
    rank: int | None
    threads: tuple[int, ...]
    """Its threads on the host and streams of annotations: indices into ``TraceRows.threads``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRows:
    """One trace file in normal form."""

    format: str
    """``kineto``, ``rocprofv3-json``, ``rocprofv3-csv``, ``rocpd``."""
    events: int
    """Number of entries in the file, of any kind."""
    base_ns: int
    """Origin of the times in ns since 1970 (0: unknown, or times are since boot)."""
    names: tuple[str, ...]
    arguments: tuple[OperatorArguments, ...]
    collectives: tuple[CollectiveCall, ...]
    threads: tuple[str, ...]
    """``pid/tid`` of the host threads."""
    gpu: GpuRows
    calls: CallRows
    operators: OperatorRows
    annotations: AnnotationRows
    rank: int | None = None
    world_size: int | None = None
    host: str | None = None
    job: str | None = None
    """The job's identifier in the recording, where it has one."""
    devices: dict[int, str] = field(default_factory=dict)
    """Device number -> product name."""
    versions: dict[str, str] = field(default_factory=dict)
    """Runtime, driver and library versions recorded in the file."""
    problems: tuple[TraceProblem, ...] = ()
    """Parts that could not be used; the rest is complete unless `partial`."""
    partial: bool = False
    """True where events are missing: the file ends early, or some of it cannot be read."""
    parts: tuple[TracePart, ...] = ()
    """The processes that recorded the file, where it contains several that can be distinguished.
    Numbers that link rows (correlations, external ids) are then valid only within a part."""
    host_rows_left_out: int = 0
    """Number of calls and operators left out because they led to no work on a GPU and the file has
    more than should be kept in memory. 0 for files of usual size, of which all rows are kept."""


def process_of(thread: str) -> str:
    """The process in an entry of ``TraceRows.threads``."""
    return thread.partition("/")[0]


Rows = TypeVar("Rows", GpuRows, CallRows, OperatorRows, AnnotationRows)

_DTYPES: dict[str, type[Any]] = {
    "Int8": np.int8, "Int16": np.int16, "Int32": np.int32, "Int64": np.int64,
}  # fmt: skip


def chosen(rows: Rows, wanted: Bools) -> Rows:
    """The rows that are `wanted` (one entry per row)."""
    columns: dict[str, Any] = {
        column.name: getattr(rows, column.name)[wanted] for column in dataclasses.fields(rows)
    }
    return type(rows)(**columns)


def concatenate(kind: type[Rows], parts: Sequence[Rows]) -> Rows:
    """All rows of `parts`, in order; empty if there are no parts."""
    columns: dict[str, Any] = {}
    for column in dataclasses.fields(kind):
        name: str = column.name
        width: tuple[int, ...] = (3,) if name in ("grid", "block") else ()
        empty = np.zeros((0, *width), _DTYPES[str(column.type)])
        columns[name] = np.concatenate([empty, *(getattr(part, name) for part in parts)])
    return kind(**columns)
