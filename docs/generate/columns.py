"""Prints ``docs/columns.md``, the columns of a record, from their declarations.

A test asserts that the page is up to date.
"""

from __future__ import annotations

import sys
from textwrap import fill

from gemmetry.dispatches.results import PRESETS
from gemmetry.domain.columns import COLUMNS
from gemmetry.domain.tables import Column, Direction
from gemmetry.results.tables import escape_markdown as escape

_HEAD = """\
# Columns

This page is generated: `python docs/generate/columns.py > docs/columns.md`.

Every record has these columns, in every format. JSON has each as a key of each record, null where
it does not apply; CSV and Excel leave such a cell empty. Values are stored in SI units, and the
name includes the unit: `*_ns` is a duration of one launch in nanoseconds. `↑` means that higher is
better, `↓` that lower is.

| column | unit | | meaning |
| --- | --- | --- | --- |
"""

_ARROWS = {
    Direction.HIGHER_IS_BETTER: "↑",
    Direction.LOWER_IS_BETTER: "↓",
    Direction.NONE: "",
}


def columns_page() -> str:
    """The whole page as Markdown."""
    rows = "".join(_row(column) for column in COLUMNS)
    presets = "\n".join(_definition(name, text) for name, text in PRESETS.items())
    return (
        f"{_HEAD}{rows}\n## Presets\n\n"
        "`--columns` takes names from above, and these names for several columns:\n\n"
        f"{presets}\n"
    )


def _row(column: Column) -> str:
    # Backticks of a description are markup; everything else is literal.
    meaning = escape(column.description).replace("\\`", "`")
    unit = escape(column.unit)
    return f"| `{column.name}` | {unit} | {_ARROWS[column.direction]} | {meaning} |\n"


def _definition(name: str, text: str) -> str:
    return fill(f"- `{name}`: {text}.", width=100, subsequent_indent="  ", break_on_hyphens=False)


if __name__ == "__main__":
    sys.stdout.write(columns_page())
