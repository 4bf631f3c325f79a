"""Columns mapped from a file instead of held in memory: only the columns in use take memory."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import mmap
from collections.abc import Iterable
from typing import Any

import numpy as np

from gemmetry.formats.events import Rows, TraceRows

KEPT_BYTES = 64 << 20
"""Least size of columns in files for which releasing memory is worth the time."""

_ALIGNMENT = 64

Array = np.ndarray[Any, np.dtype[Any]]


def mapped(kind: type[Rows], rows: int, pieces: Iterable[Rows]) -> Rows:
    """The rows of all `pieces`, read-only, in a temporary file that is deleted with them.

    Args:
        rows: total number of rows, at least 1.

    Raises:
        OSError: the file cannot be written.
    """
    import tempfile

    layout: dict[str, tuple[int, Array]] = {}
    begin = 0
    with tempfile.TemporaryFile() as file:
        for piece in pieces:
            columns: dict[str, Array] = {
                column.name: getattr(piece, column.name) for column in dataclasses.fields(kind)
            }
            layout = layout or _layout(columns, rows)
            for name, array in columns.items():
                offset, one_row = layout[name]
                file.seek(offset + begin * one_row.nbytes)
                file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
            begin += len(array)
        file.flush()
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    found: dict[str, Any] = {
        name: np.frombuffer(content, one_row.dtype, rows * one_row.size, offset).reshape(
            rows, *one_row.shape
        )
        for name, (offset, one_row) in layout.items()
    }
    return kind(**found)


def _layout(columns: dict[str, Array], rows: int) -> dict[str, tuple[int, Array]]:
    """Where each column begins, and the size of a row of it."""
    found = {}
    offset = 0
    for name, array in columns.items():
        one_row = np.empty(array.shape[1:], array.dtype)
        found[name] = (offset, one_row)
        offset += rows * one_row.nbytes
        offset += -offset % _ALIGNMENT
    return found


def let_go(rows: TraceRows) -> None:
    """Release the memory of columns mapped from files, until they are accessed again, and other
    freed memory. Called between two steps of the work, so that a step does not hold the memory that
    the previous one needed. Does nothing for small files."""
    files = _files(rows)
    if sum(map(len, files)) < KEPT_BYTES:
        return
    for content in files:
        content.madvise(mmap.MADV_DONTNEED)
    # glibc keeps arrays of up to 32 MB for later use.
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _files(rows: TraceRows) -> set[mmap.mmap]:
    found = set()
    for table in (rows.gpu, rows.calls, rows.operators, rows.annotations):
        for column in dataclasses.fields(table):
            holder = getattr(table, column.name)
            while isinstance(holder, np.ndarray):
                holder = holder.base
            if isinstance(holder, memoryview):
                holder = holder.obj
            if isinstance(holder, mmap.mmap):
                found.add(holder)
    return found
