from __future__ import annotations

import pytest

from gemmetry.measurement import energy as load
from gemmetry.measurement.energy import Loader


class Machine:
    """A device whose calls take `call_s(now)`, and an observer of its clock."""

    def __init__(self, monkeypatch, call_s=lambda _now: 1e-3, clock_hz=lambda _now: None):
        self.now = 0.0
        self.call_s, self.clock_hz = call_s, clock_hz
        self.samples = 0
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


def test_a_steady_device_is_settled_after_a_second(monkeypatch):
    machine = Machine(monkeypatch, clock_hz=lambda _now: 1.5e9)
    found = machine.loader().settle()
    assert found.is_settled
    assert found.seconds == pytest.approx(load.SETTLED_WINDOWS * load.LOAD_WINDOW_S, rel=0.2)
    assert machine.samples >= load.SETTLED_WINDOWS


def test_a_falling_clock_is_waited_for(monkeypatch):
    machine = Machine(monkeypatch, clock_hz=lambda now: 1.9e9 - 1e8 * min(now, 3.0))
    found = machine.loader().settle()
    assert found.is_settled
    assert 3.0 < found.seconds < 4.5


def test_changing_speed_alone_is_waited_for_and_given_up(monkeypatch):
    machine = Machine(monkeypatch, call_s=lambda now: 1e-3 * (1 + now / 10))
    found = machine.loader().settle()
    assert not found.is_settled
    assert found.seconds == pytest.approx(load.MOST_LOAD_S, abs=load.LOAD_WINDOW_S)
    assert found.change > load.SETTLED_SPEED


def test_a_call_longer_than_the_windows_ends_all_the_same(monkeypatch):
    found = Machine(monkeypatch, call_s=lambda _now: 10.0).loader(1e10).settle()
    assert found.seconds == 10.0


def test_a_load_of_some_time(monkeypatch):
    assert Machine(monkeypatch).loader().run(0.2) == pytest.approx(0.2, abs=0.03)
