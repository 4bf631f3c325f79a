"""The workers of a device start, load and end together."""

from __future__ import annotations

import threading

import pytest
from tests.engine import memory_workers

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.engine.process import WorkerPool, wait_for_ends
from gemmetry.engine.protocol import Failure, Hello, Open, Ready, Shutdown, WorkerLost
from gemmetry.engine.schema import Lane

LANES = [Lane(number, "null", {}, Target(TargetKind.NULL)) for number in (1, 2)]


@pytest.fixture
def pool(make_context):
    """WorkerPool of two workers, and all messages that were sent, as (worker, type), in order."""
    messages = []

    def make(answer=memory_workers.healthy_answers):
        def channel():
            number = len(executor.channels)

            def noted(request):
                messages.append((number, type(request)))
                return answer(request) if number in (0, 1) else healthy(request)

            return memory_workers.MemoryChannel(noted)

        healthy = memory_workers.healthy_answers
        executor = memory_workers.MemoryExecutor(channel)
        return WorkerPool(make_context(executor.start), 2), executor

    make.messages = messages
    return make


def test_all_workers_of_a_group_start_before_any_is_waited_for(pool):
    made, _ = pool()
    for lane in LANES:
        made.start(lane)
    # Each also loads what dispatches need, whatever the others do meanwhile.
    assert pool.messages == [(number, kind) for number in range(4) for kind in (Hello, Open)]
    made.of(LANES[0])
    made.of(LANES[1])
    assert len(pool.messages) == 8


def test_further_workers_start_when_they_are_wanted(pool):
    made, executor = pool()
    made.start(LANES[0], 1)
    assert len(executor.processes) == 1
    first = made.of(LANES[0], 1)
    assert len(first) == 1
    made.start(LANES[0])
    assert len(executor.processes) == 2
    assert made.of(LANES[0], 1) == first, "another one need not be waited for"
    both = made.of(LANES[0])
    assert (len(both), both[:1]) == (2, first)
    assert made.of(LANES[0], 1) == both, "what is ready takes part"
    made.drop(LANES[0].id)
    assert len(made.of(LANES[0], 5)) == 2, "a lane has two"
    assert len(executor.processes) == 4


@pytest.mark.parametrize("dies_in", [Hello, Open])
def test_a_lane_that_does_not_start_or_load_leaves_others_running(pool, dies_in):
    def answer(request):
        if isinstance(request, dies_in):
            return [Ready(Failure("UnsupportedError", "no"))]
        return memory_workers.healthy_answers(request)

    made, executor = pool(answer)
    for lane in LANES:
        made.start(lane)
    for _ in range(2):
        with pytest.raises(WorkerLost):
            made.of(LANES[0])
    assert len(made.of(LANES[1])) == 2
    assert [process.status for process in executor.processes] == [-9, -9, None, None]


def test_all_workers_receive_the_request_to_end_before_any_is_waited_for(pool):
    made, executor = pool()
    for lane in LANES:
        made.start(lane)
    made.of(LANES[0])
    waits = []
    for number, process in enumerate(executor.processes):
        process.wait = lambda seconds, number=number: waits.append(
            (number, [m for m in pool.messages if m[1] is Shutdown])
        )
    made.stop()
    assert [(number, len(sent)) for number, sent in waits] == [(n, 4) for n in range(4)]


def test_the_program_may_go_on_while_workers_end(pool):
    made, executor = pool()
    made.of(LANES[0])
    ends = threading.Event()
    for process in executor.processes:
        process.wait = lambda _seconds: ends.wait(60)
    made.stop(waits=False)
    assert [process.status for process in executor.processes] == [None, None]
    ends.set()
    wait_for_ends()
    assert [process.status for process in executor.processes] == [-9, -9]


def test_a_command_ends_after_its_workers(forked):
    done = forked("""
import sys, threading, time
from gemmetry import __main__
from gemmetry.engine import process
process._ending.append(threading.Thread(target=lambda: time.sleep(0.2) or print("ended")))
process._ending[0].start()
sys.argv = ["gemmetry", "--version"]
__main__.main()
""")
    assert (done.returncode, done.stdout.splitlines()[1:]) == (0, ["ended"])
