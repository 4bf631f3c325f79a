from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from gemmetry.hardware import opening as _late_work
from gemmetry.hardware.opening import late_work, thread_ids


def watch(launch, state):
    return late_work(launch, lambda: list(state), lambda left, right: left == right)


def test_work_that_is_done_is_not_late():
    state = [0]
    assert watch(lambda: state.append(1), state) == ""


def test_nothing_is_waited_for_where_no_other_thread_ran(monkeypatch):
    """A thread that sleeps all the time is not waited for; one that runs meanwhile is."""
    naps: list[float] = []
    monkeypatch.setattr(_late_work.time, "sleep", naps.append)
    monkeypatch.setattr(_late_work.threading, "get_native_id", lambda: 7)
    monkeypatch.setattr(_late_work, "_is_runnable", lambda task: False)

    def naps_with(before, after):
        naps.clear()
        monkeypatch.setattr(_late_work, "running_times", iter([before, after]).__next__)
        assert watch(lambda: None, [0]) == ""
        return naps

    assert naps_with({1: 5}, {1: 5}), "the system does not report the calling thread"
    assert not naps_with({7: 1, 8: 5}, {7: 9, 8: 5})
    assert naps_with({7: 1, 8: 5}, {7: 9, 8: 6}) == [_late_work.WAIT_S]
    assert naps_with({7: 1, 8: 5}, {7: 9}) == [_late_work.WAIT_S], "it ended meanwhile"
    monkeypatch.setattr(_late_work, "_is_runnable", lambda task: task == 8)
    assert naps_with({7: 1, 8: 5}, {7: 9, 8: 5}) == [_late_work.WAIT_S]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the system lists no threads")
def test_a_thread_that_computes_is_runnable():
    stop = threading.Event()

    def work():
        while not stop.is_set():
            hash("x" * 9)

    worker = threading.Thread(target=work)
    worker.start()
    until = time.monotonic() + 300
    while not (seen := _late_work._is_runnable(worker.native_id)) and time.monotonic() < until:
        time.sleep(0.001)
    stop.set()
    worker.join()
    assert seen
    # join() returns a little before the system's thread is gone.
    while _late_work._is_runnable(worker.native_id) and time.monotonic() < until:
        time.sleep(0.001)
    assert not _late_work._is_runnable(worker.native_id), "it has ended"


def test_a_pool_that_stays_is_not_late_work(monkeypatch):
    """It makes the wait longer and has no other effect."""
    monkeypatch.setattr(_late_work, "LONGEST_WAIT_S", 0.1)
    state, stop = [0], threading.Event()
    worker = threading.Thread(target=stop.wait)
    began = time.monotonic()
    assert watch(worker.start, state) == ""
    assert time.monotonic() - began > 0.1
    stop.set()
    worker.join()


class Watched:
    """A result that other threads change only after the first look, however late that comes."""

    def __init__(self):
        self.is_written = False
        self.seen = threading.Event()

    def look(self):
        found = self.is_written
        self.seen.set()
        return found

    def write(self, delay_s=0.0):
        self.seen.wait()
        time.sleep(delay_s)
        self.is_written = True

    def problem(self, launch):
        return late_work(launch, self.look, bool.__eq__)


@pytest.mark.parametrize("delay_s", [0.0, 0.15])
def test_a_thread_that_writes_later_is_reported(monkeypatch, delay_s):
    monkeypatch.setattr(_late_work, "LONGEST_WAIT_S", 60.0)
    watched = Watched()
    worker = threading.Thread(target=watched.write, args=(delay_s,))
    problem = watched.problem(worker.start)
    worker.join()
    assert "after the launch was over: 1 thread that it started continued to write" in problem


def test_a_thread_that_ends_between_two_looks_is_reported(monkeypatch):
    """It writes and ends right after a look: what it wrote is still found."""
    watched = Watched()
    others = thread_ids()
    answers = iter([others, others | {-1}, others | {-1}])

    def ids():
        found = next(answers, None)
        if found is None:
            watched.is_written = True
            return others
        return found

    monkeypatch.setattr(_late_work, "thread_ids", ids)
    assert "continued to write" in watched.problem(lambda: None)


@pytest.mark.parametrize("is_over_at_once", [False, True])
def test_a_thread_from_before_is_reported(is_over_at_once):
    watched = Watched()
    worker = threading.Thread(target=watched.write)
    worker.start()

    def look():
        if watched.seen.is_set():
            worker.join()  # However busy the machine, it writes within the wait.
        found = watched.look()
        if is_over_at_once:
            worker.join()
            while worker.native_id in thread_ids():
                time.sleep(0.001)
        return found

    problem = late_work(lambda: None, look, bool.__eq__)
    assert problem.endswith("another thread continued to write")


def test_threads_are_counted():
    stop = threading.Event()
    before = thread_ids()
    worker = threading.Thread(target=stop.wait)
    worker.start()
    assert len(thread_ids() - before) == 1
    stop.set()
    worker.join()
