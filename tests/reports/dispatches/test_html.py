from __future__ import annotations

import dataclasses
import html
import itertools
import json
import re

import pytest

from gemmetry.dispatches import page as html_report
from gemmetry.dispatches.analysis import find_run_marks, group_by_problem
from gemmetry.dispatches.comparison import find_leader
from gemmetry.dispatches.figures import provider_places
from gemmetry.dispatches.labels import verdict_line
from gemmetry.dispatches.page import render_html, render_notebook_table
from gemmetry.domain.columns import COLUMNS
from gemmetry.domain.errors import Outcome, Stage
from gemmetry.domain.record import BuildFacts, Environment, ResultSet
from gemmetry.results.palette import COLOURS, SCALE

pytest.importorskip("plotly")

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def without_plotly_source():
    return re.compile(r"<script>\s*/\*\*\s*\* plotly\.js.*?</script>", re.DOTALL)


@pytest.fixture(scope="module")
def page(result_set, without_plotly_source):
    return without_plotly_source.sub("", render_html(result_set))


def test_page_asks_the_network_for_nothing(page):
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", page)
    assert "default-src 'none'" in page
    assert "@import" not in page


def test_hostile_names_are_escaped_everywhere(page):
    assert HOSTILE not in page
    assert "demo &lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_data_is_complete_and_parses(page, result_set):
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert len(data["rows"]) == len(data["derived"]) == len(result_set.records)
    assert [column["name"] for column in data["columns"]] == [c.name for c in COLUMNS]
    assert data["baseline"] == "torch"
    bests = sum(row["best"] for row in data["derived"])
    assert bests == len({(r.operation, r.target) for r in result_set.records if r.measurement})


def test_a_page_of_too_many_has_the_fastest_of_each_operation(
    result_set, without_plotly_source, monkeypatch
):
    groups = group_by_problem(result_set.records)
    monkeypatch.setattr(html_report, "_MOST_ROWS", len(groups) + 1)
    page = without_plotly_source.sub("", render_html(result_set))
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert len(data["rows"]) == len(data["derived"]) == len(groups) + 1
    place = [column["name"] for column in data["columns"]].index("operation")
    assert {row[place] for row in data["rows"]} == {one.operation for one in result_set.records}
    assert sum(row["best"] for row in data["derived"]) == sum(
        any(one.measurement for one in group) for group in groups.values()
    )
    hidden = len(result_set.records) - len(groups) - 1
    assert f"{hidden} dispatches of {len(result_set.records)} are not in the table" in page
    assert "of all" in page


def test_the_page_opens_with_who_is_fastest(page):
    message = re.search(r'<p class="verdict">(.*?)</p>', page)[1]
    assert message.startswith("iree is fastest on ")
    assert page.index(message) < page.index('class="tiles"')


def test_an_open_row_says_why(small_result_set, make_record):
    name = "matmul_64x64x64_f32t_f32t_f32t"
    facts = BuildFacts(matrix_instruction="vfmadd231ps ymm", spill_bytes=0)
    best = BuildFacts(matrix_instruction="vfmadd231ps zmm", spill_bytes=0)
    records = [make_record(name, provider="torch", gflops=50.0, facts=facts),
               make_record(name, provider="iree", gflops=100.0, facts=best)]  # fmt: skip
    derived = _data(render_html(dataclasses.replace(small_result_set, records=records)))["derived"]
    assert derived[0]["because"].startswith("vfmadd231ps zmm · no spills · ")
    assert derived[1]["because"].startswith("vfmadd231ps ymm (the fastest here: vfmadd231ps zmm)")


def test_the_page_draws_in_the_colours_of_pictures(page, result_set):
    palette = _data(page)["palette"]
    assert palette["light"] == list(COLOURS)
    assert palette["scale"] == list(SCALE)
    assert palette["places"] == provider_places(r.provider for r in result_set.records)


def test_sizes_of_memory_are_shown_in_units_of_memory(small_result_set):
    gpus = Environment(memory_bytes=33_711_083_520, device_memory_bytes=(85_520_809_984, None))
    environments = {"a1": gpus, "b2": Environment()}
    page = render_html(dataclasses.replace(small_result_set, environments=environments))
    row = re.search(r'<th scope="row">memory</th>(.*)</tr>', page)[1]
    assert row == "<td>31.4 GiB</td><td>–</td>"
    assert "33711083520" not in page
    row = re.search(r'<th scope="row">device memory</th>(.*?)</tr>', page, re.DOTALL)[1]
    assert row == "<td>79.6 GiB\n–</td><td></td>"


def test_every_head_of_a_table_has_its_scope(page, result_set):
    table = render_notebook_table(result_set)
    for text in (page, table):
        heads = re.findall(r"<th\b[^>]*>", text)
        assert heads
        assert [head for head in heads if "scope=" not in head] == []


def test_failures_for_one_reason_are_one_entry(small_result_set, make_record):
    name = "matmul_64x64x64_f32t_f32t_f32t"
    records = [
        make_record(name, f"c{i}", outcome=Outcome.COMPILE_ERROR, stage=Stage.COMPILE,
                    reason=f"needs {i} registers")
        for i in range(10)
    ]  # fmt: skip
    page = render_html(dataclasses.replace(small_result_set, records=records))
    assert page.count('<details class="failure">') == 1
    assert "and 9 more for the same reason" in page
    assert "needs 7 registers" in page
    assert 'Failures <span class="badge">10</span>' in page


def test_what_most_rows_share_is_stated_once(small_result_set, make_record):
    name = "matmul_64x64x64_f32t_f32t_f32t"
    records = [make_record(name, f"c{i}", marks=("busy: others",)) for i in range(8)]
    page = render_html(dataclasses.replace(small_result_set, records=records))
    assert page.count("The run as a whole: 8 of 8 rows busy") == 1
    assert [row["marks"] for row in _data(page)["derived"]] == [[]] * 8


def test_cards_show_the_providers_of_each_dtype_and_the_outcomes(page):
    assert "top 280 GFLOP/s" in page
    assert re.search(r'<b class="tile-name">f32</b> · speed × torch, geometric mean of 17 op', page)
    assert '<span class="outcome ok">ok</span> <b>152</b>' in page
    assert "all types</b> · geometric mean vs torch" in page


def _data(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


def test_means_of_marked_measurements_say_so_and_claim_nothing(small_result_set, make_record):
    name = "matmul_64x64x64_f32t_f32t_f32t"
    marks = ("noisy: interval ±98 %", "busy: load 3")
    records = [make_record(name, provider="torch", gflops=1.0, marks=marks),
               make_record(name, provider="numpy", gflops=50.0)]  # fmt: skip
    page = render_html(dataclasses.replace(small_result_set, records=records))
    assert re.search(r'<b class="noisy">50.00×</b> <span class="quiet">\(1 op, 1 based on rows '
                     r"marked !\)", page)  # fmt: skip
    assert "1 less trustworthy: 1 busy, 1 noisy." in page
    clean = [dataclasses.replace(r, measurement=dataclasses.replace(r.measurement, marks=()))
             for r in records]  # fmt: skip
    page = render_html(dataclasses.replace(small_result_set, records=clean))
    assert '<b class="faster">50' in page
    assert "based on" not in page
    assert "less trustworthy:" not in page


def test_differences_that_are_not_shown_are_reported(small_result_set, make_record):
    name = "matmul_64x64x64_f32t_f32t_f32t"
    records = [make_record(name, provider=p, gflops=50.0) for p in ("torch", "numpy")]
    same = dataclasses.replace(
        small_result_set, records=records, samples=lambda _: [5000.0, 5200.0, 4900.0] * 20
    )
    page = render_html(same)
    assert '<b class="noisy">≈</b> no difference from the baseline shown' in page
    assert [row["sign"] for row in _data(page)["derived"]] == ["", "≈"]
    few = dataclasses.replace(same, samples=lambda _: [5000.0])
    page = render_html(few)
    assert (
        '<b class="noisy">≷</b> undecided: too little was measured to know which is faster' in page
    )
    assert "no difference from the baseline shown" not in page
    assert [row["sign"] for row in _data(page)["derived"]] == ["", "≷"]
    page = render_html(small_result_set)
    assert "no difference from the baseline shown" not in page


def test_dispatches_of_an_operation_stand_together_the_fastest_first(result_set):
    mixed = dataclasses.replace(result_set, records=list(reversed(result_set.records)))
    data = _data(render_html(mixed))
    names = [column["name"] for column in data["columns"]]
    rows = [dict(zip(names, row, strict=True)) for row in data["rows"]]
    problems = [(row["operation"], row["target"]) for row in rows]
    assert sum(a != b for a, b in itertools.pairwise(problems)) == len(set(problems)) - 1
    for _, group in itertools.groupby(rows, key=lambda row: row["operation"]):
        medians = [row["median_ns"] for row in group]
        measured = [ns for ns in medians if ns is not None]
        assert medians == [*sorted(measured), *[None] * (len(medians) - len(measured))]


def test_unsupported_dispatches_are_counted_by_reason(page):
    assert page.count("numpy has no bf16 product</td>") == 1


def test_several_environments_are_reported(small_result_set):
    two = {"a": Environment(hostname="x"), "b": Environment(hostname="y")}
    page = render_html(dataclasses.replace(small_result_set, environments=two))
    assert "2 different environments" in page


def test_an_empty_experiment_still_makes_a_page():
    page = render_html(ResultSet(title="empty", records=[]))
    assert "nothing was run" in page
    assert "Every dispatch is ok." in page


def test_notebook_table_opens_with_the_sentence_of_every_report(small_result_set, make_record):
    marks = find_run_marks(small_result_set.records)
    leader = find_leader(small_result_set, marks)
    sentence = verdict_line(small_result_set.records, leader, marks)
    table = render_notebook_table(small_result_set)
    assert sentence
    assert 0 < table.index(html.escape(sentence, quote=False)) < table.index("<table")
    failed = [make_record("matmul_8x8x8_f32t_f32t_f32t", outcome=Outcome.CRASH, reason="gone")]
    empty = dataclasses.replace(small_result_set, records=failed)
    assert "<p><strong>" not in render_notebook_table(empty)


def test_notebook_table_is_small_and_escaped(result_set):
    table = render_notebook_table(result_set)
    assert table.count("<tr") == 51
    assert "and 112 more" in table
    assert "<script" not in table
    assert "plotly" not in table


def test_notebook_table_marks_doubtful_times_and_begins_with_the_fastest(
    small_result_set, make_record
):
    name = "matmul_64x64x64_f32t_f32t_f32t"
    records = [make_record(name, provider="torch", gflops=1.0, marks=("noisy: x",)),
               make_record(name, provider="numpy", gflops=50.0)]  # fmt: skip
    table = render_notebook_table(dataclasses.replace(small_result_set, records=records))
    rows = table[table.index("<table") :]
    assert re.findall(r"±[^<]*", rows) == ["±1.1%", "±1.1%!"]
    assert table.index("numpy") < table.index("torch")


def test_a_wrong_dispatch_shows_map_evidence_and_command(failed_result_set):
    page = render_html(failed_result_set)
    failures = page[
        page.index('<section id="failures">') : page.index('<section id="environment">')
    ]
    assert "....\n###1</pre>" in failures
    assert "each character is a tile of 64 x 64</figcaption>" in failures
    assert "<code>artifacts/failures/cpu/torch/bad</code>" in failures
    assert "<b>integers</b> 9 elements are wrong" in failures
    assert "<b>values</b>" not in failures, "the reason has it"
    assert "First wrong element" not in failures, "the reason has it"
    assert failed_result_set.records[0].reproduce in failures
