from __future__ import annotations

from gemmetry.results.texts import MOST_CHARACTERS
from gemmetry.traces.page import page_tables

RANKS = (
    "traces/h200_fsdp_rank0of4_part.pt.trace.json.gz",
    "traces/h200_fsdp_rank1of4_part.pt.trace.json.gz",
)


def _tables(report):
    return {table["anchor"]: table for table in page_tables(report)}


def _column(table, name):
    place = [heading["column"] for heading in table["headings"]].index(name)
    return [row[place] for row in table["rows"]]


def test_a_single_job_needs_no_column(report_of):
    of_one = _tables(report_of(*RANKS))["collectives"]
    assert "job" not in [heading["column"] for heading in of_one["headings"]]
    several = _tables(report_of("collectives/h200x4", "collectives/hta_2of128"))["collectives"]
    assert {cell["text"] for cell in _column(several, "job")} == {"h200x4", "hta_2of128"}


def test_headings_are_above_their_numbers(report_of):
    table = _tables(report_of(*RANKS))["gemms"]
    numbers = {heading["column"] for heading in table["headings"] if heading["number"]}
    assert {"m", "sum_us", "tflops"} <= numbers
    assert not {"short_name", "dtype", "layout"} & numbers


def test_numbers_of_a_column_have_equal_decimals(report_of):
    for table in _tables(report_of(*RANKS)).values():
        for place, heading in enumerate(table["headings"]):
            texts = [row[place]["text"] for row in table["rows"] if row[place]["number"]]
            if texts and heading["column"] != "tflops":
                assert len({len(text.rstrip("%").partition(".")[2]) for text in texts}) == 1


def test_long_names_are_made_short_and_texts_cut(hostile_report):
    for table in page_tables(hostile_report):
        for row in table["rows"]:
            assert all(len(cell["text"]) <= 120 for cell in row)
            assert all(len(cell["title"]) <= MOST_CHARACTERS for cell in row)


def test_headings_explain_themselves_on_hovering(report_of):
    headings = _tables(report_of(RANKS[0]))["gemms"]["headings"]
    titles = {heading["column"]: heading["title"] for heading in headings}
    assert titles["sum_us"] == "sum_us: total time (in µs)"
    assert titles["peak_fraction"].startswith("peak_fraction: speed as a share")
