"""The tables of rocpd, the SQLite database that rocprofv3 writes by default.

They are named ``rocpd_<content>_<process>`` (views without the last part join them). Two layouts of
schema version 3 exist in rocprofiler-sdk's ``rocpd_tables.sql``: dispatches, copies and regions
hold their times, agent, queue and thread themselves, or reference ``rocpd_timestamp`` and
``rocpd_track``. The columns identify the layout. Kernels and the calls that launched them share
``rocpd_event.stack_id``. Each instance of a counter has a row of ``rocpd_pmc_event``.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gemmetry.formats.events import TraceProblem
from gemmetry.formats.rocm.tables import (
    HOST,
    ROWS_A_BLOCK,
    XYZ,
    Block,
    Kind,
    Process,
    Tables,
    kernel_name,
    mapping,
)

_ERRORS = (sqlite3.DatabaseError, UnicodeDecodeError)
"""Errors of a damaged database; SQLite's own messages may contain bytes of it that are not text."""

_DISPATCH, _COPY, _REGION = "rocpd_kernel_dispatch", "rocpd_memory_copy", "rocpd_region"
_SIZES = {f"{what}_Size_{axis}": f"d.{what}_size_{axis}".lower()
          for what in ("Workgroup", "Grid") for axis in XYZ}  # fmt: skip
_PLACES = ("agent_id", "stream_id", "queue_id", "pid", "tid")
_REGISTERS = {"VGPR_Count": "arch_vgpr_count", "Accum_VGPR_Count": "accum_vgpr_count",
              "SGPR_Count": "sgpr_count"}  # fmt: skip
_SEGMENTS = {"LDS_Block_Size": "group_segment_size", "Scratch_Size": "private_segment_size"}


class RocpdTables(Tables):
    """A database of rocpd, opened read-only: a context manager, which closes it.

    Args:
        path: the ``.db`` file.
    """

    format = "rocpd"

    def __init__(self, path: Path, *, counters: bool = False) -> None:
        super().__init__(counters=counters)
        self.columns: dict[str, set[str]] = {}
        """Names of the columns of each table; {} for a database that cannot be read."""
        try:
            self._database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        except _ERRORS:
            self._database = sqlite3.connect(":memory:")
        self._database.text_factory = lambda raw: raw.decode("utf-8", "replace")
        with contextlib.suppress(*_ERRORS):
            # Functions that the file's own schema calls are not trusted.
            self._database.execute("PRAGMA trusted_schema = OFF")
            names = self._database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            for (name,) in names.fetchall():
                if str(name).startswith("rocpd_"):
                    infos = self._database.execute(f"PRAGMA table_info({_quoted(name)})")
                    self.columns[name] = {row[1] for row in infos}

    def __enter__(self) -> RocpdTables:
        return self

    def __exit__(self, *_error: object) -> None:
        self._database.close()

    @property
    def suffixes(self) -> list[str]:
        """Ends of the tables' names, one per process."""
        return sorted(
            name.removeprefix(_DISPATCH)
            for name in self.columns
            if name == _DISPATCH or name.startswith(f"{_DISPATCH}_")
        )

    def blocks(self) -> Iterator[Block]:
        """All rows, in blocks."""
        for process, suffix in enumerate(self.suffixes):
            self.processes.append(Process(process))
            try:
                self._describe(suffix, process)
                yield from self._kernels(suffix, process)
                yield from (self._values if self.counters else self._others)(suffix, process)
            except _ERRORS as error:
                where = f"tables {suffix.lstrip('_') or 'of the process'}"
                self.problems.append(TraceProblem(where, f"cannot be read any further: {error}"))
                self.partial = True

    def _describe(self, suffix: str, process: int) -> None:
        for key, kind, index, product, name, described in self._rows(
            f"rocpd_info_agent{suffix}", "id", "type", "type_index", "product_name", "name",
            "extdata",
        ):  # fmt: skip
            if kind == "GPU":
                own = {**_object(described), "name": name, "product_name": product}
                self.agents.add((process, key), index, own.get, process)
        one = self.processes[process]
        nodes = self._rows(f"rocpd_info_node{suffix}", "hostname")
        one.host = next((str(name) for (name,) in nodes if name), "")
        for pid, command, environment in self._rows(
            f"rocpd_info_process{suffix}", "pid", "command", "environment"
        )[:1]:
            one.pid = pid if isinstance(pid, int) else None
            one.command, one.environment = str(command or ""), _object(environment)

    def _kernels(self, suffix: str, process: int) -> Iterator[Block]:
        more = {"Name": "d.kernel_id", **_SIZES}
        if self.counters:
            known = self.columns[f"{_DISPATCH}{suffix}"]
            more |= {"Key": "d.event_id", "Dispatch_Id": "d.dispatch_id"} | {
                name: f"d.{own}" if own in known else "NULL" for name, own in _SEGMENTS.items()
            }
        symbols: dict[Any, tuple[str, Sequence[Any]]] = {
            key: (kernel_name(str(shown or name or "")), registers)
            for key, shown, name, *registers in self._rows(
                f"rocpd_info_kernel_symbol{suffix}", "id", "display_name", "kernel_name",
                *_REGISTERS.values(),
            )
        }  # fmt: skip
        for found in self._blocks(_DISPATCH, suffix, more):
            own = [symbols.get(key, (f"kernel {key}", [None] * 3)) for key in found["Name"]]
            found["Name"] = [name for name, _ in own]
            found["Device"] = self._devices(process, found["agent_id"])
            for place, name in enumerate(_REGISTERS if self.counters else ()):
                found[name] = [registers[place] for _, registers in own]
            yield Block(Kind.KERNEL, found, process)

    def _values(self, suffix: str, process: int) -> Iterator[Block]:
        """Yield the values of counters, one row for each instance."""
        names = dict(self._rows(f"rocpd_info_pmc{suffix}", "id", "name"))
        if rows := self._rows(f"rocpd_pmc_event{suffix}", "event_id", "pmc_id", "value"):
            keys, counters, values = zip(*rows, strict=True)
            named = [str(names.get(one, f"counter {one}")) for one in counters]
            columns = {"Key": keys, "Counter_Name": named, "Counter_Value": values}
            yield Block(Kind.VALUE, columns, process)

    def _others(self, suffix: str, process: int) -> Iterator[Block]:
        """Yield copies, and what ran on the host, whose category says what it is."""
        strings: dict[Any, str] = {}
        if any(f"{table}{suffix}" in self.columns for table in (_COPY, _REGION)):
            strings = self._texts(f"rocpd_string{suffix}", "string")
        more = {"Name": "d.name_id", "to": "d.dst_agent_id", "from": "d.src_agent_id",
                "Bytes": "d.size"}  # fmt: skip
        for found in self._blocks(_COPY, suffix, more):
            found["Name"] = [strings.get(key, "") for key in found["Name"]]
            to, origin = (self._devices(process, found[end]) for end in ("to", "from"))
            found["Device"] = [t if t >= 0 else o for t, o in zip(to, origin, strict=True)]
            yield Block(Kind.COPY, found, process)
        # One layout has a table of categories, the others store them among all texts.
        categories = strings
        if f"rocpd_info_category{suffix}" in self.columns:
            categories = self._texts(f"rocpd_info_category{suffix}", "name")
        more = {"Name": "d.name_id", "category": "e.category_id", "recorded": "e.extdata"}
        for found in self._blocks(_REGION, suffix, more):
            # The name of a ROCTx range, where there is one.
            messages = (_object(recorded).get("message") for recorded in found["recorded"])
            found["Name"] = [
                message if isinstance(message, str) and message else strings.get(key, "")
                for key, message in zip(found["Name"], messages, strict=True)
            ]
            # Each process counts its processes and threads by itself.
            lead = f"{process}:" if process else ""
            found["Process_Id"] = [f"{lead}{pid}" for pid in found["pid"]]
            kinds = [_kind(categories.get(one, "")) for one in found.pop("category")]
            for kind in dict.fromkeys(HOST.values()):
                if rows := [row for row, one in enumerate(kinds) if one is kind]:
                    yield Block(kind, found, process).at(rows)

    def _blocks(
        self, table: str, suffix: str, more: Mapping[str, str]
    ) -> Iterator[dict[str, Sequence[Any]]]:
        """The times, places and columns `more` (name -> SQL) of a table's rows, in either layout;
        nothing without the table."""
        columns = self.columns.get(f"{table}{suffix}")
        if columns is None:
            return
        joined = [("rocpd_event", "e", "event_id")]
        track = self.columns.get(f"rocpd_track{suffix}", set()) if "track_id" in columns else set()
        if track:
            joined.append(("rocpd_track", "k", "track_id"))
        start, end = "d.start", 'd."end"'
        if "start_id" in columns:
            joined += [("rocpd_timestamp", "b", "start_id"), ("rocpd_timestamp", "f", "end_id")]
            start, end = "b.value", "f.value"
        joins = (f"LEFT JOIN {_quoted(one + suffix)} {letter} ON {letter}.id = d.{key}"
                 for one, letter, key in joined)  # fmt: skip
        wanted = {"Start_Timestamp": start, "End_Timestamp": end}
        wanted |= {"Correlation_Id": "e.stack_id", **more} | {
            name: f"d.{name}" if name in columns else f"k.{name}" if name in track else "NULL"
            for name in _PLACES
        }
        chosen, source = ", ".join(wanted.values()), _quoted(table + suffix)
        cursor = self._database.execute(f"SELECT {chosen} FROM {source} d {' '.join(joins)} "
                                        "ORDER BY d.id")  # fmt: skip
        while rows := cursor.fetchmany(ROWS_A_BLOCK):
            self.events += len(rows)
            found: dict[str, Any] = dict(zip(wanted, zip(*rows, strict=True), strict=True))
            found["Stream_Id"] = [
                stream if isinstance(stream, int) and stream >= 0 else queue
                for stream, queue in zip(found["stream_id"], found["queue_id"], strict=True)
            ]
            yield found | {"Thread_Id": found["tid"]}

    def _rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Columns of a table, NULL where it lacks one; [] without the table."""
        known = self.columns.get(table)
        if known is None:
            return []
        chosen = ", ".join(_quoted(name) if name in known else "NULL" for name in columns)
        return self._database.execute(f"SELECT {chosen} FROM {_quoted(table)}").fetchall()

    def _texts(self, table: str, column: str) -> dict[Any, str]:
        return {key: str(text or "") for key, text in self._rows(table, "id", column)}

    def _devices(self, process: int, agents: Iterable[Any]) -> list[int]:
        found: list[int] = self.agents.numbers((process, agent) for agent in agents).tolist()
        return found


def _quoted(name: str) -> str:
    """A name of a table or column as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def _kind(category: str) -> Kind:
    if "RCCL" in category.upper():
        return Kind.RCCL
    return Kind.RANGE if "MARKER" in category.upper() else Kind.CALL


def _object(text: object) -> dict[str, Any]:
    # Most ranges have "{}", which is not worth decoding.
    if not isinstance(text, str) or len(text) < len('{"":0}'):
        return {}
    try:
        return mapping(json.loads(text))
    except (ValueError, RecursionError):
        return {}
