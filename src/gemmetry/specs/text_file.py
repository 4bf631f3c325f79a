"""Reads the text files that a request names; an error explains why a file cannot be read."""

from __future__ import annotations

import sys
from pathlib import Path

from gemmetry.domain.errors import RequestError

STANDARD_INPUT = "-"
"""The path that means standard input, where a caller allows it."""


def read_text_file(path: Path, what: str, *, hint: str, standard_input: bool = False) -> str:
    """The text of the file at `path`; a byte order mark at its start is left out.

    Args:
        what: what the file is for, with an article; it begins the error: ``the spec``.
        hint: what to do about a file that cannot be read.
        standard_input: whether ``-`` means standard input.

    Raises:
        RequestError: the file does not exist, is a folder, may not be read or is not UTF-8 text.
    """
    is_standard_input = standard_input and str(path) == STANDARD_INPUT
    name = "on standard input" if is_standard_input else str(path)
    try:
        content = sys.stdin.buffer.read() if is_standard_input else path.read_bytes()
        return content.decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RequestError(f"{what} {name} does not exist", hint=hint) from error
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(
            f"cannot read {what} {name}: {why_unreadable(error)}", hint=hint
        ) from error


def why_unreadable(error: Exception) -> str:
    """The cause of an OSError or UnicodeDecodeError in words, without error numbers; else its
    text."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 text (byte {error.start + 1})"
    if isinstance(error, IsADirectoryError):
        return "it is a folder, not a file"
    if isinstance(error, PermissionError):
        return "you have no permission to read it"
    return getattr(error, "strerror", None) or str(error)
