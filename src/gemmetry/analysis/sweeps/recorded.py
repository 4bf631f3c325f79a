"""Analyses of sweeps that were written before: ``analysis.json``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemmetry.analysis.sweeps.comparison.figures import configuration_of
from gemmetry.analysis.sweeps.document import SCHEMA_VERSION
from gemmetry.analysis.sweeps.layout import analysis_folder, has_traces, read_sweep, sweep_of
from gemmetry.domain.errors import RequestError
from gemmetry.formats.opening import read_json

DOCUMENT = "analysis.json"

_KEYS = ("sweep", "points", "gemms", "pooled_gemms", "collectives", "best")


def read_document(path: Path) -> dict[str, Any]:
    """The document in the file `path`.

    Raises:
        RequestError: it cannot be read, or is not that of a sweep, or of another version.
    """
    again = "Write it again with: gemmetry sweep analyze SWEEP"
    found = read_json(path, hint=again)
    if not isinstance(found, dict) or not all(name in found for name in _KEYS):
        raise RequestError(f"{path} is not the analysis of a sweep", hint=again)
    if found.get("schema_version") != SCHEMA_VERSION:
        raise RequestError(
            f"{path} has schema version {found.get('schema_version')}, not {SCHEMA_VERSION}",
            hint=again,
        )
    return found


def fresh_document(folder: Path) -> dict[str, Any] | None:
    """The document in the sweep's folder if it covers the whole sweep as it is now: every point
    with all of its traces, none of them newer; or if the sweep has no traces any more. None if
    there is no such document.

    Raises:
        RequestError: the folder does not exist.
    """
    sweep = sweep_of(folder)
    path = analysis_folder(sweep) / DOCUMENT
    if not path.is_file():
        return None
    try:
        found = read_document(path)
        written = path.stat().st_mtime_ns
        if _covered(found) and (not has_traces(sweep) or _is_current(found, folder, written)):
            return found
    except (RequestError, OSError, KeyError, TypeError):
        pass
    return None


def _covered(document: Mapping[str, Any]) -> dict[object, int]:
    """Point -> number of its traces that were read."""
    return {(configuration_of(one), one["repeat"]): len(one["ranks"]) for one in document["points"]}


def _is_current(document: Mapping[str, Any], folder: Path, written: int) -> bool:
    covered, sweep = _covered(document), read_sweep(folder)
    if covered != {(one.configuration, one.repeat): len(one.traces) for one in sweep.points}:
        return False
    files = [trace.path for point in sweep.points for trace in point.traces]
    return all(path.stat().st_mtime_ns <= written for path in files)
