"""The kernel of e4m3 numbers: plans and legality."""

from __future__ import annotations

import pytest

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.names import parse_operation
from gemmetry.hardware.cuda_plans import Pointer
from gemmetry.providers.cuda_provider.fp8 import KERNELS
from gemmetry.providers.cuda_provider.kernel import SHARED_BYTES

(FP8,) = KERNELS


@pytest.mark.parametrize(
    ("scaling", "scales"),
    [
        ("", 0), ("_scaletensor", 0), ("_scalerow", 1), ("_vs1x128_vs128x128", 2), ("_vs1x128", 3),
    ],
)  # fmt: skip
def test_scaling_chooses_the_code(scaling: str, scales: int) -> None:
    operation = parse_operation(f"matmul_512x512x512_e4m3t_e4m3n_bf16t{scaling}")
    legal = FP8.legal(operation)
    assert legal
    for configuration in legal:
        (launch,) = FP8.plan(operation, configuration, 132).launches
        assert dict(launch.compilation.macros)["SCALES"] == scales
        assert launch.grid.dynamic_bytes <= SHARED_BYTES
        assert FP8.configuration(configuration.name, operation) == configuration
        assert (launch.arguments[4] is None) == (scaling == "")


@pytest.mark.parametrize(
    ("name", "macros", "roles"),
    [
        ("", (0, 0, 0), ()),
        ("_alpha0p5_beta2", (1, 1, 0), ("addend",)),
        ("_bias_relu", (0, 0, 12), ("bias",)),
        ("_scalerow_alpha0p5_bias_gelu_residual", (1, 0, 134),
         ("scale_a", "scale_b", "bias", "residual")),
        ("_vs1x128_vs128x128_beta1_relu", (0, 1, 2), ("scale_a", "scale_b", "addend")),
    ],
)  # fmt: skip
def test_what_follows_the_product_is_compiled_in_and_has_its_operands(
    name: str, macros: tuple[int, int, int], roles: tuple[str, ...]
) -> None:
    operation = parse_operation(f"matmul_512x512x512_e4m3t_e4m3n_bf16t{name}")
    for configuration in FP8.legal(operation):
        (launch,) = FP8.plan(operation, configuration, 132).launches
        given = dict(launch.compilation.macros)
        assert (given["ALPHA"], given["ADDEND"], given["EPILOGUE"]) == macros
        passed = [one.buffer for one in launch.arguments[4:9] if isinstance(one, Pointer)]
        assert tuple(passed) == roles
        signature = operation.signature
        assert launch.arguments[9:11] == (float(signature.alpha), float(signature.beta))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("matmul_64x64x64_e5m2t_e4m3n_bf16t", "multiplies e4m3"),
        ("matmul_64x64x64_e4m3t_e4m3t_bf16t", "read along K"),
        ("matmul_64x64x64_e4m3t_e4m3n_bf16t_vs32_e8m0", "takes the factors"),
    ],
)
def test_what_it_does_not_compute_has_a_reason(name: str, reason: str) -> None:
    refusal = FP8.refusal(parse_operation(name))
    assert refusal is not None and reason in refusal


@pytest.mark.parametrize(
    ("configuration", "reason"),
    [
        ("fp8_96x128_c1x1_b8", "tiles are"),
        ("fp8_256x160_c1x1_b8", "registers"),
        ("fp8_128x128_c1x2_b8", "clusters"),
        ("fp8_128x128_c1x1_b8_k2", "not divided"),
        ("fp8_x", "no tiling"),
    ],
)
def test_illegal_configurations_are_refused(configuration: str, reason: str) -> None:
    operation = parse_operation("matmul_512x512x512_e4m3t_e4m3n_bf16t")
    refusal = FP8.why_not(operation, Configuration(configuration))
    assert refusal is not None and reason in refusal


def test_odd_rows_are_packed_first() -> None:
    operation = parse_operation("matmul_65x66x67_e4m3t_e4m3n_bf16t_vs1x128")
    plan = FP8.plan(operation, FP8.legal(operation)[0], 132)
    assert [launch.compilation.entry for launch in plan.launches] == ["pack", "pack", "gemm"]
    assert plan.workspaces == {"packed_lhs": 65 * 80, "packed_rhs": 66 * 80}
