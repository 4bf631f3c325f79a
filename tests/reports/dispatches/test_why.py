from __future__ import annotations

import dataclasses

from gemmetry.dispatches.show import why_line
from gemmetry.domain.errors import Outcome
from gemmetry.domain.record import BuildFacts, Telemetry

NAME = "matmul_64x64x64_f32t_f32t_f32t"


def test_everything_that_is_known_is_in_the_line(make_record):
    facts = BuildFacts(matrix_instruction="wgmma", spill_bytes=128, compiled_for="sm_80")
    record = make_record(NAME, "tile", gflops=90.0, facts=facts)
    telemetry = Telemetry(sm_clock_hz=1.98e9, throttle_reasons=("sw_power_cap",))
    m = dataclasses.replace(record.measurement, telemetry=telemetry)
    record = dataclasses.replace(record, measurement=m, roofline_fraction=0.5)
    best = make_record(NAME, "other", gflops=180.0, facts=BuildFacts(matrix_instruction="none"))
    assert why_line(record, best) == (
        "wgmma (the fastest here: no multiply instruction found) · compiled for sm_80 · 128 B "
        "spilled per thread · 50 % of the roofline · at 1980 MHz · throttled: sw_power_cap · 0.50× "
        "the speed of torch other, the fastest here"
    )


def test_the_fastest_is_not_compared_with_itself(make_record):
    record = make_record(NAME, facts=BuildFacts(matrix_instruction="wgmma", spill_bytes=0))
    assert why_line(record, record).startswith("wgmma · no spills · ")
    assert "fastest" not in why_line(record, record)


def test_without_a_time_there_is_nothing_to_explain(make_record):
    assert why_line(make_record(NAME, outcome=Outcome.CRASH, reason="no"), None) == ""
