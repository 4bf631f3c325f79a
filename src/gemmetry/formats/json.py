"""Finds where the objects of a JSON array begin and end, without decoding them.

It is exact for every valid text, whatever its strings contain, and for damaged texts as long as
their quotes are balanced. :mod:`~gemmetry.formats.json` falls back on it: it is ten times
slower than cutting by a pattern and decoding.

Reads a JSON array of objects from a file of any size, in pieces of bounded size.

A pattern proposes where to cut between objects, and decoding confirms the cut: a piece that was cut
within a string or a nested array does not decode. Where the proposal fails,
:mod:`~gemmetry.formats.json` finds the objects exactly. Of a damaged file, only the
damaged objects are left out.

Repairs invalid JSON: numbers and strings that JSON or UTF-8 cannot represent.

Reads a JSON document with long arrays anywhere in it, in bounded memory.

The arrays are returned object by object; the rest is kept as a document in which these arrays are
empty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, BinaryIO, Generic, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from gemmetry.domain.files import encodable
from gemmetry.domain.units import noun_for, plural
from gemmetry.formats.events import Bools, ProblemKind, TraceProblem

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
        """Mask of tokens that are quotes not escaped by a backslash."""
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


CHUNK_BYTES = 512 << 10
"""Bytes read at a time: enough that the work per piece far exceeds the overhead per call, and few
enough that the decoded events of a piece stay in a core's cache. Reading 56 MB took 200 ms of CPU
time with this size, 255 ms with 128 KiB and 305 ms with 4 MiB."""

MOST_OBJECT_BYTES = 16 << 20
"""An object larger than this is not an event: the file is damaged or malicious."""

MOST_BREAKS = 50
"""Maximum number of unterminated objects. Finding one takes about 0.2 s, because all data read
ahead are searched; a file with more is not worth reading."""

MOST_HEAD_BYTES = 64 << 20
"""Maximum size of the text before the array, and after it."""

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
        self.is_cut = False
        """Whether the array is partial only because the file cannot be read further."""
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
            self.is_cut, self.is_partial = not self.is_partial, True
            more = b""
        self.at_end = not more
        self.buffer += more

    def advance(self, count: int) -> None:
        """Consume the first `count` bytes."""
        self.buffer = self.buffer[count:]
        self.offset += count

    def note(
        self, offset: int, what: str, kind: ProblemKind = ProblemKind.DAMAGED, count: int = 1,
        *, partial: bool = False,
    ) -> None:  # fmt: skip
        """Record a problem at a byte of the (decompressed) file, which may make it partial."""
        self.is_partial |= partial
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(TraceProblem(f"byte {offset}", what, kind, count))
        else:
            self.more_problems += 1

    def lose(self, offset: int, what: str) -> None:
        """Record an object at a byte of the file that cannot be used: the file is partial."""
        self.left_out += 1
        self.note(offset, what, partial=True)

    def all_problems(self) -> tuple[TraceProblem, ...]:
        """The problems kept, before them how many objects are lost, and after them the number of
        those that were not kept."""
        found, lost = tuple(self.problems), self.left_out
        if lost:
            what = f"{plural(lost, 'event')} cannot be read and {noun_for(lost, 'is', 'are')} lost"
            found = (TraceProblem("file", what, ProblemKind.LOST_EVENTS, lost), *found)
        if not self.more_problems:
            return found
        more = f"{plural(self.more_problems, 'more place')} with such problems"
        return (*found, TraceProblem("file", more, count=self.more_problems))

    def note_rest(self, offset: int, rest: bytes) -> None:
        """Record the text `rest` after the end of the document: other documents, or damage."""
        strange = rest.lstrip(_SPACE + b"\0")
        if not strange:
            return
        at = offset + len(rest) - len(strange)
        if strange[:1] not in (b"{", b"["):
            size = plural(len(strange), "byte")
            what = f"{size} after the end of the document are not read: {_shown(strange)}"
            self.note(at, what, partial=b'"ph"' in strange)
            return
        structure = Structure()
        structure.feed(strange)
        count = len(structure.spans) + (structure.depth > 0)
        more = f", and {plural(count - 1, 'more document')} after it" if count > 1 else ""
        what = f"a second trace begins here{more}: not read; give each trace a file of its own"
        self.note(at, what, ProblemKind.SECOND_DOCUMENT, max(count, 1), partial=True)


class Objects(Generic[T]):
    """Iterate over lists of the array's decoded objects, one list per piece.

    Args:
        text: positioned after the array's ``[``; afterwards, after its ``]``.
        decode: JSON text of an array -> its objects. Raises one of ``DECODE_ERRORS``.
        rescue: JSON text of one object that `decode` rejects -> the object, or the reason why it is
            left out.
        again: matches what only the beginning of another document has: reading ends there.
    """

    def __init__(
        self,
        text: Text,
        decode: Callable[[bytes], list[T]],
        rescue: Callable[[bytes], T | str],
        again: re.Pattern[bytes],
    ) -> None:
        self._again = again
        self._has_ended = False
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
        while not (structure.spans or structure.end is not None or text.at_end):
            if len(text.buffer) >= MOST_OBJECT_BYTES:
                break
            text.fill()
            structure.feed(text.buffer[structure.seen :])
        objects = self._of_spans(structure.spans)
        if self._has_ended:
            return objects, True
        used = structure.spans[-1][1] if structure.spans else 0
        if structure.end is not None:
            self._note_between(used, structure.end)
            if self._has_ended:
                return objects, True
            closes = text.buffer[structure.end : structure.end + 1] == b"]"
            if not closes:
                what = "a brace is closed that was never opened"
                text.note(text.offset + structure.end, what, partial=True)
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
        other = self._again.search(text.buffer, spans[0][0], spans[-1][1])
        if other:
            # The rest of another document looks like an object, too.
            before = [span for span in spans if span[1] <= other.start()]
            objects = self._of_spans(before)
            begin, end = spans[len(before)]
            self._ends_at(text.buffer[begin:end], text.offset + begin)
            return objects
        try:
            begin, end = spans[0][0], spans[-1][1]
            if not text.buffer[:begin].strip(_SPACE + b","):
                return self._decode(b"[" + text.buffer[begin:end] + b"]")
        except DECODE_ERRORS:
            pass
        objects = []
        previous = 0
        for begin, end in spans:
            self._note_between(previous, begin)
            previous = end
            one = text.buffer[begin:end]
            try:
                objects += self._decode(b"[" + one + b"]")
            except DECODE_ERRORS:
                objects += self._rescued(one, text.offset + begin)
        return objects

    def _rescued(self, span: bytes, offset: int) -> list[T]:
        """The objects of a span that does not decode. Two objects with an odd number of quotes each
        look like one object with everything between them, so it is cut where objects may begin:
        where the same key follows as at its beginning."""
        found = self._rescue(span)
        if not isinstance(found, str):
            return [found]
        cuts = [0]
        if first := _first_key(span, 0):
            ends = (match.end() for match in _BOUNDARY.finditer(span))
            cuts += [at for at in ends if _first_key(span, at) == first]
        if len(cuts) == 1:
            self._text.lose(offset, found)
            return []
        objects: list[T] = []
        for begin, end in zip(cuts, [*cuts[1:], len(span)], strict=True):
            one = span[begin:end].rstrip(_SPACE + b",")
            try:
                objects += self._decode(b"[" + one + b"]")
                continue
            except DECODE_ERRORS:
                better = self._rescue(one)
            if isinstance(better, str):
                self._text.lose(offset + begin, better)
            else:
                objects.append(better)
        return objects

    def _note_between(self, begin: int, end: int) -> None:
        """Handle text between objects where only a comma belongs."""
        text = self._text
        between = text.buffer[begin:end].lstrip(_SPACE + b",")
        strange, at = between.rstrip(_SPACE + b","), text.offset + end - len(between)
        if strange and not self._ends_at(strange, at):
            text.lose(at, f"left out because it is not an event: {_shown(strange)}")

    def _skip_damage(self) -> bool:
        """Handle an object at the beginning of the buffer that has no end. Returns whether nothing
        follows it."""
        text = self._text
        left = text.buffer.lstrip(_SPACE + b",")
        here = text.offset + len(text.buffer) - len(left)
        text.is_partial = True
        if not left:
            what = f"{len(text.buffer)} bytes of white space before it; the rest is not read"
            text.note(here, "the file ends inside the list of events" if text.at_end else what)
            text.advance(len(text.buffer))
            return True
        self._breaks += 1
        if self._ends_at(left, here, most=1 << 16):
            return True
        after = _BOUNDARY.search(text.buffer) if self._breaks <= MOST_BREAKS else None
        if after is None:
            what = "the file ends inside this event" if text.at_end else "this event has no end"
            if self._breaks > MOST_BREAKS:
                what = "damaged in too many places; the rest is not read"
            text.note(here, what)
            text.advance(len(text.buffer))
            return True
        there = text.offset + after.end()
        text.lose(
            here, f"this event has no end: it is left out, and reading continues at byte {there}"
        )
        text.advance(after.end())
        return False

    def _ends_at(self, damaged: bytes, offset: int, most: int = MOST_OBJECT_BYTES) -> bool:
        """Whether another document begins in the `damaged` text, at this byte: this one was cut
        short, and reading ends."""
        if self._again.search(damaged, 0, most) is None:
            return False
        text = self._text
        what = "the trace is cut short here, and a second one begins: not read"
        text.note(offset, what, ProblemKind.SECOND_DOCUMENT)
        text.is_partial = text.at_end = self._has_ended = True
        text.advance(len(text.buffer))
        return True


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
        self._keys = Keys([key])
        self._objects = Objects(self.text, decode, rescue, self._keys.whole)
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
        structure = Structure()
        end: int | None = 0
        if self.head:
            structure.feed(self.tail)
            end = None if structure.end is None else structure.end + 1
        if end is not None:
            # What cannot be read after the end of the document is no part of it.
            text.is_partial &= not text.is_cut or text.left_out > 0
            text.note_rest(text.offset + end, self.tail[end:])
            self.tail = self.tail[:end]
        again = self._keys.whole.search(self.tail)
        if again:
            what = "a second trace begins before this byte, and the first is cut short: not read"
            place = text.offset + again.start()
            text.note(place, what, ProblemKind.SECOND_DOCUMENT, partial=True)
            self.tail = b""


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


def _first_key(text: bytes, at: int) -> bytes:
    found = re.compile(rb'\{[ \t\r\n]*"([^"\\]{1,40})"').match(text, at)
    return found[1] if found else b""


def _shown(text: bytes) -> str:
    return repr(text[:40].decode("utf-8", "replace")) + (" ..." if len(text) > 40 else "")


def repaired(text: bytes, decode: Callable[[bytes], T]) -> T | str:
    """Decode `text` with NaN and infinity replaced by strings, and invalid UTF-8 and halves of
    surrogate pairs by replacement characters. Returns the reason where that is not enough."""
    try:
        found = json.loads(
            text.decode("utf-8", "replace"),
            parse_constant=lambda name: name,
            # The digits are kept: µs since 1970 in float64 are off by about 100 ns.
            parse_float=lambda digits: msgspec.Raw(digits.encode()),
        )
        return decode(msgspec.json.encode(_writable(found)))
    except (ValueError, RecursionError, OverflowError) as error:
        return str(error)


def _writable(value: Any) -> Any:
    """`value` with all strings made valid UTF-8."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, list):
        return [_writable(one) for one in value]
    if isinstance(value, dict):
        return {encodable(key): _writable(one) for key, one in value.items()}
    return value


def record_decoders(
    kind: type, what: str = "record"
) -> tuple[Callable[[bytes], list[Any]], Callable[[bytes], Any]]:
    """Decoders of several records of `kind`, and of one that may be damaged.

    Args:
        what: a word for a record, in the reason that the latter returns.
    """
    one: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)

    def rescue(text: bytes) -> Any:
        found = repaired(text, one.decode)
        return f"left out, as it is no {what}: {found}" if isinstance(found, str) else found

    return msgspec.json.Decoder(list[kind]).decode, rescue  # type: ignore[valid-type]


# Possessive: otherwise a string of 64 MiB would be remembered character by character.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|"|[{}\[\],]', re.DOTALL)


class SectionReader:
    """Iterate over (key, objects) pairs, each a piece of one array; afterwards `frame` is known.

    Args:
        file: opened at its beginning, decompressed.
        decoders: the decode and rescue functions for each array's key, as for
            :class:`~gemmetry.formats.json.Objects`.
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
                    what = "too much text between the records; the rest is not read"
                    text.note(text.offset, what, partial=True)
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
        self.text.note(place, what, ProblemKind.SECOND_DOCUMENT, partial=True)
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
            del opened[-1:]
            if not opened:
                break
        elif sign == b",":
            complete = token.start()
        elif sign == b'"':
            break
    return text[:complete] + b"".join(reversed(opened))
