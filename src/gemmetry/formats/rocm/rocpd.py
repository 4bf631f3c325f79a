"""rocpd, the SQLite database that rocprofv3 writes by default -> :class:`TraceRows`.

Tables are named ``rocpd_<content>_<process>`` (views without the last part join them). Two layouts
of schema version 3 exist in rocprofiler-sdk's ``rocpd_tables.sql``: dispatches, copies and regions
hold their times, agent, queue and thread themselves, or reference ``rocpd_timestamp`` and
``rocpd_track``. The columns identify the layout. Kernels and the calls that launched them share
``rocpd_event.stack_id``. The database stores grid sizes in work-items; they are converted to
workgroups.

Counters of rocpd databases; their layouts are described in ``rocpd.py``.

A dispatch has a row of ``rocpd_event``, and each instance of a counter a row of
``rocpd_pmc_event`` for it; ``rocpd_info_pmc`` has the counters' names.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gemmetry.formats.events import MISSING, GpuKind, Int64, TraceProblem, TraceRows
from gemmetry.formats.rocm.rows import (
    LATEST_NS,
    CountedDispatch,
    CountedProcess,
    HostKind,
    RowsBuilder,
    counted_gpu,
    gpu_rows,
    grid_and_block,
    integers,
    kernel_name,
    mapping,
    process_parts,
    rank_of,
    usable_times,
)

ERRORS = (sqlite3.DatabaseError, UnicodeDecodeError)
"""Message for a damaged database; SQLite's own messages may contain bytes of it that are not
text."""

_ROWS_A_BLOCK = 50_000
DISPATCH = "rocpd_kernel_dispatch"
_COPY = "rocpd_memory_copy"
_REGION = "rocpd_region"

_SIZES = tuple(f"d.{what}_size_{axis}" for what in ("workgroup", "grid") for axis in "xyz")
_Texts: TypeAlias = dict[Any, str]


def read_rocpd(path: Path) -> TraceRows | None:
    """The rows of a rocpd database.

    Args:
        path: the ``.db`` file; it is opened read-only.

    Returns:
        None if it is another database, or one that cannot be read at all.
    """
    opened = open_rocpd(path)
    if opened is None:
        return None
    with closing(opened.database):
        suffixes = sorted(opened.suffixes)
        if not suffixes:
            return None
        builder = _RocpdRowsBuilder(opened)
        for process, suffix in enumerate(suffixes):
            builder.add(suffix, process)
        return builder.rows()


def is_rocpd(path: Path) -> bool:
    """Whether a SQLite database has tables of rocpd."""
    opened = open_rocpd(path)
    if opened is None:
        return False
    opened.database.close()
    return bool(opened.suffixes)


class RocpdTables(NamedTuple):
    """A database of rocpd."""

    database: sqlite3.Connection
    columns: dict[str, set[str]]
    """Names of the columns of each table."""

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Columns of a table, NULL where it lacks one; [] without the table."""
        known = self.columns.get(table)
        if known is None:
            return []
        chosen = ", ".join(quoted(name) if name in known else "NULL" for name in columns)
        return self.database.execute(f"SELECT {chosen} FROM {quoted(table)}").fetchall()

    @property
    def suffixes(self) -> set[str]:
        """Ends of the tables' names, one per process."""
        return {
            name.removeprefix(DISPATCH)
            for name in self.columns
            if name == DISPATCH or name.startswith(f"{DISPATCH}_")
        }


def open_rocpd(path: Path) -> RocpdTables | None:
    """The database, opened read-only; None if it cannot be opened or read."""
    try:
        database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    except ERRORS:
        return None
    database.text_factory = lambda raw: raw.decode("utf-8", "replace")
    try:
        # Functions that the file's own schema calls are not trusted.
        database.execute("PRAGMA trusted_schema = OFF")
        return RocpdTables(database, _tables(database))
    except ERRORS:
        database.close()
        return None


def _tables(database: sqlite3.Connection) -> dict[str, set[str]]:
    """Columns of each table."""
    names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {
        name: {row[1] for row in database.execute(f"PRAGMA table_info({quoted(name)})")}
        for (name,) in names
        if str(name).startswith("rocpd_")
    }


class _RocpdRowsBuilder(RowsBuilder):
    def __init__(self, tables: RocpdTables) -> None:
        super().__init__()
        self._tables = tables
        self._host: str | None = None
        self._environments: list[dict[str, Any]] = []
        """Of each process."""
        self._process = 0
        self._pids: list[int] = []
        """The process of each thread, as a number."""

    def add(self, suffix: str, process: int) -> None:
        """The tables of one process, which has this number."""
        self._process = process
        before = len(self._environments)
        try:
            self._add_information(suffix)
            self._add_kernels(suffix)
            if f"{_COPY}{suffix}" in self._tables.columns:
                self._add_copies(suffix)
            if f"{_REGION}{suffix}" in self._tables.columns:
                self._add_regions(suffix)
        except ERRORS as error:
            where = f"tables {suffix.lstrip('_') or 'of the process'}"
            self._problems.append(TraceProblem(where, f"cannot be read any further: {error}"))
            self._partial = True
        del self._environments[before + 1 :]
        if len(self._environments) == before:
            self._environments.append({})
        self._pids += [process] * (len(self._threads) - len(self._pids))

    def _add_information(self, suffix: str) -> None:
        for key, kind, index, product, name in self._tables.rows(
            f"rocpd_info_agent{suffix}", "id", "type", "type_index", "product_name", "name"
        ):
            self._agents.add(
                (suffix, key),
                is_gpu=kind == "GPU",
                index=index if isinstance(index, int) else None,
                product=str(product or name or ""),
                group=suffix,
            )
        nodes = self._tables.rows(f"rocpd_info_node{suffix}", "hostname")
        self._host = next((str(name) for (name,) in nodes if name), self._host)
        for (text,) in self._tables.rows(f"rocpd_info_process{suffix}", "environment"):
            self._environments.append(_object(text))

    def _add_kernels(self, suffix: str) -> None:
        query = rows_query(DISPATCH, suffix, self._tables.columns, ("d.kernel_id", *_SIZES))
        symbols = self._symbols(suffix)
        for rows in self._blocks(query):
            start, duration, rest = self._gpu_times(rows)
            _, _, stack, agent, stream, queue, _, _, kernel, *sizes = rest
            self._gpu.add(
                gpu_rows(
                    start,
                    duration,
                    self._numbered([symbols.get(k, f"kernel {k}") for k in kernel]),
                    GpuKind.KERNEL,
                    device=self._devices(suffix, agent),
                    stream=_first(stream, queue),
                    correlation=_whole(stack),
                    block=_triples(sizes[:3]),
                    work_items=_triples(sizes[3:]),
                    part=self._process,
                )
            )

    def _add_copies(self, suffix: str) -> None:
        more = ("d.name_id", "d.dst_agent_id", "d.src_agent_id", "d.size")
        query = rows_query(_COPY, suffix, self._tables.columns, more)
        strings = self._strings(suffix)
        for rows in self._blocks(query):
            start, duration, rest = self._gpu_times(rows)
            _, _, stack, _, stream, queue, _, _, name, target, source, size = rest
            to, origin = self._devices(suffix, target), self._devices(suffix, source)
            self._gpu.add(
                gpu_rows(
                    start,
                    duration,
                    self._numbered([strings.get(n, "") for n in name]),
                    GpuKind.MEMCPY,
                    device=[t if t >= 0 else s for t, s in zip(to, origin, strict=True)],
                    stream=_first(stream, queue),
                    correlation=_whole(stack),
                    size=_whole(size).tolist(),
                    part=self._process,
                )
            )

    def _add_regions(self, suffix: str) -> None:
        """Read calls by category: HIP and HSA, RCCL, and ROCTx ranges."""
        query = rows_query(
            _REGION, suffix, self._tables.columns, ("d.name_id", "e.category_id", "e.extdata")
        )
        strings, categories = self._strings(suffix), self._categories(suffix)
        for rows in self._blocks(query):
            start, duration, rest = self._timed(rows)
            _, _, stack, _, _, _, process, thread, name, category, recorded = rest
            kinds = [_kind(categories.get(c, "")) for c in category]
            texts = [_message(t) or strings.get(n, "") for n, t in zip(name, recorded, strict=True)]
            named = self._numbered(texts)
            # Each process counts its processes and threads by itself.
            lead = f"{self._process}:" if self._process else ""
            on = self._on((f"{lead}{p}", str(t)) for p, t in zip(process, thread, strict=True))
            numbers = _whole(stack)
            for kind in HostKind:
                these = np.array([one is kind for one in kinds], bool)
                if these.any():
                    columns = start[these], duration[these], named[these], on[these]
                    self._add_host(kind, *columns, numbers[these])

    def _gpu_times(self, rows: list[tuple[Any, ...]]) -> tuple[Int64, Int64, list[list[Any]]]:
        """Start and duration in ns, both 0 for work without a usable time, and the columns."""
        self.events += len(rows)
        columns = [list(column) for column in zip(*rows, strict=True)]
        return *usable_times(_whole(columns[0]), _whole(columns[1])), columns

    def _timed(self, rows: list[tuple[Any, ...]]) -> tuple[Int64, Int64, list[list[Any]]]:
        good = [
            row
            for row in rows
            if isinstance(row[0], int)
            and isinstance(row[1], int)
            and 0 <= row[0] <= row[1] < LATEST_NS
        ]
        self.events += len(rows)
        self._no_time += len(rows) - len(good)
        columns = [list(column) for column in zip(*good, strict=True)] if good else []
        if not columns:
            columns = [[] for _ in rows[0]]
        start = np.array(columns[0], np.int64)
        return start, np.array(columns[1], np.int64) - start, columns

    def _devices(self, suffix: str, agents: list[Any]) -> list[int]:
        found: list[int] = self._agents.numbers([(suffix, agent) for agent in agents]).tolist()
        return found

    def _strings(self, suffix: str, table: str = "rocpd_string", text: str = "string") -> _Texts:
        return {
            key: str(found or "") for key, found in self._tables.rows(table + suffix, "id", text)
        }

    def _categories(self, suffix: str) -> _Texts:
        """Kernel names: one layout has a table of them, the others store them among all texts."""
        if f"rocpd_info_category{suffix}" in self._tables.columns:
            return self._strings(suffix, "rocpd_info_category", "name")
        return self._strings(suffix)

    def _symbols(self, suffix: str) -> dict[Any, str]:
        """Names of the kernels."""
        columns = "id", "display_name", "kernel_name"
        return {
            key: kernel_name(str(shown or name or ""))
            for key, shown, name in self._tables.rows(f"rocpd_info_kernel_symbol{suffix}", *columns)
        }

    def _blocks(self, query: str) -> Iterator[list[tuple[Any, ...]]]:
        cursor = self._tables.database.execute(query)
        while rows := cursor.fetchmany(_ROWS_A_BLOCK):
            yield rows

    def rows(self) -> TraceRows:
        """All collected rows."""
        rank, world = rank_of(self._environments)
        return self._trace_rows(
            "rocpd",
            rank=rank,
            world_size=world,
            host=self._host,
            parts=process_parts(range(len(self._environments)), self._environments, self._pids),
        )


def rows_query(table: str, suffix: str, tables: dict[str, set[str]], more: tuple[str, ...]) -> str:
    """A query of start, end, stack, agent, stream, queue, process, thread and the columns `more` of
    the rows of `table`, in either layout."""
    columns = tables[f"{table}{suffix}"]
    joins = [_join(suffix, "rocpd_event", "e", "d.event_id")]
    has_track = "track_id" in columns and f"rocpd_track{suffix}" in tables
    track = tables[f"rocpd_track{suffix}"] if has_track else set()
    if has_track:
        joins.append(_join(suffix, "rocpd_track", "k", "d.track_id"))
    times = ["d.start", 'd."end"']
    if "start_id" in columns:
        joins.append(_join(suffix, "rocpd_timestamp", "b", "d.start_id"))
        joins.append(_join(suffix, "rocpd_timestamp", "f", "d.end_id"))
        times = ["b.value", "f.value"]
    places = [
        f"d.{name}" if name in columns else f"k.{name}" if name in track else "NULL"
        for name in ("agent_id", "stream_id", "queue_id", "pid", "tid")
    ]
    chosen = ", ".join((*times, "e.stack_id", *places, *more))
    return f"SELECT {chosen} FROM {quoted(table + suffix)} d {' '.join(joins)} ORDER BY d.id"


def _join(suffix: str, table: str, letter: str, key: str) -> str:
    return f"LEFT JOIN {quoted(table + suffix)} {letter} ON {letter}.id = {key}"


def quoted(name: str) -> str:
    """A name of a table or column as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def _kind(category: str) -> HostKind:
    if "RCCL" in category.upper():
        return HostKind.RCCL
    return HostKind.RANGE if "MARKER" in category.upper() else HostKind.CALL


def _message(recorded: object) -> str:
    """Name of a ROCTx range."""
    found = _object(recorded).get("message")
    return found if isinstance(found, str) else ""


def _object(text: object) -> dict[str, Any]:
    # Most ranges have "{}", which is not worth decoding.
    if not isinstance(text, str) or len(text) < len('{"":0}'):
        return {}
    try:
        return mapping(json.loads(text))
    except (ValueError, RecursionError):
        return {}


def _whole_number(value: object) -> int:
    return value if isinstance(value, int) else MISSING


def _whole(values: Iterable[Any]) -> Int64:
    return integers(list(map(_whole_number, values)))


def _first(stream: list[Any], queue: list[Any]) -> list[int]:
    found: list[int] = np.where(_whole(stream) >= 0, _whole(stream), _whole(queue)).tolist()
    return found


def _triples(columns: list[list[Any]]) -> list[tuple[int, int, int]]:
    x, y, z = (_whole(column).tolist() for column in columns)
    return list(zip(x, y, z, strict=True))


def read_rocpd_counters(path: Path) -> list[CountedProcess]:
    """The dispatches of each process, with their counters where they were collected; [] if it is
    another database, or one that cannot be read at all."""
    opened = open_rocpd(path)
    if opened is None:
        return []
    found = []
    with closing(opened.database):
        for suffix in sorted(opened.suffixes):
            process = CountedProcess()
            try:
                _read(process, opened, suffix)
            except ERRORS as error:
                process.problems.append(f"{path.name} cannot be read any further: {error}")
            process.join_replays()
            found.append(process)
    return found


def _read(process: CountedProcess, tables: RocpdTables, suffix: str) -> None:
    _describe(process, tables, suffix)
    numbers = _gpus(process, tables, suffix)
    symbols: dict[Any, tuple[str, list[int]]] = {
        key: (kernel_name(str(shown or name or "")), [_whole_number(one) for one in registers])
        for key, shown, name, *registers in tables.rows(
            f"rocpd_info_kernel_symbol{suffix}",
            "id",
            "display_name",
            "kernel_name",
            "arch_vgpr_count",
            "accum_vgpr_count",
            "sgpr_count",
        )
    }
    columns = tables.columns[f"{DISPATCH}{suffix}"]
    segments = [
        f"d.{name}" if name in columns else "NULL"
        for name in ("group_segment_size", "private_segment_size")
    ]
    more = ("d.event_id", "d.dispatch_id", "d.kernel_id", *segments, *_SIZES)
    by_event: dict[Any, CountedDispatch] = {}
    for row in tables.database.execute(rows_query(DISPATCH, suffix, tables.columns, more)):
        start, end, _, agent, _, _, _, _, event, number, kernel, lds, scratch, *sizes = row
        name, registers = symbols.get(kernel, (f"kernel {kernel}", [MISSING] * 3))
        sizes = list(map(_whole_number, sizes))
        grid, block = grid_and_block(sizes[3:], sizes[:3])
        dispatch = CountedDispatch(
            number=_whole_number(number),
            kernel=name,
            device=numbers.get(agent, MISSING),
            grid=grid,
            block=block,
            lds_bytes=_whole_number(lds),
            scratch_bytes=_whole_number(scratch),
            vgprs=registers[0],
            accum_vgprs=registers[1],
            sgprs=registers[2],
            start_ns=_whole_number(start),
            end_ns=_whole_number(end),
        )
        process.dispatches.append(dispatch)
        by_event[event] = dispatch
    names = {key: str(name) for key, name in tables.rows(f"rocpd_info_pmc{suffix}", "id", "name")}
    for event, counter, value in tables.rows(
        f"rocpd_pmc_event{suffix}", "event_id", "pmc_id", "value"
    ):
        counted = by_event.get(event)
        if counted is not None and isinstance(value, (int, float)):
            name = names.get(counter, f"counter {counter}")
            counted.values[name] = counted.values.get(name, 0.0) + value


def _describe(process: CountedProcess, tables: RocpdTables, suffix: str) -> None:
    for (name,) in tables.rows(f"rocpd_info_node{suffix}", "hostname"):
        process.host = str(name or "")
    for pid, command, environment in tables.rows(
        f"rocpd_info_process{suffix}", "pid", "command", "environment"
    ):
        process.pid = pid if isinstance(pid, int) else None
        process.take_rank(_object(environment), str(command or ""))


def _gpus(process: CountedProcess, tables: RocpdTables, suffix: str) -> dict[Any, int]:
    numbers: dict[Any, int] = {}
    for key, kind, index, name, product, described in tables.rows(
        f"rocpd_info_agent{suffix}",
        "id",
        "type",
        "type_index",
        "name",
        "product_name",
        "extdata",
    ):
        if kind != "GPU":
            continue
        number = index if isinstance(index, int) else len(numbers)
        numbers[key] = number
        properties = {**_object(described), "name": name, "product_name": product}
        gpu = counted_gpu(properties.get)
        if gpu is not None:
            process.gpus[number] = gpu
    return numbers
