"""Cache files of Kernel Tuner (kernel_tuner, ``kernel_tuner/util.py``, ``store_cache``).

A cache states the tuned parameters and the times of every launch, in milliseconds, but not what the
kernel computes. While Kernel Tuner writes a file, its last two brackets are missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gemmetry.domain.errors import Outcome
from gemmetry.domain.opening import parsed_json
from gemmetry.formats.benchmarks import (
    ForeignFile,
    ForeignResult,
    ResultFormat,
    RowError,
    StatedOperation,
    milliseconds,
    plain_name,
)

_OUTCOMES: Final = {
    "InvalidConfig": Outcome.UNSUPPORTED,
    "CompilationFailedConfig": Outcome.COMPILE_ERROR,
    "RuntimeFailedConfig": Outcome.LAUNCH_ERROR,
}
"""The text in place of a time -> outcome."""


def _recognises(text: str) -> bool:
    head = text.lstrip()[:100_000]
    return head.startswith("{") and '"tune_params_keys"' in head and '"cache"' in text


def _read(path: Path, text: str, stated: StatedOperation) -> ForeignFile:
    found = ForeignFile()
    document = _document(text)
    entries = None if document is None else document.get("cache")
    if document is None or not isinstance(entries, dict):
        found.left_out(path.name, "it is damaged: it does not end as a cache file does")
        return found
    for key, entry in entries.items():
        try:
            found.results.append(_result(document, entry, stated))
        except ValueError as error:
            found.left_out(f"{path.name}: {key}", error)
        except (KeyError, TypeError, AttributeError) as error:
            found.left_out(f"{path.name}: {key}", f"it lacks a field or has another: {error}")
    if _closed(text) is None:
        found.left_out(path.name, "it ends within an entry, which is left out")
    return found


def _closed(text: str) -> Mapping[str, Any] | None:
    """The document of a file that is complete, or that is still open for writing."""
    for end in ("", "}}"):
        try:
            found = parsed_json(text.rstrip().rstrip(",") + end)
        except ValueError:  # damaged, or a number of thousands of digits
            continue
        return found if isinstance(found, dict) else None
    return None


def _document(text: str) -> Mapping[str, Any] | None:
    """The document, as far as its entries are complete: each is one line."""
    found = _closed(text)
    whole, newline, _ = text.rstrip().rpartition("\n")
    return _closed(whole) if found is None and newline else found


def _result(
    document: Mapping[str, Any], entry: Mapping[str, Any], stated: StatedOperation
) -> ForeignResult:
    parameters = {name: entry[name] for name in document["tune_params_keys"]}
    time, samples = entry["time"], entry.get("times") or []
    if not isinstance(samples, list):
        raise RowError(f"its times are {samples!r}, not a list")
    failed = isinstance(time, str) and not time.replace(".", "", 1).isdigit()
    outcome = _OUTCOMES.get(time, Outcome.LAUNCH_ERROR) if failed else Outcome.OK
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


FORMAT = ResultFormat(
    name="kernel_tuner",
    summary="cache files of Kernel Tuner (JSON)",
    recognises=_recognises,
    read=_read,
)
