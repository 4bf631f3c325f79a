"""Tests of what the Gluon kernel computes and with which tiles, without triton."""

from __future__ import annotations

from importlib import metadata

import pytest

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.names import parse_operation
from gemmetry.providers.gluon_provider import provider as tiles
from gemmetry.providers.triton_provider.tiles import parse_tile

HOPPER = Target(TargetKind.CUDA, "sm_90", None)
LARGE = parse_operation("matmul_4096x4096x4096_bf16t_bf16n_bf16t")


@pytest.mark.parametrize(
    "formats", ["bf16t_bf16n_bf16t", "bf16t_bf16t_bf16t", "f16t_f16n_f16t", "f16t_f16t_f32t"]
)
def test_both_layouts_of_b_are_computed(formats) -> None:
    operation = parse_operation(f"matmul_65x72x40_{formats}")
    assert tiles.reason_against(operation, HOPPER) is None


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("matmul_64x64x64_f32t_f32n_f32t", "multiplies bf16 and f16"),
        ("matmul_64x64x64_bf16t_bf16n_f16t", "multiplies bf16 and f16"),
        ("matmul_64x64x64_f16t_f16n_f16t_accf16", "accumulates in f32"),
        ("matmul_64x64x64_bf16n_bf16n_bf16t", "row-major A and C"),
        ("matmul_64x64x64_bf16t_bf16n_bf16n", "row-major A and C"),
        ("matmul_64x64x64_bf16t_bf16n_bf16t_bias", "an epilogue"),
        ("batch_matmul_2x64x64x64_bf16t_bf16n_bf16t", "does matmul"),
        ("matmul_64x64x65_bf16t_bf16n_bf16t", "rows of a multiple of 16 bytes; lhs: 130"),
        ("matmul_64x65x64_bf16t_bf16n_bf16t", "rows of a multiple of 16 bytes; result: 130"),
        ("matmul_64x66x64_bf16t_bf16n_f32t", "rows of a multiple of 16 bytes; result: 264"),
        ("matmul_65536x64x32768_bf16t_bf16n_bf16t", "more than 2^31 - 1 elements"),
    ],
)
def test_what_it_does_not_do_is_refused(name, part) -> None:
    assert part in (tiles.reason_against(parse_operation(name), HOPPER) or "")


@pytest.mark.parametrize("name", ["sm_80", "sm_100", ""])
def test_other_processors_are_refused(name) -> None:
    kind = TargetKind.CUDA if name else TargetKind.CPU
    assert "Hopper" in (tiles.reason_against(LARGE, Target(kind, name)) or "")


def test_listed_tiles_suit_and_parse_back() -> None:
    default, *listed = tiles.configurations(LARGE)
    assert default.parameters == listed[0].parameters
    assert len(listed) >= 8
    for configuration in listed:
        tile = parse_tile(configuration.name)
        assert tile is not None and tile.configuration == configuration
        assert tiles.why_unsuitable(tile, LARGE) is None


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("tile_64x128x64_warps8_stages3_group8", "multiply 64 rows each"),
        ("tile_64x128x64_warps2_stages3_group8", "multiply 64 rows each"),
        ("tile_128x512x64_warps8_stages3_group8", "at most 256"),
        ("tile_128x128x64_warps8_stages1_group8", "2 stages or more"),
        ("tile_128x256x64_warps8_stages6_group8", "shared memory"),
        ("tile_128x256x64_warps4_stages3_group8", "registers"),
    ],
)
def test_tiles_that_cannot_work_are_named_with_the_reason(name, part) -> None:
    tile = parse_tile(name)
    assert tile is not None
    assert part in (tiles.why_unsuitable(tile, LARGE) or "")


def test_the_default_gives_every_multiprocessor_a_program() -> None:
    assert tiles.choose(LARGE).tiles(LARGE) >= 132
    small = parse_operation("matmul_256x256x4096_bf16t_bf16n_bf16t")
    assert tiles.choose(small).tiles(small) == 16


@pytest.mark.parametrize(
    ("version", "missing"),
    [("3.5.1", "needs triton 3.6"), ("3.6.0", None), ("3.10.0", None), (None, "not installed")],
)
def test_old_tritons_are_refused(monkeypatch, version, missing) -> None:
    def found(name):
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", found)
    problem = tiles.missing_triton()
    assert problem is None if missing is None else missing in (problem or "")
