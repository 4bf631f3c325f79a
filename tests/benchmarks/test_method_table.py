from __future__ import annotations

import dataclasses
from collections.abc import Callable

import method_table
import pytest

from gemmetry.dispatches.profile import read_spec
from gemmetry.dispatches.results import Results
from gemmetry.domain.errors import Outcome
from gemmetry.domain.record import Record, ResultSet, Telemetry


def test_first_row_is_a_time_and_others_are_ratios(record: Callable[..., Record]) -> None:
    records = {
        "default": record(2000.0),
        "zeros": record(2200.0, telemetry=Telemetry(sm_clock_hz=1.755e9)),
        "normal": dataclasses.replace(
            record(1.0), outcome=Outcome.CRASH, reason="signal 11", measurement=None
        ),
        "default, again": record(2010.0),
    }
    found = {name: Results(ResultSet(title="", records=[one])) for name, one in records.items()}
    table = method_table.table(found)
    assert "| default | 2 µs ± 1.0% |" in table
    assert "| zeros | 1.100 ± 1.0%, 1755 MHz |" in table
    assert "| normal | – |" in table
    assert method_table.resolution(found) == pytest.approx(10 / 2000)


def test_methods_are_settings_of_a_spec() -> None:
    for device in ("cpu", "cuda:0"):
        found = method_table.methods(device)
        names = list(found)
        assert (names[0], names[-1]) == (method_table.DEFAULT, method_table.AGAIN)
        for changed in found.values():
            read_spec(None, changed)
    assert "graphs" not in method_table.methods("cpu")
