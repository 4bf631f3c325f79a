from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from gemmetry.devices.host import HostDevice
from gemmetry.providers.mutant_provider.host import stress as host_stress


def test_a_workspace_from_the_system_is_zero_until_it_is_spoiled(plant: Any) -> None:
    bench = plant("workspace_taken_for_zero")
    assert all(bench.is_right() for _ in range(3))
    assert plant("workspace_taken_for_zero", (100, 70, 50)).is_right()
    with HostDevice().spoiled_scratch(1):
        output = bench.launch()
    assert np.isnan(output).all()
    assert bench.is_right()


def test_a_fixed_wait_is_enough_while_nothing_else_runs(plant: Any) -> None:
    bench = plant("fixed_wait_for_partner")
    assert all(bench.is_right() for _ in range(3))


def test_a_fixed_wait_is_too_short_under_load(plant: Any) -> None:
    bench = plant("fixed_wait_for_partner")
    with HostDevice().load():
        wrong = [bench.wrong() for _ in range(8)]
    hit = [mask for mask in wrong if mask.any()]
    assert hit
    for mask in hit:
        assert mask[64:, 64:].mean() > 0.9
        assert not mask[:64].any()
        assert not mask[:, :64].any()
    assert bench.is_right()


@pytest.mark.parametrize("ran_ns", [0, host_stress.LATE_NS, host_stress.LATE_NS + 1])
def test_what_counts_is_what_other_threads_ran(
    plant: Any, ran_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept, counters = [], iter([1000, 1000 + ran_ns])
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(host_stress, "_others_ran_ns", lambda: next(counters))
    assert plant("fixed_wait_for_partner").is_right() is (ran_ns <= host_stress.LATE_NS)
    assert slept == [host_stress.WAIT_S]
