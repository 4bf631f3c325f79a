"""Sentences and commands: a terminal breaks them between words only; elsewhere each is one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.segment import Segment
from rich.text import Text

from gemmetry.results.texts import printable


def safe_console(**options: Any) -> Console:
    """A console that prints no control character of any text: names of kernels, files and devices
    come from others, and a terminal would carry out what they contain. `options` are rich's."""
    console = Console(highlight=False, **options)
    console.push_render_hook(_Cleaning())
    return console


class _Cleaning(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Renderables that are cleaned when they are rendered."""
        return [_Cleaned(one) for one in renderables]


class _Cleaned:
    def __init__(self, content: ConsoleRenderable) -> None:
        self._content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """The segments of the content; those of rich's own control codes stay."""
        for segment in console.render(self._content, options):
            if segment.control or (segment.text.isascii() and segment.text.isprintable()):
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)


def print_line(text: Text, console: Console, *, indent: int = 0, fold: bool = False) -> None:
    """Print `text` within the width of a terminal; elsewhere on one line, for tools like grep.

    Args:
        indent: columns in front of every line after the first.
        fold: break a word that is wider than the terminal. Otherwise it stays in one piece, so that
            a path can be copied.
    """
    for line in text.split("\n", allow_blank=True):
        breaks = _breaks(line.plain, console.width, indent, fold) if console.is_terminal else []
        for number, part in enumerate(line.divide(breaks)):
            if breaks:
                part.rstrip()
            console.print(Text(" " * indent) + part if number else part, soft_wrap=True)


def _breaks(text: str, width: int, indent: int, fold: bool) -> list[int]:
    """The positions at which the lines after the first begin."""
    breaks: list[int] = []
    used = 0
    for word in re.finditer(r"(\s*)(\S+)", text):
        room = cell_len(word[0])
        if used and used + room > width:
            breaks.append(word.start(2))
            used, room = indent, cell_len(word[2])
        if fold and used + room > width:
            *pieces, last = chop_cells(word[2], max(1, width - indent))
            breaks += list(accumulate(map(len, pieces), initial=word.start(2)))[1:]
            used, room = indent, cell_len(last)
        used += room
    return breaks


def print_command(command: str, console: Console) -> None:
    """Print a command, on a terminal with backslashes, so that a copy is still one command."""
    lines = [""]
    for word in command.split(" "):
        is_full = len(lines[-1]) + len(word) + 9 > console.width  # indent, "$ ", " \\" and a space
        if console.is_terminal and lines[-1] and is_full:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    text = " \\\n      ".join(lines)
    console.print(Text(f"    $ {text}", style="dim"), soft_wrap=True)


def print_pointer(text: str, command: str, console: Console) -> None:
    """Print `text` and the command, on a line of its own where a terminal would break it."""
    if console.is_terminal and len(text) + 1 + len(command) > console.width:
        print_line(Text(text), console)
        print_command(command, console)
    else:
        console.print(Text(f"{text} {command}"), soft_wrap=True)
