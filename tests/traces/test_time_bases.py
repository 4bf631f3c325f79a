from __future__ import annotations

import pytest

from gemmetry.traces.time_bases import time_base_problems

HOUR = 3600 * 10**9


def problems(made):
    return [
        (one.where, one.what.partition(":")[0]) for one in time_base_problems(made.trace().rows)
    ]


def test_work_apart_from_the_rest_is_named(recording):
    made = recording()
    for place in range(3):
        made.kernel("boot", 10**9 + place, 5)
    for place in range(5):
        made.kernel("since 1970", 10**9 + 48 * HOUR + place, 5)
    assert problems(made) == [
        ("work on a GPU 'boot' (and 2 more)", "begins 2.0 days before the rest"),
    ]


def test_a_single_kernel_after_the_rest(recording):
    made = recording()
    for place in range(3):
        made.kernel("k", place, 5)
    made.kernel("late", 3 * HOUR, 5)
    assert problems(made) == [("work on a GPU 'late'", "begins 3.0 hours after the rest")]


@pytest.mark.parametrize("away", [-5 * 10**9, 2 * HOUR])
def test_work_that_does_not_follow_its_launch_is_named(recording, away):
    made = recording()
    made.kernel("long", 10**10, 2 * HOUR)
    for number in (1, 2):
        made.launch("k", number, at=10**10 + 100 * number, lasts=5)
    made.call(3, 10**10)
    made.kernel("other", 10**10 + away, 2 * HOUR, correlation=3)
    ((where, what),) = problems(made)
    assert where == "work on a GPU 'other'"
    side = "2.0 hours after" if away > 0 else "5 s before"
    assert what == f"begins {side} its launch, other work does not"


def test_a_host_whose_clock_differs_from_the_gpus_is_no_fault_of_kernels(recording):
    made = recording()
    for number in (1, 2):
        made.call(number, 10**12)
        made.kernel("k", 100 * number, 5, correlation=number)
    assert problems(made) == []


def test_usual_work_is_on_one_base(recording):
    assert problems(recording()) == []
    made = recording()
    made.launch("a", 1, at=100, lasts=5)
    # A long kernel joins what is before and after it.
    made.kernel("b", 200, 4 * HOUR)
    made.launch("c", 2, at=4 * HOUR + 10**9, lasts=5)
    assert problems(made) == []
