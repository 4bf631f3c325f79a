"""Stores rows that arrive in pieces: in memory while there are few, beyond that in a temporary
file."""

from __future__ import annotations

import dataclasses
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from typing import IO, Any, Generic

import numpy as np

from gemmetry.formats.events import Bools, Rows, chosen, concatenate
from gemmetry.formats.mapping import mapped

SPOOLED_BYTES = 16 << 20
"""Bytes of a table's rows that are kept in memory before they are written to a temporary file."""


class Spool(Generic[Rows]):
    """Rows of one kind, in the order in which they were added."""

    def __init__(self, kind: type[Rows], *, most_bytes: int = SPOOLED_BYTES) -> None:
        self._kind: type[Any] = kind
        self._most_bytes = most_bytes
        self._parts: list[Rows] = []
        self._part_bytes = 0
        self._file: IO[bytes] | None = None
        self._written: list[list[tuple[str, np.dtype[Any], tuple[int, ...]]]] = []
        self.bytes = self.rows = 0

    def add(self, rows: Rows) -> None:
        """Add one piece.

        Raises:
            OSError: the temporary file cannot be written.
        """
        size = sum(getattr(rows, c.name).nbytes for c in dataclasses.fields(self._kind))
        self.rows += len(getattr(rows, dataclasses.fields(self._kind)[0].name))
        self._parts.append(rows)
        self._part_bytes += size
        self.bytes += size
        if self._part_bytes > self._most_bytes:
            self._spill()

    def pieces(self) -> Iterator[Rows]:
        """The rows, piece by piece."""
        if self._file is not None:
            self._file.seek(0)
            for columns in self._written:
                yield self._kind(**{name: self._read(dtype, s) for name, dtype, s in columns})
        yield from self._parts

    def all(self, wanted: Sequence[Bools] | None = None) -> Rows:
        """All rows, or those that are `wanted` (one array per piece). Rows in a temporary file are
        not read into memory: their columns are read-only and mapped from a file.

        Raises:
            OSError: the temporary file cannot be written.
        """
        pieces: Iterator[Rows] = self.pieces()
        rows = self.rows
        if wanted is not None:
            pieces = map(chosen, pieces, wanted)
            rows = sum(int(part.sum()) for part in wanted)
        is_small = self._file is None or not rows
        found: Rows = (
            concatenate(self._kind, list(pieces)) if is_small else mapped(self._kind, rows, pieces)
        )
        return found

    def _read(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        assert self._file is not None
        array = np.empty(shape, dtype)
        self._file.readinto(array.reshape(-1).view(np.uint8).data)  # type: ignore[attr-defined]
        return array

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115  closed when this object goes
            weakref.finalize(self, self._file.close)
        self._file.seek(0, 2)
        merged = concatenate(self._kind, self._parts)
        self._parts, self._part_bytes = [], 0
        columns = []
        for column in dataclasses.fields(self._kind):
            array = getattr(merged, column.name)
            columns.append((column.name, array.dtype, array.shape))
            self._file.write(array.reshape(-1).view(np.uint8).data)
        self._written.append(columns)
