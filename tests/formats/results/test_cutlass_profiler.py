from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.domain.errors import Outcome
from gemmetry.domain.operation import operation_name
from gemmetry.formats.benchmarks import StatedOperation, read_results

HEADER = (
    "Problem,Provider,OperationKind,Operation,Disposition,Status,gemm_kind,m,n,k,A,B,C,D,alpha,beta,"
    "split_k_mode,split_k_slices,batch_count,raster_order,op_class,accum,cta_m,cta_n,cta_k,stages,"
    "min_cc,max_cc,Bytes,Flops,Flops/Byte,Runtime,GB/s,GFLOPs"
)


def _row(**changes):
    values = {
        "Problem": 1, "Provider": "CUTLASS", "OperationKind": "gemm",
        "Operation": "cutlass3x_sm90_tensorop_gemm_128x256x64", "Disposition": "passed",
        "Status": "success", "gemm_kind": "universal", "m": 256, "n": 512, "k": 128,
        "A": "f16:row", "B": "f16:column", "C": "void:row", "D": "f16:row", "alpha": 1, "beta": 0,
        "split_k_mode": "serial", "split_k_slices": 1, "batch_count": 1,
        "raster_order": "heuristic", "op_class": "tensorop", "accum": "f32", "cta_m": 128,
        "cta_n": 256, "cta_k": 64, "stages": 4, "min_cc": 90, "max_cc": 90, "Bytes": 1, "Flops": 1,
        "Flops/Byte": 1, "Runtime": 0.0125, "GB/s": 1, "GFLOPs": 1,
    }  # fmt: skip
    values |= changes
    assert list(values) == HEADER.split(",")
    return ",".join(map(str, values.values()))


@pytest.fixture
def read(tmp_path):
    def run(*lines):
        path = tmp_path / "c.csv"
        path.write_text("\n".join(lines) + "\n")
        form, found = read_results(path, StatedOperation())
        assert form.name == "cutlass_profiler"
        return found

    return run


@pytest.mark.parametrize(
    ("changes", "operation"),
    [
        ({}, "matmul_256x512x128_f16t_f16n_f16t"),
        ({"A": "fe4m3:row", "B": "fe5m2:column", "D": "f32:column"},
         "matmul_256x512x128_e4m3t_e5m2n_f32n"),
        ({"A": "f16:column", "B": "f16:row", "accum": "f16"},
         "matmul_256x512x128_f16n_f16t_f16t_accf16"),
        ({"A": "s8:row", "B": "s8:column", "D": "s32:row", "accum": "s32", "batch_count": 3},
         "batch_matmul_3x256x512x128_s8t_s8n_s32t"),
        ({"C": "f16:row", "alpha": 2, "beta": 0.5},
         "matmul_256x512x128_f16t_f16n_f16t_alpha2_beta0p5"),
    ],
)  # fmt: skip
def test_a_problem_is_what_the_columns_state(read, changes, operation) -> None:
    (result,) = read(HEADER, _row(**changes)).results
    assert operation_name(result.operation) == operation


def test_the_time_is_a_mean_and_the_configuration_is_kept(read) -> None:
    (result,) = read("text before it", "", "CSV Results:", "", HEADER, _row()).results
    assert (result.time_ns, result.statistic, result.samples_ns) == (12500.0, "mean", ())
    assert result.configuration == "cutlass3x_sm90_tensorop_gemm_128x256x64"
    assert result.parameters["cta_n"] == "256"


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({"Disposition": "not_verified"}, Outcome.OK),
        ({"Disposition": "incorrect"}, Outcome.WRONG),
        ({"Disposition": "invalid_problem"}, Outcome.UNSUPPORTED),
        ({"Disposition": "failed", "Status": "error_internal", "Runtime": 0}, Outcome.LAUNCH_ERROR),
        ({"Status": "error_not_supported", "Runtime": 0}, Outcome.LAUNCH_ERROR),
        ({"Disposition": "not_run", "Status": "not_run", "Runtime": 0}, Outcome.SKIPPED),
    ],
)
def test_a_row_without_a_valid_time_has_its_reason(read, changes, outcome) -> None:
    (result,) = read(HEADER, _row(**changes)).results
    assert result.outcome is outcome
    assert (result.time_ns is None) == (outcome is not Outcome.OK) == bool(result.reason)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (_row()[:60], "cells, and the header"),
        (_row(OperationKind="conv2d"), "conv2d is not a plain matrix product"),
        (_row(gemm_kind="planar_complex"), "gemm_kind planar_complex is not a plain"),
        (_row(gemm_kind="grouped"), "gemm_kind grouped is not a plain"),
        (_row(Disposition="odd"), "its disposition 'odd' is unknown"),
        (_row(Operation="x" * 200_000), "field larger than field limit"),
        (_row(A="f99:row"), "f99"),
        (_row(A="f16:nhwc"), "no layout row or column"),
        (_row(m="x"), "m is 'x'"),
        (_row(k=0), "is not positive"),
        (_row(m=10**9, n=10**9, k=10**9), "impossibly large"),
        (_row(m="9" * 5000), "m is '999"),
        (_row(alpha="?"), "alpha is '?'"),
        (_row(Runtime="nan"), "Runtime is 'nan'"),
        (_row(C="f32:row", beta=1), "C is f32:row and D f16:row"),
    ],
)
def test_a_row_that_cannot_be_read_is_left_out_and_named(read, line, why) -> None:
    found = read(HEADER, line, _row())
    assert len(found.results) == 1
    (problem,) = found.problems
    assert problem.startswith("c.csv:2: ") and why in problem


def test_the_columns_of_tags_stand_before_the_others(read) -> None:
    found = read(f"m,night,{HEADER}", f"1,monday,{_row()}")
    assert found.problems == []
    (result,) = found.results
    assert operation_name(result.operation) == "matmul_256x512x128_f16t_f16n_f16t"


def test_a_table_without_a_needed_column_is_named(read) -> None:
    found = read(HEADER.replace("Runtime", "Time"), _row(), HEADER, _row())
    assert len(found.results) == 1
    assert found.problems == ["c.csv:1: no columns Runtime"]


def test_files_are_compressed_or_not(tmp_path) -> None:
    import gzip

    path = Path(tmp_path / "c.csv.gz")
    path.write_bytes(gzip.compress(f"{HEADER}\n{_row()}\n".encode()))
    assert len(read_results(path, StatedOperation())[1].results) == 1
