"""The formats of trace files: what declares how each is recognised and read, and the recognition of
a file by the beginning of its content, not by its name.

A module that is added here, with its :class:`TraceFormat` objects as ``FORMATS``, is found, read
and listed among what is supported; nothing names it. These modules load what decodes a file when
one is read (:func:`later`).
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from gemmetry.domain.errors import StorageError
from gemmetry.domain.opening import open_decompressed

if TYPE_CHECKING:
    from gemmetry.formats.events import TraceRows
    from gemmetry.formats.rocm.rocprofv3 import CountedProcess

FIRST_BYTES = 64 << 10
MOST_BYTES = 8 << 20
"""Bytes to search for the key that identifies a JSON document: metadata that users add precede the
events (32 KiB in one of the public traces)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFormat:
    """Recognition and reader of one format's files."""

    name: str
    suffix: str
    """The suffixes of its files, such as ``.json``; ``.gz`` and ``.zst`` may follow."""
    summary: str = ""
    """Description in the list of supported formats; empty for a format that is recognised but not
    read."""
    json_key: str = ""
    """A key that the outermost object of its JSON documents has, and of no other format."""
    counts: Callable[[bytes], bool] = lambda before: True
    """Whether `json_key` identifies the format after this beginning of the document."""
    begins: Callable[[bytes], object] = lambda text: False
    """Whether a file that is not a JSON object has this format, given its decompressed
    beginning."""
    confirmed: Callable[[Path], bool] = lambda path: True
    """Whether a file with this beginning contains a trace."""
    read: Callable[[Path], TraceRows | None] | None = None
    """A function that returns the rows of a file, or None where it has none. Without it, the format
    is only recognised."""
    counters: Callable[[Path], list[CountedProcess]] = lambda path: []
    """A function that returns the kernels of a file with their hardware counters."""
    problem: str = ""
    """Reason why a file of this format is not a trace, where known."""
    hint: str = ""
    """The next step in that case; empty: the list of supported formats."""
    reads_unrecognised: bool = False
    """Whether the reader also tries files that no format recognises."""
    own_name: re.Pattern[str] | None = None
    """File names that only this format has, so that a damaged file of this name counts as a
    trace."""
    is_missed: Callable[[str], bool] = lambda name: True
    """Whether a file with this suffix and name that cannot be opened counts as a trace."""
    leads: Callable[[Path], bool] = lambda path: True
    """Whether the file represents its trace, where a trace has several files."""
    files: Callable[[Path], Sequence[Path]] = lambda path: (path,)
    """All files of the trace to which the file belongs."""


class Content(Enum):
    """The content of a file that no format of traces recognises."""

    JSON = "other JSON document"
    CUT = "JSON document that ends early"
    """JSON before any key that identifies its format."""
    OTHER = "other file"


@cache
def trace_formats() -> tuple[TraceFormat, ...]:
    """All formats, in the order of their modules' names."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return tuple(form for module in modules for form in module.FORMATS)


def supported() -> str:
    """One sentence that lists what is read."""
    *most, last = [form.summary for form in trace_formats() if form.summary]
    return f"Supported: {', '.join(most)} and {last}; also compressed (.gz, .zst)."


def later(place: str, *more: object) -> Callable[..., Any]:
    """A function of another module (``module:name``), which is imported when it is called, with
    the arguments `more` after its own."""
    module, _, name = place.partition(":")
    return lambda *arguments: getattr(importlib.import_module(module), name)(*arguments, *more)


def of_stream(read: Callable[[BinaryIO], TraceRows | None]) -> Callable[[Path], TraceRows | None]:
    """Reader of files by `read`, which takes the decompressed content.

    Raises:
        RequestError: the file cannot be opened.
        StorageError: a trace too large for memory needs a temporary file that cannot be written.
    """

    def read_file(path: Path) -> TraceRows | None:
        with open_decompressed(path) as file:
            try:
                return read(file)
            except OSError as error:
                raise StorageError(
                    f"{path} is too large for memory, and a temporary file for it cannot be "
                    f"written: {error}",
                    hint="Free some disk space, or set TMPDIR to a folder on another disk.",
                ) from error

    return read_file


_CLOSING = {b"{": b"}", b"[": b"]"}


def format_of(path: Path) -> TraceFormat | Content:
    """The format of a file, which may be compressed.

    Raises:
        RequestError: the file does not exist or cannot be opened.
    """
    text = start = b""
    is_whole = True
    with open_decompressed(path) as file:
        try:
            text = file.read(FIRST_BYTES)
            start = text.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
            if start == b"{":
                while not _keys().search(text) and len(text) < MOST_BYTES:
                    if not (more := file.read(len(text))):
                        break
                    text += more
                is_whole = not file.read(1)
            elif start == b"[" and _by_beginning(text) is None:
                text += file.read(MOST_BYTES - len(text))
                is_whole = not file.read(1)
        except OSError:
            # Damaged compression; the reader reports where.
            pass
    found = _by_key(text) if start == b"{" else _by_beginning(text)
    if found is not None:
        return found if found.confirmed(path) else Content.OTHER
    if start not in _CLOSING:
        return Content.OTHER
    ends_early = is_whole and not text.rstrip().endswith(_CLOSING[start])
    return Content.CUT if ends_early else Content.JSON


def _keys() -> re.Pattern[bytes]:
    from gemmetry.formats.json import key_pattern

    return key_pattern([form.json_key for form in trace_formats() if form.json_key])


def _by_beginning(text: bytes) -> TraceFormat | None:
    return next((form for form in trace_formats() if form.begins(text)), None)


def _by_key(text: bytes) -> TraceFormat | None:
    forms = {form.json_key.encode(): form for form in trace_formats() if form.json_key}
    for match in _keys().finditer(text):
        if forms[match[1]].counts(text[: match.start()]):
            return forms[match[1]]
    return None
