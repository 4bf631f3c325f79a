from __future__ import annotations

import pytest

from gemmetry.domain.columns import COLUMNS, COLUMNS_BY_NAME, row
from gemmetry.domain.outcome import Outcome, Stage, Verification
from gemmetry.domain.record import BuildFacts, Measurement, Record, Telemetry, Verdict
from gemmetry.domain.tables import Direction

NAME = "batch_matmul_2x3x5x8_s8t_s8n_s32t_bias_relu"
CONTRACT = {
    "dispatch", "provider", "target", "operation", "configuration", "outcome", "reason",
    "verification", "distribution", "median_ns", "ci_low_ns", "ci_high_ns", "sample_count",
    "flops", "bytes", "gflops",
}  # fmt: skip
"""What every record of `profile --json` has at least."""


def _record(**changes):
    values = {
        "dispatch": f"{NAME}_default", "provider": "numpy", "target": "cpu", "device": "",
        "operation": NAME, "configuration": "default", "outcome": Outcome.OK,
        "distribution": "normal", "seed": 42, "flops": 480, "bytes": 266,
    }  # fmt: skip
    return Record(**{**values, **changes})


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


def test_labels_leave_out_the_unit_that_cells_carry():
    labels = [column.label for column in COLUMNS]
    assert len(set(labels)) == len(labels)
    for name, label in {
        "median_ns": "median", "first_launch_ns": "first_launch", "gflops": "speed",
        "bandwidth_gb_per_s": "bandwidth", "power_w": "power", "temperature_c": "temperature",
        "sm_clock_hz": "sm_clock", "bytes": "bytes", "spill_bytes": "spill_bytes", "m": "m",
        "load_average": "load_average", "roofline_fraction": "roofline_fraction",
    }.items():  # fmt: skip
        assert COLUMNS_BY_NAME[name].label == label


def test_the_promised_columns_exist_and_names_are_unique():
    assert set(COLUMNS_BY_NAME) >= CONTRACT
    assert len(COLUMNS_BY_NAME) == len(COLUMNS)


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_units_and_descriptions_agree_with_the_name(column):
    assert column.description.endswith(".")
    if column.name.endswith("_ns"):
        assert column.unit == "ns"
        assert column.direction is Direction.LOWER_IS_BETTER
    if column.name.endswith("_hz"):
        assert column.unit == "Hz"


@pytest.mark.parametrize(
    "record",
    [_measured(), _record(), _record(outcome=Outcome.CRASH, stage=Stage.MEASURE, reason="died")],
    ids=["measured", "not measured", "crashed"],
)
def test_a_row_has_every_column_as_a_json_value_and_a_text(record):
    values = row(record)
    assert list(values) == [column.name for column in COLUMNS]
    for column in COLUMNS:
        value = values[column.name]
        assert value is None or type(value) in (str, int, float, list, dict), column.name
        assert isinstance(column.text(value), str)


def test_values_of_a_measured_record():
    values = row(_measured())
    assert (values["m"], values["n"], values["k"], values["batch"]) == (3, 5, 8, 2)
    assert values["epilogue"] == ["bias", "relu"]
    assert values["gflops"] == 0.48
    assert values["power_w"] == 321.5
    assert values["throttle_reasons"] == ["hot"]
    assert values["registers"] == 96
    assert values["tags"] == {"who": "me"}
    assert values["device"] is None
    assert COLUMNS_BY_NAME["gflops"].text(values["gflops"]) == "0.48 GFLOP/s"
    assert COLUMNS_BY_NAME["epilogue"].text(values["epilogue"]) == "bias, relu"


def test_what_does_not_apply_is_none():
    values = row(_record(outcome=Outcome.CRASH, stage=Stage.MEASURE, reason="died"))
    assert values["median_ns"] is None
    assert values["gflops"] is None
    assert values["marks"] == []
    assert values["reason"] == "died"
    assert values["stage"] == "measure"
    assert COLUMNS_BY_NAME["median_ns"].text(None) == "–"


def test_a_wrong_result_has_no_accuracy_class():
    classes = {
        status: row(_record(verdict=Verdict(status=status, accuracy_class="bf16")))[
            "accuracy_class"
        ]
        for status in Verification
    }
    assert classes == {
        Verification.PASSED: "bf16",
        Verification.WARNED: "bf16",
        Verification.FAILED: None,
        Verification.NOT_VERIFIED: None,
    }
