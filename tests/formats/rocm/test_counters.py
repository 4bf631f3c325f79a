"""Kernels with their counters; that every format has the same is in ``counters/test_rocprofv3``."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from gemmetry.formats.rocm.rocprofv3 import read_counted, read_counter_folder

COUNTERS = ("SQ_WAVES", "GRBM_GUI_ACTIVE")


def test_a_document_of_several_processes_and_what_is_cut(rocprofv3, tmp_path):
    path = tmp_path / "results.json"
    made = (rocprofv3.results_json(1, ()), rocprofv3.results_json(2, COUNTERS, rank=3))
    rocprofv3.write_json(path, *made)
    first, second = read_counted(path, "json")
    assert (first.pid, first.has_counters, first.dispatches[0].duration_ns) == (1, False, 500)
    assert (second.pid, second.rank, second.rank_source) == (2, 3, "environment")
    assert second.dispatches[0].values == pytest.approx({n: rocprofv3.VALUES[n] for n in COUNTERS})
    path.write_text(path.read_text()[:-600])
    assert read_counted(path, "json")[0].problems
    path.write_text("[1, 2]")
    assert read_counted(path, "json") == []


def test_the_rank_of_a_command_line(rocprofv3, tmp_path):
    path = tmp_path / "results.json"
    ranks = {"train.py --rank=5": 5, "train.py --rank 12 --x": 12, "train.py --node-rank 1": None}
    for command, rank in ranks.items():
        rocprofv3.write_json(path, rocprofv3.results_json(1, COUNTERS, command=command))
        (process,) = read_counted(path, "json")
        source = "" if rank is None else "command line"
        assert (process.rank, process.rank_source) == (rank, source)


def test_a_database_with_values_of_unknown_events_and_counters(rocprofv3, tmp_path):
    path = tmp_path / "41_results.db"
    rocprofv3.write_database(path, 41, COUNTERS)
    with closing(sqlite3.connect(path)) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master")]
        table = next(name for name in names if name.startswith("rocpd_pmc_event"))
        (event,) = database.execute(f"SELECT event_id FROM {table}").fetchone()
        rows = [(900, event, 99, 1.0), (901, 999, 99, 7.0), (902, event, 98, None)]
        command = f"INSERT INTO {table} (id, event_id, pmc_id, value) VALUES (?, ?, ?, ?)"
        database.executemany(command, rows)
        database.commit()
    (process,) = read_counted(path, "db")
    expected = {name: rocprofv3.VALUES[name] for name in COUNTERS} | {"counter 99": 1.0}
    assert process.dispatches[0].values == pytest.approx(expected)
    (tmp_path / "x.db").write_text("text")
    assert read_counted(tmp_path / "x.db", "db") == []


@pytest.mark.parametrize(
    ("place", "number", "host"),
    [("", 0, ""), ("node-7", 0, "node-7"), ("pass_2", 2, ""), ("pmc_3/node-7", 3, "node-7"),
     ("node-7/pass_1", 1, "node-7")],
)  # fmt: skip
def test_layouts_of_folders(place, number, host, rocprofv3, tmp_path):
    rocprofv3.write_csv(tmp_path / place, "41", 41, COUNTERS)
    [found], problems = read_counter_folder(tmp_path)
    assert (found.number, found.host, found.pid) == (number, host, 41)
    assert (found.rank, problems) == (None, [])


def test_a_folder_with_names_by_rank_other_files_and_empty_tables(rocprofv3, tmp_path):
    (tmp_path / "run.log").write_text("x")
    (tmp_path / "41_counter_collection.csv").write_text("")
    (tmp_path / "42_results.json").write_text("{}")
    (tmp_path / "43_results.db").write_text("no database")
    assert read_counter_folder(tmp_path) == ([], [])
    rocprofv3.write_csv(tmp_path, "rank3_51", 51, COUNTERS)
    rocprofv3.write_csv(tmp_path, "rank_52", 52, ())  # A process outside of torchrun's ranks.
    first, second = read_counter_folder(tmp_path)[0]
    assert (first.rank, first.rank_source, first.pid) == (3, "file name", 51)
    assert (second.rank, second.pid) == (None, 52)


def test_csv_takes_what_only_json_states(rocprofv3, tmp_path):
    rocprofv3.write_csv(tmp_path, "41", 41, COUNTERS)
    rocprofv3.write_json(tmp_path / "41_results.json", rocprofv3.results_json(41, (), rank=6))
    [found], _ = read_counter_folder(tmp_path)
    assert (found.rank, found.rank_source) == (6, "environment")
    assert len(found.dispatches) == 3  # Those of the CSV file.
