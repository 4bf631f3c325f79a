from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gemmetry.counters import api as counter_diagnosis
from gemmetry.counters.api import diagnose, read_reports
from gemmetry.domain.errors import EmptySelectionError
from gemmetry.formats.counters.launches import LaunchTable


@pytest.fixture
def report(counter_launches, monkeypatch):
    """Reads as a report of these kernels, each with a duration in µs."""

    def of(kernels):
        alike = counter_launches.launch(counter_launches.metrics()).table
        count = len(kernels)
        values = {name: np.repeat(column, count) for name, column in alike.values.items()}
        values["gpu__time_duration.sum"] = np.array([time * 1e3 for _, time in kernels])
        table = LaunchTable(
            tool="ncu", infos=[replace(alike.infos[0], name=name) for name, _ in kernels],
            values=values, units=alike.units, problems=["a problem"],
        )  # fmt: skip
        monkeypatch.setattr(counter_diagnosis, "read_counters", lambda path: table)

    return of


def test_kernels_are_grouped_and_those_that_take_longest_come_first(report):
    report([("a", 100), ("b", 500), ("a", 300), ("a", 200)])
    found = diagnose("x.csv")
    assert [(one.diagnosis.kernel, one.count) for one in found.groups()] == [("a", 3), ("b", 1)]
    assert found.groups()[0].diagnosis.duration_ns == 200_000
    assert len(found.document()["launches"]) == 4
    assert found.document()["problems"] == ["a problem"]
    report([(f"kernel_{number}", 100) for number in range(13)])
    found = diagnose("x.csv")
    assert (len(found.groups()), found.hidden_groups) == (10, 3)
    assert len(found.document(brief=True)["launches"]) == 10


def test_no_kernel(report):
    report([])
    with pytest.raises(EmptySelectionError, match="the reports have no kernel: a problem"):
        diagnose("x.csv")


DATA = Path(__file__).parents[1] / "data" / "counters"
RAW = DATA / "h200_cublas_bf16_4096_raw.csv.gz"
VCOPY = DATA / "mi300x_vcopy_pmc_perf.csv.gz"


def test_reports_of_different_tools_as_one_table():
    reports = read_reports([RAW, VCOPY], ["dram__bytes_read.sum", "SQ_WAVES", "launch__func_*"])
    rows = reports.wide().records()
    assert [row["tool"] for row in rows] == ["ncu"] + ["rocprof-compute"] * 3
    assert [row["SQ_WAVES"] for row in rows] == [None, 16384, 16384, 16384]
    assert rows[0]["dram__bytes_read.sum"] == pytest.approx(148_237_568)
    assert rows[0]["launch__func_cache_config"] == "CachePreferNone"
    assert (rows[0]["grid_x"], rows[0]["grid_y"], rows[0]["cluster_x"]) == (2, 66, 2)
    assert rows[1]["cluster_x"] is None
    assert rows[0]["duration_ns"] == 180_992


def test_a_text_of_one_launch_where_another_has_a_number(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text('"ID","Kernel Name","a"\n"","",""\n"0","k","5"\n"1","k","text"\n"2","k",""\n')
    assert [row["a"] for row in read_reports([file]).wide().records()] == ["5", "text", None]
