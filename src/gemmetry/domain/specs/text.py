"""Reads the text files that a request names; an error explains why a file cannot be read."""

from __future__ import annotations

import sys
from pathlib import Path

from gemmetry.domain.errors import RequestError
from gemmetry.domain.opening import MOST_TEXT_BYTES, read_whole, why_unreadable

STANDARD_INPUT = "-"
"""The path that means standard input, where a caller allows it."""


def read_text_file(path: Path, what: str, *, hint: str, standard_input: bool = False) -> str:
    """The text of the file at `path`; a byte order mark at its start is left out.

    Args:
        what: what the file is for, with an article; it begins the error: ``the spec``.
        hint: what to do about a file that cannot be read.
        standard_input: whether ``-`` means standard input.

    Raises:
        RequestError: the file does not exist, is a folder, may not be read, is not UTF-8 text, or
            has more than 4 MiB.
    """
    if standard_input and str(path) == STANDARD_INPUT:
        name, content = "on standard input", sys.stdin.buffer.read(MOST_TEXT_BYTES + 1)
        if len(content) > MOST_TEXT_BYTES:
            raise RequestError(
                f"{what} {name} has more than {MOST_TEXT_BYTES >> 20} MiB", hint=hint
            )
    else:
        name = str(path)
        content = read_whole(path, what, hint=hint, most=MOST_TEXT_BYTES, pipes=True)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RequestError(
            f"cannot read {what} {name}: {why_unreadable(error)}", hint=hint
        ) from error
