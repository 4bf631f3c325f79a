"""Results of other benchmarks; small files of most are in ``test_golden``."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest

from gemmetry.domain import opening
from gemmetry.domain.errors import Outcome, RequestError
from gemmetry.domain.operation import operation_name
from gemmetry.formats import benchmarks as results
from gemmetry.formats.benchmarks import StatedOperation, read_results, result_formats, tables

LINES = """
from gemmetry.formats.benchmarks import ForeignResult, ResultFormat

FORMATS = [ResultFormat(
    name="lines", summary="lines of times", recognises=lambda text: text.startswith("TIMES"),
    rows=lambda text: enumerate(text.splitlines()[1:], 2),
    result=lambda row, stated, path: ForeignResult(
        operation=stated.whole(), configuration="line", time_ns=float(row)),
)]
"""


def test_a_file_in_the_folder_is_a_format(tmp_path, monkeypatch) -> None:
    (tmp_path / "lines_of_times.py").write_text(LINES)
    path = tmp_path / "t.txt"
    path.write_text("TIMES\n5\nx\n7\n")
    result_formats.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(results, "__path__", [*results.__path__, str(tmp_path)])
        form, found = read_results(path, StatedOperation("matmul_8x8x8_f32t_f32t_f32t"))
    result_formats.cache_clear()
    sys.modules.pop("gemmetry.formats.benchmarks.lines_of_times")
    assert form.name == "lines"
    assert [one.time_ns for one in found.results] == [5, 7]
    (problem,) = found.problems
    assert problem.startswith("t.txt:3: ")


@pytest.mark.parametrize("name", ["nvbench.csv", "iree_benchmark.json", "triton_do_bench.csv"])
def test_results_that_do_not_state_the_product_are_refused(name) -> None:
    path = Path(__file__).parents[1] / "data" / "reports" / "23" / name
    with pytest.raises(RequestError, match=name):
        read_results(path, StatedOperation("f16t_f16t_f16t"))


@pytest.mark.parametrize("content", [b"", b"a,b,c\n1,2,3\n", b"{}", b"\x7fELF\x00\xff"])
def test_other_files_are_refused_with_what_is_supported(tmp_path, content) -> None:
    path = tmp_path / "f"
    path.write_bytes(content)
    with pytest.raises(RequestError) as caught:
        read_results(path, StatedOperation())
    for form in result_formats():
        assert form.summary in caught.value.hint


def test_the_longest_field_and_the_deepest_document_are_bounded(tmp_path, monkeypatch) -> None:
    lines = json.loads((Path(__file__).parents[1] / "data" / "read" / "benchmark.json").read_text())
    table = next(one["files"]["c.csv"] for one in lines if "c.csv" in one["files"])
    header, row = table.splitlines()
    path = tmp_path / "c.csv.gz"
    wide = row.replace("cutlass3x", "x" * 200_000)
    path.write_bytes(gzip.compress("\n".join([header, wide, row]).encode()))
    monkeypatch.setattr(opening, "LONGEST_FIELD", 131_072)
    found = read_results(path, StatedOperation())[1]
    assert (len(found.results), len(found.problems)) == (1, 1)
    path = tmp_path / "k.json"
    path.write_text('{"tune_params_keys": ["MWG"], "cache": ' + "[" * 100_000)
    assert len(read_results(path, StatedOperation())[1].problems) == 1


DEFINITION = {
    "name": "gemm_n512_k128",
    "op_type": "gemm",
    "axes": {"M": {"type": "var"}, "N": {"type": "const", "value": 512},
             "K": {"type": "const", "value": 128}},
    "inputs": {"A": {"shape": ["M", "K"], "dtype": "float16"},
               "B": {"shape": ["N", "K"], "dtype": "float16"}},
    "outputs": {"C": {"shape": ["M", "N"], "dtype": "float16"}},
}  # fmt: skip


def _line(status="PASSED", definition="gemm_n512_k128", **changes):
    document = {
        "definition": definition,
        "workload": {"axes": {"M": 256}, "inputs": {}, "uuid": "1"},
        "solution": "my-kernel",
        "evaluation": {
            "status": status,
            "environment": {"hardware": "NVIDIA H200", "libs": {"torch": "2.9"}},
            "timestamp": "2026-01-01T00:00:00",
            "log": "first\nsecond",
            "performance": {"latency_ms": 0.0125} if status == "PASSED" else None,
        },
    }
    return json.dumps(document | changes)


@pytest.fixture
def read(tmp_path):
    tables._definition.cache_clear()

    def run(*lines, operation="", definition=DEFINITION):
        if definition is not None:
            folder = tmp_path / "definitions" / "gemm"
            folder.mkdir(parents=True)
            (folder / "gemm_n512_k128.json").write_text(json.dumps(definition))
        path = tmp_path / "traces" / "gemm" / "t.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text("\n".join(lines))
        form, found = read_results(path, StatedOperation(operation))
        assert form.name == "flashinfer_bench"
        return found

    return run


def test_the_definition_of_the_data_set_states_sizes_formats_and_layouts(read) -> None:
    # A log may contain other ends of lines.
    found = read(_line().replace("first", "first\u2028"), "", _line(solution=None, evaluation=None))
    (result,) = found.results
    assert found.problems == []
    assert operation_name(result.operation) == "matmul_256x512x128_f16t_f16n_f16t"
    assert (result.configuration, result.device) == ("my_kernel", "NVIDIA H200")
    assert (result.time_ns, result.statistic) == (12500.0, "mean")


def test_without_a_definition_its_name_and_the_request_do(read) -> None:
    (result,) = read(_line(), definition=None, operation="bf16t_bf16n_bf16t").results
    assert operation_name(result.operation) == "matmul_256x512x128_bf16t_bf16n_bf16t"


def test_a_solution_that_failed_has_its_reason(read) -> None:
    outcomes = {
        "INCORRECT_NUMERICAL": Outcome.WRONG, "INCORRECT_SHAPE": Outcome.WRONG,
        "COMPILE_ERROR": Outcome.COMPILE_ERROR, "RUNTIME_ERROR": Outcome.LAUNCH_ERROR,
        "TIMEOUT": Outcome.TIMEOUT,
    }  # fmt: skip
    found = read(*map(_line, outcomes)).results
    for one, (status, outcome) in zip(found, outcomes.items(), strict=True):
        assert (one.outcome, one.time_ns) == (outcome, None)
        assert one.reason == f"flashinfer-bench: {status}: first"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (_line()[:80], "damaged or cut off"),
        (_line(workload={"axes": {}}), "M is None"),
        (_line(workload={"axes": {"M": 1}}).replace('"M": 1', f'"M": {"9" * 5000}'), "digits"),
        (_line(workload=None), "lacks a field"),
        (_line("ODD"), "its status 'ODD' is unknown"),
        ("[1]", "not a JSON object"),
        ("[" * 100_000, "too deeply"),
        (_line(definition="gqa_paged_decode"), "no definition of gqa_paged_decode"),
        (_line(definition="../../secret"), "not the name of a definition"),
    ],
)
def test_a_line_that_cannot_be_read_is_left_out_and_named(read, line, why) -> None:
    found = read(_line(), line, _line())
    assert len(found.results) == 2
    (problem,) = found.problems
    assert problem.startswith("t.jsonl:2: ") and why in problem


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"op_type": "rmsnorm"}, "not a matrix product but rmsnorm"),
        ({"inputs": DEFINITION["inputs"] | {"A": {"shape": ["M", "N"], "dtype": "float16"}}},
         "a tensor has the shape"),
    ],
)  # fmt: skip
def test_a_definition_of_something_else_is_named(read, changes, why) -> None:
    found = read(_line(), definition=DEFINITION | changes)
    assert found.results == []
    assert why in found.problems[0]
