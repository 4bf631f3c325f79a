"""Reads a JSON array of objects from a file of any size, in pieces of bounded size.

A pattern proposes where to cut between objects, and decoding confirms the cut: a piece that was cut
within a string or a nested array does not decode. Where the proposal fails,
:mod:`~gemmetry.formats.json.structure` finds the objects exactly. Of a damaged file, only the
damaged objects are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import Any, BinaryIO, Generic, TypeVar

import msgspec

from gemmetry.domain.units import counted
from gemmetry.formats.events import TraceProblem
from gemmetry.formats.json.structure import Structure

CHUNK_BYTES = 512 << 10
"""Bytes read at a time: enough that the work per piece far exceeds the overhead per call, and few
enough that the decoded events of a piece stay in a core's cache. Reading 56 MB took 200 ms of CPU
time with this size, 255 ms with 128 KiB and 305 ms with 4 MiB."""

MOST_OBJECT_BYTES = 16 << 20
"""An object larger than this is not an event: the file is damaged or malicious."""

MOST_BREAKS = 50
"""Most places at which an object has no end. Finding one takes about 0.2 s, because all data read
ahead are searched; a file with more of them is not worth reading."""

MOST_HEAD_BYTES = 64 << 20
"""Most bytes before the array, and after it."""

MOST_PROBLEMS = 100
"""Problems kept for a damaged file; further ones are only counted."""

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_SPACE = b" \t\r\n"
"""Exactly the characters that JSON accepts as white space: skipping other characters than the
decoder does would make the result depend on where a piece ends."""
_BOUNDARY = re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*(?=\{)")
_END = re.compile(rb"\}[ \t\r\n]*(\])[ \t\r\n]*(?=[,}\]]|\Z)")
_SEPARATOR = re.compile(rb"[ \t\r\n,]*")
_EMPTY = re.compile(rb"[ \t\r\n]*\]")
_LONGEST_KEY = 256
_BLANKS = rb"\s{0,4096}+"
_LOOK_BACK = (1 << 12, 1 << 16)
_MOST_TRIALS = 4
_MOST_REPAIRED_BYTES = 1 << 20
_RAWS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_BOM = b"\xef\xbb\xbf"

T = TypeVar("T")


class Text:
    """The part of a file that was read but not yet used, and the problems found so far."""

    def __init__(self, file: BinaryIO, chunk_bytes: int) -> None:
        self._file = file
        self.chunk_bytes = chunk_bytes
        self.buffer = b""
        self.offset = 0
        """Offset of the buffer in the (decompressed) file."""
        self.at_end = False
        self.is_partial = False
        """The file ends before the array does, cannot be read further, or has a place whose content
        cannot be determined."""
        self.problems: list[TraceProblem] = []
        self.more_problems = 0
        self.left_out = 0
        """Number of objects that could not be used."""
        while len(self.buffer) < len(_BOM) and not self.at_end:
            self.fill()
        if self.buffer.startswith(_BOM):
            self.advance(len(_BOM))

    def fill(self) -> None:
        """Read one more chunk."""
        try:
            # More of what is already long: each call copies the buffer.
            more = self._file.read(max(self.chunk_bytes, len(self.buffer) // 2))
        except (OSError, EOFError, ValueError) as error:
            # A compressed file that is truncated or damaged: the data before that point are good.
            # This problem is listed before those of the content, and is never left out.
            place = f"byte {self.offset + len(self.buffer)}"
            self.problems.insert(0, TraceProblem(place, f"the rest cannot be read: {error}"))
            self.is_partial = True
            more = b""
        self.at_end = not more
        self.buffer += more

    def advance(self, count: int) -> None:
        """Consume the first `count` bytes."""
        self.buffer = self.buffer[count:]
        self.offset += count

    def note(self, offset: int, what: str) -> None:
        """Record a problem at a byte of the (decompressed) file."""
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(TraceProblem(f"byte {offset}", what))
        else:
            self.more_problems += 1

    def all_problems(self) -> tuple[TraceProblem, ...]:
        """The problems kept, and the number of those that were not."""
        if not self.more_problems:
            return tuple(self.problems)
        more = f"{counted(self.more_problems, 'more place')} with such problems"
        return (*self.problems, TraceProblem("file", more))


class Objects(Generic[T]):
    """Iterate over lists of the array's decoded objects, one list per piece.

    Args:
        text: positioned after the array's ``[``; afterwards, after its ``]``.
        decode: JSON text of an array -> its objects. Raises one of ``DECODE_ERRORS``.
        rescue: JSON text of one object that `decode` rejects -> the object, or the reason why it is
            left out.
    """

    def __init__(
        self,
        text: Text,
        decode: Callable[[bytes], list[T]],
        rescue: Callable[[bytes], T | str],
    ) -> None:
        self._text = text
        self._decode = decode
        self._rescue = rescue
        self._breaks = 0

    def __iter__(self) -> Iterator[list[T]]:
        text = self._text
        is_last = False
        while not is_last:
            while len(text.buffer) < text.chunk_bytes and not text.at_end:
                text.fill()
            objects, is_last = self._piece()
            if objects:
                yield objects

    def _piece(self) -> tuple[list[T], bool]:
        """The objects of the next piece, and whether it was the last one."""
        text = self._text
        empty = _EMPTY.match(text.buffer)
        if empty:
            text.advance(empty.end())
            return [], True
        last = None if text.at_end else _last_boundary(text.buffer)
        if last is not None:
            objects = self._decoded(last.start() + 1)
            if objects is not None:
                text.advance(last.end())
                return objects, False
        for match in islice(_END.finditer(text.buffer), _MOST_TRIALS):
            objects = self._decoded(match.start() + 1)
            if objects is not None:
                text.advance(match.end(1))
                return objects, True
        return self._exact()

    def _decoded(self, end: int) -> list[T] | None:
        try:
            # The text is copied once, not for each bracket.
            return self._decode(b"".join((b"[", memoryview(self._text.buffer)[:end], b"]")))
        except DECODE_ERRORS:
            return None

    def _exact(self) -> tuple[list[T], bool]:
        """Cut by the text's structure: used where the pattern fails, and around damaged objects."""
        text = self._text
        structure = Structure()
        structure.feed(text.buffer)
        while (
            not structure.spans
            and structure.end is None
            and not text.at_end
            and len(text.buffer) < MOST_OBJECT_BYTES
        ):
            text.fill()
            structure.feed(text.buffer[structure.seen :])
        objects = self._of_spans(structure.spans)
        used = structure.spans[-1][1] if structure.spans else 0
        if structure.end is not None:
            self._note_between(used, structure.end)
            closes = text.buffer[structure.end : structure.end + 1] == b"]"
            if not closes:
                text.note(text.offset + structure.end, "a brace is closed that was never opened")
                text.is_partial = True
            text.advance(structure.end + 1)
            return objects, closes
        if structure.spans:
            separator = _SEPARATOR.match(text.buffer, used)
            text.advance(separator.end() if separator else used)
            return objects, False
        return objects, self._skip_damage()

    def _of_spans(self, spans: list[tuple[int, int]]) -> list[T]:
        if not spans:
            return []
        text = self._text
        try:
            begin, end = spans[0][0], spans[-1][1]
            if not text.buffer[:begin].strip(_SPACE + b","):
                return self._decode(b"[" + text.buffer[begin:end] + b"]")
        except DECODE_ERRORS:
            pass
        objects: list[T] = []
        previous = 0
        for begin, end in spans:
            self._note_between(previous, begin)
            previous = end
            one = text.buffer[begin:end]
            try:
                objects += self._decode(b"[" + one + b"]")
            except DECODE_ERRORS:
                found = self._rescue(one)
                if isinstance(found, str):
                    text.left_out += 1
                    text.note(text.offset + begin, found)
                else:
                    objects.append(found)
        return objects

    def _note_between(self, begin: int, end: int) -> None:
        """Handle text between objects where only a comma belongs."""
        text = self._text
        between = text.buffer[begin:end].lstrip(_SPACE + b",")
        strange = between.rstrip(_SPACE + b",")
        if strange:
            text.left_out += 1
            at = text.offset + end - len(between)
            text.note(at, f"left out because it is not an event: {_shown(strange)}")

    def _skip_damage(self) -> bool:
        """Handle an object at the beginning of the buffer that has no end. Returns whether nothing
        follows it."""
        text = self._text
        left = text.buffer.lstrip(_SPACE + b",")
        here = text.offset + len(text.buffer) - len(left)
        if not left:
            if not text.at_end:
                what = f"{len(text.buffer)} bytes of white space before it; the rest is not read"
                text.note(here, what)
            else:
                text.note(here, "the file ends inside the list of events")
            text.is_partial = True
            text.advance(len(text.buffer))
            return True
        text.is_partial = True
        self._breaks += 1
        after = _BOUNDARY.search(text.buffer) if self._breaks <= MOST_BREAKS else None
        if after is None:
            if self._breaks > MOST_BREAKS:
                what = "damaged in too many places; the rest is not read"
            else:
                ends = text.at_end
                what = "the file ends inside this event" if ends else "this event has no end"
            text.note(here, what)
            text.advance(len(text.buffer))
            return True
        text.left_out += 1
        there = text.offset + after.end()
        text.note(
            here, f"this event has no end: it is left out, and reading continues at byte {there}"
        )
        text.advance(after.end())
        return False


class ArrayReader(Generic[T]):
    """Iterate over lists of decoded objects; afterwards `head`, `tail` and `text.problems` are
    known.

    Args:
        file: opened at its beginning, decompressed.
        key: name of the array in the document's outermost object; a document that is itself an
            array is accepted too.
        decode: as for :class:`Objects`.
        rescue: as for :class:`Objects`.
    """

    def __init__(
        self,
        file: BinaryIO,
        key: str,
        decode: Callable[[bytes], list[T]],
        rescue: Callable[[bytes], T | str],
        *,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self.text = Text(file, chunk_bytes)
        self._objects = Objects(self.text, decode, rescue)
        self._keys = Keys([key])
        self.head = b"{"
        """The document's outermost object up to the array's key: an object without its ``}``."""
        self.tail = b""
        """The text after the array."""
        self.found = False

    def __iter__(self) -> Iterator[list[T]]:
        self._to_array()
        if self.found:
            yield from self._objects
            self._keep_tail()

    def _to_array(self) -> None:
        text = self.text
        while not text.buffer.strip() and not text.at_end and len(text.buffer) < CHUNK_BYTES:
            text.fill()
        if text.buffer.lstrip()[:1] not in (b"{", b"["):
            return  # It is no JSON document, however long it is.
        if text.buffer.lstrip()[:1] == b"[":
            text.advance(text.buffer.index(b"[") + 1)
            self.head, self.found = b"", True
            return
        structure = Structure()
        searched = 0
        while True:
            for match in self._keys.whole.finditer(text.buffer, searched):
                structure.feed(text.buffer[structure.seen : match.start()])
                if structure.depth == 1 and structure.end is None:
                    self.head = text.buffer[: match.start()].rstrip().removesuffix(b",")
                    self.found = True
                    text.advance(match.end())
                    return
            if text.at_end or len(text.buffer) > MOST_HEAD_BYTES:
                return
            searched = self._keys.unread_from(text.buffer, searched)
            text.fill()

    def _keep_tail(self) -> None:
        text = self.text
        while not text.at_end and len(text.buffer) < MOST_HEAD_BYTES:
            text.fill()
        self.tail, text.buffer = text.buffer, b""


class Keys:
    """Finds keys of arrays in a text that arrives in pieces."""

    def __init__(self, keys: Collection[str]) -> None:
        self.whole = key_pattern(keys)
        self._begun = re.compile(
            rb'(?<!\\)"(?:' + _names(keys) + rb')"' + _BLANKS + b":?" + _BLANKS + rb"\Z"
        )

    def unread_from(self, text: bytes, start: int) -> int:
        """The first position (not before `start`) at which a key may begin in `text` whose ``[``
        has not been read yet."""
        found = self._begun.search(text, start)
        at = max(start, min(len(text) - _LONGEST_KEY, found.start() if found else len(text)))
        # Without the backslash before it, a quote within a string looks like that of a key.
        while at > start and text[at - 1 : at] == b"\\":
            at -= 1
        return at


def key_pattern(keys: Collection[str]) -> re.Pattern[bytes]:
    """Matches one of `keys` with the ``[`` of its array. In valid JSON it matches only keys: a
    quote within a string has a backslash before it."""
    return re.compile(rb'(?<!\\)"(' + _names(keys) + rb')"' + _BLANKS + b":" + _BLANKS + rb"\[")


def _names(keys: Collection[str]) -> bytes:
    return b"|".join(re.escape(key.encode()) for key in keys)


def outer_object(
    head: bytes, tail: bytes, wanted: Collection[str]
) -> tuple[dict[str, Any], list[str]]:
    """The `wanted` keys present in the document around the array, and which half of it is damaged
    (``before``, ``after``); a damaged half is left out."""
    merged: dict[str, Any] = {}
    damaged = []
    rest = tail.strip().removeprefix(b",")
    halves = {"before": head + b"}" if head.strip() else b"{}", "after": b"{" + (rest or b"}")}
    for name, text in halves.items():
        try:
            raws = _RAWS.decode(text)
            merged |= {key: msgspec.json.decode(raws[key]) for key in wanted if key in raws}
        except DECODE_ERRORS:
            found = _with_nan(text)
            if found is None:
                damaged.append(name)
            else:
                merged |= {key: found[key] for key in wanted if key in found}
    return merged, damaged


def _with_nan(text: bytes) -> dict[str, Any] | None:
    """The object, with NaN as a string and invalid UTF-8 replaced; None if it is not an object."""
    if len(text) > _MOST_REPAIRED_BYTES:
        return None
    try:
        found = json.loads(text.decode("utf-8", "replace"), parse_constant=lambda name: name)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _last_boundary(buffer: bytes) -> re.Match[bytes] | None:
    last = None
    for start in (max(0, len(buffer) - length) for length in (*_LOOK_BACK, len(buffer))):
        for last in _BOUNDARY.finditer(buffer, start):  # noqa: B007
            pass
        if last is not None:
            return last
    return None


def _shown(text: bytes) -> str:
    shown = text[:40].decode("utf-8", "replace")
    return repr(shown) + (" ..." if len(text) > 40 else "")
