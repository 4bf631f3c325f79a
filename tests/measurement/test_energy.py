from __future__ import annotations

import bisect
import re
from dataclasses import dataclass

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


@dataclass
class Machine:
    """A device with a clock of its own, and a counter that is updated every `period_s`. Under load
    a launch takes `slowed` times as long as before."""

    period_s: float = 0.05
    launch_s: float = 1e-4
    gap_s: float = 0.0
    slowed: float = 1.0
    busy_w: float = 600.0
    idle_w: float = 100.0
    now: float = 0.0
    queued: int = 0
    made: int = 0

    def __post_init__(self):
        self.loaded_s = self.launch_s * self.slowed
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
        self.spend(self.queued * self.loaded_s, self.busy_w)
        if self.queued:
            self.spend(self.gap_s, self.idle_w)
        self.queued = 0

    def meter(self, counter=None):
        return EnergyMeter(
            counter or self.counter, self.submit, self.wait, 1, self.launch_s * 1e9,
            lambda: self.loaded_s * 1e9, clock=lambda: self.now,
            sleep=lambda seconds: self.spend(seconds, self.idle_w),
        )  # fmt: skip


@pytest.mark.parametrize("machine", [
    *map(Machine, (0.001, 0.02, 0.1, 0.7)),
    Machine(slowed=1.9),  # a limit on power under load is no idleness
])  # fmt: skip
def test_the_energy_of_a_launch_is_within_the_stated_resolution(machine):
    taken = machine.meter().measure(2)
    assert taken.reason == ""
    assert len(taken.windows) == 2
    for window in taken.windows:
        assert window.seconds >= WINDOW_S
        assert 0 < window.resolution <= COARSEST
        right = machine.busy_w * machine.loaded_s
        assert abs(window.joules / right - 1) <= window.resolution
        assert window.launches == pytest.approx(window.seconds / machine.loaded_s, rel=0.02)


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
    few = summarize_energy([_taken(1, 2), _taken(reason="lost")])
    assert (few.energy_j, few.ci_low_j, few.ci_high_j, few.reason) == (1.5, None, None, "lost")
    nothing = summarize_energy([_taken(reason="no NVML"), _taken(reason="no NVML")])
    assert nothing == EnergyFacts(reason="no NVML")
    assert summarize_energy([]) is None


def test_energy_is_that_of_the_launches_that_were_timed(kit, monkeypatch):
    """Each launch takes 1 ms of a simulated clock, and 0.5 J."""

    def prepared(**how):
        executable = kit.executable(kit.device(**how))
        sampler = Sampler(executable, kit.operation, kit.inputs, RunSettings())
        sampler.prepare()
        return executable, sampler

    executable, sampler = prepared(durations_ns=[1e6])
    before = executable.launches

    def meter(*given):
        seconds = lambda: (executable.launches - before) / 1000  # noqa: E731
        return EnergyMeter(*given, clock=seconds, sleep=lambda _seconds: None)

    monkeypatch.setattr(sampler_module, "EnergyMeter", meter)
    # The idle device uses nothing, so that its counter stays where it is.
    monkeypatch.setattr(EnergyMeter, "_idle_power", lambda self: 7.0)
    taken = sampler.measure_energy(lambda: (executable.launches - before) * 0.5, 2)
    assert [window.joules for window in taken.windows] == [pytest.approx(0.5)] * 2
    assert (taken.idle_power_w, taken.reason) == (7.0, "")
    _, simulated = prepared(method="simulated")
    taken = simulated.measure_energy(lambda: 1.0, 2)
    assert (taken.windows, taken.reason) == ((), "the simulated device uses no energy")
