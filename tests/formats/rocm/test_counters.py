"""Kernels with counters, of files as rocprofv3 writes them: ``counted.txt``. That every format has
the same is in ``counters/test_rocprofv3``."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests import cases

from gemmetry.counters.collector import read_counters
from gemmetry.formats.rocm.rocprofv3 import read_counted, read_counter_folder

COUNTED = Path(__file__).with_name("counted.txt")


def write(stand_in, folder, lines):
    """Write the files of these lines: a table, the processes of a document, or a text."""
    processes = []
    for line in lines:
        what, (name, *values), given = cases.arguments(line)
        path = folder / name
        if what == "csv":
            given["kernels"] = (stand_in.GEMM, stand_in.OTHER, stand_in.GEMM)[: given["kernels"]]
            stand_in.write_csv(path.parent, path.name, *values, **given)
        elif what == "json":
            processes.append(stand_in.results_json(*values, **given))
            stand_in.write_json(path, *processes)
        else:
            path.write_text(*values)


def shown_processes(processes):
    for one in processes:
        facts = ("pid", "rank", "rank_source", "host", "has_counters", "problems")
        yield cases.shown(f"pass {one.number}", {name: getattr(one, name) for name in facts})
        for dispatch in one.dispatches:
            yield cases.shown(dispatch.kernel[:9],
                              {"duration_ns": dispatch.duration_ns, **dispatch.values})  # fmt: skip


@pytest.mark.parametrize("title", cases.read(COUNTED))
def test_what_is_counted(title, rocprofv3, tmp_path):
    write(rocprofv3, tmp_path, cases.read(COUNTED)[title][0])
    topic, _, _ = title.partition(":")
    if topic == "launches":
        table = read_counters(tmp_path)
        found = [
            cases.shown(one.name[:9], {"process": one.info.process, "number": one.info.number,
                                       **{name: one.value(name) for name in rocprofv3.VALUES}})
            for one in table
        ]  # fmt: skip
        problems = table.problems
    elif topic == "processes":
        found, problems = shown_processes(read_counted(tmp_path / "results.json", "json")), []
    else:
        processes, problems = read_counter_folder(tmp_path)
        found = shown_processes(processes)
    problems = [one.replace(str(tmp_path), "") for one in problems]
    cases.check(COUNTED, title, [*found, *problems])


def test_a_document_that_is_cut_or_none(rocprofv3, tmp_path):
    path = tmp_path / "results.json"
    rocprofv3.write_json(path, rocprofv3.results_json(1, ["SQ_WAVES"]))
    path.write_text(path.read_text()[:-600])
    assert read_counted(path, "json")[0].problems
    for kind in ("json", "db"):
        path.write_text("[1, 2]")
        assert read_counted(path, kind) == []


def test_a_database_with_values_of_unknown_events_and_counters(rocprofv3, tmp_path):
    path, counters = tmp_path / "41_results.db", ("SQ_WAVES", "GRBM_GUI_ACTIVE")
    rocprofv3.write_database(path, 41, counters)
    with closing(sqlite3.connect(path)) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master")]
        table = next(name for name in names if name.startswith("rocpd_pmc_event"))
        (event,) = database.execute(f"SELECT event_id FROM {table}").fetchone()
        rows = [(900, event, 99, 1.0), (901, 999, 99, 7.0), (902, event, 98, None)]
        command = f"INSERT INTO {table} (id, event_id, pmc_id, value) VALUES (?, ?, ?, ?)"
        database.executemany(command, rows)
        database.commit()
    (process,) = read_counted(path, "db")
    expected = {name: rocprofv3.VALUES[name] for name in counters} | {"counter 99": 1.0}
    assert process.dispatches[0].values == pytest.approx(expected)
