"""Prints ``docs/checks.md``, what each check of verification requires, from the checks themselves.

A test asserts that the page is up to date.
"""

from __future__ import annotations

import inspect
import re
import sys

from gemmetry.results.tables import escape_markdown as escape
from gemmetry.verification.protocol import CHECKS, Check

_HEAD = """\
# The checks of verification

This page is generated: `python docs/generate/checks.py > docs/checks.md`.

[Verification](verification.md) explains how they work together, on which inputs, and where they do
not apply. They run in this order, from their level on; the first that fails is the reason.

| check | level | requirement |
|---|---|---|
"""


def checks_page() -> str:
    """The whole page as Markdown."""
    return _HEAD + "".join(
        f"| `{check.name}` | {check.level} | {_requirement(check)} |\n" for check in CHECKS
    )


def _requirement(check: Check) -> str:
    """The docstring of a check as one line of Markdown, with names of constants as values."""
    module = inspect.getmodule(check.run)
    text = re.sub(
        r":data:`(\w+)`", lambda m: str(getattr(module, m[1])), inspect.getdoc(check.run) or ""
    )
    text = re.sub(r":\w+:`~?(?:\w+\.)*(\w+)`", r"``\1``", text)
    return "`".join(map(escape, " ".join(text.split()).split("``")))


if __name__ == "__main__":
    sys.stdout.write(checks_page())
