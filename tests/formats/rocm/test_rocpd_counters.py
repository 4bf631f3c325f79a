from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from gemmetry.formats.events import MISSING
from gemmetry.formats.rocm.rocprofv3 import read_counted

GPU = {"cu_count": 304, "simd_count": 1216, "num_xcc": 8, "max_waves_per_cu": 32}

TABLES = """
CREATE TABLE rocpd_info_node_a1 (id INTEGER, hostname TEXT);
CREATE TABLE rocpd_info_process_a1 (id INTEGER, pid INTEGER, command TEXT, environment TEXT);
CREATE TABLE rocpd_info_agent_a1 (id INTEGER, type TEXT, type_index INTEGER, name TEXT,
    product_name TEXT, extdata TEXT);
CREATE TABLE rocpd_info_kernel_symbol_a1 (id INTEGER, kernel_name TEXT, display_name TEXT,
    sgpr_count INTEGER, arch_vgpr_count INTEGER, accum_vgpr_count INTEGER);
CREATE TABLE rocpd_event_a1 (id INTEGER, stack_id INTEGER);
CREATE TABLE rocpd_kernel_dispatch_a1 (id INTEGER, pid INTEGER, tid INTEGER, agent_id INTEGER,
    kernel_id INTEGER, dispatch_id INTEGER, queue_id INTEGER, stream_id INTEGER, start BIGINT,
    "end" BIGINT, private_segment_size INTEGER, group_segment_size INTEGER,
    workgroup_size_x INTEGER, workgroup_size_y INTEGER, workgroup_size_z INTEGER,
    grid_size_x INTEGER, grid_size_y INTEGER, grid_size_z INTEGER, event_id INTEGER);
INSERT INTO rocpd_info_node_a1 VALUES (1, 'node-7');
INSERT INTO rocpd_info_kernel_symbol_a1 VALUES (7, 'gemm.kd', 'gemm(float*)', 96, 128, 64);
INSERT INTO rocpd_event_a1 VALUES (1, 100), (2, 101);
INSERT INTO rocpd_kernel_dispatch_a1 VALUES
    (1, 77, 20, 5, 7, 1, 2, 3, 1000, 1500, 0, 4096, 64, 2, 1, 1024, 2, 1, 1),
    (2, 77, 20, 5, 9, 2, 2, 3, 2000, 2600, 0, 0, 64, 1, 1, 64, 1, 1, 2);
"""
"""The columns that are read, of rocprofiler-sdk's rocpd_tables.sql, schema version 3."""

COUNTERS = """
CREATE TABLE rocpd_info_pmc_a1 (id INTEGER, name TEXT);
CREATE TABLE rocpd_pmc_event_a1 (id INTEGER, event_id INTEGER, pmc_id INTEGER, value REAL);
INSERT INTO rocpd_info_pmc_a1 VALUES (3, 'SQ_WAVES'), (4, 'GRBM_GUI_ACTIVE');
INSERT INTO rocpd_pmc_event_a1 VALUES (1, 1, 3, 10.0), (2, 1, 3, 20.0), (3, 1, 4, 5.0),
    (4, 2, 9, 1.0), (5, 99, 3, 7.0), (6, 2, 3, NULL);
"""


@pytest.fixture
def database(tmp_path):
    def make(*scripts, environment=None):
        path = tmp_path / "77_results.db"
        with closing(sqlite3.connect(path)) as opened:
            for script in (TABLES, *scripts):
                opened.executescript(script)
            agents = [(0, "CPU", 0, "EPYC", "EPYC", "{}"),
                      (5, "GPU", 1, "gfx942", "AMD Instinct MI300X", json.dumps(GPU))]  # fmt: skip
            opened.executemany("INSERT INTO rocpd_info_agent_a1 VALUES (?, ?, ?, ?, ?, ?)", agents)
            process = (77, 77, "python train.py", json.dumps(environment or {}))
            opened.execute("INSERT INTO rocpd_info_process_a1 VALUES (?, ?, ?, ?)", process)
            opened.commit()
        return path

    return make


def test_counters_of_a_database(database):
    [process] = read_counted(database(COUNTERS, environment={"RANK": "2"}), "db")
    assert (process.pid, process.rank, process.rank_source) == (77, 2, "environment")
    assert (process.host, process.problems) == ("node-7", [])
    assert (process.gpus[1].chip, process.gpus[1].units) == ("gfx942", 304)
    first, second = process.dispatches
    # Values of instances are added up; those of unknown events and without a value are left out.
    assert first.values == {"SQ_WAVES": 30.0, "GRBM_GUI_ACTIVE": 5.0}
    assert second.values == {"counter 9": 1.0}
    assert (first.kernel, first.device, first.duration_ns) == ("gemm(float*)", 1, 500)
    assert (first.workgroups, first.workgroup_size, first.lds_bytes) == (16, 128, 4096)
    assert (first.vgprs, first.accum_vgprs, first.sgprs) == (128, 64, 96)
    assert (second.kernel, second.vgprs) == ("kernel 9", MISSING)


def test_a_trace_has_no_counters(database):
    [process] = read_counted(database(), "db")
    assert len(process.dispatches) == 2
    assert (process.has_counters, process.rank) == (False, None)


def test_what_is_no_database_of_rocpd(tmp_path):
    path = tmp_path / "x.db"
    path.write_text("text")
    assert read_counted(path, "db") == []
    with closing(sqlite3.connect(tmp_path / "y.db")) as opened:
        opened.execute("CREATE TABLE t (a)")
    assert read_counted(tmp_path / "y.db", "db") == []
