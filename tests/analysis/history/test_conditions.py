from __future__ import annotations

import msgspec
import pytest

from gemmetry.history.changes import (
    changed_conditions,
    changed_timing,
    clock_ratio,
    device_history,
    observed_hints,
)


@pytest.fixture
def synthetic(histories):
    return histories.SyntheticHistory(shapes=1, runs=30)


def conditions(synthetic, run):
    return changed_conditions(device_history("a device", synthetic.entries()), run)


def test_what_changes_once_is_listed(synthetic):
    synthetic.upgrade(15, "torch", "2.10.0")
    synthetic.upgrade(15, "gemmetry", "0.2.0")
    for settings in synthetic.settings[15:]:
        settings["cold_cache"] = False
    found = conditions(synthetic, 15)
    assert found.environment == ("torch 2.9.0 → 2.10.0",)
    assert set(found.method) == {"cold_cache none → False", "gemmetry 0.1.0 → 0.2.0"}
    assert conditions(synthetic, 17).environment == ("torch 2.9.0 → 2.10.0",), "two runs later"
    assert conditions(synthetic, 20).environment == ()
    # What differs from run to run does not count.
    for number, environment in enumerate(synthetic.environments):
        environment["hostname"] = f"node{number % 2}"
        environment["git_revision"] = str(number)
    assert conditions(synthetic, 15).environment == ("torch 2.9.0 → 2.10.0",)


def test_clocks_throttling_and_load_are_observed(synthetic):
    synthetic.clocks[15:] *= 0.9
    runs = synthetic.entries()
    for number, run in enumerate(runs):
        late = number >= 15
        run.points[:] = [
            msgspec.structs.replace(
                point, load_average=2.0 if late else 0.1, method="events" if late else "graph",
                throttle=("power cap", "always") if late else ("always",),
            )
            for point in run.points
        ]  # fmt: skip
    history = device_history("a device", runs)
    assert clock_ratio(history, 0, 15) == pytest.approx(0.9)
    assert changed_timing(history, 0, 15) == "timed by events instead of graph"
    assert observed_hints(history, 0, 15) == (
        "throttled since: power cap", "load average per processor 0.10 → 2.00",
    )  # fmt: skip
    assert changed_timing(history, 0, 25) == ""
    assert observed_hints(history, 0, 25) == ()
