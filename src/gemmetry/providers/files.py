"""Paths of the files that providers generate, and writing them."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
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
        raise _unwritable(path, error) from error
    return path


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Exclusive access among the processes that change files in `folder`, which is created.

    Raises:
        StorageError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise _unwritable(folder, error) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _unwritable(path: Path, error: OSError) -> StorageError:
    return StorageError(
        f"cannot write {path}: {error.strerror or error}",
        hint="Free some space or choose another folder with --generated-dir.",
    )
