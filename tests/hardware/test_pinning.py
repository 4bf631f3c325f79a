from __future__ import annotations

import os
from pathlib import Path

import pytest

from gemmetry.hardware.host import (
    choose_processors,
    format_processors,
    pin_process,
    running_times,
    spread_threads,
)


@pytest.fixture
def root(host_tree):
    """Four cores of two threads: 0 and 4, 1 and 5, ..."""
    for processor in range(8):
        host_tree.siblings(processor, f"{processor % 4},{processor % 4 + 4}")
    return host_tree.root


@pytest.mark.parametrize(("threads", "usable", "expected"), [
    (4, range(8), "0-3"),
    (5, range(8), "0-4"),
    (2, (0, 4, 1), "0-1"),
    (0, range(8), "0-7"),
    (99, (3, 7), "3,7"),
    (4, (5, 4, 7, 2), "2,4-5,7"),
])  # fmt: skip
def test_each_core_gets_a_thread_before_one_gets_two(root, threads, usable, expected):
    assert format_processors(choose_processors(threads, usable, root)) == expected
    assert choose_processors(2, (0, 4, 9), root / "none") == (0, 4), "unknown cores count one each"
    assert format_processors(()) == ""


def test_every_thread_is_held_to_them_but_those_that_ended(root, threads):
    make, _masks, calls = threads
    tasks = make(t12=1, t13=1, t15=1)
    assert pin_process(2, root, tasks) == (0, 1)
    assert sorted(calls) == [(12, {0, 1}), (13, {0, 1})]
    assert pin_process(1, root, tasks / "none") == (0,)


@pytest.fixture
def threads(tmp_path, monkeypatch):
    """Threads that ran so long, and what happens to their processors."""
    masks: dict[int, set[int]] = {}
    calls: list[tuple[int, set[int]]] = []

    def get(task):
        return masks.get(task, set(range(8)))

    def put(task, processors):
        if task == 15:
            raise ProcessLookupError
        masks[task] = set(processors)
        calls.append((task, set(processors)))

    monkeypatch.setattr(os, "sched_getaffinity", get, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", put, raising=False)
    folder = tmp_path / "tasks"

    def make(**ran_ns):
        for name, ns in ran_ns.items():
            task = folder / name.removeprefix("t")
            task.mkdir(parents=True)
            (task / "schedstat").write_text(f"{ns} 7 3\n")
        return folder

    return make, masks, calls


def test_threads_that_worked_get_a_core_each_and_are_let_go(threads):
    make, masks, calls = threads
    tasks = make(t11=5_000, t12=9_000, t13=100, t14=90_000)
    assert running_times(tasks) == {11: 5_000, 12: 9_000, 13: 100, 14: 90_000}
    before = {14: 89_900, 11: 0}
    assert spread_threads(before, tasks) == 2
    assert calls[:2] == [(12, {0}), (11, {1})], "the busiest first; 13 and 14 hardly worked"
    assert masks == {11: set(range(8)), 12: set(range(8))}


def test_bound_threads_stay_and_ended_ones_are_not_an_error(threads):
    make, masks, calls = threads
    tasks = make(t11=5_000, t12=9_000)
    masks[12] = {3}
    assert spread_threads({}, tasks) == 1
    assert masks[12] == {3}
    make(t15=99_000)
    calls.clear()
    assert spread_threads({}, tasks) == 0
    make(**{f"t{number}": 1_000_000 for number in range(20, 32)})
    assert spread_threads({}, tasks) == 8, "no more than processors"
    assert spread_threads({}, tasks / "none") == 0


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the system lists no threads")
def test_this_process_keeps_its_processors():
    before = os.sched_getaffinity(0)
    ran = running_times()
    assert os.getpid() in ran
    sum(range(10**6))
    spread_threads(ran)
    assert os.sched_getaffinity(0) == before
