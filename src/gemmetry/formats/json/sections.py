"""Reads a JSON document with long arrays anywhere in it, in bounded memory.

The arrays are returned object by object; the rest is kept as a document in which these arrays are
empty.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, BinaryIO

from gemmetry.formats.events import ProblemKind
from gemmetry.formats.json.array import (
    CHUNK_BYTES,
    MOST_HEAD_BYTES,
    Keys,
    Objects,
    Text,
    key_pattern,
)
from gemmetry.formats.json.structure import Structure

# Possessive: otherwise a string of 64 MiB would be remembered character by character.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|"|[{}\[\],]', re.DOTALL)


class SectionReader:
    """Iterate over (key, objects) pairs, each a piece of one array; afterwards `frame` is known.

    Args:
        file: opened at its beginning, decompressed.
        decoders: the decode and rescue functions for each array's key, as for
            :class:`~gemmetry.formats.json.array.Objects`.
        again: key of an array that only the beginning of a document has.
    """

    def __init__(
        self,
        file: BinaryIO,
        decoders: Mapping[str, tuple[Callable[[bytes], list[Any]], Callable[[bytes], Any]]],
        again: str,
        *,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self.text = Text(file, chunk_bytes)
        self.frame = b""
        """The document without the content of the arrays; closed where the file ends early."""
        self._structure = Structure()
        self._decoders = decoders
        self._keys = Keys(decoders)
        self._again = key_pattern([again])

    def __iter__(self) -> Iterator[tuple[str, list[Any]]]:
        text = self.text
        while True:
            match = self._keys.whole.search(text.buffer)
            if match is None:
                if len(self.frame) + len(text.buffer) > MOST_HEAD_BYTES + text.chunk_bytes:
                    text.note(
                        text.offset, "too much text between the records; the rest is not read"
                    )
                    text.is_partial = True
                    break
                if text.at_end:
                    break
                self._frame(self._keys.unread_from(text.buffer, 0))
                text.fill()
                continue
            self._frame(match.end())
            if self._structure.spans or self._has_second():
                break
            key = match[1].decode()
            decode, rescue = self._decoders[key]
            yield key, []
            for objects in Objects(text, decode, rescue, self._again):
                yield key, objects
            self._add(b"]")
        self._frame(len(text.buffer))
        if self._structure.spans:
            end = self._structure.spans[0][1]
            text.note_rest(text.offset - len(self.frame) + end, self.frame[end:])
        self.frame = closed(self.frame)

    def _has_second(self) -> bool:
        """Whether the first document is cut short outside of the arrays, and another follows."""
        found = list(islice(self._again.finditer(self.frame), 2))
        if len(found) < 2:
            return False
        place = self.text.offset - len(self.frame) + found[1].start()
        what = "a second document begins before this byte, and the first is cut short: not read"
        self.text.note(place, what, ProblemKind.SECOND_DOCUMENT)
        self.text.is_partial = True
        self.frame = self.frame[: found[1].start()]
        self.text.advance(len(self.text.buffer))
        return True

    def _frame(self, count: int) -> None:
        self._add(self.text.buffer[:count])
        self.text.advance(count)

    def _add(self, text: bytes) -> None:
        self.frame += text
        self._structure.feed(text)


def closed(text: bytes) -> bytes:
    """`text`, a JSON document or the beginning of one, up to its last complete value, with the
    missing closing brackets added."""
    opened: list[bytes] = []
    complete = 0
    for token in _TOKEN.finditer(text):
        sign = token[0]
        if sign in (b"{", b"["):
            opened.append(b"}" if sign == b"{" else b"]")
            complete = token.end()
        elif sign in (b"}", b"]"):
            complete = token.end()
            if opened:
                opened.pop()
            if not opened:
                break
        elif sign == b",":
            complete = token.start()
        elif sign == b'"':
            break
    return text[:complete] + b"".join(reversed(opened))
