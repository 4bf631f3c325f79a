"""Shared conversions from the formats of rocprofv3 to :class:`TraceRows`.

Dispatches with their hardware counters, as every format of rocprofv3 records them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import isclose, prod
from typing import Any

import numpy as np

from gemmetry.domain.files import Names, Numbers, short_name
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
    Spool,
    TracePart,
    TraceProblem,
    TraceRows,
)

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


def mapping(value: object) -> dict[str, Any]:
    """`value` if it is an object of JSON, else an empty one."""
    return value if isinstance(value, dict) else {}


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
    :mod:`gemmetry.traces.model` leaves out and counts, as for every format."""
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


_AGREE = 0.1
"""Relative difference of a counter between two passes that is taken for their noise: cycles vary
from one execution to the next, and figures that mix passes vary as much."""

_RANK_ARGUMENT = re.compile(r"--rank(?:=|\s+)(\d{1,9})(?:\s|\Z)")


@dataclass(slots=True)
class CountedDispatch:
    """One execution of a kernel. Whole numbers are ``MISSING`` where the file does not have
    them."""

    number: int
    """Of the dispatch, in its process."""
    kernel: str
    device: int
    """Number of the GPU."""
    grid: tuple[int, ...]
    """Workgroups by dimension, or in all where the file has the product only; () where it has
    neither."""
    block: tuple[int, ...]
    """Work-items of a workgroup, likewise."""
    lds_bytes: int
    """Of a workgroup."""
    scratch_bytes: int
    """Of a work-item."""
    vgprs: int
    accum_vgprs: int
    sgprs: int
    start_ns: int
    end_ns: int
    values: dict[str, float] = field(default_factory=dict)
    """Counter -> sum over its instances (XCCs, shader engines, channels of a cache); empty where
    no counters were collected."""

    @property
    def workgroups(self) -> int:
        """Of the grid."""
        return prod(self.grid) if self.grid else MISSING

    @property
    def workgroup_size(self) -> int:
        """Work-items of a workgroup."""
        return prod(self.block) if self.block else MISSING

    @property
    def duration_ns(self) -> int | None:
        """Duration; None where the file has no times."""
        if self.start_ns < 0 or self.end_ns < self.start_ns:
            return None
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedGpu:
    """What rocprofv3 records of a GPU; fields as in
    :class:`~gemmetry.hardware.amd_counters.AmdGpu`."""

    chip: str
    product: str
    units: int
    simds: int
    xccs: int
    waves_per_unit: int


@dataclass(slots=True, kw_only=True)
class CountedProcess:
    """The dispatches of one process."""

    pid: int | None = None
    rank: int | None = None
    rank_source: str = ""
    """``environment`` or ``command line``, as the file has them; "" where the rank is not known."""
    host: str = ""
    gpus: dict[int, CountedGpu] = field(default_factory=dict)
    """By number."""
    dispatches: list[CountedDispatch] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def has_counters(self) -> bool:
        """Whether counters were collected."""
        return any(one.values for one in self.dispatches)

    def join_replays(self) -> None:
        """Make one dispatch of those that rocprofv3 replayed, once for each group of counters.

        A replay has the number, GPU, kernel and grid of the first execution, and another time.
        Time and counters are those of the first pass that has them.
        """
        kept: dict[tuple[object, ...], CountedDispatch] = {}
        differing: set[str] = set()
        for place, one in enumerate(self.dispatches):
            key = one.device, one.number, one.kernel, one.grid, one.block
            first = kept.setdefault(key if one.number >= 0 else (place,), one)
            if first is not one:
                first.values = joined_values(first.values, one.values, differing)
        self.dispatches = list(kept.values())
        self.problems += disagreement(differing)

    def take_rank(self, environment: Mapping[str, Any], command: str) -> None:
        """The rank according to the process's environment, else its command line."""
        rank, _ = rank_of([environment])
        found = _RANK_ARGUMENT.search(command)
        if rank is not None:
            self.rank, self.rank_source = rank, "environment"
        elif found:
            self.rank, self.rank_source = int(found[1]), "command line"


def joined_values(
    values: Mapping[str, float], more: Mapping[str, float], differing: set[str]
) -> dict[str, float]:
    """The counters of two passes over the same dispatch; of a counter that both have, the first.

    Args:
        differing: the names of counters on which the passes disagree are added to it.
    """
    differing |= {
        name
        for name in values.keys() & more.keys()
        if not isclose(values[name], more[name], rel_tol=_AGREE)
    }
    return {**more, **values}


def disagreement(differing: Collection[str]) -> list[str]:
    """The problem that passes disagree on counters; [] if they do not."""
    if not differing:
        return []
    named = ", ".join(sorted(differing))
    return [f"passes over the same launch differ by more than {_AGREE:.0%} in {named}: the first "
            "pass is shown, and figures that mix passes are as uncertain"]  # fmt: skip


def counted_gpu(value: Callable[[str], Any]) -> CountedGpu | None:
    """The GPU that rocprofv3 describes; None where the description lacks a number.

    Args:
        value: a property by its name, such as ``cu_count``.
    """
    numbers = [_positive(value(name)) for name in ("cu_count", "simd_count", "num_xcc",
                                                   "max_waves_per_cu")]  # fmt: skip
    units, simds, xccs, waves = numbers
    if units is None or simds is None or xccs is None or waves is None:
        return None
    return CountedGpu(
        chip=str(value("name") or ""),
        product=str(value("product_name") or ""),
        units=units,
        simds=simds,
        xccs=xccs,
        waves_per_unit=waves,
    )


def grid_and_block(
    work_items: Sequence[int], sizes: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Workgroups, and work-items of each, by dimension; rocprofv3 records grids in work-items.

    Args:
        work_items: of the grid, by dimension.
        sizes: of a workgroup, by dimension.
    """
    if min(sizes) <= 0:
        return (), ()
    if min(work_items) < 0:
        return (), tuple(sizes)
    grid = tuple(-(-items // size) for items, size in zip(work_items, sizes, strict=True))
    return grid, tuple(sizes)


def _positive(value: object) -> int | None:
    try:
        number = int(str(value))
    except ValueError:
        return None
    return number if number > 0 else None
