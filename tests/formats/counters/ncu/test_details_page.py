from __future__ import annotations

import csv
import io
import os
from pathlib import Path

import pytest

from gemmetry.counters.collector import read_counters
from gemmetry.domain.errors import RequestError
from gemmetry.formats.counters.ncu_pages import _labels, read_details_page

DATA = Path(__file__).parents[3] / "data"
DETAILS = DATA / "counters" / "h200_cublas_bf16_4096_details.csv.gz"
RAW = DATA / "counters" / "h200_cublas_bf16_4096_raw.csv.gz"
BLACKWELL = DATA / "counters" / "b200_cublaslt_fp8_details.csv.gz"
LARGER = Path(os.environ.get("GEMMETRY_TRACES", "") or DATA.parents[2] / "shared" / "data")

LAUNCH = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream",
          "Block Size", "Grid Size", "Device", "CC")  # fmt: skip
METRIC = ("Section Name", "Metric Name", "Metric Unit", "Metric Value")
RULE = ("Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup")
EARLY = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context",
         "Stream")  # fmt: skip
SPEED = "GPU Speed Of Light Throughput"


def line(cells):
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerow(cells)
    return text.getvalue()


def metric(section, label, unit, value, launch="0", kernel="gemm"):
    """A row of a metric: 16 fields of 20, the last of which is empty and without quotes."""
    cells = [launch, "498", "python", "127.0.0.1", kernel, "1", "7", "(384, 1, 1)", "(2, 66, 1)",
             "0", "9.0", section, label, unit, value]  # fmt: skip
    return line(cells).rstrip("\r\n") + ",\n"


def rule(*cells, launch="0"):
    head = [launch, "498", "python", "127.0.0.1", "gemm", "1", "7", "(384, 1, 1)", "(2, 66, 1)",
            "0", "9.0"]  # fmt: skip
    return line([*head, cells[0], "", "", "", *cells[1:]])


def page(*lines, metrics=None, header=(*LAUNCH, *METRIC, *RULE)):
    return read_details_page(header, enumerate(lines, start=2), metrics)


def test_labels_become_ids_and_values_base_units():
    table = page(metric(SPEED, "Duration", "us", "1,180.26"),
                 metric(SPEED, "DRAM Frequency", "Ghz", "3.20"),
                 metric("Launch Statistics", "# SMs", "SM", "132"))  # fmt: skip
    assert table.units == {"gpu__time_duration.sum": "ns",
                           "dram__cycles_elapsed.avg.per_second": "hz",
                           "launch__sm_count": "SM"}  # fmt: skip
    assert table[0].metrics() == pytest.approx(
        {"gpu__time_duration.sum": 1_180_260, "dram__cycles_elapsed.avg.per_second": 3.2e9,
         "launch__sm_count": 132}
    )  # fmt: skip


def test_what_identifies_a_launch():
    info = page(metric(SPEED, "Duration", "us", "1")).infos[0]
    assert (info.name, info.grid, info.block) == ("gemm", (2, 66, 1), (384, 1, 1))
    assert (info.capability, info.number, info.process) == ("9.0", 0, 498)


def test_an_unknown_label_keeps_its_section():
    table = page(metric("Mine", "My Label", "%", "5"), metric("Mine", "Policy", "", "spread"))
    assert table[0].metrics() == {"Mine/My Label": 5}
    assert table[0].text("Mine/Policy") == "spread"


def test_the_same_label_means_different_metrics_in_different_sections():
    table = page(
        metric(SPEED, "Memory Throughput", "%", "70"),
        metric("Memory Workload Analysis", "Memory Throughput", "Gbyte/s", "976.55"),
    )
    assert table[0].metrics() == pytest.approx({
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": 70,
        "dram__bytes.sum.per_second": 976.55e9,
    })  # fmt: skip


def test_metrics_given_by_their_ids():
    table = page(metric("Command line profiler metrics", "dram__bytes.sum", "Mbyte", "1.50"))
    assert table[0].metrics() == {"dram__bytes.sum": 1_500_000}


def test_launches_with_different_units_and_different_metrics():
    table = page(
        metric(SPEED, "Duration", "us", "1.5"),
        metric(SPEED, "Elapsed Cycles", "cycle", "9"),
        metric(SPEED, "Duration", "ms", "2", launch="1", kernel="other"),
    )
    assert [one.duration_ns for one in table] == [1500, 2_000_000]
    assert [one.value("gpc__cycles_elapsed.max") for one in table] == [9, None]
    assert [one.name for one in table] == ["gemm", "other"]


def test_a_value_in_a_unit_that_cannot_be_converted_is_a_problem():
    table = page(metric(SPEED, "Duration", "us", "1.5"),
                 metric(SPEED, "Duration", "byte", "2", launch="1"))  # fmt: skip
    assert [one.duration_ns for one in table] == [1500, None]
    assert table.problems == [
        "gpu__time_duration.sum of launch 1 is in byte and not in ns: left out"
    ]


def test_a_value_in_an_unknown_unit_is_left_out_with_a_note():
    table = page(metric(SPEED, "Duration", "fortnight", "1.5"),
                 metric(SPEED, "Elapsed Cycles", "cycle", "9"))  # fmt: skip
    assert table[0].metrics() == {"gpc__cycles_elapsed.max": 9}
    assert table.problems == ["the unit 'fortnight' is unknown: gpu__time_duration.sum is left out"]


@pytest.mark.parametrize("missing", ["", "n/a", "no data", "nan", "(!) n/a"])
def test_missing_values(missing):
    table = page(metric(SPEED, "Duration", "us", missing), metric(SPEED, "Elapsed Cycles", "", "1"))
    assert table[0].duration_ns is None
    assert table.units["gpu__time_duration.sum"] == "ns"
    assert table.texts == {}


def test_conclusions_of_rules():
    table = page(metric(SPEED, "Duration", "us", "1"),
                 rule("WarpStateStats", "CPIStall", "OPT", "a, b", "local", "30.71"),
                 rule("SpeedOfLight", "SOLBottleneck", "INF", "fine", "", ""))  # fmt: skip
    stall, bottleneck = table.infos[0].rules
    assert (stall.identifier, stall.section, stall.kind) == (
        "CPIStall",
        "WarpStateStats",
        "optimization",
    )
    assert (stall.message, stall.speedup_percent, stall.speedup_kind) == ("a, b", 30.71, "local")
    assert (bottleneck.kind, bottleneck.speedup_percent, bottleneck.speedup_kind) == (
        "ok",
        None,
        None,
    )


def test_an_early_version_without_rules_and_without_sizes():
    cells = ["0", "1", "cfd", "127.0.0.1", "step", "2020-Apr-07 17:01:05", "1", "7"]
    early = "GPU Speed Of Light"
    table = page(
        line([*cells, early, "Memory Frequency", "cycle/second", "772656250"]),
        "\n",
        line([*cells, early, "Duration", "nsecond", "100"]),
        header=(*EARLY, *METRIC),
    )
    info = table.infos[0]
    assert (info.name, info.grid, info.capability) == ("step", None, "")
    assert table[0].metrics() == {
        f"{early}/Memory Frequency": 772_656_250,
        f"{early}/Duration": 100,
    }
    assert table.units[f"{early}/Memory Frequency"] == "hz"
    assert table.problems == []


def test_sizes_may_be_among_the_metrics():
    cells = ["0", "1", "app", "h", "k", "2020", "1", "7", "Command line profiler metrics"]
    sizes = {"x": "32", "y": "2", "z": "1"}
    table = page(*(line([*cells, f"launch__grid_dim_{axis}", "", size])
                   for axis, size in sizes.items()), header=(*EARLY, *METRIC))  # fmt: skip
    assert table.infos[0].grid == (32, 2, 1)


def test_a_cut_last_row_and_other_lines():
    table = page(
        metric(SPEED, "Duration", "us", "1"),
        "==PROF== Disconnected\n",
        "printed\n",
        metric(SPEED, "Elapsed Cycles", "cycle", "123,456")[:-5],
    )
    assert table[0].metrics() == {"gpu__time_duration.sum": 1000}
    assert len(table.problems) == 2
    assert "line 4" in table.problems[0] and "line 5" in table.problems[1]


def test_files_that_were_appended_to_each_other_have_other_launches():
    table = page(
        metric(SPEED, "Duration", "us", "1"),
        line((*LAUNCH, *METRIC)),
        metric(SPEED, "Duration", "ms", "2").removesuffix(",\n"),
    )
    assert [one.duration_ns for one in table] == [1000, 2_000_000]
    assert table.problems == []


def test_only_the_required_metrics():
    rows = metric(SPEED, "Duration", "us", "1"), metric(SPEED, "Elapsed Cycles", "cycle", "9")
    assert page(*rows, metrics={"gpu__time_duration.sum"})[0].metrics() == {
        "gpu__time_duration.sum": 1000
    }


def test_numbers_with_a_decimal_comma_are_refused():
    with pytest.raises(RequestError, match="decimal comma"):
        page(metric(SPEED, "Duration", "us", "180,26"))


def test_another_capture_of_the_launch_of_the_raw_page():
    """A second capture differs by a few per cent; a wrong unit or a wrong metric by more."""
    details, raw = read_counters(DETAILS)[0], read_counters(RAW)[0]
    assert (details.name, details.info.grid) == (raw.name, raw.info.grid)
    numbers = details.metrics()
    mapped = {name: value for name, value in numbers.items() if "/" not in name}
    assert len(mapped) >= 36
    assert len(numbers) - len(mapped) <= 1
    for name, value in mapped.items():
        expected = raw.value(name)
        assert value == pytest.approx(expected, rel=0.03, abs=0.006), name
        assert details.unit(name) == raw.unit(name) or {details.unit(name), raw.unit(name)} == {
            "%",
            "",
        }
    assert [one.identifier for one in details.info.rules].count("CPIStall") == 3
    local = {one.identifier: one.speedup_percent for one in details.info.rules if one.speedup_kind}
    assert local == {"CPIStall": 30.71, "TheoreticalOccupancy": 81.25}


def test_every_label_is_that_of_a_metric_in_a_real_report():
    library = pytest.importorskip("ncu_report")
    file = LARGER / "counters_h200" / "cublas_bf16_4096.ncu-rep"
    if not file.is_file():
        pytest.skip(f"{file.name} is not in {LARGER} (GEMMETRY_TRACES names another folder)")
    action = library.load_report(str(file)).range_by_idx(0).action_by_idx(0)
    if not hasattr(action, "sections"):
        pytest.skip("this version of ncu_report does not list sections")
    found = {(section.name(), one.label()): one.name() for section in action.sections()
             for one in (*section.header_metrics(), *section.body_metrics())}  # fmt: skip
    shared = set(found) & set(_labels())
    assert len(shared) > 80
    assert {key: found[key] for key in shared} == {key: _labels()[key] for key in shared}


def test_a_report_of_a_blackwell_gpu_after_output_of_the_application():
    table = read_counters(BLACKWELL)
    assert [one.info.capability for one in table] == ["10.0"]
    assert table[0].duration_ns == 406_240
    assert table[0].value("launch__sm_count") == 152
    assert [name for name in table.values if "/" in name] == []
    assert (len(table.infos[0].rules), table.problems) == (8, [])
