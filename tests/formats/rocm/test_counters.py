"""Kernels with counters, of files as rocprofv3 writes them: ``counters.txt``. That every format has
the same is in ``counters/test_rocprofv3``."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from gemmetry.counters.collector import read_counters
from gemmetry.formats.rocm.rocprofv3 import read_counted, read_counter_folder


def write(stand_in, folder, calls):
    """Write the files of these calls: a table, the processes of a document, or a text."""
    processes = []
    for what, (name, *values), given in calls:
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
        yield f"pass {one.number}", {name: getattr(one, name) for name in facts}
        for dispatch in one.dispatches:
            yield dispatch.kernel[:9], {"duration_ns": dispatch.duration_ns, **dispatch.values}


def test_what_is_counted(case, rocprofv3, tmp_path):
    write(rocprofv3, tmp_path, case.calls())
    if case.topic == "launches":
        table = read_counters(tmp_path)
        found = [
            (one.name[:9], {"process": one.info.process, "number": one.info.number,
                            **{name: one.value(name) for name in rocprofv3.VALUES}})
            for one in table
        ]  # fmt: skip
        problems = table.problems
    elif case.topic == "processes":
        found, problems = shown_processes(read_counted(tmp_path / "results.json", "json")), []
    else:
        processes, problems = read_counter_folder(tmp_path)
        found = shown_processes(processes)
    problems = [one.replace(str(tmp_path), "") for one in problems]
    case.check([*found, *problems])


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
