"""Our Triton kernel on a GPU, every dtype, layout and epilogue against float64."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from gemmetry.domain.dispatch import Target, parse_operation
from gemmetry.providers.triton_provider.block_scaled import architecture_of
from gemmetry.providers.triton_provider.provider import PROVIDER
from gemmetry.providers.triton_provider.tiles import parse_tile, valid_tiles

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="triton is not installed"
    ),
]

Check = Callable[..., Any]
TYPES = ("f32_f32", "tf32_f32", "f16_f16", "f16_f32", "bf16_bf16", "bf16_f32", "s8_s32",
         "e4m3_bf16", "e5m2_f32")  # fmt: skip
LAYOUTS = list(itertools.product("tn", repeat=3))


def skip_unsupported(name: str, gpu: Target) -> None:
    reason = PROVIDER().supports(parse_operation(name), gpu)
    if reason:
        pytest.skip(reason)


@pytest.mark.parametrize("types", TYPES)
def test_layouts(check: Check, gpu: Target, types: str) -> None:
    inputs, result = types.split("_")
    skip_unsupported(f"matmul_8x8x8_{inputs}t_{inputs}t_{result}t", gpu)
    for a, b, c in LAYOUTS:
        types = f"{inputs}{a}_{inputs}{b}_{result}{c}"
        check(PROVIDER(), f"matmul_257x129x65_{types}", tier="warn")
        check(PROVIDER(), f"matmul_256x256x256_{types}", tier="warn")


@pytest.mark.parametrize("types", TYPES)
def test_epilogues(check: Check, gpu: Target, types: str) -> None:
    inputs, result = types.split("_")
    skip_unsupported(f"matmul_8x8x8_{inputs}t_{inputs}t_{result}t", gpu)
    modifiers = ["beta1_bias_relu_residual", "residual_relu"]
    if inputs != "s8":
        modifiers += ["alpha2", "alpha0p5_beta2_gelu", "scaletensor", "scalerow_bias_gelu_residual"]
    for modifier, c in itertools.product(modifiers, "tn"):
        names = f"{inputs}t_{inputs}n_{result}{c}_{modifier}"
        check(PROVIDER(), f"matmul_129x65x64_{names}", tier="warn")
        check(PROVIDER(), f"batch_matmul_3x33x65x70_{names}", tier="warn")


@pytest.mark.parametrize("types", ["f32_f32", "tf32_f32", "bf16_bf16", "s8_s32", "e4m3_bf16"])
def test_every_listed_configuration(check: Check, gpu: Target, types: str) -> None:
    inputs, result = types.split("_")
    name = f"matmul_300x520x400_{inputs}t_{inputs}n_{result}t"
    skip_unsupported(name, gpu)
    provider = PROVIDER()
    for configuration in provider.configurations(parse_operation(name), gpu):
        executable = check(provider, name, configuration.name, tier="warn")
        facts = executable.facts
        assert facts.registers and facts.shared_memory_bytes
        assert (facts.matrix_instruction == "none") == (inputs == "f32")


def test_accumulators(check: Check, gpu: Target) -> None:
    skip_unsupported("matmul_8x8x8_f16t_f16t_f16t_accf16", gpu)
    check(PROVIDER(), "matmul_256x256x4096_f16t_f16t_f16t", tier="warn")
    check(PROVIDER(), "matmul_256x256x4096_f16t_f16t_f16t_accf16")


def test_fp8_sums_are_promoted(check: Check, gpu: Target) -> None:
    name = "matmul_256x256x8192_e4m3t_e4m3n_f32t"
    skip_unsupported(name, gpu)
    # Same-sign data: without promotion the 14-bit accumulator's truncation adds up past `warn`.
    for tile in ("tile_128x128x128_warps8_stages3_group8", "tile_128x128x64_warps4_stages4_group8"):
        check(PROVIDER(), name, tile, tier="warn", distribution="offset_uniform")


DESCRIBED = (
    ("bf16", "bf16", "descriptors_tile_128x256x64_warps8_stages4_group8_parts2"),
    ("f16", "f32", "persistent_tile_128x128x64_warps4_stages3_group8_parts2"),
    ("bf16", "bf16", "persistent_tile_128x256x64_warps8_stages3_group8"),
    ("e4m3", "bf16", "persistent_tile_256x128x128_warps8_stages3_group8_parts2"),
    ("e5m2", "f32", "descriptors_tile_128x128x128_warps8_stages4_group8"),
)


@pytest.mark.parametrize(("inputs", "result", "tile"), DESCRIBED)
def test_tensor_descriptors(check: Check, gpu: Target, inputs: str, result: str, tile: str) -> None:
    """Tails, several tiles a program, layouts and epilogues with tiles moved by descriptors."""
    if parse_tile(tile) not in valid_tiles(
        parse_operation(f"matmul_256x256x256_{inputs}t_{inputs}n_{result}t"), architecture_of(gpu)
    ):
        pytest.skip("this GPU has no tensor descriptors")
    layouts = LAYOUTS if inputs.endswith("f16") else [("t", "n", "t"), ("t", "n", "n")]
    for a, b, c in layouts:
        types = f"{inputs}{a}_{inputs}{b}_{result}{c}"
        check(PROVIDER(), f"matmul_272x144x80_{types}", tile, tier="warn")
        fused = f"matmul_528x272x400_{types}_beta1_bias_relu_residual"
        if parse_tile(tile) not in valid_tiles(parse_operation(fused), architecture_of(gpu)):
            fused = f"matmul_528x272x400_{types}_bias_relu"  # what it loads takes shared memory
        check(PROVIDER(), fused, tile, tier="warn")
    check(PROVIDER(), f"matmul_2064x4112x208_{inputs}t_{inputs}n_{result}t", tile, tier="warn")
    scaled = f"matmul_528x272x400_{inputs}t_{inputs}n_{result}t_scalerow_bias_gelu"
    check(PROVIDER(), scaled, tile, tier="warn")


def test_fp8_sums_of_described_tiles_are_promoted(check: Check, gpu: Target) -> None:
    name = "matmul_256x256x8192_e4m3t_e4m3n_f32t"
    tiles = valid_tiles(parse_operation(name), architecture_of(gpu))
    described = [tile.name for tile in tiles if tile.describes]
    if not described:
        pytest.skip("this GPU has no fp8 tiles with tensor descriptors")
    for tile in described:
        check(PROVIDER(), name, tile, tier="warn", distribution="offset_uniform")


@pytest.mark.parametrize("captured", [False, True])
def test_launches_can_be_timed(check: Check, gpu: Target, captured: bool) -> None:
    name = "matmul_512x512x512_bf16t_bf16t_bf16t"
    executable = check(PROVIDER(), name)
    device = executable.device
    operation = parse_operation(name)
    buffers = [device.allocate(spec) for spec in operation.inputs]
    for buffer in buffers:
        device.fill_bytes(buffer, 0x3C)
    output = device.allocate(operation.output)
    call = lambda: executable.run(buffers, output)  # noqa: E731
    durations, method = device.time_calls([device.captured(call) if captured else call] * 50)
    assert method == "events"
    # Another process may have the device for some of them.
    assert min(durations) > 500
    assert sorted(durations)[len(durations) // 2] < 1e7
    executable.close()
