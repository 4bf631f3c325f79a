"""The bars of a report of traces as HTML: how time is divided, and what takes most of it.

Every text from a trace is escaped here; nothing in a picture is a script or a link.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from gemmetry.analysis.traces.totals import window_parts
from gemmetry.domain.units import format_ns
from gemmetry.reports.texts import printable
from gemmetry.traces.summary import Summary

_MOST_CHARACTERS = 44


class Bar(NamedTuple):
    """One bar; its parts follow each other from left to right."""

    label: str
    parts: tuple[tuple[str, float], ...]
    """(class of its colour, length) pairs."""
    value: str
    """Text after the bar."""
    hint: str = ""
    """Text shown when hovering; "" for the label."""


def bars_html(bars: Sequence[Bar], title: str, whole: float | None = None) -> str:
    """Horizontal bars, one below the other, whose texts keep their size in a narrow window; "" if
    there are none.

    Args:
        title: a description of the picture for screen readers.
        whole: the length that fills the width (default: that of the longest bar).
    """
    if not bars:
        return ""
    longest = whole or max(sum(length for _, length in bar.parts) for bar in bars) or 1.0
    room = max(len(bar.value) for bar in bars)
    lines = [f'<div class="bars" role="list" aria-label="{_text(title)}" style="--room:{room}ch">']
    for bar in bars:
        parts = "".join(
            f'<i class="{escape(colour)}" style="--share:{max(length, 0.0) / longest:.5f}"></i>'
            for colour, length in bar.parts
            if length > 0
        )
        lines.append(
            f'<div class="bar" role="listitem" title="{_text(bar.hint or bar.label)}">'
            f'<span class="label">{_text(_cut(bar.label))}</span>'
            f'<span class="parts">{parts}<span class="value">{_text(bar.value)}</span></span></div>'
        )
    lines.append("</div>")
    return "\n".join(lines)


def colours_of(bars: Sequence[Bar]) -> set[str]:
    """The classes of the colours in `bars`."""
    return {colour for bar in bars for colour, length in bar.parts if length > 0}


def time_bars(summaries: Sequence[Summary]) -> list[Bar]:
    """How the window of each trace is divided (:func:`window_parts`)."""
    labels = short_paths([summary.file for summary in summaries])
    bars = []
    for summary in summaries:
        window = summary.window_ns
        if not window:
            continue
        parts = tuple((colour, ns / window) for colour, ns in window_parts(summary).items())
        names = ("GEMM", "other kernels", "exposed communication", "exposed copies", "idle")
        hint = ", ".join(f"{n} {part:.1%}" for n, (_, part) in zip(names, parts, strict=True))
        label = labels[summary.file] + (f" {summary.of}" if summary.of else "")
        # The same unit wherever it fits, so that windows can be compared.
        length = f"{window / 1e6:,.1f} ms" if window >= 1_000_000 else format_ns(window)
        bars.append(Bar(label, parts, length, f"{summary.file}: {hint}"))
    return bars


def short_paths(paths: Sequence[Path]) -> dict[Path, str]:
    """Paths without the folders and the suffixes that all of them share."""
    depths = {len(path.parts) for path in paths}
    suffixes = {"".join(path.suffixes) for path in paths}
    shared = suffixes.pop() if len(suffixes) == 1 else ""
    same_depth = len(depths) == 1
    columns = zip(*(path.parts for path in paths), strict=True) if same_depth else ()
    differ = [place for place, parts in enumerate(columns) if len(set(parts)) > 1]
    result = {}
    for path in paths:
        name = "/".join(path.parts[place] for place in differ) or path.name
        name = name if same_depth else str(path)
        result[path] = name.removesuffix(shared) or name
    return result


def common_folder(paths: Sequence[Path]) -> Path:
    """The deepest folder that holds all of `paths`; an empty path if none does."""
    shared = []
    for parts in zip(*(path.parent.parts for path in paths), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return Path(*shared)


def _cut(text: str) -> str:
    """The two ends of a long text, because names of files differ at either end."""
    if len(text) <= _MOST_CHARACTERS:
        return text
    half = _MOST_CHARACTERS // 2
    return f"{text[:half]}…{text[1 - half :]}"


def _text(text: str) -> str:
    return escape(printable(text[:2000]).replace("\n", " "))
