"""Counters of rocpd databases; their layouts are described in ``rocpd.py``.

A dispatch has a row of ``rocpd_event``, and each instance of a counter a row of
``rocpd_pmc_event`` for it; ``rocpd_info_pmc`` has the counters' names.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

from gemmetry.formats.events import MISSING
from gemmetry.formats.rocm.counted import (
    CountedDispatch,
    CountedProcess,
    counted_gpu,
    grid_and_block,
)
from gemmetry.formats.rocm.rocpd import (
    DISPATCH,
    ERRORS,
    RocpdTables,
    open_rocpd,
    quoted,
    rows_query,
)
from gemmetry.formats.rocm.rows import kernel_name

_SIZES = tuple(f"d.{what}_size_{axis}" for what in ("grid", "workgroup") for axis in "xyz")


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
        key: (kernel_name(str(shown or name or "")), [_whole(one) for one in registers])
        for key, shown, name, *registers in _rows(
            tables, f"rocpd_info_kernel_symbol{suffix}", "id", "display_name", "kernel_name",
            "arch_vgpr_count", "accum_vgpr_count", "sgpr_count",
        )
    }  # fmt: skip
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
        grid, block = grid_and_block([_whole(one) for one in sizes[:3]],
                                     [_whole(one) for one in sizes[3:]])  # fmt: skip
        dispatch = CountedDispatch(
            number=_whole(number),
            kernel=name,
            device=numbers.get(agent, MISSING),
            grid=grid,
            block=block,
            lds_bytes=_whole(lds),
            scratch_bytes=_whole(scratch),
            vgprs=registers[0],
            accum_vgprs=registers[1],
            sgprs=registers[2],
            start_ns=_whole(start),
            end_ns=_whole(end),
        )
        process.dispatches.append(dispatch)
        by_event[event] = dispatch
    names = {key: str(name) for key, name in _rows(tables, f"rocpd_info_pmc{suffix}", "id", "name")}
    for event, counter, value in _rows(
        tables, f"rocpd_pmc_event{suffix}", "event_id", "pmc_id", "value"
    ):
        counted = by_event.get(event)
        if counted is not None and isinstance(value, (int, float)):
            name = names.get(counter, f"counter {counter}")
            counted.values[name] = counted.values.get(name, 0.0) + value


def _describe(process: CountedProcess, tables: RocpdTables, suffix: str) -> None:
    for (name,) in _rows(tables, f"rocpd_info_node{suffix}", "hostname"):
        process.host = str(name or "")
    for pid, command, environment in _rows(
        tables, f"rocpd_info_process{suffix}", "pid", "command", "environment"
    ):
        process.pid = pid if isinstance(pid, int) else None
        process.take_rank(_object(environment), str(command or ""))


def _gpus(process: CountedProcess, tables: RocpdTables, suffix: str) -> dict[Any, int]:
    numbers: dict[Any, int] = {}
    for key, kind, index, name, product, described in _rows(
        tables, f"rocpd_info_agent{suffix}", "id", "type", "type_index", "name", "product_name",
        "extdata",
    ):  # fmt: skip
        if kind != "GPU":
            continue
        number = index if isinstance(index, int) else len(numbers)
        numbers[key] = number
        properties = {**_object(described), "name": name, "product_name": product}
        gpu = counted_gpu(properties.get)
        if gpu is not None:
            process.gpus[number] = gpu
    return numbers


def _rows(tables: RocpdTables, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """Columns of a table, NULL where it lacks one; [] without the table."""
    known = tables.columns.get(table)
    if known is None:
        return []
    chosen = ", ".join(quoted(name) if name in known else "NULL" for name in columns)
    return tables.database.execute(f"SELECT {chosen} FROM {quoted(table)}").fetchall()


def _whole(value: object) -> int:
    return value if isinstance(value, int) else MISSING


def _object(text: object) -> dict[str, Any]:
    try:
        found = json.loads(text) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
