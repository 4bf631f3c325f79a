"""The console block and the CSV columns of the IREE dispatch profiler, for its users' scripts.

Field names, order and values follow that tool, whose documentation shows the block. What it cannot
express, such as convolutions or providers other than IREE, is written in the same style.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping

from gemmetry.domain.names import operation_name, split_dispatch_name
from gemmetry.domain.operation import Operation, OperationKind
from gemmetry.domain.outcome import Outcome, Verification
from gemmetry.domain.record import Record
from gemmetry.providers.traits import traits_of
from gemmetry.reports.texts import first_line, printable

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
