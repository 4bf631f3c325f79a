"""JSON documents that other benchmarks write.

- Traces of FlashInfer-Bench: JSON lines, each an evaluation of a solution on a workload
  (flashinfer-bench, ``flashinfer_bench/data/trace.py``). Formats and the sizes that are constant
  are in the definition, which lies in the folder ``definitions`` of the same data set. The latency
  is the mean.
- Cache files of Kernel Tuner (kernel_tuner, ``kernel_tuner/util.py``, ``store_cache``): the tuned
  parameters and the times of every launch, in milliseconds, but not what the kernel computes. While
  Kernel Tuner writes a file, its last two brackets are missing.
"""

from __future__ import annotations

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
    integer,
    milliseconds,
    plain_name,
    product,
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
    """None for a workload without an evaluation."""
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
    definition = _definition(path, name)
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
    layouts = (_layout(a, "MK"), _layout(b, "KN"), _layout(c, "MN"))
    return product((m, n, k, 1), (a["dtype"], b["dtype"], c["dtype"]), layouts)


def _layout(tensor: Mapping[str, Any], logical: str) -> Layout:
    shape = "".join(tensor["shape"])
    if shape not in (logical, logical[::-1]):
        raise RowError(f"a tensor has the shape {tensor['shape']}, not {list(logical)}")
    return Layout.ROW if shape == logical else Layout.COLUMN


def _definition(path: Path, name: str) -> Mapping[str, Any] | None:
    """The document of the definition, from the data set that the file belongs to."""
    if re.fullmatch(r"[\w.-]+", name) is None:
        raise RowError(f"{name!r} is not the name of a definition")
    return _find_definition(path.resolve().parent, name)


@cache
def _find_definition(folder: Path, name: str) -> Mapping[str, Any] | None:
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
    outcome = _FAILURES.get(time, Outcome.LAUNCH_ERROR) if failed else Outcome.OK
    return ForeignResult(
        operation=stated.whole(),
        configuration=plain_name("_".join(f"{name}{value}" for name, value in parameters.items())),
        parameters=parameters,
        time_ns=None if failed or samples else milliseconds(time, "time"),
        statistic="mean",
        samples_ns=() if failed else tuple(milliseconds(one, "a time") for one in samples),
        outcome=outcome,
        reason=f"kernel_tuner: {time}" if failed else "",
        device=str(document.get("device_name") or ""),
    )


FORMATS = (
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
