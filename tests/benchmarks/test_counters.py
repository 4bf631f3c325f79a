from __future__ import annotations

import counters
from gemmetry.counters.collector import read_counters


def test_a_raw_page_of_many_launches(tmp_path):
    file = tmp_path / "raw.csv"
    file.write_text("".join(counters.lines_of(3)))
    table = read_counters(file, ["gpu__time_duration.sum"])
    assert [one.info.number for one in table] == [0, 1, 2]
    assert {one.duration_ns for one in table} == {180_992}


def test_seconds_and_memory_of_reading(monkeypatch):
    monkeypatch.setattr(counters, "REPEATS", 1)
    *costs, launches, metrics = counters.measured(counters.RAW, *counters.TWO)
    assert (launches, metrics) == (1, 2)
    assert all(cost > least for cost, least in zip(costs, (0, 0, 5), strict=True))


def test_the_diagnosis_of_a_launch_is_timed(monkeypatch):
    monkeypatch.setattr(counters, "DIAGNOSES", 2)
    assert 0 < counters.diagnosed_ms() < 1e4
