"""Records of rocprofv3, from the tables of any of its formats: events, and kernels with their
hardware counters.

Grid sizes are stored in work-items; they are converted to workgroups.

Files in a folder: ``PID_<table>.csv`` and ``PID_results.json`` or ``.db``, flat, below a folder of
the host, and below ``pass_N/`` (``pmc_N/`` for lists of counters in text files). Files that
``gemmetry sweep run`` has rocprofv3 write are named ``<host>/rank<R>_<PID>_*``.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from math import isclose, prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gemmetry.domain.errors import RequestError
from gemmetry.domain.files import Names, Numbers
from gemmetry.domain.opening import open_decompressed
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
from gemmetry.formats.json import CHUNK_BYTES
from gemmetry.formats.rocm.results_json import JsonTables
from gemmetry.formats.rocm.rocpd import RocpdTables
from gemmetry.formats.rocm.tables import (
    Block,
    CountedGpu,
    CsvTables,
    Kind,
    Process,
    Tables,
    is_of_kernels,
    table_of,
    whole_numbers,
)

LATEST_NS = 2**62
"""Times beyond this are treated as damage; sums of two still fit 64 bits."""

_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")
_WORLD = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")


def read_rocprofv3_csv(path: Path) -> TraceRows | None:
    """The rows of a process: of `path` and of the files in the same folder that share its prefix;
    None if they contain no kernels of rocprofv3.

    Raises:
        RequestError: a file cannot be opened.
    """
    tables = CsvTables(path)
    return trace_rows(tables) if tables.kernels else None


def read_rocprofv3_json(file: BinaryIO, *, chunk_bytes: int = CHUNK_BYTES) -> TraceRows | None:
    """The rows of a ``results.json``; None if it is another document.

    Args:
        file: opened at its beginning, decompressed.
        chunk_bytes: number of bytes read at a time; does not affect the rows.
    """
    tables = JsonTables(file, chunk_bytes=chunk_bytes)
    rows = trace_rows(tables)
    return rows if tables.is_found else None


def read_rocpd(path: Path) -> TraceRows | None:
    """The rows of a rocpd database; None if it is another one, or cannot be read at all."""
    with RocpdTables(path) as tables:
        return trace_rows(tables) if tables.suffixes else None


def is_rocpd(path: Path) -> bool:
    """Whether a SQLite database has tables of rocpd."""
    with RocpdTables(path) as tables:
        return bool(tables.suffixes)


def trace_rows(tables: Tables) -> TraceRows:
    """Work on GPUs and on the host, in normal form."""
    names: Numbers[Any] = Names()
    threads: Numbers[tuple[int, Any, Any]] = Numbers()
    gpu, calls = Spool(GpuRows), Spool(CallRows)
    operators, annotations = Spool(OperatorRows), Spool(AnnotationRows)
    untimed = 0
    for block in tables.blocks():
        start, end = block.wholes("Start_Timestamp"), block.wholes("End_Timestamp")
        good = (start >= 0) & (end >= start) & (end < LATEST_NS)
        if block.kind in (Kind.KERNEL, Kind.COPY):
            # Without a usable time both are 0, which gemmetry.traces.model leaves out and counts.
            times = np.where(good, start, 0), np.where(good, end - start, 0)
            gpu.add(_gpu_rows(block, *times, _numbered(names, block.column("Name"))))
            continue
        untimed += int((~good).sum())
        block = block.at(np.flatnonzero(good).tolist())
        columns = (
            start[good], (end - start)[good], _numbered(names, block.column("Name")),
            _numbered(threads, [
                (block.process, pid, thread) for pid, thread in
                zip(block.column("Process_Id"), block.column("Thread_Id"), strict=True)
            ]),
        )  # fmt: skip
        none = np.full(len(block), MISSING, np.int64)
        if block.kind is Kind.CALL:
            calls.add(CallRows(*columns, block.wholes("Correlation_Id"), none))
        elif block.kind is Kind.RCCL:
            # They enclose the launches as an operator does in a Kineto trace.
            zeros = np.zeros(len(block), np.int32)
            operators.add(OperatorRows(*columns, none, none, none, zeros, none.astype(np.int32)))
        else:
            annotations.add(AnnotationRows(*columns, np.zeros(len(block), np.int8)))
    if untimed:
        what = f"{untimed} have no usable time: left out"
        tables.problems.append(TraceProblem(tables.untimed, what))
    texts: Numbers[str] = Numbers()
    of_name = np.array([texts[tables.name(key)] for key in names], np.int32)
    rank, world = rank_of([one.environment for one in tables.processes])
    gpu_rows = gpu.all()
    return TraceRows(
        format=tables.format,
        events=tables.events,
        base_ns=0,
        names=tuple(texts),
        arguments=(OperatorArguments(),),
        collectives=(),
        threads=tuple(
            f"{tables.processes[process].label if pid is None else pid}/{thread}"
            for process, pid, thread in threads
        ),
        gpu=replace(_renamed(gpu_rows, of_name), device=tables.devices(gpu_rows.device)),
        calls=_renamed(calls.all(), of_name),
        operators=_renamed(operators.all(), of_name),
        annotations=_renamed(annotations.all(), of_name),
        rank=rank,
        world_size=world,
        host=next((one.host for one in tables.processes if one.host), None),
        devices=dict(tables.agents.products),
        problems=tuple(tables.problems),
        partial=tables.partial,
        parts=_parts(tables.processes, [process for process, *_ in threads]),
    )


def _numbered(numbers: Numbers[Any], keys: Iterable[Any]) -> Int32:
    return np.array(list(map(numbers.__getitem__, keys)), np.int32)


def _gpu_rows(block: Block, start: Int64, duration: Int64, name: Int32) -> GpuRows:
    count = len(start)
    none = np.full(count, MISSING, np.int64)
    # Workgroups = work-items / workgroup size, rounded up: the last workgroup may be partial.
    items, threads = (_by_axis(block, f"{what}_Size") for what in ("Grid", "Workgroup"))
    grid = np.where(threads > 0, -(-items // np.maximum(threads, 1)), 0)
    return GpuRows(
        start_ns=start,
        duration_ns=duration,
        name=name,
        kind=np.full(count, _GPU_KINDS[block.kind], np.int8),
        device=np.array(block.column("Device"), np.int32),
        stream=block.wholes("Stream_Id"),
        correlation=block.wholes("Correlation_Id"),
        external_id=none,
        grid=grid.astype(np.int32),
        block=threads.astype(np.int32),
        bytes=block.wholes("Bytes"),
        collective=none.astype(np.int32),
        part=np.full(count, min(block.process, 2**15 - 1), np.int16),
    )


_GPU_KINDS = {Kind.KERNEL: GpuKind.KERNEL, Kind.COPY: GpuKind.MEMCPY}


def _by_axis(block: Block, name: str) -> Int64:
    """(rows, 3) sizes; 0 for those that are unknown, negative or do not fit 32 bits."""
    if block.kind is not Kind.KERNEL:
        return np.zeros((len(block), 3), np.int64)
    found = [block.wholes(one) for one in block.axes(name)]
    found += [np.ones(len(block), np.int64)] * (3 - len(found))
    sizes = np.stack(found, axis=1)
    return np.where((sizes >= 0) & (sizes < 2**31), sizes, 0)


def _renamed(rows: Rows, name: Int32) -> Rows:
    """`rows` with names renumbered, where keys of several rows have the same text."""
    return rows if (name == np.arange(len(name))).all() else replace(rows, name=name[rows.name])


def _parts(processes: Sequence[Process], of_thread: Sequence[int]) -> tuple[TracePart, ...]:
    """The processes of a file as its parts; () for a file of one process.

    Args:
        of_thread: the process of each thread, as an index.
    """
    if len(processes) < 2:
        return ()
    ranks = [_first(one.environment, _RANK) for one in processes]
    are_known = len(set(ranks)) == len(ranks)
    threads = [[t for t, of in enumerate(of_thread) if of == i] for i in range(len(processes))]
    return tuple(
        TracePart(f"process {one.label}", rank if are_known else None, tuple(own))
        for one, rank, own in zip(processes, ranks, threads, strict=True)
    )


def rank_of(environments: Sequence[Mapping[str, Any]]) -> tuple[int | None, int | None]:
    """Rank and number of ranks, from the variables of torchrun, Open MPI, PMIx or Slurm; of several
    processes only the number, where they agree."""
    if len(environments) != 1:
        worlds = {_first(environment, _WORLD) for environment in environments}
        return None, worlds.pop() if len(worlds) == 1 else None
    return _first(environments[0], _RANK), _first(environments[0], _WORLD)


def _first(environment: Mapping[str, Any], names: Iterable[str]) -> int | None:
    values = (str(environment.get(name, "")) for name in names)
    return next((int(one) for one in values if one.isdecimal() and len(one) < 10), None)


# Counters ----------------------------------------------------------------------------------------

_AGREE = 0.1
"""Relative difference of a counter between two passes that is taken for their noise: cycles vary
from one execution to the next, and figures that mix passes vary as much."""

_RANK_ARGUMENT = re.compile(r"--rank(?:=|\s+)(\d{1,9})(?:\s|\Z)")


@dataclass(slots=True)
class CountedDispatch:
    """One execution of a kernel. Whole numbers are ``MISSING`` where the file does not have
    them."""

    number: int
    """Number of the dispatch in its process."""
    kernel: str
    device: int
    """Number of the GPU."""
    grid: tuple[int, ...]
    """Workgroups by dimension, or in all where the file has the product only; () where it has
    neither."""
    block: tuple[int, ...]
    """Work-items of a workgroup."""
    facts: dict[str, int]
    """Other recorded facts: ``lds_block_size`` (bytes of a workgroup), ``scratch_size`` (bytes of a
    work-item), ``vgpr_count``, ``accum_vgpr_count``, ``sgpr_count``."""
    start_ns: int
    end_ns: int
    values: dict[str, float] = field(default_factory=dict)
    """Counter -> sum over its instances (XCCs, shader engines, channels of a cache); empty where
    no counters were collected."""

    @property
    def workgroups(self) -> int:
        """Workgroups of the grid."""
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


@dataclass(slots=True, kw_only=True)
class CountedProcess:
    """The dispatches of one process in one pass."""

    number: int = 0
    """Number of the pass, from 1; 0 where the layout has no passes."""
    pid: int | None = None
    rank: int | None = None
    rank_source: str = ""
    """``environment`` or ``command line``, as the file has them; "" where the rank is not known."""
    host: str = ""
    gpus: dict[int, CountedGpu] = field(default_factory=dict)
    """Counted GPUs by number."""
    dispatches: list[CountedDispatch] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def has_counters(self) -> bool:
        """Whether counters were collected."""
        return any(one.values for one in self.dispatches)


def read_counted(path: Path, kind: str) -> list[CountedProcess]:
    """The dispatches of each process, with their counters where they were collected; [] if there
    are no processes.

    Args:
        path: a file of rocprofv3; a CSV file brings the others in its folder with the same prefix.
        kind: ``csv``, ``json`` or ``db``.

    Raises:
        RequestError: a file cannot be opened.
    """
    if kind == "db":
        with RocpdTables(path, counters=True) as tables:
            return _counted(tables, f"{path.name} ")
    if kind == "json":
        with open_decompressed(path) as file:
            return _counted(JsonTables(file, counters=True), f"{path.name} ")
    return _counted(CsvTables(path, counters=True), "")


def _counted(tables: Tables, place: str) -> list[CountedProcess]:
    dispatches: dict[int, list[CountedDispatch]] = defaultdict(list)
    by_key: dict[int, dict[Any, CountedDispatch]] = defaultdict(dict)
    for block in tables.blocks():
        if block.kind is Kind.VALUE:
            _add_values(block, by_key[block.process])
        else:
            found = list(_dispatches(block, tables))
            dispatches[block.process] += found
            by_key[block.process] |= zip(block.column("Key"), found, strict=True)
    processes = []
    for number, one in enumerate(tables.processes):
        process = CountedProcess(
            pid=one.pid, host=one.host, gpus=tables.agents.gpus.get(number, {}),
            dispatches=dispatches[number],
        )  # fmt: skip
        process.rank, _ = rank_of([one.environment])
        if process.rank is not None:
            process.rank_source = "environment"
        elif argument := _RANK_ARGUMENT.search(one.command):
            process.rank, process.rank_source = int(argument[1]), "command line"
        _join_replays(process)
        processes.append(process)
    if processes:
        processes[0].problems += [f"{place}{one}" for one in tables.problems]
    return processes


_FACTS = ("LDS_Block_Size", "Scratch_Size", "VGPR_Count", "Accum_VGPR_Count", "SGPR_Count")
"""Columns of :attr:`CountedDispatch.facts`."""


def _dispatches(block: Block, tables: Tables) -> Iterator[CountedDispatch]:
    def lists(*names: str) -> Iterator[Sequence[int]]:
        return (whole_numbers(block.column(name)) for name in names)

    grids, sizes = (
        zip(*lists(*block.axes(f"{what}_Size")), strict=True) for what in ("Grid", "Workgroup")
    )
    devices = tables.devices(np.array(block.column("Device"), np.int32)).tolist()
    names = {key: tables.name(key) for key in set(block.column("Name"))}
    ids = [name.lower() for name in _FACTS]

    @cache
    def known(*facts: int) -> dict[str, int]:
        return {name: fact for name, fact in zip(ids, facts, strict=True) if fact >= 0}

    for number, key, device, grid, size, start, end, *facts in zip(
        *lists("Dispatch_Id"), block.column("Name"), devices, grids, sizes,
        *lists("Start_Timestamp", "End_Timestamp", *_FACTS), strict=True,
    ):  # fmt: skip
        sizes_known = grid_and_block(grid, size)
        yield CountedDispatch(number, names[key], device, *sizes_known, known(*facts), start, end)


def _add_values(block: Block, by_key: Mapping[Any, CountedDispatch]) -> None:
    """Add values to their dispatches; a counter has a row for each of its instances."""
    columns = map(block.column, ("Key", "Counter_Name", "Counter_Value"))
    for key, counter, written in zip(*columns, strict=True):
        with contextlib.suppress(TypeError, ValueError):
            if (dispatch := by_key.get(key)) is not None:
                dispatch.values[counter] = dispatch.values.get(counter, 0.0) + float(written)


def _join_replays(process: CountedProcess) -> None:
    """Make one dispatch of those that rocprofv3 replayed, once for each group of counters.

    A replay has the number, GPU, kernel and grid of the first execution, and another time. Time and
    counters are those of the first pass that has them.
    """
    kept: dict[tuple[object, ...], CountedDispatch] = {}
    differing: set[str] = set()
    for place, one in enumerate(process.dispatches):
        key = one.device, one.number, one.kernel, one.grid, one.block
        first = kept.setdefault(key if one.number >= 0 else (place,), one)
        if first is not one:
            first.values = joined_values(first.values, one.values, differing)
    process.dispatches = list(kept.values())
    process.problems += disagreement(differing)


def joined_values(
    values: Mapping[str, float], more: Mapping[str, float], differing: set[str]
) -> dict[str, float]:
    """The counters of two passes over the same dispatch; the first pass has precedence.

    Args:
        differing: receives the names of counters on which the passes disagree.
    """
    both = values.keys() & more.keys()
    differing |= {n for n in both if not isclose(values[n], more[n], rel_tol=_AGREE)}
    return {**more, **values}


def disagreement(differing: Collection[str]) -> list[str]:
    """The problem that passes disagree on counters; [] if they do not."""
    if not differing:
        return []
    named = ", ".join(sorted(differing))
    return [f"passes over the same launch differ by more than {_AGREE:.0%} in {named}: the first "
            "pass is shown, and figures that mix passes are as uncertain"]  # fmt: skip


@lru_cache(1024)
def grid_and_block(
    work_items: tuple[int, ...], sizes: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Workgroups, and work-items of each, by dimension; rocprofv3 records grids in work-items.

    Args:
        work_items: of the grid, by dimension.
        sizes: of a workgroup, by dimension.
    """
    if min(sizes) <= 0:
        return (), ()
    if min(work_items) < 0:
        return (), sizes
    return tuple(-(-items // size) for items, size in zip(work_items, sizes, strict=True)), sizes


_PASS = re.compile(r"(?:pass|pmc)_(\d+)")
_RESULTS = re.compile(r"(?P<prefix>.*?)_?results\.(?P<kind>json|db)(?:\.gz|\.zst)?")
_RANKED = re.compile(r"rank(\d+)_(\d+)")
_PID = re.compile(r"(?:.*_)?(\d+)")


def read_counter_folder(folder: Path) -> tuple[list[CountedProcess], list[str]]:
    """Read rocprofv3's files in `folder`; what could not be read is stated, one sentence each.

    Where a process has the same in several formats, CSV is read, else JSON, else the database. A
    process's rank is that of its file's name, else of its environment or command line, as the file
    has them; a CSV file has neither, and a JSON file next to it is read for them.
    """
    grouped: dict[tuple[Path, str], dict[str, Path]] = defaultdict(dict)
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        table, results = table_of(path.name), _RESULTS.fullmatch(path.name)
        if table is not None and is_of_kernels(path.name):
            grouped[path.parent, table[0]]["csv"] = path
        elif results is not None:
            grouped[path.parent, results["prefix"]][results["kind"]] = path
    found: list[CountedProcess] = []
    problems: list[str] = []
    for (parent, prefix), files in grouped.items():
        try:
            processes = _processes(files)
        except RequestError as error:
            problems.append(error.message)
            continue
        number, host = 0, ""
        for part in parent.relative_to(folder).parts:
            if match := _PASS.fullmatch(part):
                number = int(match[1])
            else:
                host = part
        for process in processes:
            process.number, process.host = number, process.host or host
            _name(process, prefix)
            problems += process.problems
        found += (process for process in processes if process.dispatches)
    return sorted(found, key=lambda one: (one.number, one.pid or 0)), problems


def _processes(files: Mapping[str, Path]) -> list[CountedProcess]:
    """The processes in files of the same prefix, by format; to those of CSV files is added what
    only JSON has."""
    for kind in ("csv", "json", "db"):
        found = read_counted(files[kind], kind) if kind in files else []
        if kind not in files or (kind == "csv" and not any(one.dispatches for one in found)):
            continue
        if kind == "csv" and "json" in files and not _RANKED.search(files["csv"].name):
            (process,) = found
            for other in read_counted(files["json"], "json"):
                if other.pid == process.pid or process.pid is None:
                    process.rank, process.rank_source = other.rank, other.rank_source
                    process.host = other.host
                    process.gpus = process.gpus or other.gpus
        return found
    return []


def _name(process: CountedProcess, prefix: str) -> None:
    """Complete what is known by the prefix of the file's name."""
    ranked, pid = _RANKED.fullmatch(prefix), _PID.fullmatch(prefix)
    if ranked:
        process.rank, process.rank_source = int(ranked[1]), "file name"
    if process.pid is None and (ranked or pid):
        process.pid = int(ranked[2] if ranked else pid[1] if pid else "")
