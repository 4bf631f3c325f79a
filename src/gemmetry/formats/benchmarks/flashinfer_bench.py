"""Traces of FlashInfer-Bench: JSON lines, each an evaluation of a solution on a workload
(flashinfer-bench, ``flashinfer_bench/data/trace.py``).

Formats and the sizes that are constant are in the definition, which lies in the folder
``definitions`` of the same data set. The latency is the mean.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from gemmetry.domain.errors import Outcome, RequestError
from gemmetry.domain.opening import parsed_json, read_json
from gemmetry.domain.operation import Layout, Operation
from gemmetry.formats.benchmarks import (
    ForeignFile,
    ForeignResult,
    ResultFormat,
    RowError,
    StatedOperation,
    integer,
    milliseconds,
    plain_name,
    product,
)

_NAME: Final = re.compile(r"gemm_n(?P<n>\d{1,18})_k(?P<k>\d{1,18})")
"""The name of a definition of A (M, K) times the transpose of B (N, K)."""
_OUTCOMES: Final = {
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


def _recognises(text: str) -> bool:
    first = text.lstrip().partition("\n")[0]
    return first.startswith("{") and '"definition"' in first and '"workload"' in first


def _read(path: Path, text: str, stated: StatedOperation) -> ForeignFile:
    found = ForeignFile()
    for number, line in enumerate(text.split("\n"), 1):  # a log may contain other ends of lines
        if not line.strip():
            continue
        try:
            result = _result(path, parsed_json(line), stated)
        except json.JSONDecodeError:
            found.left_out(f"{path.name}:{number}", "the line is damaged or cut off")
        except ValueError as error:  # RowError, and numbers of thousands of digits
            found.left_out(f"{path.name}:{number}", error)
        except (KeyError, TypeError, AttributeError) as error:
            found.left_out(f"{path.name}:{number}", f"it lacks a field or has another: {error}")
        else:
            if result is not None:
                found.results.append(result)
    return found


def _result(path: Path, line: Mapping[str, Any], stated: StatedOperation) -> ForeignResult | None:
    """None for a workload without an evaluation."""
    if not isinstance(line, dict):
        raise RowError("it is not a JSON object")
    evaluation = line.get("evaluation")
    if not evaluation:
        return None
    status = str(evaluation["status"])
    if status not in _OUTCOMES:
        raise RowError(f"its status {status!r} is unknown")
    outcome = _OUTCOMES[status]
    log = str(evaluation.get("log") or "").strip().splitlines()
    return ForeignResult(
        operation=_operation(path, str(line["definition"]), line["workload"]["axes"], stated),
        configuration=plain_name(str(line["solution"])),
        time_ns=milliseconds(evaluation["performance"]["latency_ms"], "latency_ms")
        if outcome is Outcome.OK
        else None,
        statistic="mean",
        outcome=outcome,
        reason=""
        if outcome is Outcome.OK
        else ": ".join([f"flashinfer-bench: {status}", *log[:1]]),
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


FORMAT = ResultFormat(
    name="flashinfer_bench",
    summary="traces of FlashInfer-Bench (JSON lines)",
    recognises=_recognises,
    read=_read,
)
