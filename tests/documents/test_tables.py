"""Tables with TraceLens' columns, compared with numbers that TraceLens wrote."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gemmetry.documents.operator_tables import trace_tables
from gemmetry.documents.tracelens import job_sheets, single_trace_sheet
from gemmetry.traces.collectives.matching import analyse_jobs
from gemmetry.traces.jobs import rank_trace
from gemmetry.traces.reading import read_all
from gemmetry.traces.summary import summarize

DATA = Path(__file__).parents[1] / "data"
LARGER = Path(os.environ.get("GEMMETRY_TRACES", "") or DATA.parents[2] / "shared" / "data")
WRITTEN = json.loads((DATA / "tracelens_sheets.json").read_text("utf-8"))


def _tables(place):
    path = LARGER / place.removeprefix("larger/") if place.startswith("larger/") else DATA / place
    if not path.exists():
        return {}
    errors = {}
    ranks, tables = [], []
    for trace in read_all([path], errors, use_cache=False):
        tables += trace_tables(trace, summarize(trace), short_kernel_us=50)
        ranks.append(rank_trace(trace))
        tables.append(single_trace_sheet(ranks[-1]))
    assert not errors
    if len(ranks) > 1:
        tables = [t for job in analyse_jobs(ranks) for t in job_sheets(job)]
    return {table.name: table for table in tables}


def _key(cells):
    return tuple(
        f"{cell:.2f}" if isinstance(cell, (int, float)) else cell if cell is None else cell[:60]
        for cell in cells
    )


CASES = [(file, sheet) for file, sheets in WRITTEN["files"].items() for sheet in sheets]


@pytest.fixture(scope="module")
def tables():
    return {file: _tables(file) for file in WRITTEN["files"]}


@pytest.mark.parametrize(("file", "sheet"), CASES)
def test_numbers_are_those_of_tracelens(tables, file, sheet):
    if not tables[file]:
        pytest.skip(f"{file} is not in {LARGER} (GEMMETRY_TRACES names another folder)")
    columns = WRITTEN["columns"][sheet]
    table = tables[file][sheet]
    places = [table.names.index(name) for name in columns["keys"]]
    found = {}
    for row in table.rows:
        found.setdefault(_key(row[place] for place in places), []).append(row)
    for key, values in WRITTEN["files"][file][sheet]:
        # Names are cut, so that several rows may have the key: one of them has the numbers.
        rows = [[row[table.names.index(c)] for c in columns["values"]] for row in found[_key(key)]]
        expected = [_near(*one) for one in zip(columns["values"], values, strict=True)]
        assert expected in rows, key


def _near(column, value):
    """TraceLens keeps times as float64 in µs since 1970 or boot: neighbouring numbers lie up to a
    ns apart, and what is left of a difference of two of them is as coarse."""
    if value is None:
        return None
    coarse = {"time ms": 2e-6, "percent": 1e-4, "Percentage (%)": 1e-6}.get(column, 0)
    if any(word in column for word in ("skew", "wait", "kernel_time")):
        coarse = 2e-3
    elif column == "Kernel Time (µs)_std":
        coarse = 5e-4
    elif column == "Kernel Time (µs)_mean":
        coarse = 1e-3
    return pytest.approx(value, rel=5e-5, abs=coarse)


def test_cells_are_plain_values(tables):
    for found in tables.values():
        for table in found.values():
            kinds = {type(cell) for row in table.rows for cell in row}
            assert kinds <= {int, float, str, bool, type(None)}, (table.name, kinds)
