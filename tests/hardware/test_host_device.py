"""Tests of stress on the host."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from gemmetry.hardware import host_device as blas_threads
from gemmetry.hardware import host_device as host_stress
from gemmetry.hardware import opening as _late_work
from gemmetry.hardware.host import running_times
from gemmetry.hardware.host_device import busy_processors, spoiled_heap
from gemmetry.hardware.opening import late_work, thread_ids

SIZES = (2048, 5000, 100_000, 2**20, 6 * 2**20, 48 * 2**20)


def empty(size):
    return np.empty(size, np.uint8)


def is_filled(size=50_000):
    """Whether new memory is full of NaN, although the memory freed last is not."""
    block = empty(size)
    block.fill(7)
    del block
    return bool((empty(size) == 0xFF).all())


@pytest.fixture
def gnu():
    """Only with the GNU C library."""
    with spoiled_heap(1, empty):
        if not is_filled():
            pytest.skip("this C library does not fill what it hands out")


@pytest.mark.usefixtures("gnu")
@pytest.mark.parametrize("size", SIZES)
def test_memory_of_any_size_holds_nan_inside_only(size):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    assert not is_filled(size)
    with spoiled_heap(1, empty):
        assert is_filled(size)
        assert np.isnan(np.empty(size // 4, np.float32)).all()
        assert not np.zeros(size, np.uint8).any()
    with spoiled_heap(1, empty):
        assert bool((torch.empty(size, dtype=torch.uint8) == 0xFF).all())
    assert not is_filled(size)


def until(is_so):
    """Whether something is so within minutes, as a busy machine may need them."""
    deadline = time.monotonic() + 300
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.001)
    return is_so()


@pytest.mark.usefixtures("gnu")
def test_memory_of_other_threads_is_spoiled_too():
    found = []
    with spoiled_heap(1, empty):
        thread = threading.Thread(target=lambda: found.append(is_filled()))
        thread.start()
        thread.join()
    assert found == [True]


def test_elsewhere_blocks_are_filled_and_freed(monkeypatch):
    monkeypatch.setattr(host_stress, "_perturb", lambda: lambda value: None)
    made = []
    with spoiled_heap(3000, lambda size: made.append(np.zeros(size, np.uint8)) or made[-1]):
        probe, *blocks = made
        assert not probe.any()
        assert len(blocks) == 3
        assert all(block.size == 3000 and (block == 0xFF).all() for block in blocks)


def test_a_library_without_the_switch_is_left_alone(monkeypatch):
    def refuse(name):
        raise OSError("no such library")

    monkeypatch.setattr(host_stress.ctypes, "CDLL", refuse)
    host_stress._perturb.cache_clear()
    try:
        assert host_stress._perturb()(0x100) is None
    finally:
        host_stress._perturb.cache_clear()


@pytest.mark.parametrize(("processors", "threads"), [(1, 1), (2, 1), (7, 3), (200, 16)])
def test_half_of_the_processors_are_busy(processors, threads, monkeypatch):
    monkeypatch.setattr(host_stress, "usable_cores", lambda: processors)
    before = set(threading.enumerate())
    with busy_processors(0):
        assert len(set(threading.enumerate()) - before) == threads
    assert set(threading.enumerate()) <= before


@pytest.mark.usefixtures("gnu")
def test_an_error_inside_ends_the_load_and_the_spoiling():
    before = set(threading.enumerate())
    with pytest.raises(ValueError, match="inside"), busy_processors(0), spoiled_heap(1, empty):
        raise ValueError("inside")
    assert set(threading.enumerate()) <= before
    assert not is_filled()


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the system lists no threads")
def test_they_work_until_the_end_and_end_at_once():
    before = set(threading.enumerate())
    with busy_processors(2**25):
        (thread, *_) = set(threading.enumerate()) - before
        task = thread.native_id
        ran = running_times().get(task)
        if ran is None:
            pytest.skip("this system does not report how long threads ran")
        assert until(lambda: running_times()[task] >= ran + 20_000_000), "the load does not run"
        assert until(lambda: _late_work._is_runnable(task))
        leaving = time.monotonic()
    assert time.monotonic() - leaving < 30
    assert not thread.is_alive()
    # join() returns a little before the system's thread is gone.
    assert until(lambda: not _late_work._is_runnable(task))


def test_nothing_is_waited_for_where_no_other_thread_ran(monkeypatch):
    """A thread that sleeps all the time is not waited for; one that runs meanwhile is."""
    naps: list[float] = []
    monkeypatch.setattr(_late_work.time, "sleep", naps.append)
    monkeypatch.setattr(_late_work.threading, "get_native_id", lambda: 7)
    monkeypatch.setattr(_late_work, "_is_runnable", lambda task: False)

    def naps_with(before, after):
        naps.clear()
        monkeypatch.setattr(_late_work, "running_times", iter([before, after]).__next__)
        assert Watched().problem(lambda: None) == ""
        return naps

    assert naps_with({1: 5}, {1: 5}), "the system does not report the calling thread"
    assert not naps_with({7: 1, 8: 5}, {7: 9, 8: 5})
    assert naps_with({7: 1, 8: 5}, {7: 9, 8: 6}) == [_late_work.WAIT_S]
    assert naps_with({7: 1, 8: 5}, {7: 9}) == [_late_work.WAIT_S], "it ended meanwhile"
    monkeypatch.setattr(_late_work, "_is_runnable", lambda task: task == 8)
    assert naps_with({7: 1, 8: 5}, {7: 9, 8: 5}) == [_late_work.WAIT_S]


def test_a_pool_that_stays_is_not_late_work(monkeypatch):
    """It makes the wait longer and has no other effect."""
    monkeypatch.setattr(_late_work, "LONGEST_WAIT_S", 0.1)
    stop, before = threading.Event(), thread_ids()
    worker = threading.Thread(target=stop.wait)
    began = time.monotonic()
    assert Watched().problem(worker.start) == ""
    assert time.monotonic() - began > 0.1
    assert len(thread_ids() - before) == 1
    stop.set()
    worker.join()


class Watched:
    """A result that other threads change only after the first look, however late that comes."""

    def __init__(self):
        self.is_written = False
        self.seen = threading.Event()

    def look(self, returned=None):
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
        watched.is_written = found is None
        return found or others

    monkeypatch.setattr(_late_work, "thread_ids", ids)
    assert "continued to write" in watched.problem(lambda: None)


@pytest.mark.parametrize("is_over_at_once", [False, True])
def test_a_thread_from_before_is_reported(is_over_at_once):
    watched = Watched()
    worker = threading.Thread(target=watched.write)
    worker.start()

    def look(returned):
        if watched.seen.is_set():
            worker.join()  # However busy the machine, it writes within the wait.
        found = watched.look()
        if is_over_at_once:
            worker.join()
            assert until(lambda: worker.native_id not in thread_ids())
        return found

    problem = late_work(lambda: None, look, bool.__eq__)
    assert problem.endswith("another thread continued to write")


def test_the_number_of_threads_can_be_set_and_read(monkeypatch):
    before = blas_threads.blas_threads()
    if before is None:
        pytest.skip(f"{blas_threads.blas_name()} does not report its number of threads")
    for count in (2, 1, before):
        assert blas_threads.set_blas_threads(count)
        assert blas_threads.blas_threads() == count
        assert np.allclose(np.ones((64, 64)) @ np.ones((64, 64)), 64)
    monkeypatch.setattr(blas_threads, "_thread_functions", lambda: None)
    assert blas_threads.blas_threads() is None
    assert blas_threads.set_blas_threads(2) is False


def test_libraries_are_found_in_the_maps_with_numpys_first(tmp_path):
    maps = tmp_path / "maps"
    numpys, other = "/x/numpy.libs/libscipy_openblas64_-1.so", "/usr/lib/libopenblas.so.0"
    paths = ("[vdso]", other, "/usr/lib/libc.so.6", numpys, numpys)
    maps.write_text("".join(f"7f00-7f01 r-xp 00000000 08:01 12   {path}\n" for path in paths))
    assert blas_threads._loaded_libraries(maps) == [numpys, other]
    assert blas_threads._loaded_libraries(tmp_path / "none") == []
