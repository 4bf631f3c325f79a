from __future__ import annotations

import os
import time

import pytest

from gemmetry.measurement import energy as load
from gemmetry.measurement import launches as settling
from gemmetry.measurement.energy import Loader
from gemmetry.measurement.launches import QuietGate, Visit, visit_processor

WAITING = [0]
"""What the threads of the process have waited for processors, in ns."""


class Device:
    """Each launch takes the next of `durations_ns`, and the last one from then on; with `delay` its
    threads wait as long."""

    def __init__(self, durations_ns, delays=()):
        self.durations_ns, self.delays, self.launches = durations_ns, delays, 0

    def time_calls(self, calls):
        taken = []
        for _ in calls:
            place = self.launches
            taken.append(self.durations_ns[min(place, len(self.durations_ns) - 1)])
            WAITING[0] += self.delays[place] if place < len(self.delays) else 0
            self.launches += 1
        return taken, "wall_clock"


@pytest.fixture(autouse=True)
def spread(monkeypatch):
    """Notes each time that threads are moved apart; the process may run on processor 5."""
    moved = []
    monkeypatch.setattr(settling, "waiting_times", lambda: {1: WAITING[0]})
    monkeypatch.setattr(settling, "running_times", dict)
    monkeypatch.setattr(settling, "spread_threads", moved.append)
    monkeypatch.setattr(settling, "_PAUSE_S", 0.001)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {5}, raising=False)
    return moved


@pytest.mark.parametrize(("launches_ns", "delays", "budget_ns", "least_ns", "count", "moves"), [
    ([749e3] * 5 + [37e3], (), 2e9, 37e3, 195, 0),  # short after the first five, for 10 ms
    ([1.1e6] * 18 + [36e3], [1e6] * 18, 2e9, 36e3, 19, 18),  # one launch between two looks
    ([1e6], [1e6] * 1000, 2e9, 1e6, 30, 30),  # threads never cease to wait
    ([1e6], [1e6] * 1000, 1e8, 1e6, 10, 10),  # a tenth of the budget
    ([40e6], (), 1e12, 40e6, 0, 0),
    ([1.0], (), 1e12, 1.0, 1000, 0),
])  # fmt: skip
def test_a_warm_up_continues_until_launches_are_short_and_nobody_waits(
    spread, launches_ns, delays, budget_ns, least_ns, count, moves
):
    device = Device(launches_ns, delays)
    found = settling.warm_up(device, lambda count: [int] * count, launches_ns[0], budget_ns)
    assert (found, device.launches, len(spread)) == (least_ns, count, moves)


def test_it_waits_until_the_others_are_gone_within_a_budget_over_all_rounds():
    gate, seen = _gate(10.0, lambda n: Visit(0.0, 1.0 if n < 4 else 0.0))
    assert gate.wait() > 0.003
    assert len(seen) == 4
    gate, seen = _gate(0.02, lambda _n: Visit(0.0, 1.0))
    assert gate.wait() >= 0.02
    looked = len(seen)
    gate.observe({"run_delay_share": 0.9})
    assert gate.wait() == 0.0
    assert len(seen) == looked


def test_launches_settle_near_the_shortest(spread):
    device = Device([4e6, 4e6, 1.2e6])
    assert settling.settle(device, int, 1e6) == 1e6
    assert (device.launches, len(spread)) == (3, 2)
    assert settling.settle(Device([0.9e6]), int, 1e6) == 0.9e6


def _gate(budget_s, visits):
    seen: list[int] = []
    return QuietGate(budget_s, lambda processor: seen.append(processor) or visits(len(seen))), seen


@pytest.mark.parametrize(("visit", "is_disturbed"), [
    (Visit(90_000.0, 0.0), False), (Visit(2_000_000.0, 0.0), True), (Visit(90_000.0, 0.5), True),
])  # fmt: skip
def test_a_late_or_interrupted_visit_is_a_disturbance(visit, is_disturbed):
    assert visit.is_disturbed is is_disturbed


@pytest.mark.parametrize(("share", "looks"), [(0.001, 1), (0.3, 2)])
def test_a_quiet_machine_is_looked_at_again_after_a_disturbed_round(share, looks):
    gate, seen = _gate(1.0, lambda _n: Visit(0.0, 0.0))
    assert gate.wait() < 0.5
    gate.observe({"run_delay_share": share})
    assert (gate.wait() == 0.0) is (looks == 1)
    assert seen == [5] * looks


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system cannot hold a thread to a processor"
)
def test_a_visit_comes_home(monkeypatch):
    monkeypatch.undo()
    home = os.sched_getaffinity(0)
    began = time.perf_counter()
    found = visit_processor(min(home))
    assert os.sched_getaffinity(0) == home
    assert 0.0 <= found.lost_share <= 1.0
    assert found.late_ns < (time.perf_counter() - began) * 1e9


class Machine:
    """A device whose calls take `call_s(now)`, and an observer of its clock."""

    def __init__(self, monkeypatch, call_s=lambda _now: 1e-3, clock_hz=lambda _now: None):
        self.now, self.samples = 0.0, 0
        self.call_s, self.clock_hz = call_s, clock_hz
        monkeypatch.setattr(load.time, "perf_counter", lambda: self.now)

    def calls(self, count):
        def call():
            self.now += self.call_s(self.now)

        return [call] * count

    def synchronize(self): ...

    def start(self): ...

    def sample(self):
        self.samples += 1

    def stop(self):
        clock = self.clock_hz(self.now)
        return {} if clock is None else {"sm_clock_hz": clock}

    def loader(self, call_ns=1e6):
        return Loader(self, self.calls, call_ns, [self])


SECOND = load.SETTLED_WINDOWS * load.LOAD_WINDOW_S


@pytest.mark.parametrize(("call_s", "clock_hz", "is_settled", "low_s", "high_s"), [
    (lambda _now: 1e-3, lambda _now: 1.5e9, True, 0.8 * SECOND, 1.2 * SECOND),
    (lambda _now: 1e-3, lambda now: 1.9e9 - 1e8 * min(now, 3.0), True, 3.0, 4.5),
    (lambda now: 1e-3 * (1 + now / 10), lambda _now: None, False,
     load.MOST_LOAD_S - load.LOAD_WINDOW_S, load.MOST_LOAD_S + load.LOAD_WINDOW_S),
])  # fmt: skip
def test_a_changing_clock_or_speed_is_waited_for_and_given_up(
    monkeypatch, call_s, clock_hz, is_settled, low_s, high_s
):
    machine = Machine(monkeypatch, call_s, clock_hz)
    found = machine.loader().settle()
    assert found.is_settled is is_settled
    assert low_s <= found.seconds <= high_s
    assert machine.samples >= load.SETTLED_WINDOWS
    assert is_settled or found.change > load.SETTLED_SPEED


def test_a_load_lasts_as_long_as_requested_or_as_one_call(monkeypatch):
    assert Machine(monkeypatch).loader().run(0.2) == pytest.approx(0.2, abs=0.03)
    found = Machine(monkeypatch, call_s=lambda _now: 10.0).loader(1e10).settle()
    assert found.seconds == 10.0
