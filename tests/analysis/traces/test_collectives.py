from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from gemmetry.domain.units import format_memory
from gemmetry.traces.collectives.matching import analyse_jobs
from gemmetry.traces.report import collectives_document, kernels_table
from gemmetry.traces.text import _kernels

PAGE = Path(__file__).parents[3] / "docs" / "collectives.md"


def test_several_jobs_and_files_that_could_not_be_read(kernels, trace):
    """Kernels without a counterpart have no number."""
    ranks = [(0, kernels(0)), (1, kernels(0)[:1])]
    jobs = analyse_jobs([trace(*rank, folder) for folder in "ab" for rank in ranks])
    document = collectives_document(jobs, {"x.json": "x.json is empty"})
    assert list(document) == ["schema_version", "jobs", "errors"]
    assert [job["job"] for job in document["jobs"]] == ["a", "b"]
    assert document["errors"] == [{"file": "x.json", "error": "x.json is empty"}]
    assert [row["collective"] for row in kernels_table(jobs[:1]).records()] == [0, None, 0]


def test_corrected_values_stand_next_to_recorded_ones(found):
    # The second rank's clock is 3 ms ahead: its kernels cannot have run at the same time as the
    # first's.
    document = collectives_document(found(shift=3_000_000))
    matched = document["matched"][0]
    assert (matched["start_skew_us"], matched["corrected_start_skew_us"]) == (3000.0, 0.0)
    assert (matched["last_rank"], matched["corrected_last_rank"]) == (1, 0)
    assert document["clocks"][1]["applied_us"] == -3000.0
    assert document["stragglers"][0]["waited_us"] == 6000.0
    names = ("corrected_last_count", "corrected_waited_us")
    assert [[clock[name] for name in names] for clock in document["clocks"]] == [[2, 0.0], [0, 0.0]]
    as_recorded = collectives_document(found())
    assert as_recorded["matched"][0]["corrected_start_skew_us"] is None
    assert as_recorded["matched"][0]["corrected_last_rank"] is None
    assert [[clock[name] for name in names] for clock in as_recorded["clocks"]] == [[None] * 2] * 2


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
