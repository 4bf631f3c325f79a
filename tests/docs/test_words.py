"""The pages that people write stay readable: a budget of words, and no sentence on two pages."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUDGET = 100_000
"""Examples of help and tables that commands printed count too."""
PAGES = {
    path: path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
}
BY_HAND = {path: text for path, text in PAGES.items() if "This page is generated" not in text[:400]}


def test_pages_by_hand_keep_the_budget_of_words():
    words = {path.name: len(text.split()) for path, text in BY_HAND.items()}
    assert len(words) > 40
    assert sum(words.values()) <= BUDGET, sorted(words.items(), key=lambda item: -item[1])[:9]


def test_no_sentence_stands_on_two_pages():
    places = defaultdict(set)
    for path, text in BY_HAND.items():
        prose = re.sub(r"^```.*?^```|^(?:\||    ).*?$", "\n\n", text, flags=re.M | re.S)
        for paragraph in re.split(r"\n\s*\n|\n\s*[*-] |\n#", prose):
            for sentence in re.split(r"(?<=[.!?])\s+", " ".join(paragraph.split())):
                if len(sentence.split()) >= 8:
                    places[sentence].add(path.name)
    assert len(places) > 1000
    assert {one: sorted(names) for one, names in places.items() if len(names) > 1} == {}
