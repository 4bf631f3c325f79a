from __future__ import annotations

import ctypes

import pytest

from gemmetry.domain.names import parse_operation
from gemmetry.domain.target import Target, TargetKind
from gemmetry.providers.user_provider.cuda import launch
from gemmetry.providers.user_provider.cuda.launch import (
    arguments_for,
    launch_sizes,
    macros_for,
    why_not,
)
from gemmetry.providers.user_provider.cuda.manifest import load_manifest

H200 = Target(TargetKind.CUDA, "sm_90", 0)
OPERATION = parse_operation("matmul_100x70x33_f32t_f32n_f32t")
PLAIN = {
    "operations": '["f32t_f32n_f32t", "f32t_f32n_f32t_beta1"]',
    "arguments": '["A", "B", "C", "addend", "M", "N", "ceil(K, 2)", "alpha", "beta"]',
    "grid": '["ceil(N, TILE)", "ceil(M, TILE)"]',
    "block": '["TILE", 2]',
    "configurations": "[{TILE = 16, FAST = true}]",
}
VALUES = {"TILE": 16, "FAST": True}


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "_has_bindings", lambda: True)

    def made(**changes):
        (tmp_path / "k.cu").write_text('extern "C" __global__ void f() {}')
        table = PLAIN | changes
        text = "\n".join(f"{key} = {value}" for key, value in table.items())
        (tmp_path / "k.toml").write_text(f"[f]\n{text}")
        return load_manifest(f"{tmp_path / 'k.cu'}:f")

    return made


def test_sizes_are_those_of_the_expressions(kernel) -> None:
    made = kernel(cluster='["TILE // 8"]', shared_bytes='"TILE * K * 4"')
    sizes = launch_sizes(made, OPERATION, VALUES)
    assert (sizes.grid, sizes.block) == ((5, 7, 1), (16, 2, 1))
    assert (sizes.cluster, sizes.shared_bytes) == ((2, 1, 1), 16 * 33 * 4)


def test_macros_are_the_configuration_and_the_formats(kernel) -> None:
    assert macros_for(OPERATION, VALUES) == {"IN_F32": 1, "OUT_F32": 1, "TILE": 16, "FAST": 1}


def test_arguments_are_addresses_integers_and_factors(kernel) -> None:
    operation = parse_operation("matmul_100x70x33_f32t_f32n_f32t_alpha0p5_beta2")
    made = arguments_for(kernel(), operation, VALUES)
    kinds = [type(value) for value in made.values]
    assert kinds == [ctypes.c_void_p] * 4 + [ctypes.c_int] * 3 + [ctypes.c_float] * 2
    assert [value.value for value in made.values] == [None] * 4 + [100, 70, 17, 0.5, 2.0]
    assert made.inputs == ((0, 0), (1, 1), (3, 2))  # the addend is the third input
    assert made.outputs == (2,)


def test_a_tensor_that_the_operation_lacks_is_null(kernel) -> None:
    made = arguments_for(kernel(), OPERATION, VALUES)
    assert made.inputs == ((0, 0), (1, 1))
    assert made.values[3].value is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"requires": '["K % 8 == 0"]'}, "requires K % 8 == 0, and K = 33"),
        ({"grid": "[0]"}, "its grid is 0 × 1 × 1"),
        ({"grid": '[1, "M * 1000"]'}, "its grid is 1 × 100000 × 1"),
        ({"block": "[2048]"}, "its block is 2048 × 1 × 1"),
        ({"block": "[64, 64]"}, "64 × 64 × 1 has more than 1024 threads"),
        ({"cluster": "[2]"}, "does not consist of whole clusters of 2 × 1 × 1"),
        ({"shared_bytes": '"-K"'}, "shared_bytes are negative"),
        ({"grid": '["M // (K - 33)"]'}, "'M // .K - 33.' has no value"),
        ({"arguments": '["C", "M * N * K * 100000"]'}, "does not fit an int"),
        ({"operations": '["f32t_f32t_f32t"]'}, "does not list these formats and layouts"),
    ],
)
def test_operations_that_cannot_be_launched_are_refused_with_the_reason(
    kernel, changes, reason
) -> None:
    assert why_not(kernel(), OPERATION, VALUES, H200) is None
    assert reason.replace(".K - 33.", "(K - 33)") in (
        why_not(kernel(**changes), OPERATION, VALUES, H200) or ""
    )


def test_other_devices_are_refused_with_the_command_that_compiles(kernel) -> None:
    reason = why_not(kernel(), OPERATION, VALUES, Target(TargetKind.CPU)) or ""
    assert "NVIDIA" in reason
    assert "gemmetry compile --device cuda-sm_90" in reason


def test_missing_bindings_are_named(kernel, monkeypatch) -> None:
    monkeypatch.setattr(launch, "_has_bindings", lambda: False)
    assert "pip install 'gemmetry[cuda]'" in (why_not(kernel(), OPERATION, VALUES, H200) or "")
