"""Each provider has a page, and each page is reachable."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gemmetry.providers.base import builtin_names

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {"cuda": "kernels", "null": "null-provider", "user": "my-kernel", "mutant": "verification"}
"""Providers whose page has another name than they have."""


@pytest.mark.parametrize("name", builtin_names())
def test_a_provider_has_a_page_that_the_index_lists(name: str) -> None:
    page = PAGES.get(name, name)
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert name in text
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    listed = {
        line.strip()
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", index, re.DOTALL)
        for line in tree.splitlines()
    }
    assert page in listed
