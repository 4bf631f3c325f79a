from __future__ import annotations

from gemmetry.results.texts import MOST_CHARACTERS
from gemmetry.traces.page import page_tables
from gemmetry.traces.text import ABOUT_STEPS

RANKS = (
    "traces/h200_fsdp_rank0of4_part.pt.trace.json.gz",
    "traces/h200_fsdp_rank1of4_part.pt.trace.json.gz",
)


def _tables(report):
    return {table["anchor"]: table for table in page_tables(report)}


def _column(table, name):
    place = [heading["column"] for heading in table["headings"]].index(name)
    return [row[place] for row in table["rows"]]


def test_files_are_labelled_by_what_distinguishes_them_and_in_full_on_hovering(report_of):
    cells = _column(_tables(report_of(*RANKS))["steps"], "file")
    assert {cell["text"] for cell in cells} == {
        "h200_fsdp_rank0of4_part",
        "h200_fsdp_rank1of4_part",
    }
    assert all(cell["title"].endswith(f"{cell['text']}.pt.trace.json.gz") for cell in cells)


def test_a_single_job_needs_no_column(report_of):
    of_one = _tables(report_of(*RANKS))["collectives"]
    assert "job" not in [heading["column"] for heading in of_one["headings"]]
    several = _tables(report_of("collectives/h200x4", "collectives/hta_2of128"))["collectives"]
    assert {cell["text"] for cell in _column(several, "job")} == {"h200x4", "hta_2of128"}


def test_bandwidths_of_incomplete_groups_are_bounds(report_of):
    table = _tables(report_of(*RANKS))["collectives"]
    assert [cell["text"] for cell in _column(table, "busbw_gbps_median")] == ["≥ 69.0"]
    assert [cell["text"] for cell in _column(table, "latency_us_median")] == ["≤ 4,380"]
    assert "ranks of these groups have no file" in table["about"]
    whole = _tables(report_of("collectives/h200x4"))["collectives"]
    assert whole["about"] == ""
    assert not any("≥" in cell["text"] for cell in _column(whole, "busbw_gbps_median"))


def test_columns_of_the_least_and_the_most_are_called_as_elsewhere(report_of):
    table = _tables(report_of("cpu_grid"))["host_products"]
    headings = {heading["column"]: heading["text"] for heading in table["headings"]}
    assert (headings["min_us"], headings["max_us"]) == ("min, µs", "max, µs")


def test_sizes_of_messages_have_units_as_on_the_terminal(report_of):
    table = _tables(report_of(*RANKS))["collectives"]
    assert [cell["text"] for cell in _column(table, "bytes")] == ["384 MiB"]


def test_headings_are_above_their_numbers(report_of):
    table = _tables(report_of(*RANKS))["gemms"]
    numbers = {heading["column"] for heading in table["headings"] if heading["number"]}
    assert {"m", "sum_us", "tflops"} <= numbers
    assert not {"short_name", "dtype", "layout"} & numbers


def test_tables_of_several_files_take_them_together_and_say_so(report_of):
    several, one = _tables(report_of(*RANKS)), _tables(report_of(RANKS[0]))
    names = [cell["text"] for cell in _column(several["ops_summary"], "name")]
    assert len(names) == len(set(names))
    assert several["ops_summary"]["about"] == "All files combined."
    assert one["ops_summary"]["about"] == ""
    windows = "Windows: 39.079 of the traces' 48.249 ms; idle in them: 0.049 of 0.059 ms."
    assert several["steps"]["about"] == (
        f"All files combined. {windows} {ABOUT_STEPS[0].upper()}{ABOUT_STEPS[1:]}."
    )


def test_numbers_of_a_column_have_equal_decimals(report_of):
    for table in _tables(report_of(*RANKS)).values():
        for place, heading in enumerate(table["headings"]):
            texts = [row[place]["text"] for row in table["rows"] if row[place]["number"]]
            if texts and heading["column"] != "tflops":
                assert len({len(text.rstrip("%").partition(".")[2]) for text in texts}) == 1


def test_headings_are_words_and_a_speed_has_its_unit(report_of):
    table = _tables(report_of("cpu_grid"))["host_products"]
    texts = [heading["text"] for heading in table["headings"]]
    assert {"total, µs", "median, µs", "speed"} <= set(texts)
    assert not [text for text in texts if "_" in text]
    for cell in _column(table, "tflops"):
        assert cell["text"].endswith(" GFLOP/s")


def test_the_share_that_overlaps_communication_is_called_so(job_report):
    texts = [h["text"] for h in _tables(job_report)["gemms"]["headings"]]
    assert "overlap with communication" in texts


def test_a_grid_is_shown_whole(report_of):
    tables = _tables(report_of("cpu_grid"))
    assert list(tables) == ["host_products", "host_operators"]
    assert [cell["text"] for cell in _column(tables["host_products"], "operators")] == [
        "aten::mm"
    ] * 2
    assert {cell["text"] for cell in _column(tables["host_products"], "count")} == {"1", "2"}
    assert tables["host_products"]["sheet"] == "host_operators"
    inputs = {cell["text"] for cell in _column(tables["host_operators"], "inputs")}
    assert "256x256 f32, 256x256 f32, 256x256 f32" in inputs


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
