from __future__ import annotations

import pytest

from gemmetry.traces import model as stages
from gemmetry.traces.model import stage


@pytest.fixture
def clock(monkeypatch):
    """A clock that is moved by hand."""

    class Clock:
        now = 100.0

    monkeypatch.setattr(stages.time, "perf_counter", lambda: Clock.now)
    return Clock


def test_seconds_are_added_and_reported_once_also_of_a_stage_that_fails(clock):
    times: dict[str, float] = {"read": 5.0}
    with pytest.raises(KeyError), stage(times, "tables"):
        clock.now += 2
        for _ in range(2):
            with stage(times, "read"):
                clock.now += 3
        clock.now += 4
        raise KeyError
    assert times == {"read": 11.0, "tables": 6.0}
