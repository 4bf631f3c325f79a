from __future__ import annotations

import json
import math

import pytest

from gemmetry.domain.errors import Outcome
from gemmetry.domain.operation import operation_name
from gemmetry.formats.benchmarks import StatedOperation, read_results

WHOLE = "matmul_64x64x64_f32t_f32t_f32t"
ENTRIES = {
    "16,1": {"MWG": 16, "SA": 1, "time": 1.5, "times": [1.5, 1.4, 1.6], "compile_time": 9.0},
    "32,1": {"MWG": 32, "SA": 1, "time": 2.5},
    "64,1": {"MWG": 64, "SA": 1, "time": "CompilationFailedConfig"},
    "64,0": {"MWG": 64, "SA": 0, "time": "InvalidConfig"},
}


def _text(entries=ENTRIES, **changes):
    lines = ",\n".join(f'"{key}": {json.dumps(entry)}' for key, entry in entries.items())
    head = {
        "device_name": "NVIDIA H200", "kernel_name": "gemm", "problem_size": [64, 64],
        "tune_params_keys": ["MWG", "SA"], "tune_params": {"MWG": [16, 32], "SA": [0, 1]},
    } | changes  # fmt: skip
    return json.dumps(head)[:-1] + f',\n"cache": {{\n{lines}}}\n}}'


@pytest.fixture
def read(tmp_path):
    def run(text, operation=WHOLE):
        path = tmp_path / "k.json"
        path.write_text(text)
        form, found = read_results(path, StatedOperation(operation))
        assert form.name == "kernel_tuner"
        return found

    return run


def test_samples_are_kept_and_a_time_without_them_is_a_mean(read) -> None:
    first, second, *failed = read(_text()).results
    assert operation_name(first.operation) == WHOLE
    assert first.configuration == "MWG16_SA1"
    assert first.parameters == {"MWG": 16, "SA": 1}
    assert first.samples_ns == pytest.approx((1.5e6, 1.4e6, 1.6e6))
    assert (first.time_ns, first.device) == (None, "NVIDIA H200")
    assert (second.time_ns, second.statistic, second.samples_ns) == (2.5e6, "mean", ())
    outcomes = [(one.outcome, one.reason) for one in failed]
    assert outcomes == [
        (Outcome.COMPILE_ERROR, "kernel_tuner: CompilationFailedConfig"),
        (Outcome.UNSUPPORTED, "kernel_tuner: InvalidConfig"),
    ]


def test_a_file_that_is_still_written_is_read(read) -> None:
    still_open = _text().rstrip("}\n") + "},\n"
    found = read(still_open)
    assert (len(found.results), found.problems) == (4, [])


def test_a_file_that_ends_within_an_entry_loses_that_entry_only(read) -> None:
    text = _text()
    found = read(text[: text.index('"64,0"') + 20])
    assert len(found.results) == 3
    assert found.problems == ["k.json: it ends within an entry, which is left out"]


@pytest.mark.parametrize(
    ("entry", "operation", "why"),
    [
        ({"MWG": 8, "SA": 1, "time": -1.0}, WHOLE, "not a positive number"),
        ({"MWG": 8, "SA": 1, "time": 1.0, "times": "123"}, WHOLE, "times are '123', not a list"),
        ({"MWG": 8, "SA": 1, "time": 1.0, "times": [1.0, math.nan]}, WHOLE, "a time is nan"),
        ({"MWG": 8, "time": 1.0}, WHOLE, "lacks a field"),
        ({"MWG": 8, "SA": 1}, WHOLE, "lacks a field"),
        ({"MWG": 8, "SA": 1, "time": 1.0}, "f32t_f32t_f32t", "does not state the problem"),
    ],
)
def test_an_entry_that_cannot_be_read_is_left_out_and_named(read, entry, operation, why) -> None:
    found = read(_text({"8,1": entry}), operation)
    assert found.results == []
    (problem,) = found.problems
    assert problem.startswith("k.json: 8,1: ") and why in problem


def test_a_file_of_endless_depth_is_damaged(read) -> None:
    found = read('{"tune_params_keys": ["MWG"], "cache": ' + "[" * 100_000)
    assert "damaged" in found.problems[0]


def test_a_file_without_an_end_is_named(read) -> None:
    found = read('{"tune_params_keys": ["MWG"], "cache": [')
    assert found.results == []
    assert "damaged" in found.problems[0]
