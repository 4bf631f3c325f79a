"""What the HTML pages share: templates, styles, and data from which no text can break out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from jinja2 import Environment as TemplateEnvironment
from jinja2 import PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from gemmetry.domain.units import counted, format_memory
from gemmetry.results.json_text import encoded
from gemmetry.results.tables import require
from gemmetry.results.texts import CONTROL, printable

MEMORY = "_bytes"
"""Suffix of the fields of an environment that are sizes of memory."""


_PLACES = re.compile(r"(?<=[_,<(/])(?=[^\W_])|(?<=::)(?=[^\W_])")


_ACTIVE = re.compile(rf"[<>&]|{CONTROL.pattern}")


def embed_json(value: Any) -> str:
    """JSON for a ``<script type="application/json">``: no character in it can end the element or
    start another; control and bidirectional characters are escaped."""
    text = encoded(value).decode()
    return _ACTIVE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


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
    templates = page_templates()
    texts = [template_text(templates, name) for name in scripts]
    return templates.get_template(template).render(
        style=Markup("\n".join(template_text(templates, name) for name in styles)),
        scripts=[Markup(text) for text in (*library, *texts)],
        data=Markup(embed_json(data)),
        **values,
    )


def page_templates() -> TemplateEnvironment:
    environment = TemplateEnvironment(
        loader=PackageLoader("gemmetry.results", "templates"),
        autoescape=True,
        finalize=_cleaned,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cell"] = _environment_text
    environment.filters["field"] = _field_label
    environment.filters["breakable"] = breakable
    environment.filters["counted"] = counted
    return environment


def _cleaned(value: Any) -> Any:
    """A text without control characters; what is HTML already stays."""
    return printable(value) if type(value) is str else value


def template_text(templates: TemplateEnvironment, name: str) -> str:
    """A file of the templates' folder, unrendered: styles and scripts are not templates."""
    if templates.loader is None:
        raise TypeError("the environment has no loader")
    return templates.loader.get_source(templates, name)[0]


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


def _field_label(name: str) -> str:
    return name.removesuffix(MEMORY).replace("_", " ")
