from __future__ import annotations

import time

import numpy as np
import pytest

from gemmetry.formats.events import MISSING, GpuKind
from gemmetry.formats.rocm.rows import (
    Agents,
    HostKind,
    RowsBuilder,
    gpu_rows,
    integers,
    kernel_name,
    rank_of,
)


@pytest.mark.parametrize(
    "name", ["gemm", "gemm.kd", "gemm (.kd)", "gemm [clone .kd]", "gemm [clone .kd] "]
)
def test_the_mark_of_a_descriptor_is_no_part_of_a_name(name):
    assert kernel_name(name) == "gemm"


@pytest.mark.parametrize("name", [" " * 999_999 + "x", "[clone .kd]" * 90_000, ".kd " * 250_000])
def test_a_hostile_name_is_shortened_in_a_moment(name):
    begin = time.process_time()
    assert len(kernel_name(name)) < 17_000
    assert time.process_time() - begin < 20, "steps that grow as the square would take minutes"


def test_grids_are_workgroups_rounded_up_and_bounded():
    rows = gpu_rows(
        np.zeros(4, np.int64),
        np.zeros(4, np.int64),
        np.zeros(4, np.int32),
        GpuKind.KERNEL,
        device=[0] * 4,
        stream=[0, 1, 2**70, -1],
        correlation=np.zeros(4, np.int64),
        work_items=[(128, 3, 1), (129, 1, 1), (5, 5, 5), (2**40, -1, 1)],
        block=[(64, 1, 1), (64, 1, 1), (0, 0, 0), (64, 1, 1)],
    )
    assert rows.grid.tolist() == [[2, 3, 1], [3, 1, 1], [0, 0, 0], [0, 0, 1]]
    assert rows.stream.tolist() == [0, 1, MISSING, -1]
    assert integers([2**63, -(2**63)]).tolist() == [MISSING, -(2**63)]


def test_gpus_are_counted_apart_from_cpus():
    agents = Agents()
    for key, is_gpu in enumerate([False, True, False, True]):
        agents.add(key, is_gpu=is_gpu, index=None, product=f"p{key}")
    agents.add("x", is_gpu=True, index=7, product="p7")
    assert agents.numbers([0, 1, 3, "x", "?"]).tolist() == [MISSING, 0, 1, 7, MISSING]
    assert agents.products() == {0: "p1", 1: "p3", 7: "p7"}


def test_the_rank_comes_from_the_launchers_variables():
    assert rank_of([{"RANK": "2", "WORLD_SIZE": "4"}]) == (2, 4)
    assert rank_of([{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": 2}]) == (1, 2)
    assert rank_of([{"SLURM_PROCID": "x"}]) == (None, None)
    assert rank_of([]) == (None, None)
    assert rank_of([{"RANK": "0"}, {"RANK": "1"}]) == (None, None)


class Reader(RowsBuilder):
    def read(self):
        one = np.array([1], np.int64)
        for kind in HostKind:
            thread = self._on([("7", kind.value)])
            self._add_host(kind, one, one, self._numbered([kind.value]), thread, one)
        self._no_time = 2
        return self._trace_rows("rocpd", "records", rank=3)


def test_every_reader_assembles_its_rows_alike():
    rows = Reader().read()
    assert (rows.format, rows.rank, rows.partial) == ("rocpd", 3, False)
    assert [str(problem) for problem in rows.problems] == [
        "records: 2 have no usable time: left out"
    ]
    tables = (rows.calls, rows.operators, rows.annotations)
    assert [rows.names[table.name[0]] for table in tables] == [
        "HIP or HSA call", "RCCL call", "ROCTx range",
    ]  # fmt: skip
    assert [rows.threads[table.thread[0]] for table in tables] == [
        f"7/{kind.value}" for kind in HostKind
    ]
    assert len(rows.gpu.name) == 0
