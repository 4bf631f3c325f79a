"""Common parts of the HTML pages: templates, styles, and data from which no text can break out."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape as escaped
from pathlib import Path
from typing import Any

from jinja2 import Environment as TemplateEnvironment
from jinja2 import PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from gemmetry.domain.tables import Column, Table
from gemmetry.domain.units import format_memory, plural
from gemmetry.results.json_text import encoded
from gemmetry.results.palette import COLOURS, DARK_COLOURS
from gemmetry.results.tables import require
from gemmetry.results.texts import CONTROL, cut, printable

Figure = dict[str, Any]
"""An interactive figure, as plotly's traces and layout. ``tint`` of a trace is the place of its
colour in the palette, which the page's script applies for light and dark pages."""

MOST_ROWS = 600
"""Rows of a table on a page; the page names the file with all of them."""

_UNBROKEN = 26
_LONG = frozenset(("note", "reason", "text", "claim", "remark"))
"""Columns with sentences."""
_MOST, _MOST_OF_LONG = 160, 500
"""Characters of a cell; the rest is in its tooltip."""

MEMORY = "_bytes"
"""Suffix of the fields of an environment that are sizes of memory."""


_PLACES = re.compile(r"(?<=[_,<(/])(?=[^\W_])|(?<=::)(?=[^\W_])")


_ACTIVE = re.compile(rf"[<>&]|{CONTROL.pattern}")


def embed_json(value: Any) -> str:
    """JSON for a ``<script type="application/json">``: no character in it can end the element or
    start another; control and bidirectional characters are escaped."""
    return _ACTIVE.sub(lambda found: f"\\u{ord(found[0]):04x}", encoded(value).decode())


def render_page(
    template: str,
    *,
    styles: Iterable[str] = ("report.css",),
    scripts: Iterable[str],
    data: Any,
    draws: bool = False,
    **values: Any,
) -> str:
    """``page.html.j2``, whose blocks `template` fills with `values`: a document that loads nothing
    from the network.

    Args:
        styles: files of the templates' folder, as are `scripts`.
        data: what the scripts show.
        draws: whether they draw with plotly, which the page then contains.

    Raises:
        RequestError: plotly is not installed.
    """
    library = [require("plotly.offline", extra="plot").get_plotlyjs()] if draws else []
    return (
        page_templates()
        .get_template(template)
        .render(
            style=Markup("\n".join(map(template_text, styles))),
            scripts=[Markup(text) for text in (*library, *map(template_text, scripts))],
            data=Markup(embed_json(data)),
            **values,
        )
    )


@functools.cache
def page_templates() -> TemplateEnvironment:
    environment = TemplateEnvironment(
        loader=PackageLoader("gemmetry.results", "templates"), autoescape=True, finalize=_cleaned,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {
        "cell": _environment_text, "breakable": breakable, "plural": plural,
        "field": lambda name: name.removesuffix(MEMORY).replace("_", " "),
    }  # fmt: skip
    return environment


def _cleaned(value: Any) -> Any:
    """A text without control characters; what is HTML already stays."""
    return printable(value) if type(value) is str else value


def template_text(name: str) -> str:
    """A file of the templates' folder, unrendered: styles and scripts are not templates."""
    return (Path(__file__).with_name("templates") / name).read_text("utf-8")


def breakable(text: str) -> Markup:
    """`text`, escaped, with places where a long name may continue on the next line: after ``_``,
    ``::`` and what opens or separates arguments, so that no single letter is left alone."""
    return Markup("<wbr>").join(escape(part) for part in _PLACES.split(printable(text)))


def _environment_text(value: Any, name: str) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{key} {item}" for key, item in sorted(value.items()))
    if isinstance(value, (list, tuple)):
        return "\n".join(_environment_text(item, name) for item in value)
    if name.endswith(MEMORY):
        return format_memory(value or None)
    return str(value)


def text_of(text: str) -> str:
    """A text that plotly, which reads some markup, shows as it is."""
    return escaped(cut(printable(text), 90), quote=False)


def page_section(
    id: str,
    short: str,
    heading: str,
    about: str = "",
    figures: Sequence[tuple[str, Figure | None]] = (),
    sheets: Sequence[tuple[str, Table]] = (),
    file: str = "",
    images: Sequence[Mapping[str, str]] = (),
    *,
    fluid: bool = False,
) -> dict[str, Any]:
    """A section for :func:`rendered_page`; figures and tables come with their titles. The cells of
    `fluid` tables break wherever they have to, so that no column is out of sight."""
    shown = [
        {"note": "", "wide": False, **one, "title": title or one.get("title", ""), "name": heading}
        for title, one in figures
        if one
    ]
    tables = [{**_page_table(table, file), "title": title, "fluid": fluid}
              for title, table in sheets if table.rows]  # fmt: skip
    return {"id": id, "short": short, "heading": heading, "about": about, "figures": shown,
            "tables": tables, "images": list(images)}  # fmt: skip


def _page_table(table: Table, file: str) -> dict[str, Any]:
    """A table as the template shows it; columns without any value are left out."""
    kept = [
        (place, column)
        for place, column in enumerate(table.columns)
        if any(row[place] not in (None, "") for row in table.rows)
    ]
    return {
        "id": table.name.replace(" ", "-"),
        "name": table.name,
        "heads": [
            {"text": column.label, "title": column.meaning or column.name,
             "number": column.type.is_numeric}
            for _, column in kept
        ],
        "rows": [
            [_cell(column, row[place]) for place, column in kept] for row in table.rows[:MOST_ROWS]
        ],
        "hidden": max(0, len(table.rows) - MOST_ROWS),
        "file": file,
    }  # fmt: skip


def _cell(column: Column, value: Any) -> dict[str, Any]:
    text = printable(column.text(value))
    shown = cut(text, _MOST_OF_LONG if column.name in _LONG else _MOST)
    is_long = "long" if column.name in _LONG else "unbroken" if len(shown) <= _UNBROKEN else ""
    classes = ("number" if column.type.is_numeric else "",
               "kernel" if column.name == "kernel" else is_long,
               "".join(text.split()[:1]) if column.name == "verdict" else "")  # fmt: skip
    return {
        "text": shown,
        "title": cut(text) if shown != text else "",
        "classes": " ".join(filter(None, classes)),
        "value": value if column.type.is_numeric else None,
    }


def rendered_page(
    *,
    title: str,
    identity: Sequence[str],
    groups: Sequence[Mapping[str, Any]],
    problems: Sequence[str],
    sections: Sequence[dict[str, Any]],
) -> str:
    """A page: sentences first, then the sections that have any content. It loads nothing from the
    network; the template escapes all names.

    Raises:
        RequestError: plotly is not installed.
    """
    shown = [one for one in sections if one["figures"] or one["tables"] or one["images"]]
    figures = [figure for one in shown for figure in one["figures"]]
    for number, figure in enumerate(figures):
        figure["number"] = number
    return render_page(
        "sweep.html.j2",
        styles=("report.css", "sweep.css"),
        scripts=("sweep.js",),
        data={"figures": figures, "palette": {"light": COLOURS, "dark": DARK_COLOURS}},
        draws=True,
        title=cut(title),
        identity=identity,
        answer_groups=groups,
        problems=[cut(one) for one in problems],
        sections=shown,
    )
