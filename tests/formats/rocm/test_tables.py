from __future__ import annotations

import time

import pytest

from gemmetry.formats.events import MISSING
from gemmetry.formats.rocm.rocprofv3 import rank_of, trace_rows
from gemmetry.formats.rocm.tables import Agents, Block, Kind, Tables, integers, kernel_name


def test_the_mark_of_a_descriptor_is_no_part_of_a_name():
    for mark in ("", ".kd", " (.kd)", " [clone .kd]", " [clone .kd] "):
        assert kernel_name(f"gemm{mark}") == "gemm"


@pytest.mark.parametrize("name", [" " * 999_999 + "x", "[clone .kd]" * 90_000, ".kd " * 250_000])
def test_a_hostile_name_is_shortened_in_a_moment(name):
    begin = time.process_time()
    assert len(kernel_name(name)) < 17_000
    assert time.process_time() - begin < 20, "steps that grow as the square would take minutes"


def test_integers_that_are_none_or_do_not_fit():
    assert integers(["1", "-2"]).tolist() == [1, -2]
    assert integers(["1", "x", 2**63, -(2**63), None, 1.5]).tolist() == [
        1, MISSING, MISSING, -(2**63), MISSING, MISSING,
    ]  # fmt: skip


def test_gpus_are_counted_and_described():
    agents = Agents()
    full = {"product_name": "p", "name": "gfx942", "cu_count": "304", "simd_count": 1216,
            "num_xcc": 8, "max_waves_per_cu": 32}  # fmt: skip
    agents.add(1, None, full.get)
    agents.add(3, 2**31, {"name": "n"}.get)
    agents.add("x", 7, {}.get)
    assert agents.numbers([0, 1, 3, "x", "?"]).tolist() == [MISSING, 0, 1, 7, MISSING]
    assert agents.products == {0: "p", 1: "n", 7: ""}
    assert {number: gpu.units for number, gpu in agents.gpus[0].items()} == {0: 304}


def test_the_rank_comes_from_the_launchers_variables():
    assert rank_of([{"RANK": "2", "WORLD_SIZE": "4"}]) == (2, 4)
    assert rank_of([{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": 2}]) == (1, 2)
    assert rank_of([{"SLURM_PROCID": "x"}]) == (None, None)
    assert rank_of([]) == (None, None)
    assert rank_of([{"RANK": "0"}, {"RANK": "1"}]) == (None, None)


class Made(Tables):
    format = "rocpd"

    def blocks(self):
        times = {"Start_Timestamp": [1, 5], "End_Timestamp": [2, 4], "Correlation_Id": [1, 1]}
        for kind in (Kind.CALL, Kind.RCCL, Kind.RANGE):
            names = [kind.value] * 2
            yield Block(kind, {**times, "Name": names, "Process_Id": [7, 7], "Thread_Id": names})
        sizes = {"Grid_Size_X": [128, 129, 5, 2**40], "Grid_Size_Y": [3, 1, 5, -1],
                 "Grid_Size_Z": [1, 1, 5, 1], "Workgroup_Size_X": [64, 64, 0, 64],
                 "Workgroup_Size_Y": [1, 1, 0, 1], "Workgroup_Size_Z": [1, 1, 0, 1]}  # fmt: skip
        places = {"Name": ["k"] * 4, "Device": [0] * 4, "Stream_Id": [0, 1, 2**70, -1]}
        yield Block(Kind.KERNEL, {**places, **sizes})


def test_every_format_is_assembled_alike():
    rows = trace_rows(Made(counters=False))
    assert (rows.format, rows.rank, rows.partial) == ("rocpd", None, False)
    assert [str(problem) for problem in rows.problems] == ["rows: 3 have no usable time: left out"]
    tables = (rows.calls, rows.operators, rows.annotations)
    kinds = ["HIP or HSA call", "RCCL call", "ROCTx range"]
    assert [[rows.names[name] for name in table.name] for table in tables] == [[k] for k in kinds]
    assert [rows.threads[table.thread[0]] for table in tables] == [f"7/{kind}" for kind in kinds]
    # Workgroups are rounded up, and bounded.
    assert rows.gpu.grid.tolist() == [[2, 3, 1], [3, 1, 1], [0, 0, 0], [0, 0, 1]]
    assert rows.gpu.stream.tolist() == [0, 1, MISSING, -1]
    assert (rows.gpu.start_ns == 0).all()
