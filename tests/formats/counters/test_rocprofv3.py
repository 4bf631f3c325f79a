from __future__ import annotations

import copy
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gemmetry.counters.catalogue import reading_of
from gemmetry.counters.collector import read_counters
from gemmetry.formats.counters.launches import DURATION

REPLAYED = Path(__file__).parents[2] / "data" / "reports" / "12"
COUNTERS = ("SQ_WAVES", "SQ_BUSY_CU_CYCLES", "GRBM_GUI_ACTIVE")


@pytest.fixture
def recorded(rocprofv3, tmp_path):
    """The same process in each format."""
    names = {"csv": "41_counter_collection.csv", "json": "41_results.json", "db": "41_results.db"}
    paths = {form: tmp_path / form / name for form, name in names.items()}
    rocprofv3.write_csv(tmp_path / "csv", "41", 41, COUNTERS, kernels=[rocprofv3.GEMM])
    rocprofv3.write_json(paths["json"], rocprofv3.results_json(41, COUNTERS))
    rocprofv3.write_database(paths["db"], 41, COUNTERS)
    return paths


@pytest.mark.parametrize("form", ["csv", "json", "db"])
@pytest.mark.parametrize("as_folder", [False, True])
def test_every_format_has_the_same_launch(form, as_folder, recorded, rocprofv3):
    path = recorded[form].parent if as_folder else recorded[form]
    table = read_counters(path)
    (launch,) = table
    assert (table.tool, table.source, table.problems) == ("rocprofv3", path, [])
    info = launch.info
    assert (info.name, info.grid, info.block) == (rocprofv3.GEMM, (256, 1, 1), (256, 1, 1))
    assert (info.device, info.capability) == ("AMD Instinct MI300X", "gfx942")
    assert (info.number, info.process) == (1, 41)
    assert launch.duration_ns == 500
    assert {name: launch.value(name) for name in COUNTERS} == pytest.approx(
        {name: rocprofv3.VALUES[name] for name in COUNTERS}
    )
    facts = {"cu_count": 304, "simd_count": 1216, "num_xcc": 8, "max_waves_per_cu": 32,
             "lds_block_size": 65536, "scratch_size": 0, "vgpr_count": 128,
             "accum_vgpr_count": 64, "sgpr_count": 96, DURATION: 500}  # fmt: skip
    assert {name: launch.value(name) for name in facts} == facts
    assert (launch.unit(DURATION), launch.unit("lds_block_size")) == ("ns", "byte")
    assert list(read_counters(path, ["SQ_WAVES"]).values) == ["SQ_WAVES"], "only the required ones"


def test_grids_by_dimension(rocprofv3, tmp_path):
    process = rocprofv3.results_json(41, COUNTERS)
    info = process["buffer_records"]["kernel_dispatch"][0]["dispatch_info"]
    info["grid_size"] = {"x": 64, "y": 10, "z": 3}
    info["workgroup_size"] = {"x": 32, "y": 4, "z": 1}
    rocprofv3.write_json(tmp_path / "a_results.json", process)
    found = read_counters(tmp_path / "a_results.json").infos[0]
    assert (found.grid, found.block) == ((2, 3, 3), (32, 4, 1))


@pytest.mark.parametrize("name", ["one_pass", "replay_sanity", "replay_unique",
                                  "replay_results.json"])  # fmt: skip
def test_a_replayed_kernel_is_one_launch(name):
    table = read_counters(REPLAYED / name)
    assert table.problems == []
    assert [one.info.number for one in table] == [1, 2, 3]
    for one in table:
        assert (one.value("SQ_WAVES") or 4096, one.duration_ns) == (4096, 200_000)
        assert one.value("GRBM_GUI_ACTIVE") == 3.36e6
        busy = reading_of(one, "tensor_pipe_percent")
        assert busy is not None and busy.value == pytest.approx(62.0, abs=0.05)


@pytest.mark.parametrize("form", ["csv", "json", "db"])
def test_passes_that_disagree_are_named(form, recorded):
    """A second execution of the dispatch, with twice the waves and as many cycles."""
    path = recorded[form]
    if form == "csv":
        head, *rows = path.read_text().splitlines()
        again = [row.replace(",1000,1500", ",7000,7500") for row in rows]
        again = [row.replace("4.09600000e+03", "8.19200000e+03") for row in again]
        path.write_text("\n".join([head, *rows, *again]))
    elif form == "json":
        document = json.loads(path.read_text())
        counted = document["rocprofiler-sdk-tool"][0]["callback_records"]["counter_collection"]
        again = copy.deepcopy(counted[0])
        again["dispatch_data"] |= {"start_timestamp": 7000, "end_timestamp": 7500}
        again["records"][0]["value"] *= 9
        counted.append(again)
        path.write_text(json.dumps(document))
    else:
        replay_in_database(path)
    table = read_counters(path)
    assert [(one.value("SQ_WAVES"), one.duration_ns) for one in table] == [(4096, 500)]
    (problem,) = table.problems
    assert "SQ_WAVES" in problem and "GRBM_GUI_ACTIVE" not in problem


def replay_in_database(path):
    with closing(sqlite3.connect(path)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master")]
        kernel, event, value, pmc = (
            next(one for one in tables if one.startswith(f"rocpd_{what}"))
            for what in ("kernel_dispatch", "event", "pmc_event", "info_pmc")
        )
        waves = f"(SELECT id FROM {pmc} WHERE name = 'SQ_WAVES')"
        changes = {
            event: "id = 99", kernel: "id = 99, event_id = 99",
            value: f"id = 999, event_id = 99, value = 8192, pmc_id = {waves}",
        }  # fmt: skip
        for table, change in changes.items():
            database.executescript(
                f"CREATE TEMP TABLE again AS SELECT * FROM {table} LIMIT 1;"
                f"UPDATE again SET {change}; INSERT INTO {table} SELECT * FROM again;"
                "DROP TABLE again;"
            )
