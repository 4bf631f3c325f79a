from __future__ import annotations

import threading
import time

import pytest

from gemmetry.providers import _late_work
from gemmetry.providers._late_work import late_work, thread_ids


def watch(launch, state):
    return late_work(launch, lambda: list(state), lambda left, right: left == right)


def test_work_that_is_done_is_not_late():
    state = [0]
    assert watch(lambda: state.append(1), state) == ""


def test_a_pool_that_stays_is_no_late_work(monkeypatch):
    """It makes the wait longer, no more."""
    monkeypatch.setattr(_late_work, "LONGEST_WAIT_S", 0.1)
    state, stop = [0], threading.Event()
    worker = threading.Thread(target=stop.wait)
    began = time.monotonic()
    assert watch(worker.start, state) == ""
    assert time.monotonic() - began > 0.1
    stop.set()
    worker.join()


@pytest.mark.parametrize("delay", [0.01, 0.15])
def test_a_thread_that_writes_later_is_told(delay):
    state = [0]

    def write():
        time.sleep(delay)
        state.append(1)

    worker = threading.Thread(target=write)
    problem = watch(worker.start, state)
    worker.join()
    assert "after the launch was over: 1 threads that it started go on writing" in problem


def test_a_thread_from_before_is_told():
    state, go = [0], threading.Event()

    def serve():
        go.wait()
        time.sleep(0.005)
        state.append(1)

    worker = threading.Thread(target=serve)
    worker.start()
    problem = watch(go.set, state)
    worker.join()
    assert problem.endswith("another thread goes on writing")


def test_threads_are_counted():
    stop = threading.Event()
    before = thread_ids()
    worker = threading.Thread(target=stop.wait)
    worker.start()
    assert len(thread_ids() - before) == 1
    stop.set()
    worker.join()
