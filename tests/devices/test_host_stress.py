"""Tests of stress on the host."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from gemmetry.hardware import host_device as host_stress
from gemmetry.hardware.host import running_times
from gemmetry.hardware.host_device import busy_processors, spoiled_heap

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
    assert not is_filled(size)
    with spoiled_heap(1, empty):
        assert is_filled(size)
        assert np.isnan(np.empty(size // 4, np.float32)).all()
        assert not np.zeros(size, np.uint8).any()
    assert not is_filled(size)


@pytest.mark.usefixtures("gnu")
def test_torch_gets_the_same_memory():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for size in SIZES:
        with spoiled_heap(1, empty):
            assert bool((torch.empty(size, dtype=torch.uint8) == 0xFF).all()), size


@pytest.mark.usefixtures("gnu")
def test_memory_of_other_threads_is_spoiled_too():
    found = []
    with spoiled_heap(1, empty):
        thread = threading.Thread(target=lambda: found.append(is_filled()))
        thread.start()
        thread.join()
    assert found == [True]


@pytest.mark.usefixtures("gnu")
def test_an_error_inside_ends_it():
    with pytest.raises(ValueError, match="inside"), spoiled_heap(1, empty):
        raise ValueError("inside")
    assert not is_filled()


def test_elsewhere_blocks_are_filled_and_freed(monkeypatch):
    monkeypatch.setattr(host_stress, "_perturb", lambda: lambda value: None)
    made = []

    def keep(size):
        made.append(np.zeros(size, np.uint8))
        return made[-1]

    with spoiled_heap(3000, keep):
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


def test_they_work_until_the_end_and_end_at_once():
    before = set(threading.enumerate())
    with busy_processors(2**25):
        (thread, *_) = set(threading.enumerate()) - before
        ran = running_times().get(thread.native_id or 0)
        if ran is None:
            pytest.skip("this system does not report how long threads ran")
        deadline = time.monotonic() + 300
        while running_times()[thread.native_id or 0] < ran + 20_000_000:
            assert time.monotonic() < deadline, "the load does not run"
            time.sleep(0.01)
        leaving = time.monotonic()
    assert time.monotonic() - leaving < 30
    assert not thread.is_alive()


def test_an_error_inside_ends_the_load():
    before = set(threading.enumerate())
    with pytest.raises(ValueError, match="inside"), busy_processors(0):
        raise ValueError("inside")
    assert set(threading.enumerate()) <= before
