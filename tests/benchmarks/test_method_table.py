from __future__ import annotations

import dataclasses

import method_table
import pytest

from gemmetry.dispatches.profile import read_spec
from gemmetry.dispatches.results import Results
from gemmetry.domain.errors import Outcome
from gemmetry.domain.record import Measurement, Record, ResultSet, Telemetry


def record(median: float, telemetry: Telemetry | None = None) -> Record:
    return Record(
        dispatch="matmul_8x8x8_f32t_f32t_f32t_default",
        provider="torch",
        target="cpu",
        device="cpu",
        operation="matmul_8x8x8_f32t_f32t_f32t",
        configuration="default",
        outcome=Outcome.OK,
        distribution="normal",
        seed=1,
        flops=1024,
        bytes=768,
        measurement=Measurement(
            median_ns=median,
            ci_low_ns=median * 0.99,
            ci_high_ns=median * 1.01,
            min_ns=median,
            p95_ns=median,
            sample_count=9,
            telemetry=telemetry or Telemetry(),
        ),
    )


def results(one: Record) -> Results:
    return Results(ResultSet(title="made up", records=[one]))


def test_first_row_is_a_time_and_others_are_ratios() -> None:
    hot = record(2200.0, Telemetry(sm_clock_hz=1.755e9))
    failed = dataclasses.replace(
        record(1.0), outcome=Outcome.CRASH, reason="signal 11", measurement=None
    )
    found = {
        "default": results(record(2000.0)),
        "zeros": results(hot),
        "normal": results(failed),
        "default, again": results(record(2010.0)),
    }
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
