from __future__ import annotations

import pytest

from gemmetry.measurement import settling

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
    """Notes each time that threads are moved apart."""
    moved = []
    monkeypatch.setattr(settling, "waiting_times", lambda: {1: WAITING[0]})
    monkeypatch.setattr(settling, "running_times", dict)
    monkeypatch.setattr(settling, "spread_threads", moved.append)
    return moved


def _calls(count):
    return [int] * count


def test_a_warm_up_continues_until_launches_are_short(spread):
    """Launches of 749 µs that take 37 µs after the first five."""
    device = Device([749e3] * 5 + [37e3])
    assert settling.warm_up(device, _calls, 749e3, 2e9) == 37e3
    assert 5 * 749e3 + (device.launches - 5) * 37e3 >= settling.WARM_NS
    assert not spread, "nobody waited"


def test_a_warm_up_continues_while_threads_wait_and_moves_them_apart(spread):
    device = Device([1.1e6] * 18 + [36e3], [1e6] * 18)
    assert settling.warm_up(device, _calls, 1.1e6, 2e9) == 36e3
    assert len(spread) == 18, "one launch between two looks"


@pytest.mark.parametrize(("budget_ns", "limit_ns"), [(2e9, settling.SETTLE_NS), (1e8, 1e7)])
def test_a_warm_up_ends_where_threads_never_cease_to_wait(budget_ns, limit_ns):
    device = Device([1e6], [1e6] * 1000)
    assert settling.warm_up(device, _calls, 1e6, budget_ns) == 1e6
    assert device.launches == limit_ns / 1e6


@pytest.mark.parametrize("launch_ns", [40e6, 1.0])
def test_a_warm_up_is_bounded(launch_ns):
    device = Device([launch_ns])
    assert settling.warm_up(device, _calls, launch_ns, 1e12) == launch_ns
    assert device.launches == (0 if launch_ns > settling.SETTLE_NS else 1000)


def test_launches_settle_near_the_shortest(spread):
    device = Device([4e6, 4e6, 1.2e6])
    assert settling.settle(device, int, 1e6) == 1e6
    assert (device.launches, len(spread)) == (3, 2)
    assert settling.settle(Device([0.9e6]), int, 1e6) == 0.9e6
