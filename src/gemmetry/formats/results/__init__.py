"""The formats of other benchmarks' results: one file each, which declares how it is recognised and
read.

A module that is added here, with its :class:`ResultFormat` as ``FORMAT``, is found, read and listed
among what is supported; nothing names it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gemmetry.domain.errors import RequestError
from gemmetry.formats.foreign_results import ForeignFile, StatedOperation
from gemmetry.formats.opening import read_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFormat:
    """How files of one benchmark are recognised and read."""

    name: str
    """The provider's name in records: ``cutlass_profiler``."""
    summary: str
    """Its description in the list of supported formats."""
    recognises: Callable[[str], bool]
    """Whether a file with this text has the format."""
    read: Callable[[Path, str, StatedOperation], ForeignFile]
    """Reads the text of the file."""


@cache
def result_formats() -> tuple[ResultFormat, ...]:
    """All formats, in the order of their modules' names."""
    return tuple(
        importlib.import_module(f"{__name__}.{module.name}").FORMAT
        for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name)
    )


def read_results(path: Path, stated: StatedOperation) -> tuple[ResultFormat, ForeignFile]:
    """What a file contains, and its format.

    Raises:
        RequestError: it cannot be read, or no format recognises it.
    """
    text = read_whole(path).decode("utf-8", errors="replace").removeprefix("\ufeff")
    for form in result_formats():
        if form.recognises(text):
            return form, form.read(path, text, stated)
    *most, last = [form.summary for form in result_formats()]
    raise RequestError(
        f"{path} contains no results of a known format",
        hint=f"Supported: {', '.join(most)} and {last}; also compressed (.gz, .zst).",
    )
