from __future__ import annotations

import pytest

from gemmetry.formats.rocm.rocprofv3 import read_counter_folder

COUNTERS = ("SQ_WAVES", "GRBM_GUI_ACTIVE")


@pytest.mark.parametrize(
    ("place", "number", "host"),
    [
        ("", 0, ""),
        ("node-7", 0, "node-7"),
        ("pass_2", 2, ""),
        ("pmc_3/node-7", 3, "node-7"),
        ("node-7/pass_1", 1, "node-7"),
    ],
)
def test_layouts(place, number, host, rocprofv3, tmp_path):
    rocprofv3.write_csv(tmp_path / place, "41", 41, COUNTERS)
    [found], problems = read_counter_folder(tmp_path)
    assert (found.number, found.process.host, found.process.pid) == (number, host, 41)
    assert (found.process.rank, problems) == (None, [])


def test_names_with_the_rank(rocprofv3, tmp_path):
    rocprofv3.write_csv(tmp_path, "rank3_41", 41, COUNTERS)
    rocprofv3.write_csv(tmp_path, "rank_42", 42, ())  # A process outside of torchrun's ranks.
    first, second = (one.process for one in read_counter_folder(tmp_path)[0])
    assert (first.rank, first.rank_source, first.pid) == (3, "file name", 41)
    assert (second.rank, second.pid) == (None, 42)


def test_csv_takes_what_only_json_states(rocprofv3, tmp_path):
    rocprofv3.write_csv(tmp_path, "41", 41, COUNTERS)
    rocprofv3.write_json(tmp_path / "41_results.json", rocprofv3.results_json(41, (), rank=6))
    [found], _ = read_counter_folder(tmp_path)
    assert (found.process.rank, found.process.rank_source) == (6, "environment")
    assert len(found.process.dispatches) == 3  # Those of the CSV file.


def test_json_alone(rocprofv3, tmp_path):
    made = rocprofv3.results_json(41, COUNTERS, rank=1)
    rocprofv3.write_json(tmp_path / "node-7" / "41_results.json", made)
    [found], problems = read_counter_folder(tmp_path)
    assert (found.process.rank, found.process.has_counters, problems) == (1, True, [])


def test_other_files_and_empty_tables(rocprofv3, tmp_path):
    (tmp_path / "run.log").write_text("x")
    (tmp_path / "41_counter_collection.csv").write_text("")
    (tmp_path / "42_results.json").write_text("{}")
    (tmp_path / "43_results.db").write_text("no database")
    assert read_counter_folder(tmp_path) == ([], [])
