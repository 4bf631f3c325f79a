from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from gemmetry.domain.units import format_memory
from gemmetry.traces.collectives.matching import analyse_jobs
from gemmetry.traces.report import collectives_document
from gemmetry.traces.text import _kernels

PAGE = Path(__file__).parents[3] / "docs" / "collectives.md"


def test_the_page_names_every_key_of_the_document(kernels, trace, found):
    reported = {
        match[1]: tuple(re.findall(r"`(\w+)`", match[2]))
        for match in re.finditer(r"^\| `?([\w ]+?)`? \| (`.*`) \|$", PAGE.read_text("utf-8"), re.M)
    }
    alike = kernels(0, (2000, 2000, 2000))
    other = (alike[0], replace(alike[1], dtype="Float"), alike[2])
    for jobs in (found(), found(shift=3_000_000), analyse_jobs([trace(0, alike), trace(1, other)])):
        document = collectives_document(jobs, {"x.json": "empty"})
        assert tuple(document) == reported["the document"]
        lists = {name: part for name, part in document.items() if name in reported}
        lists["collectives"] = [one for rank in document["per_rank"] for one in rank["collectives"]]
        assert set(lists) == set(reported) - {"the document"}
        for name, entries in lists.items():
            assert all(tuple(entry) == reported[name] for entry in entries), name
            assert entries or name == "mismatches"
    assert document["mismatches"]


def test_durations_of_a_rank_alone_are_grouped_by_kind(kernels):
    small = kernels(0, (2000, 6000, 4000))
    large = [replace(one, elements=10**6, dtype=None) for one in kernels(0, (50_000,))]
    table = _kernels([*small, *large])
    cells = (one.cells for one in table.columns)
    first, second = ([*map(str, row)] for row in zip(*cells, strict=True))
    assert first[1:] == ["-", "-", "x1", "0.050", "50.0", "50.0"]
    assert second == ["all_reduce", "Half", format_memory(2000), "x3", "0.012", "2.0", "4.0"]
