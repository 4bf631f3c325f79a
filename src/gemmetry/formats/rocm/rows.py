"""Shared conversions from the formats of rocprofv3 to :class:`TraceRows`."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np

from gemmetry.formats.events import (
    MISSING,
    AnnotationRows,
    CallRows,
    GpuKind,
    GpuRows,
    Int32,
    Int64,
    OperatorArguments,
    OperatorRows,
    Rows,
    TracePart,
    TraceProblem,
    TraceRows,
)
from gemmetry.formats.naming import Names, Numbers, short_name
from gemmetry.formats.spool import Spool

LATEST_NS = 2**62
"""Times beyond this are treated as damage; sums of two still fit 64 bits."""

_MARKS = ("[clone .kd]", "(.kd)", ".kd")
_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")
_WORLD = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")

Triples = Sequence[tuple[int, int, int]]


class HostKind(Enum):
    """What a row of the host is."""

    CALL = "HIP or HSA call"
    RCCL = "RCCL call"
    RANGE = "ROCTx range"


def kernel_name(name: str) -> str:
    """The name without the suffix of a kernel descriptor (``.kd``), shortened where it is too
    long."""
    text = name.rstrip()
    mark = next((mark for mark in _MARKS if text.endswith(mark)), None)
    return short_name(name if mark is None else text.removesuffix(mark).rstrip())


def integers(values: Sequence[int]) -> Int64:
    """The values as 64-bit integers; ``MISSING`` where they do not fit."""
    try:
        return np.array(values, np.int64)
    except OverflowError:
        return np.array([v if -(2**63) <= v < 2**63 else MISSING for v in values], np.int64)


def gpu_rows(
    start: Int64,
    duration: Int64,
    name: Int32,
    kind: GpuKind,
    *,
    device: Sequence[int],
    stream: Sequence[int],
    correlation: Int64,
    work_items: Triples | None = None,
    block: Triples | None = None,
    size: Sequence[int] | None = None,
    part: int = 0,
) -> GpuRows:
    """Rows of one kind.

    Args:
        start: ns.
        duration: ns.
        name: index of each.
        kind: kind of all rows.
        device: number of each.
        stream: number of each.
        correlation: number shared with the call that launched it.
        work_items: the grid as rocprofv3 records it, in threads.
        block: threads of a workgroup.
        size: bytes.
        part: number of the process.
    """
    count = len(start)
    zeros = np.zeros((count, 3), np.int64)
    items = integers_of_triples(work_items) if work_items is not None else zeros
    threads = integers_of_triples(block) if block is not None else zeros
    # Workgroups = work-items / workgroup size, rounded up: the last workgroup may be partial.
    grid = np.where(threads > 0, -(-items // np.maximum(threads, 1)), 0)
    return GpuRows(
        start_ns=start,
        duration_ns=duration,
        name=name,
        kind=np.full(count, kind, np.int8),
        device=np.array(device, np.int32),
        stream=integers(stream),
        correlation=correlation,
        external_id=_missing(count),
        grid=grid.astype(np.int32),
        block=threads.astype(np.int32),
        bytes=integers(size) if size is not None else _missing(count),
        collective=np.full(count, MISSING, np.int32),
        part=np.full(count, min(part, 2**15 - 1), np.int16),
    )


def integers_of_triples(values: Triples) -> Int64:
    """(rows, 3) sizes; 0 for those that are negative or do not fit 32 bits."""
    table = np.array([integers(one) for one in values], np.int64).reshape(-1, 3)
    return np.where((table >= 0) & (table < 2**31), table, 0)


def renumbered(rows: Rows, name: Int32, device: Int32 | None = None) -> Rows:
    """`rows` with names and devices renumbered."""
    changed: dict[str, Any] = {"name": name[rows.name]}
    if device is not None and isinstance(rows, GpuRows):
        changed["device"] = device[rows.device]
    return dataclasses.replace(rows, **changed)


class Agents:
    """Processors as rocprofv3 lists them; GPUs are numbered as HIP numbers them."""

    def __init__(self) -> None:
        self._number: dict[Hashable, int] = {}
        self._products: dict[int, str] = {}
        self._counted: dict[Hashable, int] = {}

    def add(
        self, key: Hashable, *, is_gpu: bool, index: int | None, product: str, group: Hashable = 0
    ) -> None:
        """Add one processor.

        Args:
            key: identifies the processor in records.
            is_gpu: True for a GPU, False for a CPU.
            index: its number among the GPUs; None to count them, in the order of adding.
            product: its product name.
            group: a process; GPUs are counted within it.
        """
        if not is_gpu:
            return
        counted = self._counted.get(group, 0)
        self._counted[group] = counted + 1
        number = counted if index is None or not 0 <= index < 2**31 else index
        self._number[key] = number
        self._products.setdefault(number, product)

    def numbers(self, keys: Iterable[Hashable]) -> Int32:
        """The device number of each key; ``MISSING`` where the key is not that of a listed GPU."""
        return np.array([self._number.get(key, MISSING) for key in keys], np.int32)

    def products(self) -> dict[int, str]:
        """Number -> product name."""
        return dict(self._products)


class RowsBuilder:
    """Gathers the rows of one trace; each reader adds to it what its format records."""

    def __init__(self) -> None:
        self.events = 0
        """Number of entries in the file, of any kind."""
        self._no_time = 0
        self._names: Numbers[Any] = Names()
        self._threads: Numbers[tuple[Any, Any]] = Numbers()
        self._agents = Agents()
        self._gpu = Spool(GpuRows)
        self._calls = Spool(CallRows)
        self._operators = Spool(OperatorRows)
        self._annotations = Spool(AnnotationRows)
        self._problems: list[TraceProblem] = []
        self._partial = False

    def _numbered(self, keys: Iterable[Hashable]) -> Int32:
        names = self._names
        return np.array([names[key] for key in keys], np.int32)

    def _on(self, threads: Iterable[tuple[Any, Any]]) -> Int32:
        numbers = self._threads
        return np.array([numbers[thread] for thread in threads], np.int32)

    def _add_host(
        self, kind: HostKind, start: Int64, duration: Int64, name: Int32, thread: Int32,
        correlation: Int64,
    ) -> None:  # fmt: skip
        count = len(start)
        if kind is HostKind.CALL:
            self._calls.add(CallRows(start, duration, name, thread, correlation, _missing(count)))
        elif kind is HostKind.RCCL:
            # They enclose the launches as an operator does in a Kineto trace.
            self._operators.add(
                OperatorRows(
                    start_ns=start,
                    duration_ns=duration,
                    name=name,
                    thread=thread,
                    external_id=_missing(count),
                    sequence=_missing(count),
                    forward_thread=_missing(count),
                    arguments=np.zeros(count, np.int32),
                    collective=np.full(count, MISSING, np.int32),
                )
            )
        else:
            on_gpu = np.zeros(count, np.int8)
            self._annotations.add(AnnotationRows(start, duration, name, thread, on_gpu))

    def _trace_rows(self, format: str, untimed: str = "rows", **recorded: Any) -> TraceRows:
        """All collected rows.

        Args:
            format: as in :class:`TraceRows`.
            untimed: what the format calls the records of which some have no usable time.
            recorded: other fields of :class:`TraceRows` that the file has.
        """
        if self._no_time:
            what = f"{self._no_time} have no usable time: left out"
            self._problems.append(TraceProblem(untimed, what))
        return TraceRows(
            format=format,
            events=self.events,
            base_ns=0,
            names=tuple(self._names),
            arguments=(OperatorArguments(),),
            collectives=(),
            threads=tuple(f"{process}/{thread}" for process, thread in self._threads),
            gpu=self._gpu.all(),
            calls=self._calls.all(),
            operators=self._operators.all(),
            annotations=self._annotations.all(),
            devices=self._agents.products(),
            problems=tuple(self._problems),
            partial=self._partial,
            **recorded,
        )


def usable_times(start: Int64, end: Int64) -> tuple[Int64, Int64]:
    """Start and duration in ns of work on GPUs; both are 0 where a time is not usable, which
    :mod:`gemmetry.traces.missing` leaves out and counts, as for every format."""
    good = (start >= 0) & (end >= start) & (end < LATEST_NS)
    return np.where(good, start, 0), np.where(good, end - start, 0)


def process_parts(
    pids: Sequence[Any], environments: Sequence[Mapping[str, Any]], of_thread: Sequence[int]
) -> tuple[TracePart, ...]:
    """The processes of a file as its parts; () for a file of one process.

    Args:
        pids: number of each process, for display.
        environments: environment variables of each, which hold its rank.
        of_thread: the process of each thread, as an index.
    """
    if len(environments) < 2:
        return ()
    ranks = [_first(environment, _RANK) for environment in environments]
    if len(set(ranks)) < len(ranks):
        ranks = [None] * len(ranks)
    return tuple(
        TracePart(
            f"process {pid}",
            rank,
            tuple(thread for thread, process in enumerate(of_thread) if process == index),
        )
        for index, (pid, rank) in enumerate(zip(pids, ranks, strict=True))
    )


def rank_of(environments: Sequence[Mapping[str, Any]]) -> tuple[int | None, int | None]:
    """Rank and number of ranks, from the variables of torchrun, Open MPI, PMIx or Slurm; of several
    processes only the number, where they agree."""
    if len(environments) != 1:
        worlds = {_first(environment, _WORLD) for environment in environments}
        return None, worlds.pop() if len(worlds) == 1 else None
    return _first(environments[0], _RANK), _first(environments[0], _WORLD)


def _first(environment: Mapping[str, Any], names: Iterable[str]) -> int | None:
    for name in names:
        value = str(environment.get(name, ""))
        if value.isdecimal() and len(value) < 10:
            return int(value)
    return None


def _missing(count: int) -> Int64:
    return np.full(count, MISSING, np.int64)
