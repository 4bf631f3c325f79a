from __future__ import annotations

import os
import time

import pytest

from gemmetry.measurement import settling as quiet
from gemmetry.measurement.settling import QuietGate, Visit, visit_processor

needs_affinity = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system cannot hold a thread to a processor"
)


def _gate(budget_s, visits):
    seen: list[int] = []

    def visit(processor):
        seen.append(processor)
        return visits(len(seen))

    return QuietGate(budget_s, visit), seen


@pytest.fixture(autouse=True)
def one_processor(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {5}, raising=False)


@pytest.mark.parametrize(
    ("visit", "is_disturbed"),
    [
        (Visit(90_000.0, 0.0), False),
        (Visit(2_000_000.0, 0.0), True),
        (Visit(90_000.0, 0.5), True),
    ],
)
def test_a_late_or_interrupted_visit_is_a_disturbance(visit, is_disturbed):
    assert visit.is_disturbed is is_disturbed


def test_a_quiet_machine_is_looked_at_once():
    gate, seen = _gate(1.0, lambda _n: Visit(0.0, 0.0))
    assert gate.wait() < 0.5
    gate.observe({"run_delay_share": 0.001})
    assert gate.wait() == 0.0
    assert seen == [5]


def test_it_waits_until_the_others_are_gone(monkeypatch):
    monkeypatch.setattr(quiet, "_PAUSE_S", 0.001)
    gate, seen = _gate(10.0, lambda n: Visit(0.0, 1.0 if n < 4 else 0.0))
    assert gate.wait() > 0.003
    assert len(seen) == 4


def test_waiting_has_a_budget_over_all_rounds(monkeypatch):
    monkeypatch.setattr(quiet, "_PAUSE_S", 0.001)
    gate, seen = _gate(0.02, lambda _n: Visit(0.0, 1.0))
    assert gate.wait() >= 0.02
    looked = len(seen)
    gate.observe({"run_delay_share": 0.9})
    assert gate.wait() == 0.0
    assert len(seen) == looked


def test_a_disturbed_round_makes_it_look_again():
    gate, seen = _gate(1.0, lambda _n: Visit(0.0, 0.0))
    gate.wait()
    gate.observe({"run_delay_share": 0.3})
    gate.wait()
    assert len(seen) == 2


@needs_affinity
def test_a_visit_comes_home(monkeypatch):
    monkeypatch.undo()
    home = os.sched_getaffinity(0)
    began = time.perf_counter()
    found = visit_processor(min(home))
    assert os.sched_getaffinity(0) == home
    assert 0.0 <= found.lost_share <= 1.0
    assert found.late_ns < (time.perf_counter() - began) * 1e9
