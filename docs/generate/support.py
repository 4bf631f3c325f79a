"""Prints ``docs/support.md``, the support matrix, from the providers' own answers.

A test asserts that the page is up to date.
"""

from __future__ import annotations

import sys

from gemmetry.domain.dispatch import parse_target
from gemmetry.engine.catalogue import support_rows
from gemmetry.providers.base import support_places

_HEAD = """\
# Support matrix

This page is generated: `python docs/generate/support.py > docs/support.md`. The answers are the
providers' own, the same that a run records as `unsupported` with the reason. A number refers to
the reasons below. `gemmetry list support` prints them with the operation that represents each row.

Architectures are queried without their devices, so that the page is the same on every machine. The
`user` provider supports what your function supports, and the `null` provider simulates everything.
"""


def support_page() -> str:
    """The whole page as Markdown."""
    places = [f"{name} on {parse_target(target).name}" for name, target in support_places()]
    reasons: dict[str, int] = {}
    lines = [f"| operation | {' | '.join(places)} |", "|---|" + "---|" * len(places)]
    for row in support_rows():
        cells = []
        for place in places:
            refusal = row.refusals[place]
            cells.append(f"{reasons.setdefault(refusal, len(reasons) + 1)}" if refusal else "✓")
        lines.append(f"| {row.label} | {' | '.join(cells)} |")
    notes = [f"{number}. {_plain(reason)}" for reason, number in reasons.items()]
    return "\n".join([_HEAD, *lines, "", "## Reasons", "", *notes, ""])


def _plain(text: str) -> str:
    return text.replace("_", r"\_").replace("<", "&lt;").replace("*", r"\*")


if __name__ == "__main__":
    sys.stdout.write(support_page())
