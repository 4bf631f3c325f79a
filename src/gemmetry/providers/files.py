"""Paths of the files that providers generate, and writing them atomically."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.errors import StorageError
from gemmetry.domain.names import operation_name


def output_folder(generated: Path, dispatch: Dispatch) -> Path:
    """``<generated>/<provider>/<kind>/<operation>``."""
    operation = dispatch.operation
    return generated / dispatch.provider / str(operation.kind) / operation_name(operation)


def write_atomically(path: Path, data: bytes) -> Path:
    """Write `data` to `path`, creating its folder.

    Raises:
        StorageError: the folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}",
            hint="Free some space or choose another folder with --generated-dir.",
        ) from error
    return path
