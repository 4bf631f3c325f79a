"""The console block and the CSV columns of the IREE dispatch profiler, for its users' scripts.

Field names, order and values follow that tool, whose documentation shows the block. What it cannot
express, such as convolutions or providers other than IREE, is written in the same style.

Records as a table of presets or columns of ``domain/columns.py``, after their tags; as JSON.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gemmetry.domain.columns import COLUMNS, COLUMNS_BY_NAME, RecordColumn, row
from gemmetry.domain.errors import Outcome, UnknownNameError, Verification
from gemmetry.domain.names import split_dispatch_name
from gemmetry.domain.operation import Operation, OperationKind, operation_name
from gemmetry.domain.record import Record, ResultSet
from gemmetry.domain.rows import SCHEMA_VERSION
from gemmetry.domain.tables import ColumnType, Table
from gemmetry.providers.base import traits_of
from gemmetry.results.json_text import json_value
from gemmetry.results.texts import first_line, printable

_RULE = "-" * 64 + " "
"""The tool printed a space after the dashes; scripts may compare whole lines."""

_KINDS = {
    OperationKind.MATMUL: "OperationKind.Matmul",
    OperationKind.BATCH_MATMUL: "OperationKind.BatchMatmul",
    OperationKind.MATMUL_SPLITK: "OperationKind.SplitkMatmul",
    OperationKind.CONV2D: "OperationKind.Conv2d",
}

CSV_HEADER = (
    "Provider", "op_kind", "Operation", "bytes", "flops", "batch_count", "m", "n", "k", "lhs",
    "rhs", "result", "split_k_mode", "split_k_slices", "Tile config", "Core class",
    "Instruction class", "Verification", "Runtime(ms)", "GFLOPs",
)  # fmt: skip
"""The tool's columns; tags precede them."""

INTEGERS = frozenset(("bytes", "flops", "batch_count", "m", "n", "k"))
"""Columns that hold an integer for every operation; the others hold text."""


def format_block(records: Iterable[Record]) -> str:
    """The console block of every record, one after the other, ending in a newline.

    A record whose outcome is not ok gets one more line, ``Outcome``, with the reason.
    """
    return "".join(_block(record) for record in records)


def _block(record: Record) -> str:
    operation, _ = split_dispatch_name(record.operation)
    arguments = " ".join(f"--{key}={value}" for key, value in _arguments(operation).items())
    wrapped = textwrap.fill(arguments, width=80, subsequent_indent=" " * 16, break_on_hyphens=False)
    fields = {
        "Dispatch": record.dispatch,
        "Provider": _provider(record),
        "OpKind": _KINDS[operation.kind],
        "Operation": record.operation,
        "Configuration": record.configuration,
        "Arguments": wrapped,
        "Verification": _verification(record),
        "Runtime(ms)": _runtime_ms(record) or "Not profiled",
        "GFLOPs": _gflops(record) or "Not profiled",
    }
    if record.outcome is not Outcome.OK:
        fields["Outcome"] = f"{record.outcome}: {first_line(record.reason)}"
    lines = [_RULE, *(f"{name:<14}: {printable(text)}" for name, text in fields.items())]
    return "\n".join(lines) + "\n"


def csv_row(record: Record) -> dict[str, str | int]:
    """One row under :data:`CSV_HEADER`."""
    operation, _ = split_dispatch_name(record.operation)
    return {
        "Provider": _provider(record),
        "op_kind": str(operation.kind),
        "Operation": operation_name(operation),
        "bytes": record.bytes,
        "flops": record.flops,
        **_arguments(operation),
        **_tile_columns(record.configuration),
        "Verification": _verification(record),
        "Runtime(ms)": _runtime_ms(record),
        "GFLOPs": _gflops(record) or "Not run",
    }


def _provider(record: Record) -> str:
    return traits_of(record.provider).legacy_label or record.provider


def _arguments(operation: Operation) -> Mapping[str, str | int]:
    s, shape = operation.signature, operation.matmul_shape
    is_split = s.split_k_slices > 1
    return {
        "batch_count": shape.batch,
        "m": shape.m,
        "n": shape.n,
        "k": shape.k,
        "lhs": f"{s.lhs}{s.lhs_layout}",
        "rhs": f"{s.rhs}{s.rhs_layout}",
        "result": f"{s.result}{s.result_layout}",
        "split_k_mode": "parallel" if is_split else "N/A",
        "split_k_slices": s.split_k_slices if is_split else "N/A",
    }


def _tile_columns(configuration: str) -> dict[str, str]:
    """``tile_config_128x128_32x5_tensorcore_mmasync`` -> tile, core and instruction class."""
    parts = configuration.removeprefix("tile_config_").split("_")
    if configuration in ("default", "tile_config_default"):
        values = ["Default", "Default", "Default"]
    elif configuration.startswith("tile_config_") and len(parts) >= 4:
        values = ["_".join(parts[:2]), parts[2], "_".join(parts[3:])]
    else:
        values = [configuration, "N/A", "N/A"]
    return dict(zip(("Tile config", "Core class", "Instruction class"), values, strict=True))


def _verification(record: Record) -> str:
    if record.verdict.status in (Verification.PASSED, Verification.WARNED):
        return "SUCCESS"
    return "FAILED" if record.verdict.status is Verification.FAILED else "Not verified"


def _runtime_ms(record: Record) -> str:
    """Milliseconds with at least three significant decimals; "" without a measurement."""
    if record.measurement is None or record.measurement.median_ns <= 0:
        return ""
    ms = record.measurement.median_ns / 1e6
    decimals = max(3, 3 - math.floor(math.log10(ms)))
    whole, _, fraction = f"{ms:.{decimals}f}".partition(".")
    return f"{whole}.{fraction.rstrip('0') or '0'}"


def _gflops(record: Record) -> str:
    return "" if record.gflops is None else str(round(record.gflops, 2))


SUMMARY = (
    "provider", "operation", "configuration", "outcome", "verification", "median_ns",
    "ci_low_ns", "ci_high_ns", "gflops", "roofline_fraction",
)  # fmt: skip

PRESETS: dict[str, str] = {
    "gemmetry": "every column (gemmetry help columns)",
    "summary": f"{', '.join(SUMMARY)}",
    "dispatch-profiler": "the columns of the IREE dispatch profiler's CSV, under its names",
}
"""Preset -> the columns it holds, for people."""


def record_table(
    records: Iterable[Record],
    columns: Sequence[str] | None = None,
    *,
    name: str = "records",
    has_tags: bool = True,
) -> Table:
    """The `records` as a table of :func:`select_columns`, preceded by a column for each of their
    tags if `has_tags`.

    Raises:
        UnknownNameError: no such column or preset.
    """
    records = list(records)
    chosen = select_columns(columns, tags=tag_names(records) if has_tags else ())
    rows = []
    for record in records:
        operation, _ = split_dispatch_name(record.operation)
        rows.append([column.value(record, operation) for column in chosen])
    return Table(name, tuple(chosen), rows)


def select_columns(names: Sequence[str] | None, *, tags: Iterable[str] = ()) -> list[RecordColumn]:
    """The columns called `names` (of a preset or of the domain; default: all of the domain),
    preceded by the tags.

    Raises:
        UnknownNameError: no such column or preset.
    """
    chosen: dict[str, RecordColumn] = {}
    for name in names or ("gemmetry",):
        for column in _expand(name):
            chosen.setdefault(column.name, column)
    leading: dict[str, RecordColumn] = {}
    for tag in tags:
        heading = f"tag:{tag}" if tag in chosen else tag
        leading[heading] = RecordColumn(heading, value=_tag_value(tag))
    if leading:
        chosen.pop("tags", None)
    return [*leading.values(), *chosen.values()]


def tag_names(records: Iterable[Record]) -> list[str]:
    """The names of all tags, in the order in which they appear."""
    return list(dict.fromkeys(name for record in records for name in record.tags))


def to_json_document(result_set: ResultSet) -> dict[str, Any]:
    """``schema_version``, ``records`` (each column is a key, null where it does not apply),
    ``environments`` by id, and where the results come from. JSON values only."""
    return {
        "schema_version": SCHEMA_VERSION,
        "title": result_set.title,
        "command": result_set.command or None,
        "created": result_set.created or None,
        "experiment": result_set.path or None,
        "planned": result_set.planned,
        "remarks": list(result_set.remarks),
        "records": [json_value(row(record)) for record in result_set.records],
        "environments": {
            key: json_value(asdict(environment))
            for key, environment in result_set.environments.items()
        },
    }


def _expand(name: str) -> list[RecordColumn]:
    if name == "gemmetry":
        return list(COLUMNS)
    if name == "summary":
        return [COLUMNS_BY_NAME[item] for item in SUMMARY]
    if name == "dispatch-profiler":
        return [_profiler_column(heading) for heading in CSV_HEADER]
    if name in COLUMNS_BY_NAME:
        return [COLUMNS_BY_NAME[name]]
    raise UnknownNameError("column", name, [*COLUMNS_BY_NAME, *PRESETS])


def _profiler_column(heading: str) -> RecordColumn:
    kind = ColumnType.INTEGER if heading in INTEGERS else ColumnType.TEXT
    return RecordColumn(heading, kind, value=lambda record, _: csv_row(record)[heading])


def _tag_value(tag: str) -> Callable[[Record, Operation], Any]:
    return lambda record, _operation: record.tags.get(tag)
