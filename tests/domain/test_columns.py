from __future__ import annotations

import pytest

from gemmetry.domain.columns import COLUMNS, COLUMNS_BY_NAME, row
from gemmetry.domain.errors import Outcome, Stage, Verification
from gemmetry.domain.record import (
    BuildFacts,
    CounterFacts,
    EnergyFacts,
    Measurement,
    Record,
    Telemetry,
    TraceFacts,
    Trait,
    Verdict,
)
from gemmetry.domain.tables import ColumnType, Direction

NAME = "batch_matmul_2x3x5x8_s8t_s8n_s32t_bias_relu"
CONTRACT = {
    "dispatch", "provider", "target", "operation", "configuration", "outcome", "reason",
    "verification", "distribution", "median_ns", "ci_low_ns", "ci_high_ns", "sample_count",
    "flops", "bytes", "gflops",
}  # fmt: skip
"""The columns that every record of `profile --json` has at least."""


def _record(**changes):
    return Record(**{
        "dispatch": f"{NAME}_default", "provider": "numpy", "target": "cpu", "device": "",
        "operation": NAME, "configuration": "default", "outcome": Outcome.OK,
        "distribution": "normal", "seed": 42, "flops": 480, "bytes": 266, **changes,
    })  # fmt: skip


def test_names_labels_units_and_descriptions_agree():
    labels = [column.label for column in COLUMNS]
    assert len(set(labels)) == len(labels) == len(COLUMNS_BY_NAME) == len(COLUMNS)
    assert set(COLUMNS_BY_NAME) >= CONTRACT
    for name, label in {
        "median_ns": "median", "first_launch_ns": "first_launch", "gflops": "speed",
        "bandwidth_gb_per_s": "bandwidth", "power_w": "power", "temperature_c": "temperature",
        "sm_clock_hz": "sm_clock", "bytes": "bytes", "spill_bytes": "spill_bytes", "m": "m",
        "load_average": "load_average", "roofline_fraction": "roofline_fraction",
    }.items():  # fmt: skip
        assert COLUMNS_BY_NAME[name].label == label
    for column in COLUMNS:
        assert column.description.endswith("."), column
        if column.name.endswith("_ns"):
            assert column.unit == "ns", column
            assert column.direction is Direction.LOWER_IS_BETTER, column
        if column.name.endswith("_hz"):
            assert column.unit == "Hz", column


def _measured():
    return _record(
        measurement=Measurement(
            median_ns=1000, ci_low_ns=990, ci_high_ns=1010, min_ns=900, p95_ns=1200,
            sample_count=20, telemetry=Telemetry(power_w=321.5, throttle_reasons=("hot",)),
            marks=("noisy: close other programs",),
        ),
        facts=BuildFacts(registers=96),
        tags={"who": "me"},
    )  # fmt: skip


def test_values_of_a_measured_record():
    values = row(_measured())
    expected = {
        "m": 3, "n": 5, "k": 8, "batch": 2, "epilogue": ["bias", "relu"], "gflops": 0.48,
        "power_w": 321.5, "throttle_reasons": ["hot"], "registers": 96, "tags": {"who": "me"},
        "device": None,
    }  # fmt: skip
    assert {name: values[name] for name in expected} == expected
    assert COLUMNS_BY_NAME["gflops"].text(values["gflops"]) == "0.48 GFLOP/s"
    assert COLUMNS_BY_NAME["epilogue"].text(values["epilogue"]) == "bias, relu"
    assert COLUMNS_BY_NAME["median_ns"].text(None) == "–"


@pytest.mark.parametrize("ends", [{}, {"stage": Stage.MEASURE, "reason": "died"}])
def test_required_columns_and_no_others_have_a_value_in_every_row(ends):
    record = _record(outcome=Outcome.CRASH if ends else Outcome.OK, **ends)
    assert record.verdict.status is Verification.NOT_VERIFIED, "unless it says so"
    values = row(record)
    present = {name for name, value in values.items() if value is not None}
    required = {column.name for column in COLUMNS if column.required}
    assert required <= present
    assert present - required <= {"stage", "reason", "arithmetic_intensity"}
    assert values["marks"] == []
    assert {name: values[name] for name in ends} == ends
    for column in COLUMNS:
        assert isinstance(column.text(values[column.name]), str)


def test_a_wrong_result_has_no_accuracy_class():
    for status in Verification:
        record = _record(verdict=Verdict(status=status, accuracy_class="bf16"))
        is_right = status in (Verification.PASSED, Verification.WARNED)
        assert row(record)["accuracy_class"] == ("bf16" if is_right else None)


def _full_record():
    """A record in which every column has a value."""
    numbers = {"sm_clock_hz": 1e9, "power_w": 300.5, "temperature_c": 60.0, "load_average": 0.5,
               "others_cpu_share": 0.25, "run_delay_share": 0.125}  # fmt: skip
    telemetry = Telemetry(**numbers, throttle_reasons=("hot",), processors="0-3")
    measurement = Measurement(
        median_ns=1000.5, ci_low_ns=990.5, ci_high_ns=1010.5, min_ns=900.5, p95_ns=1200.5,
        sample_count=20, process_spread=0.01, method="events", stop_reason="interval",
        first_launch_ns=2000.5, harness_overhead_ns=0.5, effective_samples=12.5,
        telemetry=telemetry, marks=("noisy: close other programs",),
        energy=EnergyFacts(energy_j=0.1, ci_low_j=0.09, ci_high_j=0.11, resolution=0.01,
                           idle_power_w=80.0, reason="one process has none"),
    )  # fmt: skip
    verdict = Verdict(
        status=Verification.WARNED, checks={"form": "passed", "bits": "warned: x",
        "red_zones": "not applicable: host"}, max_error_ratio=0.5, relative_frobenius_error=1e-7,
        signed_bias=-1e-9, accuracy_class="f32", zero_share=0.0, first_bad="[0, 0]",
        error_map=("..",), evidence_path="failures",
    )  # fmt: skip
    facts = BuildFacts(
        registers=96, spill_bytes=0, shared_memory_bytes=1024, matrix_instruction="wgmma",
        compiled_for="sm_90", default_configuration="tile",
        algorithms_tried=8, workspace_bytes=1024, compile_ns=5, compile_command="c",
        run_command="r", declared=(Trait.FLUSHES_SUBNORMALS,),
    )  # fmt: skip
    counters = CounterFacts(folder="counters/x", metric_set="gemm", verdict="tensor_roof",
                            summary="the limit", confidence="high")  # fmt: skip
    trace = TraceFacts(folder="traces", files=("a", "b"), operators=1, kernels=2,
                       input_sha256={"lhs": "0"}, output_sha256="1")  # fmt: skip
    return _record(
        device="cuda:0", stage=Stage.MEASURE, reason="why", verdict=verdict, facts=facts,
        measurement=measurement, trace=trace, counters=counters, roofline_fraction=0.5,
        roofline_source="here", reproduce="gemmetry", environment_id="0", tags={"who": "me"},
    )  # fmt: skip


def test_every_declared_type_is_that_of_a_real_value():
    types = {ColumnType.TEXT: str, ColumnType.INTEGER: int, ColumnType.NUMBER: float,
             ColumnType.TEXTS: list, ColumnType.MAPPING: dict}  # fmt: skip
    values = row(_full_record())
    assert [(name, type(value)) for name, value in values.items()] == [
        (column.name, types[column.type]) for column in COLUMNS
    ]
    assert all(isinstance(column.text(values[column.name]), str) for column in COLUMNS)
