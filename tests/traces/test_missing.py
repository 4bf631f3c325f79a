from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from gemmetry.formats.events import ProblemKind
from gemmetry.traces.model import Trace, checked, split

HOUR = 3600 * 10**9


def problems(made):
    return [(one.kind, one.where, one.count) for one in checked(made.trace().rows).problems]


def kept(made):
    rows = checked(made.trace().rows)
    return [rows.names[name] for name in rows.gpu.name]


def test_work_apart_from_the_rest_is_named(recording):
    made = recording()
    for place in range(3):
        made.kernel("boot", 10**9 + place, 5)
    for place in range(5):
        made.kernel("since 1970", 10**9 + 48 * HOUR + place, 5)
    ((kind, where, count),) = problems(made)
    assert (kind, count) == (ProblemKind.TIME_BASE, 3)
    assert "boot" in where
    assert len(kept(made)) == 8


def test_usual_work_is_complete(recording):
    assert problems(recording()) == []
    made = recording()
    made.launch("a", 1, at=100, lasts=5)
    # A long kernel joins what is before and after it.
    made.kernel("b", 200, 4 * HOUR)
    made.launch("c", 2, at=4 * HOUR + 10**9, lasts=5)
    assert problems(made) == []


@pytest.mark.parametrize(
    ("start", "duration"),
    [(0, 0), (-1_774 * 10**15, 0), (0, 2 * HOUR), (500, -3)],
    ids=["zeros", "zero since 1970", "no start", "negative duration"],
)
def test_work_without_a_time_is_left_out_and_counted(recording, start, duration):
    made = recording(baseTimeNanoseconds=1_774 * 10**15)
    for number in (1, 2, 3):
        made.launch("good", number, at=HOUR + 1000 * number, lasts=5)
    for number in (4, 5):
        made.call(number, HOUR + 1000 * number)
        made.kernel("bad", start, duration, correlation=number)
    assert problems(made) == [(ProblemKind.NO_TIME, "work on a GPU 'bad' (and 1 more)", 2)]
    assert kept(made) == ["good"] * 3


def test_a_kernel_that_takes_no_time(recording):
    fine = recording()
    for number, lasts in enumerate((0, 7, 12_345)):
        fine.kernel("k", 10_000_000 * (number + 1), lasts)
    fine.memset(5000, 0)
    assert len(kept(fine)) == 3
    # Tools of 2021 wrote whole µs; a kernel of 300 µs does not become 0 by that.
    rounded = recording()
    for number, lasts in enumerate((0, 1000, 2000)):
        rounded.kernel("short", 10_000_000 * (number + 1), lasts)
    for number, lasts in enumerate((0, 300_000, 300_000)):
        rounded.kernel("long", 50_000_000 * (number + 1), lasts)
    assert kept(rounded) == ["short"] * 3 + ["long"] * 2


@pytest.mark.parametrize("away", [-5 * 10**9, 2 * HOUR])
def test_work_that_does_not_follow_its_launch_is_left_out(recording, away):
    made = recording()
    made.kernel("long", 10**10, 2 * HOUR)
    for number in (1, 2):
        made.launch("k", number, at=10**10 + 100 * number, lasts=5)
    made.call(3, 10**10)
    made.kernel("other", 10**10 + away, 2 * HOUR, correlation=3)
    assert problems(made) == [(ProblemKind.NO_TIME, "work on a GPU 'other'", 1)]


def test_a_host_whose_clock_differs_from_the_gpus_is_no_fault_of_kernels(recording):
    made = recording()
    for number in (1, 2):
        made.call(number, 10**12)
        made.kernel("k", 100 * number, 5, correlation=number)
    assert problems(made) == []


def test_work_cannot_last_beyond_the_next_on_its_stream(recording):
    made = recording()
    for number in range(1, 9):
        made.launch("k", number, at=1000 * number, lasts=500)
    made.kernel("k", 2600, 90_000, stream=7)
    made.kernel("k", 2600, 90_000, stream=9)  # The only one of its stream.
    assert problems(made) == [(ProblemKind.NO_TIME, "work on a GPU 'k'", 1)]


def test_branches_of_a_graph_and_waiting_kernels_may_last_beyond_the_next(recording):
    made = recording()
    made.call(1, 100, name="cudaGraphLaunch")
    for place in range(5):
        made.kernel("k", 1000 * (place + 1), 500, correlation=1)
    made.kernel("k", 900, 90_000, correlation=1)
    for place in range(3):
        made.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 200_000 + 1000 * place, 500)
    made.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 199_000, 90_000)
    assert problems(made) == []


def test_work_cannot_last_beyond_the_recording(recording):
    made = recording()
    for number in range(1, 9):
        made.launch("k", number, at=1000 * number, lasts=500)
    made.launch("k", 9, at=9000, lasts=HOUR)
    assert problems(made) == [(ProblemKind.NO_TIME, "work on a GPU 'k'", 1)]
    alone = recording()
    alone.launch("k", 1, at=1000, lasts=HOUR)
    assert problems(alone) == []


@pytest.mark.parametrize(
    "name", ["cudaGraphLaunch", "hipGraphLaunch", "cudaLaunchKernelExC", "hipExtModuleLaunchKernel"]
)
def test_launches_without_work_are_counted(recording, name):
    made = recording()
    for number in range(1, 9):
        made.call(number, 1000 * number, name=name)
    for place in range(2):
        made.kernel("k", 1000 + 100 * place, 10, correlation=1)
    assert problems(made) == [(ProblemKind.NO_WORK, f"call '{name}'", 7)]
    assert "7 of 8" in checked(made.trace().rows).problems[0].what


def test_launches_that_need_no_work(recording):
    made = recording()
    made.launch("k", 1, at=1000, lasts=10)
    made.call(90, 2000, name="cudaStreamBeginCapture")
    made.call(2, 2100)
    made.call(91, 2200, name="cudaStreamEndCapture")
    made.call(3, 2300, name="cudaMemsetAsync")
    made.call(4, 2400, name="cudaLaunchHostFunc")
    assert problems(made) == []
    made.call(5, 2100, thread=2)  # No capture is open on this thread.
    assert problems(made) == [(ProblemKind.NO_WORK, "call 'cudaLaunchKernel'", 1)]


def test_a_tool_that_does_not_link_graphs_to_their_kernels(recording):
    """ROCm's tools of some versions: it cannot be seen which launch a kernel is of."""
    made = recording()
    for number in range(1, 5):
        made.call(number, 1000 * number, name="hipGraphLaunch")
        for place in range(3):
            made.kernel("k", 1000 * number + 100 * (place + 1), 10, correlation=0)
    assert problems(made) == []


def test_a_file_whose_work_is_missing_altogether(recording):
    made = recording()
    for number in range(1, 5):
        made.call(number, 1000 * number)
    assert problems(made) == [(ProblemKind.NO_WORK, "call 'cudaLaunchKernel'", 4)]
    trace = Trace(Path("made.json"), checked(made.trace().rows))
    assert trace.lost_launches.tolist() == [0, 1, 2, 3]


def test_parts_are_checked_and_split_one_by_one(recording):
    """Both processes use the same numbers: a launch of one has no work of the other."""
    made = recording(distributedInfo={"rank": 0, "world_size": 2})
    for rank in range(2):
        made.process = f"[TP0{rank}] "
        for number in range(1, 4):
            made.call(number, 1000 * number + rank)
            if rank == 0 or number < 3:
                made.kernel(f"of {rank}", 1000 * number + 500, 10 * (rank + 1), correlation=number)
    rows = checked(made.trace().rows)
    assert [(one.kind, one.part, one.count) for one in rows.problems] == [
        (ProblemKind.NO_WORK, 1, 1)
    ]
    (name, first), (other, second) = split(rows)
    assert (name, other) == ("TP00", "TP01")
    assert [(one.rank, one.world_size) for one in (first, second)] == [(0, 2), (1, 2)]
    assert first.problems == ()
    assert len(second.problems) == 1
    for one, rank in ((first, 0), (second, 1)):
        assert {one.names[name] for name in one.gpu.name} == {f"of {rank}"}
        assert np.unique(one.gpu.duration_ns).tolist() == [10 * (rank + 1)]
        assert len(one.calls.name) == 3
    whole = dataclasses.replace(rows, parts=())
    assert split(whole) == [("", whole)]
