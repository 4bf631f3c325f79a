"""The formats of trace files: one file each, which declares how it is recognised and read.

A module that is added here, with its :class:`TraceFormat` as ``FORMAT``, is found, read and listed
among what is supported; nothing names it. These modules load what decodes a file when one is read.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from gemmetry.domain.errors import StorageError
from gemmetry.domain.opening import open_decompressed

if TYPE_CHECKING:
    from gemmetry.formats.events import TraceRows


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFormat:
    """How files of one format are recognised and read."""

    name: str
    suffix: str
    """The suffixes of its files, such as ``.json``; ``.gz`` and ``.zst`` may follow."""
    summary: str = ""
    """Its description in the list of supported formats; empty for a format that is recognised but
    not read."""
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
    problem: str = ""
    """Why a file of this format is not a trace, where that is known."""
    hint: str = ""
    """The next step in that case; empty: the list of supported formats."""
    reads_unrecognised: bool = False
    """Also tries files that no format recognises."""
    own_name: re.Pattern[str] | None = None
    """File names that only this format has, so that a damaged file of this name counts as a
    trace."""
    is_missed: Callable[[str], bool] = lambda name: True
    """Whether a file with this suffix and name that cannot be opened counts as a trace."""
    leads: Callable[[Path], bool] = lambda path: True
    """Whether the file represents its trace, where a trace has several files."""
    files: Callable[[Path], Sequence[Path]] = lambda path: (path,)
    """All files of the trace to which the file belongs."""


@cache
def trace_formats() -> tuple[TraceFormat, ...]:
    """All formats, in the order of their modules' names."""
    return tuple(
        importlib.import_module(f"{__name__}.{module.name}").FORMAT
        for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name)
    )


def supported() -> str:
    """One sentence that lists what is read."""
    *most, last = [form.summary for form in trace_formats() if form.summary]
    return f"Supported: {', '.join(most)} and {last}; also compressed (.gz, .zst)."


def read_stream(path: Path, read: Callable[[BinaryIO], TraceRows | None]) -> TraceRows | None:
    """The result of `read` for the decompressed content of a file.

    Raises:
        RequestError: the file cannot be opened.
        StorageError: a trace too large for memory needs a temporary file that cannot be written.
    """
    with open_decompressed(path) as file:
        try:
            return read(file)
        except OSError as error:
            raise StorageError(
                f"{path} is too large for memory, and a temporary file for it cannot be "
                f"written: {error}",
                hint="Free some disk space, or set TMPDIR to a folder on another disk.",
            ) from error
