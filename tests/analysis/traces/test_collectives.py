from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

from gemmetry.traces.collectives.matching import analyse_jobs
from gemmetry.traces.collectives.summary import kernel_durations
from gemmetry.traces.report import (
    collectives_document,
    kernels_table,
    kinds_table,
    matched_table,
    ranks_table,
)

SAMPLES = Path(__file__).parents[2] / "data" / "collectives"
PAGE = Path(__file__).parents[3] / "docs" / "collectives.md"


def _dump(value):
    return json.dumps(value, allow_nan=False)


def test_documents_and_tables(kernels, trace, found, golden):
    """Of clocks that agree, of one that is 3 ms ahead (its kernels cannot have run at the same time
    as the first's), of kernels without a counterpart, and of two jobs with a damaged file."""
    alone = analyse_jobs([trace(0, kernels(0)), trace(1, kernels(0)[:1])])
    two = analyse_jobs(trace(rank, kernels(0), folder) for folder in "ab" for rank in (0, 1))
    lines = []
    for jobs in (found(), found(shift=3_000_000), alone, two):
        errors = {"x.json": "x.json is empty"} if jobs is two else {}
        document = collectives_document(jobs, errors)
        lines += [f"{key} {_dump(value)}" for key, value in document.items()]
        for table in (matched_table, kernels_table, kinds_table, ranks_table):
            lines += [f"{table.__name__} {_dump(row)}" for row in table(jobs).records()]
    golden("collective_documents", "\n".join(lines) + "\n")


def test_the_bandwidth_and_the_skew_of_a_collective(found):
    """1000 elements of 2 bytes in 2 µs; rank 1 begins 0.5 µs later and ends as much later."""
    (first, *_) = collectives_document(found())["matched"]
    expected = {"start_skew_us": 0.5, "end_skew_us": 0.5, "last_rank": 1, "algbw_gbps": 1.0,
                "busbw_gbps": 1.0, "waits_us": {"0": 0.5, "1": 0.0},
                "corrected_start_skew_us": None}  # fmt: skip
    assert {key: first[key] for key in expected} == expected
    shifted = collectives_document(found(shift=3_000_000))
    (first, *_) = shifted["matched"]
    assert (first["start_skew_us"], first["corrected_start_skew_us"]) == (3000.0, 0.0)
    assert (first["last_rank"], first["corrected_last_rank"]) == (1, 0)
    assert shifted["clocks"][1]["applied_us"] == -3000.0


def test_the_page_names_every_key_of_the_document(kernels, trace, found):
    reported = {
        match[1]: tuple(re.findall(r"`(\w+)`", match[2]))
        for match in re.finditer(r"^\| `?([\w ]+?)`? \| (`.*`) \|$", PAGE.read_text("utf-8"), re.M)
    }
    alike = kernels(0, (2000, 2000, 2000))
    other = (alike[0], replace(alike[1], dtype="Float"), alike[2])
    for jobs in (
        found(),
        found(shift=3_000_000),
        analyse_jobs([trace(0, alike), trace(1, other)]),
    ):
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
    first, second = kernel_durations([*small, *large])
    assert (first.dtype, first.count, first.sum_ns, first.min_ns) == (None, 1, 50_000, 50_000)
    assert (second.op, second.dtype, second.bytes) == ("all_reduce", "Half", 2000)
    assert (second.count, second.sum_ns, second.min_ns, second.median_ns) == (3, 12_000, 2000, 4000)
