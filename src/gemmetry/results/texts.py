"""Texts of any origin, made safe for a terminal, a file or a cell."""

from __future__ import annotations

import re

CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"
    r"\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
    # Characters that UTF-8 and XML cannot represent.
    r"\ud800-\udfff\ufffe\uffff]"
)
"""Control and bidirectional characters."""

MOST_CHARACTERS = 400
"""Characters of a text on a page, where nothing else is required."""

_CELL_UNITS = 32_767
"""UTF-16 units that fit in a cell of a workbook (Excel's published limits)."""


def printable(text: str) -> str:
    """`text` without control and bidirectional characters, which a terminal would interpret, and
    without characters that no file can hold."""
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def cell_fit(text: str) -> str:
    """Beginning of `text` that fits in a cell of a workbook."""
    text = printable(text[:_CELL_UNITS])
    if text.isascii() or len(text) * 2 <= _CELL_UNITS:
        return text
    return text.encode("utf-16-le")[: 2 * _CELL_UNITS].decode("utf-16-le", "ignore")


def first_line(text: str, limit: int = 200) -> str:
    """The first line that is not blank, cut after `limit` characters."""
    line = next((line.strip() for line in printable(text).splitlines() if line.strip()), "")
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def cut(text: str, most: int = MOST_CHARACTERS) -> str:
    """`text` on one line, without control characters, in at most `most` characters."""
    text = printable(text[: most + 1]).replace("\n", " ")
    return text if len(text) <= most else f"{text[: most - 1]}…"


def fitted(text: str, width: int) -> str:
    """`text` in one line of at most `width` characters: of a longer one its whole clauses that fit,
    or else its whole words, and ``…``."""
    text = " ".join(printable(text).split())
    if len(text) <= width:
        return text
    room = width - 2
    ends = [one.start() for one in re.finditer(r"[.;,:](?= )", text) if one.start() <= room]
    is_long = ends and ends[-1] >= width // 2
    kept = text[: ends[-1]] if is_long else text[: room + 1].rpartition(" ")[0].rstrip(" ,;:(")
    return f"{kept} …" if kept else elide(text, width)


def elide(text: str, width: int) -> str:
    """`text` in at most `width` characters: a longer one loses its middle, because the names of
    kernels and configurations differ at their ends."""
    if len(text) <= width:
        return text
    front = max(1, (width - 1) * 2 // 3)
    back = max(0, width - 1 - front)
    return f"{text[:front]}…{text[len(text) - back :]}" if back else f"{text[:front]}…"
