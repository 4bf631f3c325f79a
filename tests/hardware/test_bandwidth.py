from __future__ import annotations

import pytest

from gemmetry.hardware import roofline as bandwidth


@pytest.fixture(autouse=True)
def _fresh():
    bandwidth.measure_host_bandwidth.cache_clear()
    yield
    bandwidth.measure_host_bandwidth.cache_clear()


def test_a_triad_moves_six_arrays(monkeypatch):
    facts = bandwidth.cpu_facts()
    arrays = 2**20
    monkeypatch.setattr(bandwidth, "_MIN_BYTES", arrays)
    monkeypatch.setattr(bandwidth, "_MAX_BYTES", arrays)
    now = [0.0]

    def clock():
        now[0] += 0.5
        return now[0]

    monkeypatch.setattr(bandwidth.time, "perf_counter", clock)
    per_worker = arrays // 8 // facts.physical_cores
    expected = 6 * 8 * per_worker * facts.physical_cores / 0.5
    assert bandwidth.measure_host_bandwidth() == expected


def test_it_is_measured_once(monkeypatch):
    monkeypatch.setattr(bandwidth, "_MIN_BYTES", 2**20)
    monkeypatch.setattr(bandwidth, "_MAX_BYTES", 2**20)
    first = bandwidth.measure_host_bandwidth()
    assert first is not None
    assert first > 0
    monkeypatch.setattr(bandwidth, "_triad", lambda _arrays: pytest.fail("measured again"))
    assert bandwidth.measure_host_bandwidth() == first


def test_too_little_memory_gives_no_bandwidth(monkeypatch):
    monkeypatch.setattr(bandwidth, "total_memory_bytes", lambda: 2**20)
    assert bandwidth.measure_host_bandwidth() is None
