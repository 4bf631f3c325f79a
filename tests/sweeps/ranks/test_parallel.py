"""Traces spread over worker processes."""

from __future__ import annotations

import sys

import pytest

from gemmetry.domain.tables import Column, Table
from gemmetry.sweeps import workers
from gemmetry.sweeps.folder import read_sweep
from gemmetry.sweeps.rocprof import PointRocprof, TraceProcess
from gemmetry.sweeps.workers import (
    RankAnalysis,
    RankFailure,
    RankTask,
    RocprofTask,
    analyse_ranks,
    gemm_rows,
    packed,
    packed_sheet,
    read_rocprofs,
)


@pytest.fixture
def tasks(tmp_path, sweeps):
    """Three ranks; the trace of the second one is not a trace."""
    sweeps.write_sweep(tmp_path, [sweeps.MadePoint(ranks=3, steps=1, layers=2)])
    (point,) = read_sweep(tmp_path).points
    point.traces[1].path.write_bytes(b"not gzip")
    return list(map(RankTask, point.traces))


def test_results_are_in_the_order_of_the_tasks(tasks):
    progress = []
    found = analyse_ranks(tasks, processes=1, progress=lambda *counts: progress.append(counts))
    assert [type(one) for one in found] == [RankAnalysis, RankFailure, RankAnalysis]
    assert [one.facts.rank for one in (found[0], found[2])] == [0, 2]
    assert progress == [(number, 3, str(task.file.path)) for number, task in enumerate(tasks, 1)]
    # Equal groups are one object.
    groups = [one.collective.group for rank in (found[0], found[2])
              for one in rank.facts.communication]  # fmt: skip
    assert len(groups) == 4
    assert groups[0].ranks == (0, 1, 2)
    assert all(group is groups[0] for group in groups)


def test_what_stops_the_reader_stops_the_workers(tasks, monkeypatch):
    """An error in this process, such as an interrupt, leaves no worker behind."""
    made = []
    start = workers._Worker.__init__

    def note(self):
        start(self)
        made.append(self)

    def stop(*counts):
        raise KeyboardInterrupt

    monkeypatch.setattr(workers._Worker, "__init__", note)
    with pytest.raises(KeyboardInterrupt):
        analyse_ranks(tasks, processes=2, progress=stop)
    assert len(made) == 2
    assert all(one._process is None or one._process.returncode is not None for one in made)


@pytest.fixture
def dying(monkeypatch, tmp_path):
    """Instead of a worker, a program that answers as one does, except that it dies of a task."""

    def make(condition):
        program = tmp_path / "worker.py"
        program.write_text(
            "import os, sys\n"
            "from gemmetry.sweeps import workers as worker\n"
            "answer = worker.answer\n"
            "def deadly(task):\n"
            f"    if {condition}:\n"
            "        print('out of luck', file=sys.stderr, flush=True)\n"
            "        os._exit(7)\n"
            "    return answer(task)\n"
            "worker.answer = deadly\n"
            "worker.main()\n"
        )
        monkeypatch.setattr(workers, "WORKER", [sys.executable, str(program)])

    return make


FAILED = "gemmetry failed while it read this: its worker ended with status 7: out of luck"


def test_workers_return_the_same_as_this_process_and_one_that_dies_costs_its_trace(tasks, dying):
    expected = analyse_ranks(tasks, processes=1)
    dying("task.file.rank == 2")
    *found, lost = analyse_ranks(tasks, processes=2)
    assert list(map(packed, found)) == list(map(packed, expected[:2]))
    assert (type(lost), lost.reason, lost.is_internal) == (RankFailure, FAILED, True)


@pytest.fixture
def counted(tmp_path, rocprofv3):
    """Tasks of three points: two with counters of a process each, and one without a folder."""
    for point in (0, 1):
        rocprofv3.write_csv(tmp_path / f"point{point}", "12", 12, list(rocprofv3.VALUES))
    traces = (TraceProcess(pid=12, host="", rank=3),)
    folders = [(tmp_path / f"point{point}",) for point in (0, 1)]
    return [RocprofTask(one, traces) for one in (*folders, ())]


def test_workers_read_counters_like_this_process_and_one_that_dies_costs_its_point(counted, dying):
    expected = read_rocprofs(counted, processes=1)
    assert [{kernel.rank for kernel in one.kernels} for one in expected] == [{3}, {3}, set()]
    assert expected[0].kernels[0].counters
    dying("'point1' in str(task.folders)")
    lost = PointRocprof(problems=(f"rocprofv3's files: {FAILED}",))
    assert read_rocprofs(counted, processes=2) == [expected[0], lost, expected[2]]


def test_rows_survive_packing():
    table = Table("GEMM", (Column("name"), Column("param: M")), [("aten::mm", 8), ("µ", None)])
    assert gemm_rows(packed_sheet(table)) == table.records()
    assert packed_sheet(None) == b""
    assert gemm_rows(b"") == []
