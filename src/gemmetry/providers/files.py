"""Paths of the files that providers generate, and writing them atomically."""

from __future__ import annotations

from pathlib import Path

from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.errors import StorageError
from gemmetry.domain.names import operation_name
from gemmetry.formats.files import write_whole


def output_folder(generated: Path, dispatch: Dispatch) -> Path:
    """``<generated>/<provider>/<kind>/<operation>``."""
    operation = dispatch.operation
    return generated / dispatch.provider / str(operation.kind) / operation_name(operation)


def write_atomically(path: Path, data: bytes) -> Path:
    """Write `data` to `path`, creating its folder.

    Raises:
        StorageError: the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}",
            hint="Free some space or choose another folder with --generated-dir.",
        ) from error
    return path
