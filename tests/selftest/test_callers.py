from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gemmetry.hardware.host_device import HostDevice
from gemmetry.numerics.references import compute_reference
from gemmetry.selftest import rare as host_callers
from gemmetry.selftest.rare import BACK_TO_BACK_S, TABLE_SIZE, Lazy


@pytest.fixture
def postponed(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """Work that was left to threads, which do not start."""
    work: list[Callable[[], object]] = []
    monkeypatch.setattr(host_callers, "_later", work.append)
    return work


def test_work_left_to_a_thread_is_not_done_when_the_launch_returns(
    plant: Any, postponed: list[Callable[[], object]]
) -> None:
    bench = plant("work_left_to_thread")
    HostDevice().fill_bytes(bench.output, 0xFF)
    result = bench.executable.run(bench.buffers, bench.output)
    assert result is bench.output
    assert bench.wrong(bench.output).all()
    postponed.pop()()
    assert not bench.wrong(bench.output).any()


def test_a_thread_writes_after_a_right_launch(
    plant: Any, postponed: list[Callable[[], object]]
) -> None:
    bench = plant("thread_writes_later")
    assert bench.is_right()
    postponed.pop()()
    assert not bench.output[0].any()
    assert bench.output[1:].all()


def test_later_means_in_a_thread_of_its_own() -> None:
    done = threading.Event()
    threads = [threading.current_thread()]

    def work() -> None:
        threads.append(threading.current_thread())
        done.set()

    host_callers._later(work)
    assert done.wait(timeout=60)
    assert threads[0] is not threads[1]


def test_a_lazy_result_computes_when_it_is_looked_at(plant: Any) -> None:
    bench = plant("lazy_result")
    HostDevice().fill_bytes(bench.output, 0xFF)
    result = bench.executable.run(bench.buffers, bench.output)
    assert isinstance(result, Lazy)
    assert result.shape == bench.output.shape
    assert bench.kernel.launches == 0
    reference = compute_reference(bench.operation, bench.inputs)
    np.testing.assert_allclose(np.asarray(result), reference.value, atol=1e-4)
    assert bench.kernel.launches == 1


def test_launches_at_once_are_skipped_and_others_are_not(
    plant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = plant("back_to_back_skipped")
    now = [1.0]
    monkeypatch.setattr("gemmetry.selftest.rare.time.perf_counter", lambda: now[0])
    assert bench.is_right()
    assert bench.wrong().all()
    now[0] += 2 * BACK_TO_BACK_S
    assert bench.is_right()


def test_outputs_beyond_the_table_are_skipped(plant: Any) -> None:
    bench = plant("output_table_full")
    outputs = [np.full_like(bench.output, np.nan) for _ in range(TABLE_SIZE + 2)]
    for output in (*outputs, *outputs):
        bench.executable.run(bench.buffers, output)
    right = [not bench.wrong(output).any() for output in outputs]
    assert right == [True] * TABLE_SIZE + [False] * 2


def test_a_fixed_wait_is_enough_while_nothing_else_runs(plant: Any) -> None:
    bench = plant("fixed_wait_for_partner")
    assert all(bench.is_right() for _ in range(3))


def test_a_fixed_wait_is_too_short_under_load(plant: Any) -> None:
    bench = plant("fixed_wait_for_partner")
    with HostDevice().load():
        wrong = [bench.wrong() for _ in range(8)]
    hit = [mask for mask in wrong if mask.any()]
    assert hit
    for mask in hit:
        assert mask[64:, 64:].mean() > 0.9
        assert not mask[:64].any()
        assert not mask[:, :64].any()
    assert bench.is_right()


@pytest.mark.parametrize("ran_ns", [0, host_callers.LATE_NS, host_callers.LATE_NS + 1])
def test_what_counts_is_what_other_threads_ran(
    plant: Any, ran_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept, counters = [], iter([1000, 1000 + ran_ns])
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(host_callers, "_others_ran_ns", lambda: next(counters))
    assert plant("fixed_wait_for_partner").is_right() is (ran_ns <= host_callers.LATE_NS)
    assert slept == [host_callers.WAIT_S]
