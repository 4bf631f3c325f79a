from __future__ import annotations

import dataclasses
import itertools
import re

import pytest

from gemmetry.dispatches import page as html_report
from gemmetry.dispatches.analysis import group_by_problem
from gemmetry.dispatches.page import render_html, render_notebook_table
from gemmetry.domain.columns import COLUMNS

pytest.importorskip("plotly")

HOSTILE = "<script>alert(1)</script>"
PLOTLY = re.compile(r"<script>\s*/\*\*\s*\* plotly\.js.*?</script>", re.DOTALL)


@pytest.fixture(scope="module")
def page(result_set):
    """Without the source of plotly."""
    return PLOTLY.sub("", render_html(result_set))


def test_the_page_asks_the_network_for_nothing_and_escapes_names(page, loads_nothing):
    loads_nothing(page)
    assert HOSTILE not in page
    assert "demo &lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_data_are_complete(page, page_data, result_set):
    data = page_data(page)
    assert len(data["rows"]) == len(data["derived"]) == len(result_set.records)
    assert [column["name"] for column in data["columns"]] == [c.name for c in COLUMNS]
    assert data["baseline"] == "torch"
    bests = sum(row["best"] for row in data["derived"])
    assert bests == len({(r.operation, r.target) for r in result_set.records if r.measurement})


def test_a_page_of_too_many_has_the_fastest_of_each_operation(result_set, page_data, monkeypatch):
    groups = group_by_problem(result_set.records)
    monkeypatch.setattr(html_report, "_MOST_ROWS", len(groups) + 1)
    page = render_html(result_set)
    data = page_data(page)
    assert len(data["rows"]) == len(data["derived"]) == len(groups) + 1
    place = [column["name"] for column in data["columns"]].index("operation")
    assert {row[place] for row in data["rows"]} == {one.operation for one in result_set.records}
    assert sum(row["best"] for row in data["derived"]) == sum(
        any(one.measurement for one in group) for group in groups.values()
    )
    hidden = len(result_set.records) - len(groups) - 1
    assert f"{hidden} dispatches of {len(result_set.records)} are not in the table" in page
    assert "of all" in page


def test_dispatches_of_an_operation_stand_together_the_fastest_first(result_set, page_data):
    mixed = dataclasses.replace(result_set, records=list(reversed(result_set.records)))
    data = page_data(render_html(mixed))
    names = [column["name"] for column in data["columns"]]
    rows = [dict(zip(names, row, strict=True)) for row in data["rows"]]
    problems = [(row["operation"], row["target"]) for row in rows]
    assert sum(a != b for a, b in itertools.pairwise(problems)) == len(set(problems)) - 1
    for _, group in itertools.groupby(rows, key=lambda row: row["operation"]):
        medians = [row["median_ns"] for row in group]
        measured = [ns for ns in medians if ns is not None]
        assert medians == [*sorted(measured), *[None] * (len(medians) - len(measured))]


def test_a_notebooks_table_is_small_and_escaped_and_every_head_has_its_scope(page, result_set):
    table = render_notebook_table(result_set)
    assert table.count("<tr") == 51
    assert "and 112 more" in table
    assert "<script" not in table and "plotly" not in table
    for text in (page, table):
        heads = re.findall(r"<th\b[^>]*>", text)
        assert heads and all("scope=" in head for head in heads)
