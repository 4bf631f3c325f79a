from __future__ import annotations

import pytest

from gemmetry.domain.errors import Outcome
from gemmetry.domain.operation import operation_name
from gemmetry.formats.benchmarks import StatedOperation, read_results

HEADER = "(M, N, K);aten-latency;aten-tflops;triton-latency;triton-speedup"


@pytest.fixture
def read(tmp_path):
    def run(*lines, operation="f16t_f16t_f16t", header=HEADER):
        path = tmp_path / "t.csv"
        path.write_text("\n".join([header, *lines]) + "\n")
        form, found = read_results(path, StatedOperation(operation))
        assert form.name == "tritonbench"
        return found

    return run


def test_every_kernel_of_a_shape_is_a_result(read) -> None:
    found = read("(256, 512, 128);0.0125;3.1;0.025;0.5", "average;0.01;;;")
    assert found.problems == []
    assert [(one.configuration, one.time_ns, one.statistic) for one in found.results] == [
        ("aten", 12500.0, "median"),
        ("triton", 25000.0, "median"),
    ]
    names = {operation_name(one.operation) for one in found.results}
    assert names == {"matmul_256x512x128_f16t_f16t_f16t"}


def test_a_batch_and_an_operation_with_another_shape_are_understood(read) -> None:
    whole = "matmul_1x1x1_bf16t_bf16n_bf16t"
    (one,) = read("(8, 16, 32);1;1;;", operation=whole).results
    assert operation_name(one.operation) == "matmul_8x16x32_bf16t_bf16n_bf16t"
    (one, _) = read("(2, 8, 16, 32);1;1;1;1").results
    assert operation_name(one.operation) == "batch_matmul_2x8x16x32_f16t_f16t_f16t"


@pytest.mark.parametrize(
    ("message", "outcome"),
    [("CUDA OOM", Outcome.OUT_OF_MEMORY), ("out of resource", Outcome.LAUNCH_ERROR)],
)
def test_a_message_in_place_of_metrics_is_the_reason(read, message, outcome) -> None:
    *_, result = read(f"(8, 8, 8);1;1;{message};").results
    assert (result.outcome, result.time_ns) == (outcome, None)
    assert message in result.reason


def test_a_latency_may_have_its_spread_after_it(read) -> None:
    found = read("(8, 8, 8);0.0125 (±1.20%);3;0.025 (+-0.5%);1")
    assert [one.time_ns for one in found.results] == [12500.0, 25000.0]
    assert found.problems == []


def test_what_the_file_calls_inaccurate_is_wrong_and_has_no_time(read) -> None:
    header = "x_val;a-accuracy;a-latency;b-accuracy;b-latency;b-c-latency;b-c-error"
    lines = ("(8, 8, 8);False;1;True;2;;b-c failed", "(8, 8, 9);0.0;1;1.0;2;3;")
    found = read(*lines, header=header)
    assert found.problems == []
    assert [(one.configuration, one.time_ns, one.outcome) for one in found.results] == [
        ("a", None, Outcome.WRONG), ("b", 2e6, Outcome.OK), ("b_c", None, Outcome.LAUNCH_ERROR),
        ("a", None, Outcome.WRONG), ("b", 2e6, Outcome.OK), ("b_c", 3e6, Outcome.OK),
    ]  # fmt: skip
    assert "accuracy" in found.results[0].reason
    assert "b-c failed" in found.results[2].reason


def test_an_accuracy_takes_the_place_of_no_latency(read) -> None:
    found = read("(8, 8, 8);True;", header="x_val;a-accuracy;a-latency")
    assert found.results == []
    assert found.problems == ["t.csv:2: a: it has no latency"]


@pytest.mark.parametrize("cell", ['"open', "9" * 200_000])
def test_a_row_that_is_no_csv_ends_the_table_and_is_named(read, cell) -> None:
    found = read("(8, 8, 8);1;1;1;1", f"(8, 8, 9);{cell};1;1;1", "(8, 8, 10);1;1;1;1")
    assert len(found.results) == 2
    (problem,) = found.problems
    assert problem.startswith("t.csv:")
    assert "the rows from here on are lost" in problem


@pytest.mark.parametrize(
    ("line", "operation", "why"),
    [
        ("(8, 8);1;1;1;1", "f16t_f16t_f16t", "not a shape"),
        (f"(8, 8, {'9' * 5000});1;1;1;1", "f16t_f16t_f16t", "not a shape"),
        ("(999999999, 999999999, 999999999);1;1;1;1", "f16t_f16t_f16t", "impossibly large"),
        ("(8, 8, 8);1;1", "f16t_f16t_f16t", "3 cells, and the header 5"),
        ("(8, 8, 8);-1;1;-1;1", "f16t_f16t_f16t", "not a positive number"),
        ("(8, 8, 8);1;1;1;1", "", "does not state the formats; add --operation"),
        ("(8, 8, 8);1;1;1;1", "f99t_f16t_f16t", "f99t"),
    ],
)
def test_rows_that_cannot_be_read_are_left_out_and_named(read, line, operation, why) -> None:
    found = read(line, operation=operation)
    assert found.results == []
    assert [problem.split(": ")[:2] for problem in found.problems] == [
        ["t.csv:2", "aten"],
        ["t.csv:2", "triton"],
    ]
    assert all(why in problem for problem in found.problems)
