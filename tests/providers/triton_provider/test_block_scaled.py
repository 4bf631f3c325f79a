"""Which method multiplies which blocks, decided without a GPU."""

from __future__ import annotations

from importlib import metadata

import pytest
from tests.providers.conftest import dispatch_of

from gemmetry.domain.dispatch import parse_operation, parse_target
from gemmetry.domain.errors import UnsupportedError
from gemmetry.providers.triton_provider import block_scaled
from gemmetry.providers.triton_provider.block_scaled import architecture_of
from gemmetry.providers.triton_provider.provider import TritonProvider
from gemmetry.providers.triton_provider.tiles import valid_tiles

CPU, AMPERE, HOPPER, BLACKWELL = map(
    parse_target, ("cpu", "cuda-sm_80", "cuda-sm_90", "cuda-sm_100")
)
FP8 = "matmul_512x512x512_e4m3t_e4m3n_bf16t_vs1x128_vs128x128"
MXFP8 = "matmul_512x512x512_e4m3t_e5m2n_bf16t_vs32_e8m0"
MXFP4 = "matmul_512x512x512_e2m1t_e2m1n_bf16t_vs32_e8m0"
NVFP4 = "matmul_512x512x512_e2m1t_e2m1n_bf16t_vs16_e4m3"
VECTORS_OF_16 = "matmul_512x512x512_e2m1t_e2m1n_f16t_vs16_e8m0"


def methods(name, target):
    provider = TritonProvider({"interpret": target == CPU})
    configurations = provider.configurations(parse_operation(name), target)
    return list(dict.fromkeys(c.parameters["method"] for c in configurations))


@pytest.mark.parametrize("target", [HOPPER, BLACKWELL], ids=str)
@pytest.mark.parametrize(
    ("name", "expected"),
    [(FP8, ["promoted"]), (MXFP8, ["dotscaled", "widened"]), (MXFP4, ["dotscaled", "widened"]),
     (NVFP4, ["dotscaled", "widened"]), (VECTORS_OF_16, ["widened"])],
)  # fmt: skip
def test_methods(name, target, expected, monkeypatch):
    """The default is first: our kernel, where no instruction applies the factors."""
    monkeypatch.setattr(metadata, "version", lambda name: {"triton": "3.9.0"}[name])
    assert TritonProvider().supports(parse_operation(name), target) is None
    assert methods(name, target) == (expected if target == BLACKWELL else expected[::-1])
    assert methods(name, CPU) == (["widened"] if name == NVFP4 else expected)


@pytest.mark.parametrize(
    ("name", "method", "target", "words"),
    [
        (FP8, "promoted", HOPPER, "outside the instruction"),
        (MXFP4, "dotscaled", BLACKWELL, "the matrix instruction applies the factors"),
        (MXFP4, "dotscaled", HOPPER, "decomposed (sm_90 has no instruction with factors"),
        (NVFP4, "widened", BLACKWELL, "decomposed: the kernel widens"),
        (VECTORS_OF_16, "widened", BLACKWELL, "no e8m0 factors of 16 e2m1 elements"),
    ],
)
def test_records_state_whether_the_instruction_applies_the_factors(name, method, target, words):
    architecture = architecture_of(target)
    signature = parse_operation(name).signature
    assert words in block_scaled.note(signature, method, architecture)


@pytest.mark.parametrize(("release", "native"), [("3.6.0", False), ("3.10.1+git", True)])
def test_an_older_triton_does_not_widen_for_factors_in_e4m3(monkeypatch, release, native):
    monkeypatch.setattr(metadata, "version", lambda name: {"triton": release}[name])
    assert methods(NVFP4, HOPPER) == ["widened"] + ["dotscaled"] * native
    assert methods(NVFP4, BLACKWELL) == ["dotscaled", "widened"]
    assert methods(MXFP4, HOPPER) == methods(MXFP4, AMPERE) == ["widened", "dotscaled"]


@pytest.mark.parametrize("depth", [32, 64, 96, 128, 256])
def test_steps_stay_within_a_block_of_fp8(depth):
    operation = parse_operation(f"matmul_512x512x512_e4m3t_e4m3n_bf16t_vs1x{depth}")
    tiles = valid_tiles(operation, architecture_of(HOPPER))
    assert tiles and all(depth % tile.block_k == 0 and tile.block_k <= 128 for tile in tiles)


def test_a_method_that_does_not_know_the_blocks_is_unsupported_before_anything_compiles(workspace):
    name = "dotscaled_tile_128x128x128_warps8_stages3_group8"
    wanted = dispatch_of(TritonProvider(), VECTORS_OF_16, name, HOPPER)
    (compiled,) = TritonProvider().compile([wanted], workspace)
    assert isinstance(compiled.error, UnsupportedError)
    assert "dot_scaled has no e8m0 factors of 16" in str(compiled.error)
