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
from gemmetry.formats.opening import open_decompressed

if TYPE_CHECKING:
    from gemmetry.formats.events import TraceRows


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFormat:
    """How files of one format are recognised and read."""

    name: str
    suffix: str
    """Of its files, as in ``.json``; ``.gz`` and ``.zst`` may follow."""
    summary: str = ""
    """In the list of what is supported; empty for a format that is recognised and not read."""
    json_key: str = ""
    """A key that the outermost object of its JSON documents has, and of no other format."""
    counts: Callable[[bytes], bool] = lambda before: True
    """Whether `json_key` shows the format behind this part of the document."""
    begins: Callable[[bytes], bool] = lambda text: False
    """Whether a file that is no JSON object is of this format, if it begins so, decompressed."""
    confirmed: Callable[[Path], bool] = lambda path: True
    """Whether a file that begins so holds a trace."""
    read: Callable[[Path], TraceRows | None] | None = None
    """The rows of a file; None where there are none. No function: the format is recognised only."""
    problem: str = ""
    """Why a file of this format is no trace, where that is known."""
    hint: str = ""
    """What to do then; empty: the list of what is supported."""
    reads_unrecognised: bool = False
    """Also tries files that no format recognises."""
    own_name: re.Pattern[str] | None = None
    """Names that only files of this format have: a damaged one counts as a trace."""
    is_missed: Callable[[str], bool] = lambda name: True
    """Whether a file of this suffix and name that cannot be opened counts as a trace."""
    leads: Callable[[Path], bool] = lambda path: True
    """Whether the file stands for its trace, where several files are one."""
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
    """What `read` makes of the decompressed content of a file.

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
                hint="Free some disk, or set TMPDIR to a folder on another one.",
            ) from error
