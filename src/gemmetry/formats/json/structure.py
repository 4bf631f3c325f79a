"""Finds where the objects of a JSON array begin and end, without decoding them.

It is exact for every valid text, whatever its strings contain, and for damaged texts as long as
their quotes are balanced. :mod:`~gemmetry.formats.json.array` falls back on it: it is ten times
slower than cutting by a pattern and decoding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from gemmetry.formats.events import Bools

SEGMENT_BYTES = 1 << 20
"""Characters processed at a time: the tables of positions then take about 10 MB."""

Positions: TypeAlias = npt.NDArray[np.int64]

_QUOTE, _BACKSLASH, _OPEN, _CLOSE = 1, 2, 3, 4
_KINDS = np.zeros(256, np.uint8)
_KINDS[list(b'"')] = _QUOTE
_KINDS[list(b"\\")] = _BACKSLASH
_KINDS[list(b"{[")] = _OPEN
_KINDS[list(b"}]")] = _CLOSE


@dataclass(slots=True)
class Structure:
    """Scans a text in pieces; keeps the nesting from one piece to the next."""

    spans: list[tuple[int, int]] = field(default_factory=list)
    """(begin, end) of each complete object or array at the outermost level."""
    end: int | None = None
    """Position of the bracket or brace that closes the enclosing value; nothing after it is
    scanned."""
    depth: int = 0
    in_string: bool = False
    seen: int = 0
    """Number of characters scanned."""
    begin: int = 0
    """Beginning of the open object, where `depth` is not 0."""
    _escapes: bool = False

    def feed(self, text: bytes) -> None:
        """Scan `text`, which starts where the previous piece ended."""
        for start in range(0, len(text), SEGMENT_BYTES):
            if self.end is None:
                self._segment(text[start : start + SEGMENT_BYTES])

    def _segment(self, text: bytes) -> None:
        kinds = _KINDS[np.frombuffer(text, np.uint8)]
        position = np.flatnonzero(kinds)
        kind = kinds[position]
        is_quote = self._real_quotes(position, kind, len(text))
        inside = (np.cumsum(is_quote) + self.in_string) & 1
        is_brace = (kind >= _OPEN) & (inside == 0)
        position = position[is_brace] + self.seen
        opens = kind[is_brace] == _OPEN
        depth = np.cumsum(np.where(opens, 1, -1)) + self.depth
        below = np.flatnonzero(depth < 0)
        if below.size:
            self.end = int(position[below[0]])
            position, opens, depth = (part[: below[0]] for part in (position, opens, depth))
        begins = position[opens & (depth == 1)].tolist()
        ends = (position[~opens & (depth == 0)] + 1).tolist()
        if ends and self.depth > 0:
            begins.insert(0, self.begin)
        self.spans += zip(begins, ends, strict=False)
        if len(begins) > len(ends):
            self.begin = begins[-1]
        self.depth = int(depth[-1]) if depth.size else self.depth
        if self.end is None:
            self.in_string = bool((int(is_quote.sum()) + self.in_string) & 1)
        self.seen += len(text)

    def _real_quotes(self, position: Positions, kind: npt.NDArray[np.uint8], length: int) -> Bools:
        """Which tokens are quotes that are not escaped by a backslash."""
        is_quote: Bools = kind == _QUOTE
        backslash = position[kind == _BACKSLASH]
        carried, self._escapes = self._escapes, False
        if carried and (not backslash.size or backslash[0] != 0):
            is_quote &= position != 0
        if not backslash.size:
            return is_quote
        first = np.flatnonzero(np.diff(backslash, prepend=-2) != 1)
        run = np.diff(np.append(first, len(backslash)))
        if carried and backslash[0] == 0:
            run[0] += 1
        after = backslash[np.append(first[1:], len(backslash)) - 1] + 1
        escaped = after[run % 2 == 1]
        self._escapes = bool(escaped.size) and int(escaped[-1]) == length
        is_quote &= ~np.isin(position, escaped)
        return is_quote
