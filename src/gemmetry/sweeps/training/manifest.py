"""``sweep.json``, which describes a sweep, and ``point.json``, which describes a point."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gemmetry.domain.errors import JournalDamagedError, RequestError
from gemmetry.domain.opening import read_json
from gemmetry.domain.record import Environment
from gemmetry.domain.rows import SCHEMA_VERSION
from gemmetry.engine.schema import now
from gemmetry.hardware.detect import CLOCKS, TOPOLOGY, capture_environment, printed_by_tools
from gemmetry.sweeps.folder import MANIFEST

_PACKAGES = ("torch", "triton", "numpy")
_PREFIXES = ("nvidia-nccl", "nvidia-cublas", "nvidia-cudnn", "nvidia-cuda-runtime", "amd-")
"""Of packages whose names contain the version of CUDA."""


def capture_sweep_environment() -> Environment:
    """The environment of this process; versions are those of the installed packages, so that torch
    need not be imported. The workload records those that it loaded."""
    return capture_environment(installed_versions())


def environment_changes(before: Mapping[str, Any] | None, environment: Environment) -> str:
    """How `environment` differs from that of the manifest `before`, in one sentence; "" if it does
    not, or there is no manifest."""
    try:
        last = msgspec.convert((before or {}).get("environment"), Environment)
    except msgspec.ValidationError:
        return ""
    changes = "; ".join(last.differences(environment))
    return f"the environment has changed since the last start: {changes}" if changes else ""


def installed_versions() -> dict[str, str]:
    """Version of torch, and of the communication and arithmetic libraries packaged with it."""
    found = {}
    for distribution in importlib.metadata.distributions():
        name = (distribution.metadata["Name"] or "").lower()
        if name in _PACKAGES or name.startswith(_PREFIXES):
            found[name] = distribution.version
    return dict(sorted(found.items()))


def read_sweep_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of the sweep in `folder`; None if it has none.

    Raises:
        JournalDamagedError: it cannot be read.
    """
    path = folder / MANIFEST
    try:
        if not path.exists():
            return None
        found = read_json(path)
        if not isinstance(found, dict):
            raise RequestError(f"{path} is not an object")
    except RequestError as error:
        raise JournalDamagedError(
            error.message,
            hint="Use --fresh to begin anew; what is there is moved aside.",
        ) from error
    return found


def sweep_manifest(
    name: str,
    identity: Mapping[str, Any],
    points: Sequence[Mapping[str, Any]],
    facts: Mapping[str, Any],
    environment: Environment,
    *,
    command: str,
    before: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The manifest of a sweep that starts or continues.

    Args:
        identity: what every point has in common; another one is another sweep.
        points: what identifies each planned point, and its folder.
        facts: further keys.
        before: the manifest of an earlier start.
    """
    session = {
        "started": now(),
        "command": command,
        "environment_id": environment.id,
        "clocks": printed_by_tools(CLOCKS),
    }
    before = before or {}
    environments = dict(before.get("environments", {}))
    environments[environment.id] = dataclasses.asdict(environment)
    return {
        "schema_version": SCHEMA_VERSION,
        "name": name,
        "created": before.get("created") or session["started"],
        "host": environment.hostname,
        **facts,
        "identity": dict(identity),
        "points": _merged(before.get("points", []), points),
        "environment": dataclasses.asdict(environment),
        "environments": environments,
        "topology": printed_by_tools(TOPOLOGY),
        "sessions": [*before.get("sessions", []), session],
    }


def _merged(
    before: Sequence[Mapping[str, Any]], points: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The points of all starts; those of this one in its order."""
    folders = {point["folder"] for point in points}
    return [*points, *(point for point in before if point["folder"] not in folders)]


def workload_facts(folder: Path) -> dict[str, Any]:
    """What the workload recorded of a point: world size, backend, versions that it loaded, and
    losses; null where it did not, or another command trained."""
    facts, losses = _object(folder / "facts_rank0.json"), _object(folder / "losses.json")
    return {
        "world_size": facts.get("world_size"),
        "backend": facts.get("backend"),
        "packages": (facts.get("environment") or {}).get("packages"),
        "losses": losses.get("losses"),
    }


def _object(path: Path) -> dict[str, Any]:
    try:
        found = read_json(path)
    except RequestError:
        return {}
    return found if isinstance(found, dict) else {}
