from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.formats.counters.ncu_pages import read_raw_page

LAUNCH = {
    "ID": "0", "Process ID": "498", "Process Name": "python", "Host Name": "127.0.0.1",
    "Kernel Name": "gemm", "Context": "1", "Stream": "7", "Block Size": "(384, 1, 1)",
    "Grid Size": "(2, 66, 1)", "Device": "0", "CC": "9.0",
}  # fmt: skip


def line(cells):
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerow(cells)
    return text.getvalue()


def page(units, *rows, launch=LAUNCH, metrics=None, extra=(), names=None):
    """The table of launches whose metrics have these units; `extra` lines follow the rows."""
    header = [*launch, *(names or units)]
    lines = [
        line(["" for _ in launch] + list(units.values() if isinstance(units, dict) else units))
    ]
    lines += [line([*launch.values(), *row]) for row in rows]
    return read_raw_page(header, enumerate([*lines, *extra], start=2), metrics)


def test_every_column_is_in_its_base_unit():
    table = page({"a": "Kbyte/block", "b": "us", "c": "Ghz", "d": "%"},
                 ["214.21", "1,180.99", "3.2", "90.5"], ["1", "2", "3", "4"])  # fmt: skip
    assert table.units == {"a": "byte/block", "b": "ns", "c": "hz", "d": "%"}
    assert table[0].metrics() == pytest.approx({"a": 214210, "b": 1180990, "c": 3.2e9, "d": 90.5})
    assert table[1].metrics() == pytest.approx({"a": 1000, "b": 2000, "c": 3e9, "d": 4})


def test_a_column_in_an_unknown_unit_is_left_out_with_a_note():
    table = page({"a": "KiB", "b": "ns", "c": "KiB", "d": "hour"}, ["1", "2", "3", "4"],
                 ["n/a", "2", "3", "4"])  # fmt: skip
    assert table[0].metrics() == {"b": 2}
    assert (table.units, table.texts) == ({"b": "ns"}, {})
    assert table.problems == ["the unit 'KiB' is unknown: a and 1 other metric are left out",
                              "the unit 'hour' is unknown: d is left out"]  # fmt: skip


def test_a_launch_has_what_its_columns_and_metrics_state():
    table = page({"launch__cluster_dim_x": "", "launch__cluster_dim_y": "",
                  "launch__cluster_dim_z": "", "device__attribute_display_name": ""},
                 ["2", "1", "1", "NVIDIA H200"])  # fmt: skip
    info = table.infos[0]
    assert (info.name, info.grid, info.block) == ("gemm", (2, 66, 1), (384, 1, 1))
    assert (info.cluster, info.device, info.capability) == ((2, 1, 1), "NVIDIA H200", "9.0")
    assert (info.number, info.process, info.context, info.stream) == (0, 498, 1, 7)


def test_an_early_version_has_sizes_in_its_metrics_only():
    launch = {"ID": "3", "Process ID": "1", "Process Name": "x", "Host Name": "h",
              "Kernel Name": "k", "Kernel Time": "2020", "Context": "1", "Stream": "7"}  # fmt: skip
    sizes = {f"launch__{what}_dim_{axis}": "" for what in ("grid", "block") for axis in "xyz"}
    chip = {"device__attribute_compute_capability_major": "",
            "device__attribute_compute_capability_minor": ""}  # fmt: skip
    table = page(sizes | chip, ["4", "5", "1", "128", "1", "1", "7", "5"], launch=launch)
    info = table.infos[0]
    assert (info.grid, info.block, info.capability) == ((4, 5, 1), (128, 1, 1), "7.5")
    assert "Kernel Time" not in table.values


@pytest.mark.parametrize("missing", ["", "n/a", "no data", "nan", "-nan", "inf", "(!) n/a"])
def test_a_missing_value_is_missing_in_its_row_only(missing):
    table = page({"a": "", "b": ""}, ["1", "2"], ["3", missing], ["5", "6"])
    assert [one.value("b") for one in table] == [2, None, 6]
    assert [one.value("a") for one in table] == [1, 3, 5]
    assert table.texts == {}


def test_a_column_without_any_value_is_there_without_values():
    table = page({"a": "inst"}, ["no data"], [""])
    assert np.isnan(table.values["a"]).all()
    assert table.units["a"] == "inst"
    assert table.texts == {}


def test_texts_are_kept_and_not_numbers():
    table = page({"a": "", "policy": ""}, ["1,234", 'Policy "x", y'], ["2", "all"])
    assert table.texts == {"policy": ['Policy "x", y', "all"]}
    assert table[0].text("policy") == 'Policy "x", y'
    assert "policy" not in table.values
    assert [one.value("a") for one in table] == [1234, 2]


def test_ranges_of_nvtx_between_the_columns_of_the_launch_are_texts():
    ranges = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
    launch = {"ID": "0", ranges: "<default domain>:step, forward:none:none", "Kernel Name": "k"}
    table = page({"a": "us"}, ["1"], launch=launch)
    assert table.infos[0].name == "k"
    assert table[0].metrics() == {"a": 1000}
    assert table[0].text(ranges) == launch[ranges]


def test_lists_of_numbers_are_texts_and_no_numbers():
    table = page({"launch__tpc_enabled": "", "b": ""}, ["1,5", "1,500"])
    assert table[0].metrics() == {"b": 1500}
    assert table[0].text("launch__tpc_enabled") == "1,5"


@pytest.mark.parametrize("number", ["90,46", "3,1988450", "1.234,5"])
def test_numbers_with_a_decimal_comma_are_refused(number):
    with pytest.raises(RequestError, match="decimal comma") as error:
        page({"a": "", "b": "%"}, ["1", number])
    assert "LC_ALL=C" in error.value.hint


def test_a_repeated_column_is_read_once_and_named():
    table = page(["Kbyte", "byte"], ["1", "2"], names=["a", "a"])
    assert table[0].metrics() == {"a": 1000}
    assert table.problems == ["the column a occurs more than once: the first is read"]


def test_a_page_without_a_row_of_units_is_in_base_units():
    header = [*LAUNCH, "a"]
    table = read_raw_page(header, [(2, line([*LAUNCH.values(), "5"]))], None)
    assert table[0].metrics() == {"a": 5}
    assert table.problems == [
        "the table has no row of units: base units are assumed (ns, byte, hz)"
    ]


@pytest.mark.parametrize("end", ['"0","498","python"\n', line([*LAUNCH.values(), "12", "34"])[:-4]])
def test_a_cut_last_row_is_a_problem_and_the_others_are_kept(end):
    table = page({"a": "", "b": ""}, ["1", "2"], ["3", "4"], extra=[end])
    assert [one.value("b") for one in table] == [2, 4]
    assert len(table.problems) == 1
    assert "line 5" in table.problems[0]


def test_lines_of_the_profiler_and_of_the_application_between_rows():
    row = line([*LAUNCH.values(), "7"])
    table = page({"a": ""}, ["1"], extra=["==PROF== Disconnected\n", "\n", "done\n", row, ",,,\n"])
    assert [one.value("a") for one in table] == [1, 7]
    assert len(table.problems) == 2
    assert "line 6" in table.problems[0]


def test_files_that_were_appended_to_each_other():
    header, units = line([*LAUNCH, "a"]), line(["" for _ in LAUNCH] + ["us"])
    row = line([*LAUNCH.values(), "7"])
    table = page({"a": "us"}, ["1"], extra=[header, units, row])
    assert [one.value("a") for one in table] == [1000, 7000]
    assert table.problems == []


@pytest.mark.parametrize("second", [{"a": "ms"}, {"b": "us"}, {"a": "us", "b": "us"}])
def test_a_second_table_with_other_columns_or_units_is_left_out(second):
    header = line([*LAUNCH, *second])
    units = line(["" for _ in LAUNCH] + list(second.values()))
    row = line([*LAUNCH.values(), *("7" for _ in second)])
    table = page({"a": "us"}, ["1"], extra=[header, units, row, row])
    assert [one.value("a") for one in table] == [1000]
    assert len(table.problems) == 1
    assert "another table begins at line" in table.problems[0]


def test_only_the_required_metrics():
    table = page({"a": "", "b": "", "c": ""}, ["1", "2", "3"], metrics={"c", "d"})
    assert table[0].metrics() == {"c": 3}


def test_no_metrics_at_all():
    assert page({"a": ""}, ["1"], metrics=set())[0].metrics() == {}
    assert len(page({}, [], [])) == 2


def test_names_are_data():
    name = '=HYPERLINK("http://x"),<b>k</b>, void f<1,234>(int)'
    table = page({"a": ""}, ["1"], launch=LAUNCH | {"Kernel Name": name})
    assert table[0].name == name


def test_many_rows_grow_in_place():
    rows = [[str(i), f"{i * 1000:,}"] for i in range(1000)]
    table = page({"a": "", "b": "Kbyte"}, *rows)
    assert np.array_equal(table.values["a"], np.arange(1000.0))
    assert np.array_equal(table.values["b"], np.arange(1000.0) * 1e6)
