"""Compiled binaries beside their sources, found again by the hash of everything they depend on.

A small JSON file per dispatch names the binary that holds its function and is written last, each
by renaming: a process killed at any moment leaves at most files that nothing refers to.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.errors import StorageError
from gemmetry.providers.iree_provider.sources import (
    dispatch_function,
    operation_folder,
    write_atomically,
)


@dataclass(frozen=True, slots=True)
class Artefact:
    """What is kept of a compiled dispatch."""

    compiler_version: str
    binary: str
    """File name of the ``.vmfb``, in the operation's folder."""
    compile_ns: int
    """This function's share of the compile call."""
    default_configuration: str | None = None
    compiled_for: str | None = None


def artefact_key(dispatch: Dispatch, flags: Sequence[str]) -> str:
    """Sixteen hex digits over source, flags and (for the CPU) the host's processor."""
    host = host_identity() if "--iree-llvmcpu-target-cpu=host" in flags else ""
    parts = [dispatch_function(dispatch), *flags, host]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@cache
def host_identity() -> str:
    """Model and features of this processor: code compiled for ``host`` fits no other."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    first = text.partition("\n\n")[0].splitlines()
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(line for line in first if line.startswith(wanted))


def _record_path(generated: Path, dispatch: Dispatch, key: str) -> Path:
    folder = operation_folder(generated, dispatch.operation)
    return folder / f"{dispatch.configuration.name}_{dispatch.target.name}_{key}.json"


def find_artefact(
    generated: Path, dispatch: Dispatch, key: str, compiler_version: str | None
) -> Artefact | None:
    """What an earlier compile left for exactly this key; None if nothing whole is there.

    Args:
        generated: the workspace's folder.
        dispatch: whose binary is looked for.
        key: its :func:`artefact_key`.
        compiler_version: what must have compiled it; None takes any (no compiler is here, and
            the binary came from another machine).
    """
    path = _record_path(generated, dispatch, key)
    try:
        fields: dict[str, Any] = json.loads(path.read_text())
        artefact = Artefact(**fields)
    except (OSError, ValueError, TypeError):
        return None
    if compiler_version not in (None, artefact.compiler_version):
        return None
    return artefact if (path.parent / artefact.binary).is_file() else None


def store_binary(
    generated: Path, dispatches: Sequence[Dispatch], binary: bytes
) -> dict[Dispatch, str]:
    """Put the binary that holds `dispatches` into the folder of each one's operation.

    Returns:
        The binary's file name for each dispatch.

    Raises:
        StorageError: the disk is full or the folder cannot be written.
    """
    digest = hashlib.sha256(binary).hexdigest()[:12]
    names: dict[Dispatch, str] = {}
    first: Path | None = None
    for dispatch in dispatches:
        folder = operation_folder(generated, dispatch.operation)
        path = folder / f"{folder.name}_{dispatch.target.name}_{digest}.vmfb"
        names[dispatch] = path.name
        try:
            if path.exists():
                pass
            elif first is None or not _link(first, path):
                write_atomically(path, binary)
        except OSError as error:
            raise _storage_error(path, error) from error
        first = first or path
    return names


def store_artefact(generated: Path, dispatch: Dispatch, key: str, artefact: Artefact) -> None:
    """Write the record that makes a compiled dispatch count as there.

    Raises:
        StorageError: it cannot be written.
    """
    path = _record_path(generated, dispatch, key)
    fields = {name: value for name, value in asdict(artefact).items() if value is not None}
    try:
        write_atomically(path, json.dumps(fields, indent=1).encode())
    except OSError as error:
        raise _storage_error(path, error) from error


def _link(source: Path, path: Path) -> bool:
    """A second name for the same file, where the file system has that."""
    try:
        os.link(source, path)
    except FileExistsError:
        return True
    except OSError:
        return False
    return True


def _storage_error(path: Path, error: OSError) -> StorageError:
    return StorageError(
        f"cannot write {path}: {error.strerror or error}",
        hint="Free some space or choose another folder; the same command goes on from there.",
    )
