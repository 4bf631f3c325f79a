from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.domain.operation import operation_name
from gemmetry.formats.benchmarks import StatedOperation, read_results

TABLE = Path(__file__).parents[2] / "data" / "reports" / "23" / "hipblaslt_bench.csv"
HEADER, VALUES = (line.strip() for line in TABLE.read_text().splitlines())
ROW = dict(zip(HEADER.removeprefix("[0]:").split(","), VALUES.split(","), strict=True))


@pytest.fixture
def read(tmp_path):
    def run(*lines, stated=""):
        path = tmp_path / "t.txt"
        path.write_text("\n".join(lines) + "\n")
        form, found = read_results(path, StatedOperation(stated))
        assert form.name == "hipblaslt_bench"
        return found

    return run


def test_the_table_states_everything(read):
    (result,) = read(HEADER, VALUES).results
    assert operation_name(result.operation) == "matmul_9728x546x2560_bf16t_bf16n_bf16t"
    assert (result.time_ns, result.statistic) == (70_050, "mean")
    # The table's own rate, in 10^9 operations per second.
    assert result.operation.flops / result.time_ns == pytest.approx(388_214, rel=1e-3)


@pytest.mark.parametrize(("changes", "operation"), [
    ({"transA": "N", "transB": "T"}, "matmul_9728x546x2560_bf16n_bf16t_bf16t"),
    ({"transA": "N", "a_type": "f8_r", "b_type": "bf8_r"},
     "matmul_9728x546x2560_e5m2t_e4m3t_bf16t"),
    ({"batch_count": "4"}, "batch_matmul_4x9728x546x2560_bf16t_bf16n_bf16t"),
    ({"a_type": "f32_r", "b_type": "f32_r", "c_type": "f32_r", "d_type": "f32_r",
      "compute_type": "xf32_r"}, "matmul_9728x546x2560_tf32t_tf32n_f32t"),
    ({"alpha": "2", "beta": "0.5"}, "matmul_9728x546x2560_bf16t_bf16n_bf16t_alpha2_beta0p5"),
])  # fmt: skip
def test_operations(read, changes, operation):
    (result,) = read(HEADER, ",".join({**ROW, **changes}.values())).results
    assert operation_name(result.operation) == operation


@pytest.mark.parametrize(
    "changes",
    [
        {"activation_type": "gelu"}, {"bias_vector": "1"}, {"scaleA": "1"}, {"grouped_gemm": "1"},
        {"us": "nan"}, {"us": "0"}, {"m": "0"}, {"a_type": "i4_r"}, {"transA": "X"},
        {"compute_type": "f32_f16_r", "a_type": "f32_r"}, {"beta": "1", "c_type": "f32_r"},
    ],
)  # fmt: skip
def test_rows_that_are_no_plain_product_are_left_out(read, changes):
    found = read(HEADER, ",".join({**ROW, **changes}.values()), VALUES)
    assert len(found.results) == 1
    (problem,) = found.problems
    assert problem.startswith("t.txt:2: ")


def test_what_is_printed_around_the_table(read):
    """Names of solutions, the device, and the best solution once more."""
    found = read(
        "hipBLASLt version: 100000", "Device ID 0 : AMD Instinct MI300X gfx942:sramecc+:xnack-",
        HEADER, VALUES, "    --Solution index: 31", "    --Solution name:   Cijk_MT256x256x64",
        HEADER.replace("[0]", "[1]"), VALUES, "    --Solution name: Cijk_MT128x128x64",
        "Winner: ", HEADER, VALUES,
    )  # fmt: skip
    assert [one.configuration for one in found.results] == ["Cijk_MT256x256x64",
                                                            "Cijk_MT128x128x64"]  # fmt: skip
    assert {one.device for one in found.results} == {"AMD Instinct MI300X"}
    assert found.problems == []


def test_rocblas_bench_does_not_state_formats(read):
    lines = ("transA,transB,M,N,K,alpha,lda,beta,ldb,ldc,rocblas-Gflops,us",
             "N,T,128,256,64,1,128,0,256,128,1000,4.2")  # fmt: skip
    assert "--operation" in read(*lines).problems[0]
    (result,) = read(*lines, stated="f32t_f32t_f32t").results
    assert operation_name(result.operation) == "matmul_256x128x64_f32n_f32t_f32t"
