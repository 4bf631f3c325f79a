"""Compiled artefacts, stored next to the sources and identified by the hash of everything they
depend on.

A small JSON file per dispatch names the binary that holds its function and is written last; all
files are renamed into place, so a process killed at any moment leaves at most unreferenced files.
They are in the folder ``compiled``; its parent folder has the binaries, and the compiler's output,
under the names used by IREE's old dispatch profiler.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.errors import StorageError
from gemmetry.domain.operation import Operation
from gemmetry.formats.files import completed, write_whole
from gemmetry.hardware.detect import processor_identity
from gemmetry.providers.files import locked
from gemmetry.providers.iree_provider.compiling.machine_code import MachineCode
from gemmetry.providers.iree_provider.compiling.sources import (
    dispatch_function,
    operation_folder,
)

COMPILE_LOG = "iree_compile_cmd_stdout.mlir"
"""File in an operation's folder with every call that compiled one of its functions, and its
output."""


USES = ("profile", "verify")
"""The purposes in the names of the dispatch profiler's binaries; here both names refer to the same
code."""


@dataclass(frozen=True, slots=True)
class Artefact:
    """The stored facts of a compiled dispatch."""

    compiler_version: str
    binary: str
    """File name of the ``.vmfb``, in the folder ``compiled`` of the operation's folder."""
    compile_ns: int
    """This function's share of the compile call."""
    default_configuration: str | None = None
    compiled_for: str | None = None
    assembly: str | None = None
    """File name of the machine code, in the binary's folder; None where it is not available."""
    matrix_instruction: str | None = None
    registers: int | None = None
    spill_bytes: int | None = None
    shared_memory_bytes: int | None = None


def artefact_key(dispatch: Dispatch, flags: Sequence[str]) -> str:
    """Sixteen hex digits over source, flags and (for the CPU) the host's processor."""
    host = processor_identity() if "--iree-llvmcpu-target-cpu=host" in flags else ""
    parts = [dispatch_function(dispatch), *flags, host]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def compiled_folder(generated: Path, operation: Operation) -> Path:
    """The folder of an operation's binaries and their records."""
    return operation_folder(generated, operation) / "compiled"


def log_path(generated: Path, dispatch: Dispatch, key: str) -> Path:
    """Output of the compiler and the assembler about a dispatch."""
    return _path(generated, dispatch, key, ".log")


def _path(generated: Path, dispatch: Dispatch, key: str, suffix: str) -> Path:
    folder = compiled_folder(generated, dispatch.operation)
    return folder / f"{dispatch.configuration.name}_{dispatch.target.name}_{key}{suffix}"


def find_artefact(
    generated: Path, dispatch: Dispatch, key: str, compiler_version: str | None
) -> Artefact | None:
    """The complete result of an earlier compile with exactly this key; None if there is none.

    Args:
        generated: the workspace's folder.
        dispatch: the dispatch whose binary is needed.
        key: its :func:`artefact_key`.
        compiler_version: the required compiler version; None accepts any (there is no compiler
            here, and the binary came from another machine).
    """
    path = _path(generated, dispatch, key, ".json")
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
    """Store the binary that holds `dispatches` in the folder of each one's operation.

    There ``<dispatch>_<target>_profile.vmfb`` and ``..._verify.vmfb`` point to it.

    Returns:
        The binary's file name for each dispatch.

    Raises:
        StorageError: the disk is full or the folder cannot be written.
    """
    digest = hashlib.sha256(binary).hexdigest()[:12]
    names: dict[Dispatch, str] = {}
    first: Path | None = None
    for dispatch in dispatches:
        path = compiled_folder(generated, dispatch.operation)
        path = path / f"{dispatch.target.name}_{digest}.vmfb"
        names[dispatch] = path.name
        try:
            path.parent.mkdir(exist_ok=True)
            if path.exists():
                pass
            elif first is None:
                write_whole(path, binary)
            else:
                _same_file(first, path, binary)
            for use in USES:
                name = f"{dispatch.name}_{dispatch.target.name}_{use}.vmfb"
                _point(path.parent.parent / name, path)
        except OSError as error:
            raise _storage_error(path, error) from error
        first = first or path
    return names


def store_machine_code(generated: Path, dispatch: Dispatch, key: str, code: MachineCode) -> str:
    """Write a dispatch's machine code next to its binary. Returns the file name.

    Raises:
        StorageError: it cannot be written.
    """
    path = _path(generated, dispatch, key, code.suffix)
    try:
        write_whole(path, code.text.encode())
    except OSError as error:
        raise _storage_error(path, error) from error
    return path.name


def store_logs(generated: Path, logs: Mapping[Dispatch, tuple[str, str]]) -> None:
    """Write the output about each dispatch, and append it to the ``COMPILE_LOG`` of its operation.

    Args:
        generated: the workspace's folder.
        logs: dispatch -> its :func:`artefact_key` and the text; many dispatches share a text.

    Raises:
        StorageError: they cannot be written.
    """
    first: dict[str, Path] = {}
    folders = dict.fromkeys(operation_folder(generated, d.operation) for d in logs)
    try:
        for dispatch, (key, text) in logs.items():
            path = log_path(generated, dispatch, key)
            path.parent.mkdir(exist_ok=True)
            if text in first:
                _same_file(first[text], path, text.encode())
            else:
                write_whole(path, text.encode())
                first[text] = path
        for folder in folders:
            with locked(folder):
                paths = sorted((folder / "compiled").glob("*.log"))
                texts = dict.fromkeys(path.read_text(errors="replace") for path in paths)
                write_whole(folder / COMPILE_LOG, "\n".join(texts).encode())
    except OSError as error:
        raise _storage_error(generated, error) from error


def store_artefact(generated: Path, dispatch: Dispatch, key: str, artefact: Artefact) -> None:
    """Write the record that marks a dispatch as compiled.

    Raises:
        StorageError: it cannot be written.
    """
    path = _path(generated, dispatch, key, ".json")
    fields = {name: value for name, value in asdict(artefact).items() if value is not None}
    try:
        write_whole(path, json.dumps(fields, indent=1).encode())
    except OSError as error:
        raise _storage_error(path, error) from error


def link_operation(generated: Path, operation: Operation) -> None:
    """Point ``<operation>_profile.vmfb`` and ``..._verify.vmfb`` to the binary that holds most of
    the operation's dispatches, which is all of them where they were compiled in one call.

    Raises:
        StorageError: the links cannot be created.
    """
    folder = operation_folder(generated, operation)
    try:
        with locked(folder):
            counts: Counter[str] = Counter()
            for path in sorted((folder / "compiled").glob("*.json")):
                counts[str(json.loads(path.read_text()).get("binary"))] += 1
            for binary, _ in counts.most_common(1):
                for use in USES:
                    name = f"{folder.name}_{use}.vmfb"
                    _point(folder / name, folder / "compiled" / binary)
    except (OSError, ValueError) as error:
        cause = error if isinstance(error, OSError) else OSError(str(error))
        raise _storage_error(folder, cause) from error


def _point(link: Path, path: Path) -> None:
    """Make `link` a symbolic link to `path`, in a neighbouring folder, replacing any existing file.
    A hard link would become a separate copy in most ways of copying a folder."""
    with completed(link) as temporary:
        temporary.symlink_to(path.relative_to(link.parent))


def _same_file(source: Path, path: Path, content: bytes) -> None:
    """Hard-link `source`, which holds `content`, to `path`, replacing any existing file; where the
    file system has no hard links, copy it."""
    # Renaming a hard link to another link of the same file leaves both; here the temporary name is
    # removed in every case.
    with completed(path) as temporary:
        try:
            os.link(source, temporary)
        except OSError:
            temporary.write_bytes(content)


def _storage_error(path: Path, error: OSError) -> StorageError:
    return StorageError(
        f"cannot write {path}: {error.strerror or error}",
        hint="Free some space or choose another folder; the same command continues from there.",
    )
