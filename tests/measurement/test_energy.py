from __future__ import annotations

import bisect
import re

import numpy as np
import pytest

from gemmetry.domain.errors import EnergyUnavailableError
from gemmetry.domain.record import EnergyFacts
from gemmetry.domain.settings import RunSettings
from gemmetry.measurement import sampler as sampler_module
from gemmetry.measurement.energy import (
    COARSEST,
    WINDOW_S,
    EnergyMeter,
    EnergyTaken,
    EnergyWindow,
    summarize_energy,
)
from gemmetry.measurement.sampler import Sampler


class Machine:
    """A device with a clock of its own, and a counter that is updated every `period_s`."""

    def __init__(
        self, *, period_s=0.05, busy_w=600.0, idle_w=100.0, launch_s=1e-4, gap_s=0.0, slowed=1.0
    ):
        self.now = 0.0
        self.period_s, self.busy_w, self.idle_w = period_s, busy_w, idle_w
        self.launch_s, self.gap_s, self.slowed = launch_s * slowed, gap_s, slowed
        self.queued = self.made = 0
        self.times, self.energies = [0.0], [0.0]

    def spend(self, seconds, watts):
        self.now += seconds
        self.times.append(self.now)
        self.energies.append(self.energies[-1] + seconds * watts)

    def counter(self):
        updated = self.now // self.period_s * self.period_s
        place = max(bisect.bisect_left(self.times, updated), 1) if updated else 0
        near = slice(max(place - 1, 0), place + 1)
        return float(np.interp(updated, self.times[near], self.energies[near]))

    def submit(self, calls):
        self.queued += calls
        self.made += calls

    def wait(self):
        self.spend(self.queued * self.launch_s, self.busy_w)
        if self.queued:
            self.spend(self.gap_s, self.idle_w)
        self.queued = 0

    def sleep(self, seconds):
        self.spend(seconds, self.idle_w)

    def clock(self):
        return self.now

    def meter(self, **changes):
        given = {"counter": self.counter} | changes
        return EnergyMeter(
            given["counter"], self.submit, self.wait, 1, self.launch_s / self.slowed * 1e9,
            lambda: self.launch_s * 1e9, clock=self.clock, sleep=self.sleep,
        )  # fmt: skip


@pytest.mark.parametrize("period_s", [0.001, 0.02, 0.1, 0.7])
def test_the_energy_of_a_launch_is_within_the_stated_resolution(period_s):
    machine = Machine(period_s=period_s)
    taken = machine.meter().measure(2)
    assert taken.reason == ""
    assert len(taken.windows) == 2
    for window in taken.windows:
        assert window.seconds >= WINDOW_S
        assert 0 < window.resolution <= COARSEST
        right = machine.busy_w * machine.launch_s
        assert abs(window.joules / right - 1) <= window.resolution
        assert window.launches == pytest.approx(window.seconds / machine.launch_s, rel=0.02)


def test_a_limit_on_power_under_load_is_no_idleness():
    machine = Machine(slowed=1.9)
    right = pytest.approx(machine.busy_w * machine.launch_s, rel=COARSEST)
    assert [window.joules for window in machine.meter().measure(2).windows] == [right] * 2


@pytest.mark.parametrize(
    ("period_s", "expected"), [(0.02, pytest.approx(100.0, rel=0.05)), (3.0, None)]
)
def test_idle_power_is_that_before_the_load_where_the_counter_shows_it(period_s, expected):
    taken = Machine(period_s=period_s).meter().measure(1)
    assert taken.idle_power_w == expected
    assert taken.windows


@pytest.mark.parametrize(("machine", "reason"), [
    (Machine(period_s=30.0), "was not updated within 10 s"),
    (Machine(launch_s=0.3), "resolves .* % only; 2 % are required"),
    (Machine(gap_s=0.008), "the device was idle in between"),
    (Machine(gap_s=0.015, slowed=1.9), "the device was idle in between"),
])  # fmt: skip
def test_what_cannot_be_resolved_has_its_reason(machine, reason):
    taken = machine.meter().measure(2)
    assert taken.windows == ()
    assert re.search(reason, taken.reason)


def test_a_device_without_a_counter_and_one_that_was_reset_are_reported():
    def counter():
        raise EnergyUnavailableError("no counter here")

    machine = Machine()
    assert machine.meter(counter=counter).measure(2) == EnergyTaken(reason="no counter here")
    assert machine.made == 0
    assert "was reset" in machine.meter(counter=lambda: -machine.now).measure(1).reason


def _taken(*joules, reason="", idle=None):
    windows = tuple(EnergyWindow(one, 2.0 + one, 100, one / 100) for one in joules)
    return EnergyTaken(windows, idle, reason)


def test_windows_of_all_processes_make_a_median_with_an_interval():
    facts = summarize_energy([_taken(1, 2, idle=90.0), _taken(3, 4), _taken(5, 6, idle=110.0)])
    assert facts == EnergyFacts(
        energy_j=3.5, ci_low_j=1.0, ci_high_j=6.0, windows=6, window_s=3.0, resolution=0.06,
        idle_power_w=100.0,
    )  # fmt: skip


def test_few_windows_have_no_interval_and_none_have_the_reason():
    few = summarize_energy([_taken(1, 2), _taken(reason="lost")])
    assert few is not None
    assert (few.energy_j, few.ci_low_j, few.ci_high_j) == (1.5, None, None)
    assert few.reason == "lost"
    nothing = summarize_energy([_taken(reason="no NVML"), _taken(reason="no NVML")])
    assert nothing == EnergyFacts(reason="no NVML")
    assert summarize_energy([]) is None


def test_energy_is_that_of_the_launches_that_were_timed(kit, monkeypatch):
    """Each launch takes 1 ms of a simulated clock, and 0.5 J."""
    executable = kit.executable(kit.device(durations_ns=[1e6]))
    sampler = Sampler(executable, kit.operation, kit.inputs, RunSettings())
    sampler.prepare()
    before = executable.launches

    def seconds():
        return (executable.launches - before) / 1000

    def meter(*given):
        return EnergyMeter(*given, clock=seconds, sleep=lambda _seconds: None)

    monkeypatch.setattr(sampler_module, "EnergyMeter", meter)
    # The idle device uses nothing, so that its counter stays where it is.
    monkeypatch.setattr(EnergyMeter, "_idle_power", lambda self: 7.0)
    taken = sampler.measure_energy(lambda: (executable.launches - before) * 0.5, 2)
    assert [window.joules for window in taken.windows] == [pytest.approx(0.5)] * 2
    assert (taken.idle_power_w, taken.reason) == (7.0, "")


def test_a_simulated_device_uses_no_energy(kit):
    executable = kit.executable(kit.device(method="simulated"))
    sampler = Sampler(executable, kit.operation, kit.inputs, RunSettings())
    sampler.prepare()
    taken = sampler.measure_energy(lambda: 1.0, 2)
    assert (taken.windows, taken.reason) == ((), "the simulated device uses no energy")
