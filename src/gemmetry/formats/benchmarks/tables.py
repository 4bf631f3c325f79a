"""Tables that other benchmarks write.

- ``cutlass_profiler``, from ``--output`` or from what it prints (CUTLASS,
  ``tools/profiler/src/performance_report.cpp``). The time is the mean over the launches that it
  timed.
- ``hipblaslt-bench`` and ``rocblas-bench``: a line of headings, and a line of values for each
  solution (rocm-libraries, ``clients/common/include/argument_model.hpp``). Both state column-major
  products. Such a product of m, n, k is in memory the row-major one of M = n, N = m, K = k, whose
  operands change places. The time is the mean over the launches. rocblas-bench does not state
  formats.
- tritonbench, from ``--csv --output`` or ``--dump-csv`` (tritonbench,
  ``tritonbench/utils/triton_op.py``, ``write_csv_to_file``). The latency is the median. The table
  does not state formats and layouts.

JSON documents that other benchmarks write.

- Traces of FlashInfer-Bench: JSON lines, each an evaluation of a solution on a workload
  (flashinfer-bench, ``flashinfer_bench/data/trace.py``). Formats and the sizes that are constant
  are in the definition, which lies in the folder ``definitions`` of the same data set. The latency
  is the mean.
- Cache files of Kernel Tuner (kernel_tuner, ``kernel_tuner/util.py``, ``store_cache``): the tuned
  parameters and the times of every launch, in milliseconds, but not what the kernel computes. While
  Kernel Tuner writes a file, its last two brackets are missing.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from gemmetry.domain.errors import Outcome, RequestError
from gemmetry.domain.opening import parsed_json, read_json
from gemmetry.domain.operation import Layout, Operation
from gemmetry.formats.benchmarks import (
    ForeignResult,
    ResultFormat,
    RowError,
    StatedOperation,
    factor,
    integer,
    milliseconds,
    plain_name,
    product,
    table_row,
)

_Rows = Iterator[tuple[object, Any]]

_NAME: Final = re.compile(r"gemm_n(?P<n>\d{1,18})_k(?P<k>\d{1,18})")
"""The name of a definition of A (M, K) times the transpose of B (N, K)."""
_STATUSES: Final = {
    "PASSED": Outcome.OK,
    "INCORRECT_NUMERICAL": Outcome.WRONG,
    "INCORRECT_SHAPE": Outcome.WRONG,
    "INCORRECT_DTYPE": Outcome.WRONG,
    "REWARD_HACK": Outcome.WRONG,
    "COMPILE_ERROR": Outcome.COMPILE_ERROR,
    "RUNTIME_ERROR": Outcome.LAUNCH_ERROR,
    "TIMEOUT": Outcome.TIMEOUT,
}
"""Status -> outcome."""


def _is_flashinfer(text: str) -> bool:
    first = text.lstrip().partition("\n")[0]
    return first.startswith("{") and '"definition"' in first and '"workload"' in first


def _flashinfer_rows(text: str) -> _Rows:
    for number, line in enumerate(text.split("\n"), 1):  # a log may contain other ends of lines
        if line.strip():
            try:
                yield number, parsed_json(line)
            except json.JSONDecodeError:
                yield number, RowError("the line is damaged or cut off")
            except ValueError as error:
                yield number, error


def _flashinfer_result(
    line: Mapping[str, Any], stated: StatedOperation, path: Path
) -> ForeignResult | None:
    """Result of a line; None for a workload without an evaluation."""
    if not isinstance(line, dict):
        raise RowError("it is not a JSON object")
    evaluation = line.get("evaluation")
    if not evaluation:
        return None
    status = str(evaluation["status"])
    if status not in _STATUSES:
        raise RowError(f"its status {status!r} is unknown")
    outcome = _STATUSES[status]
    ok = outcome is Outcome.OK
    log = str(evaluation.get("log") or "").strip().splitlines()
    return ForeignResult(
        operation=_operation(path, str(line["definition"]), line["workload"]["axes"], stated),
        configuration=plain_name(str(line["solution"])),
        time_ns=milliseconds(evaluation["performance"]["latency_ms"], "latency_ms") if ok else None,
        statistic="mean",
        outcome=outcome,
        reason="" if ok else ": ".join([f"flashinfer-bench: {status}", *log[:1]]),
        device=str((evaluation.get("environment") or {}).get("hardware") or ""),
    )


def _operation(
    path: Path, name: str, axes: Mapping[str, Any], stated: StatedOperation
) -> Operation:
    definition = _definition(path.resolve().parent, name)
    if definition is None:
        match = _NAME.fullmatch(name)
        if match is None:
            raise RowError(f"there is no definition of {name}, and it is not called gemm_n…_k…")
        return stated.at(integer(axes.get("M"), "M"), int(match["n"]), int(match["k"]))
    if definition.get("op_type") != "gemm":
        raise RowError(f"{name} is not a matrix product but {definition.get('op_type')}")
    sizes = {
        axis: axes.get(axis, properties.get("value"))
        for axis, properties in definition["axes"].items()
    }
    m, n, k = (integer(sizes.get(axis), axis) for axis in "MNK")
    a, b = (definition["inputs"][one] for one in "AB")
    (c,) = definition["outputs"].values()
    layouts = (_tensor_layout(a, "MK"), _tensor_layout(b, "KN"), _tensor_layout(c, "MN"))
    return product((m, n, k, 1), (a["dtype"], b["dtype"], c["dtype"]), layouts)


def _tensor_layout(tensor: Mapping[str, Any], logical: str) -> Layout:
    shape = "".join(tensor["shape"])
    if shape not in (logical, logical[::-1]):
        raise RowError(f"a tensor has the shape {tensor['shape']}, not {list(logical)}")
    return Layout.ROW if shape == logical else Layout.COLUMN


@cache
def _definition(folder: Path, name: str) -> Mapping[str, Any] | None:
    """The document of the definition, from the data set that the folder belongs to."""
    if re.fullmatch(r"[\w.-]+", name) is None:
        raise RowError(f"{name!r} is not the name of a definition")
    for parent in (folder, *folder.parents):
        for file in (parent / "definitions").glob(f"**/{name}.json"):
            try:
                found = read_json(file)
            except RequestError:
                continue
            return found if isinstance(found, dict) else None
    return None


_FAILURES: Final = {
    "InvalidConfig": Outcome.UNSUPPORTED,
    "CompilationFailedConfig": Outcome.COMPILE_ERROR,
    "RuntimeFailedConfig": Outcome.LAUNCH_ERROR,
}
"""The text in place of a time -> outcome."""


def _is_kernel_tuner(text: str) -> bool:
    head = text.lstrip()[:100_000]
    return head.startswith("{") and '"tune_params_keys"' in head and '"cache"' in text


def _tuner_rows(text: str) -> _Rows:
    closed = _closed(text)
    whole, newline, _ = text.rstrip().rpartition("\n")
    # As far as its entries are complete: each is one line.
    document = _closed(whole) if closed is None and newline else closed
    entries = None if document is None else document.get("cache")
    if not isinstance(entries, dict):
        yield "", RowError("it is damaged: it does not end as a cache file does")
        return
    yield from ((f" {key}", (document, entry)) for key, entry in entries.items())
    if closed is None:
        yield "", RowError("it ends within an entry, which is left out")


def _closed(text: str) -> Mapping[str, Any] | None:
    """The document of a file that is complete, or that is still open for writing."""
    for end in ("", "}}"):
        try:
            found = parsed_json(text.rstrip().rstrip(",") + end)
        except ValueError:  # damaged, or a number of thousands of digits
            continue
        return found if isinstance(found, dict) else None
    return None


def _tuner_result(
    row: tuple[Mapping[str, Any], Mapping[str, Any]], stated: StatedOperation, path: Path
) -> ForeignResult:
    document, entry = row
    parameters = {name: entry[name] for name in document["tune_params_keys"]}
    time, samples = entry["time"], entry.get("times") or []
    if not isinstance(samples, list):
        raise RowError(f"its times are {samples!r}, not a list")
    failed = isinstance(time, str) and not time.replace(".", "", 1).isdigit()
    return ForeignResult(
        operation=stated.whole(),
        configuration=plain_name("_".join(f"{name}{value}" for name, value in parameters.items())),
        parameters=parameters,
        time_ns=None if failed or samples else milliseconds(time, "time"),
        statistic="mean",
        samples_ns=() if failed else tuple(milliseconds(one, "a time") for one in samples),
        outcome=_FAILURES.get(time, Outcome.LAUNCH_ERROR) if failed else Outcome.OK,
        reason=f"kernel_tuner: {time}" if failed else "",
        device=str(document.get("device_name") or ""),
    )


DOCUMENTS = (
    ResultFormat(
        name="flashinfer_bench",
        summary="traces of FlashInfer-Bench (JSON lines)",
        recognises=_is_flashinfer,
        rows=_flashinfer_rows,
        result=_flashinfer_result,
    ),
    ResultFormat(
        name="kernel_tuner",
        summary="cache files of Kernel Tuner (JSON)",
        recognises=_is_kernel_tuner,
        rows=_tuner_rows,
        result=_tuner_result,
    ),
)


_BEGINNING: Final = "Problem,Provider,OperationKind,Operation,Disposition,Status"
"""Beginning of the header, after any columns of ``--tags``."""
_NEEDED: Final = (
    "OperationKind", "Operation", "Disposition", "Status", "m", "n", "k", "A", "B", "C", "Runtime",
)  # fmt: skip
_LAYOUTS: Final = {"row": Layout.ROW, "column": Layout.COLUMN}
_KINDS: Final = ("", "gemm", "batched", "array", "universal")
"""Values of ``gemm_kind`` that are plain products: not planar complex, sparse or grouped ones."""
_DISPOSITIONS: Final = {
    "passed": Outcome.OK,
    "not_verified": Outcome.OK,
    "incorrect": Outcome.WRONG,
    "failed": Outcome.LAUNCH_ERROR,
    "invalid_problem": Outcome.UNSUPPORTED,
    "not_supported": Outcome.UNSUPPORTED,
    "not_run": Outcome.SKIPPED,
}
"""Disposition -> outcome."""
_CONFIGURES: Final = (
    "op_class", "cta_m", "cta_n", "cta_k", "cluster_m", "cluster_n", "cluster_k", "stages",
    "warps_m", "warps_n", "warps_k", "inst_m", "inst_n", "inst_k", "raster_order", "swizzle_size",
    "split_k_mode", "split_k_slices",
)  # fmt: skip


def _cutlass_rows(text: str) -> _Rows:
    header: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if _BEGINNING in line:
            header = line.split(",")
            if missing := [name for name in _NEEDED if name not in header]:
                yield number, RowError(f"no columns {', '.join(missing)}")
                header = []
        elif header and line.strip():
            yield number, (header, line)


def _cutlass_result(
    row: tuple[list[str], str], stated: StatedOperation, path: Path
) -> ForeignResult:
    header, line = row
    cells = table_row(header, next(csv.reader([line])))
    if cells["OperationKind"] != "gemm":
        raise RowError(f"{cells['OperationKind']} is not a plain matrix product")
    if cells.get("gemm_kind", "") not in _KINDS:
        raise RowError(f"gemm_kind {cells['gemm_kind']} is not a plain matrix product")
    if cells["Disposition"] not in _DISPOSITIONS:
        raise RowError(f"its disposition {cells['Disposition']!r} is unknown")
    outcome = _DISPOSITIONS[cells["Disposition"]]
    if cells["Status"] != "success" and outcome is Outcome.OK:
        outcome = Outcome.LAUNCH_ERROR
    ok = outcome is Outcome.OK
    return ForeignResult(
        operation=_cutlass_operation(cells),
        configuration=plain_name(cells["Operation"]),
        parameters={name: cells[name] for name in _CONFIGURES if cells.get(name)},
        time_ns=milliseconds(cells["Runtime"], "Runtime") if ok else None,
        statistic="mean",
        outcome=outcome,
        reason="" if ok else f"cutlass_profiler: {cells['Disposition']}, {cells['Status']}",
    )


def _cutlass_operation(row: dict[str, str]) -> Operation:
    m, n, k = (integer(row[name], name) for name in "mnk")
    batch = integer(row.get("batch_count") or 1, "batch_count")
    alpha, beta = factor(row, "alpha", 1.0), factor(row, "beta", 0.0)
    result = row.get("D") or row["C"]
    if beta and result.partition(":")[0] != row["C"].partition(":")[0]:
        raise RowError(f"C is {row['C']} and D {result}: they are of one format here")
    formats, layouts = zip(*map(_tensor, (row["A"], row["B"], result)), strict=True)
    sizes = (m, n, k, batch)
    return product(sizes, formats, layouts, row.get("accum", ""), alpha=alpha, beta=beta)


def _tensor(text: str) -> tuple[str, Layout]:
    """``f16:column``; names of eight bits begin with an ``f``: ``fe4m3``."""
    dtype, _, layout = text.partition(":")
    if layout not in _LAYOUTS:
        raise RowError(f"{text!r} has no layout row or column")
    return dtype.removeprefix("f") if dtype.startswith("fe") else dtype, _LAYOUTS[layout]


_HEADINGS: Final = re.compile(
    r"\s*(?:\[\d+\]:)?(transA,transB,\S.*\b(?:hipblaslt|rocblas)-Gflops\b.*)"
)
_DEVICE: Final = re.compile(r"\s*Device ID \d+ : (?P<name>.+?)(?: gfx\S+)?\s*")
_SOLUTION: Final = re.compile(r"\s*--Solution name:\s*(?P<name>\S+)")
_BEST: Final = "Winner"
"""Before the best solution, which is listed once more."""

_FORMATS: Final = {
    "f64_r": "f64", "f32_r": "f32", "f16_r": "f16", "bf16_r": "bf16", "i8_r": "s8", "i32_r": "s32",
    "f8_r": "e4m3", "bf8_r": "e5m2", "f8_fnuz_r": "e4m3fnuz", "bf8_fnuz_r": "e5m2fnuz",
}  # fmt: skip
"""hipBLASLt's name -> ours."""
_SINGLE: Final = ("f32_r", "c_f32_r")
_REDUCED: Final = ("xf32_r", "c_xf32_r")
"""Names of the computation in f32, and of that in TF32."""
_PLAIN: Final = {
    "grouped_gemm": "groups", "activation_type": "an activation", "bias_vector": "a bias",
    "scaleA": "factors of A", "scaleB": "factors of B", "scaleC": "factors of C",
    "scaleD": "factors of D", "amaxD": "the largest element",
}  # fmt: skip
"""Columns that state more than a plain product -> what that is."""
_NOTHING: Final = ("", "0", "none", "false")


def _bench_rows(text: str) -> _Rows:
    header: list[str] = []
    device = ""
    pending: list[tuple[int, tuple[list[str], str, dict[str, Any]]]] = []
    """The last line of values, whose solution's name may follow."""
    for number, line in enumerate(text.splitlines(), 1):
        if match := _HEADINGS.fullmatch(line):
            header = match[1].strip().lower().split(",")
        elif line.startswith(_BEST):
            break
        elif match := _DEVICE.fullmatch(line):
            device = match["name"]
        elif (match := _SOLUTION.match(line)) and pending:
            pending[0][1][2]["configuration"] = plain_name(match["name"])
        elif header and line.count(",") > 1:
            yield from pending
            pending = [(number, (header, line, {"configuration": "default", "device": device}))]
    yield from pending


def _bench_result(
    row: tuple[list[str], str, dict[str, Any]], stated: StatedOperation, path: Path
) -> ForeignResult:
    header, line, named = row
    cells = table_row(header, next(csv.reader([line])))
    for column, what in _PLAIN.items():
        written = cells.get(column.lower(), "")
        if written.lower() not in _NOTHING:
            raise RowError(f"it has {what} ({column} {written}), not a plain product")
    return ForeignResult(
        operation=_bench_operation(cells, stated), statistic="mean",
        time_ns=milliseconds(cells.get("us"), "us", "microseconds"), **named,
    )  # fmt: skip


def _bench_operation(row: dict[str, str], stated: StatedOperation) -> Operation:
    n, m, k = (integer(row.get(name), name) for name in "mnk")
    batch = integer(row.get("batch_count") or 1, "batch_count")
    layouts = _layout(row, "transB"), _layout(row, "transA"), Layout.ROW
    if "a_type" not in row:
        signature = stated.at(m, n, k, batch).signature
        formats = signature.lhs.name, signature.rhs.name, signature.result.name
        return product((m, n, k, batch), formats, layouts)
    a, b, c, result = (_format(row, f"{name}_type") for name in "abcd")
    alpha, beta = factor(row, "alpha", 1.0), factor(row, "beta", 0.0)
    if beta and c != result:
        raise RowError(f"C is {c} and D {result}: they are of one format here")
    return product((m, n, k, batch), (b, a, result), layouts, alpha=alpha, beta=beta)


def _format(row: dict[str, str], column: str) -> str:
    name = row.get(column, "")
    if name not in _FORMATS:
        raise RowError(f"{column} is {name!r}, which is no format that is known here")
    computed = row.get("compute_type", _SINGLE[0])
    if name == "f32_r" and column in ("a_type", "b_type"):
        if computed in _REDUCED:
            return "tf32"
        if computed not in _SINGLE:
            raise RowError(f"the product is computed in {computed}")
    return _FORMATS[name]


def _layout(row: dict[str, str], column: str) -> Layout:
    """Layout of an operand of the row-major product: one that is not transposed has rows of K
    elements, or of N."""
    text = row.get(column.lower(), "")
    if text not in ("N", "T", "C"):
        raise RowError(f"{column} is {text!r}, not N or T")
    return Layout.ROW if text == "N" else Layout.COLUMN


_LATENCY: Final = "-latency"
_SHAPE: Final = re.compile(r"\(\s*(\d{1,18}(?:\s*,\s*\d{1,18}){2,3})\s*,?\s*\)")
"""``(M, N, K)`` or ``(B, M, N, K)``."""
_SPREAD: Final = re.compile(r"\s*\((?:±|\+-)[^()]*\)$")
"""Spread after a latency: ``0.012 (±1.20%)``."""
_SUMMARIES: Final = ("average", "hashes")
"""Rows that are not about a shape."""
_FALSE: Final = ("False", "false", "0", "0.0")
"""The accuracy of a kernel whose output differs from the baseline's."""


def _is_tritonbench(text: str) -> bool:
    header = text.partition("\n")[0].strip().split(";")
    return len(header) > 1 and any(name.endswith(_LATENCY) for name in header[1:])


def _triton_rows(text: str) -> _Rows:
    # Strict, so that a quote that is not closed does not swallow the rest of the file unnoticed.
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=";", strict=True)
    try:
        header = next(rows)
        for number, cells in enumerate(rows, 2):
            for place, name in enumerate(header):
                is_kernel = place and name.endswith(_LATENCY)
                if is_kernel and cells and cells[0] not in _SUMMARIES:
                    kernel = name.removesuffix(_LATENCY)
                    yield f"{number}: {kernel}", (header, cells, place, kernel)
    except csv.Error as error:
        yield rows.line_num, RowError(f"{error}; the rows from here on are lost")


def _triton_result(
    row: tuple[list[str], list[str], int, str], stated: StatedOperation, path: Path
) -> ForeignResult:
    header, cells, place, kernel = row
    match = _SHAPE.fullmatch(cells[0].strip())
    if match is None:
        raise RowError(f"{cells[0]!r} is not a shape (M, N, K)")
    metrics = ((*name.rpartition("-"), one) for name, one in table_row(header, cells).items())
    *batch, m, n, k = map(int, match[1].split(","))
    operation = stated.at(m, n, k, *batch)
    cell = _SPREAD.sub("", cells[place].strip())
    own = {metric: one for name, _, metric, one in metrics if name == kernel}
    is_wrong = own.pop("accuracy", "") in _FALSE
    # A message takes the place of the kernel's first metric, and its others are empty.
    messages = [one for one in own.values() if one and not _is_number(_SPREAD.sub("", one))]
    time_ns, outcome, reason = None, Outcome.OK, ""
    if messages and (not cell or cell in messages):
        oom, failed = Outcome.OUT_OF_MEMORY, Outcome.LAUNCH_ERROR
        outcome = oom if "OOM" in messages[0].upper() else failed
        reason = f"tritonbench: {messages[0]}"
    elif is_wrong:
        outcome, reason = Outcome.WRONG, "tritonbench: the accuracy is False"
    elif not cell:
        raise RowError("it has no latency")
    else:
        time_ns = milliseconds(cell, "the latency")
    return ForeignResult(
        operation=operation, configuration=plain_name(kernel), time_ns=time_ns, outcome=outcome,
        reason=reason,
    )  # fmt: skip


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


FORMATS = (
    *DOCUMENTS,
    ResultFormat(
        name="cutlass_profiler",
        summary="tables of cutlass_profiler (CSV)",
        recognises=lambda text: _BEGINNING in text,
        rows=_cutlass_rows,
        result=_cutlass_result,
    ),
    ResultFormat(
        name="hipblaslt_bench",
        summary="tables of hipblaslt-bench or rocblas-bench",
        recognises=lambda text: any(map(_HEADINGS.fullmatch, text.splitlines())),
        rows=_bench_rows,
        result=_bench_result,
    ),
    ResultFormat(
        name="tritonbench",
        summary="tables of tritonbench (CSV)",
        recognises=_is_tritonbench,
        rows=_triton_rows,
        result=_triton_result,
    ),
)
