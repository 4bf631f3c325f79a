"""What compiling leaves beside the sources, found again by the hash of everything it depends on.

A small JSON file per dispatch names the binary that holds its function and is written last, each
by renaming: a process killed at any moment leaves at most files that nothing refers to. These lie
in the folder ``compiled``; above it people find the binaries, and what the compiler printed, under
the names that IREE's old dispatch profiler gave them.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.errors import StorageError
from gemmetry.domain.operation import Operation
from gemmetry.hardware.detect import processor_identity
from gemmetry.providers.iree_provider.compiling.machine_code import MachineCode
from gemmetry.providers.iree_provider.compiling.sources import (
    dispatch_function,
    locked,
    operation_folder,
    write_atomically,
)

COMPILE_LOG = "iree_compile_cmd_stdout.mlir"
"""In an operation's folder: every call that compiled one of its functions, and what it printed."""


USES = ("profile", "verify")
"""What the dispatch profiler named its binaries for; here both names lead to the same code."""


@dataclass(frozen=True, slots=True)
class Artefact:
    """What is kept of a compiled dispatch."""

    compiler_version: str
    binary: str
    """File name of the ``.vmfb``, in the folder ``compiled`` of the operation's folder."""
    compile_ns: int
    """This function's share of the compile call."""
    default_configuration: str | None = None
    compiled_for: str | None = None
    assembly: str | None = None
    """File name of the machine code, where the binary is; None where none could be had."""
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
    """Where an operation's binaries and what is known of them lie."""
    return operation_folder(generated, operation) / "compiled"


def log_path(generated: Path, dispatch: Dispatch, key: str) -> Path:
    """What the compiler and the assembler printed about a dispatch."""
    return _path(generated, dispatch, key, ".log")


def _path(generated: Path, dispatch: Dispatch, key: str, suffix: str) -> Path:
    folder = compiled_folder(generated, dispatch.operation)
    return folder / f"{dispatch.configuration.name}_{dispatch.target.name}_{key}{suffix}"


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
    """Put the binary that holds `dispatches` into the folder of each one's operation.

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
                write_atomically(path, binary)
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
    """Write a dispatch's machine code beside its binary; the file's name.

    Raises:
        StorageError: it cannot be written.
    """
    path = _path(generated, dispatch, key, code.suffix)
    try:
        write_atomically(path, code.text.encode())
    except OSError as error:
        raise _storage_error(path, error) from error
    return path.name


def store_logs(generated: Path, logs: Mapping[Dispatch, tuple[str, str]]) -> None:
    """Write what was printed about each dispatch, and gather it in the ``COMPILE_LOG`` of its
    operation.

    Args:
        generated: the workspace's folder.
        logs: dispatch -> its :func:`artefact_key` and the text; many share a text.

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
                write_atomically(path, text.encode())
                first[text] = path
        for folder in folders:
            with locked(folder):
                paths = sorted((folder / "compiled").glob("*.log"))
                texts = dict.fromkeys(path.read_text(errors="replace") for path in paths)
                write_atomically(folder / COMPILE_LOG, "\n".join(texts).encode())
    except OSError as error:
        raise _storage_error(generated, error) from error


def store_artefact(generated: Path, dispatch: Dispatch, key: str, artefact: Artefact) -> None:
    """Write the record that makes a compiled dispatch count as there.

    Raises:
        StorageError: it cannot be written.
    """
    path = _path(generated, dispatch, key, ".json")
    fields = {name: value for name, value in asdict(artefact).items() if value is not None}
    try:
        write_atomically(path, json.dumps(fields, indent=1).encode())
    except OSError as error:
        raise _storage_error(path, error) from error


def link_operation(generated: Path, operation: Operation) -> None:
    """Point ``<operation>_profile.vmfb`` and ``..._verify.vmfb`` to the binary that holds most of
    the operation's dispatches, which is all of them where they were compiled in one call.

    Raises:
        StorageError: the links cannot be made.
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
    """Make `link` a symbolic link to `path`, in a folder beside it, replacing what is there. A hard
    link would become a copy of its own in most ways of copying a folder."""
    temporary = link.with_name(f".{link.name[:40]}.{os.getpid()}.{threading.get_ident()}")
    temporary.symlink_to(path.relative_to(link.parent))
    temporary.replace(link)


def _same_file(source: Path, path: Path, content: bytes) -> None:
    """Give `source`, which holds `content`, the second name `path`, replacing what has that name;
    where the file system has no second names, a copy."""
    temporary = path.with_name(f".{path.name[:40]}.{os.getpid()}.{threading.get_ident()}")
    try:
        os.link(source, temporary)
    except OSError:
        write_atomically(path, content)
        return
    try:
        temporary.replace(path)
    finally:
        # Renaming one name of a file to another of the same file leaves both.
        temporary.unlink(missing_ok=True)


def _storage_error(path: Path, error: OSError) -> StorageError:
    return StorageError(
        f"cannot write {path}: {error.strerror or error}",
        hint="Free some space or choose another folder; the same command goes on from there.",
    )
