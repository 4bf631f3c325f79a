"""Tests of the rows of products of few rows of A."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.names import parse_operation
from gemmetry.hardware.cuda_plans import Pointer, Tiles
from gemmetry.providers.cuda_provider.decode import KERNELS, parse_variant
from gemmetry.providers.cuda_provider import catalogue

(DECODE,) = KERNELS
RING, DIRECT = "decode_ring_64x4x4x1_c1", "decode_direct_32x8x2_c2"


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("matmul_17x64x64_bf16t_bf16n_bf16t", "at most 16 rows"),
        ("matmul_512x64x64_f32t_f32n_f32t", "not f32 by f32"),
        ("matmul_8x64x64_e4m3t_bf16n_f32t", "not e4m3 by bf16"),
        ("matmul_8x64x64_bf16t_bf16n_e4m3t", "returns bf16, f16 or f32"),
        ("matmul_8x64x64_f16t_f16n_f16t_accf16", "accumulates in f32"),
        ("matmul_8x64x64_e4m3t_e4m3n_bf16t_vs32_e8m0", "128 elements along K"),
        ("matmul_8x64x256_e4m3t_e4m3n_bf16t_vs1x128_vs64x128", "1 or 128 columns"),
    ],
)
def test_what_it_does_not_do_is_refused(name: str, part: str) -> None:
    assert part in (DECODE.refusal(parse_operation(name)) or "")


@pytest.mark.parametrize(
    ("configuration", "name", "part"),
    [
        (RING, "matmul_8x64x65_bf16t_bf16n_bf16t", "multiples of 16 bytes"),
        (RING, "matmul_8x64x72_e4m3t_e4m3n_bf16t", "multiples of 16 bytes"),
        (RING, "matmul_8x64x64_bf16n_bf16n_bf16t", "contiguous along K"),
        (RING, "matmul_8x60x64_bf16t_bf16t_bf16t", "multiples of 16 bytes"),
        (RING, "matmul_8x64x64_e4m3t_e4m3t_bf16t", "cannot turn"),
        ("decode_ring_32x4x4x1_c1", "matmul_8x64x64_bf16t_bf16t_bf16t", "boxes of 64 columns"),
        ("decode_ring_64x4x2x2_c1", "matmul_8x64x72_bf16t_bf16n_bf16t", "whole chunks"),
        ("decode_ring_64x4x2x2_c1", "matmul_8x64x64_bf16t_bf16t_bf16t", "whole chunks"),
        ("decode_ring_128x8x12x1_c1", "matmul_8x64x64_bf16t_bf16n_bf16t", "bytes of shared memory"),
    ],
)
def test_the_copy_engine_has_limits_that_loads_do_not_have(
    configuration: str, name: str, part: str
) -> None:
    operation = parse_operation(name)
    assert part in (DECODE.why_not(operation, Configuration(configuration)) or "")
    assert DECODE.why_not(operation, Configuration(DIRECT)) is None


def test_a_single_row_is_contiguous_either_way() -> None:
    operation = parse_operation("matmul_1x64x64_bf16n_bf16n_bf16n")
    assert DECODE.why_not(operation, Configuration(RING)) is None


@pytest.mark.parametrize(
    "name",
    [
        "decode_ring_40x4x4x1_c1",
        "decode_ring_64x4x4x1_c3",
        "decode_ring_64x4x4_c1",
        "decode_ring_064x4x4x1_c1",
        "decode_direct_64x4x2_c1",
        "decode_direct_64x4x1_c1_ahead",
        "decode_ring_64x4x4x4_c1",
    ],
)
def test_impossible_variants_have_no_name(name: str) -> None:
    assert DECODE.configuration(name, parse_operation(DECODE.checked[0])) is None


def runs_of_warps(blocks: int, n: int, runs: int, name: str) -> Iterator[tuple[int, int]]:
    """The tile and run of everything that the warps of decode.cu read, with its arithmetic."""
    variant = parse_variant(name)
    assert variant is not None
    tiles, stride = -(-n // variant.rows), blocks // variant.split
    for block in range(blocks):
        rank = block % variant.split
        for warp in range(variant.warps):
            first = runs * rank // variant.split + warp
            end = runs * (rank + 1) // variant.split
            count = max(end - first + variant.warps - 1, 0) // variant.warps
            for tile in range(block // variant.split, tiles, stride):
                for at in range(count):
                    yield tile, first + at * variant.warps


@pytest.mark.parametrize("name", [*DECODE.checked, "matmul_1x7168x2048_bf16t_bf16n_bf16t"])
def test_every_run_of_the_weights_is_read_once(name: str) -> None:
    operation = parse_operation(name)
    _, n, k, _ = operation.matmul_shape
    for configuration in DECODE.legal(operation):
        variant = parse_variant(configuration.name)
        assert variant is not None
        runs = -(-k * operation.signature.rhs.itemsize // (128 * variant.depth))
        for processors in (1, 132):
            (launch,) = DECODE.plan(operation, configuration, processors).launches
            blocks = launch.grid.blocks[0]
            read = Counter(runs_of_warps(blocks, n, runs, configuration.name))
            tiles = -(-n // variant.rows)
            assert read == Counter((tile, run) for tile in range(tiles) for run in range(runs))
            assert blocks % variant.split == 0 and blocks <= max(processors, variant.split)


def test_boxes_of_runs_have_an_axis_for_their_chunks() -> None:
    operation = parse_operation("matmul_9x256x1024_bf16t_e4m3n_bf16t_scalerow")
    configuration = Configuration("decode_ring_32x4x2x2_c1")
    (launch,) = DECODE.plan(operation, configuration, 132).launches
    a, b = launch.arguments[:2]
    assert isinstance(a, Tiles) and isinstance(b, Tiles)
    assert (a.boxes.extents, a.boxes.box) == ((64, 16, 9), (64, 4, 16))
    assert (b.boxes.extents, b.boxes.box) == ((128, 8, 256), (128, 2, 32))
    assert (a.boxes.strides, b.boxes.strides) == ((128, 2048), (128, 1024))


def test_boxes_are_rows_of_128_bytes_of_either_operand() -> None:
    operation = parse_operation("matmul_9x256x1024_bf16t_e4m3n_bf16t_scalerow")
    (launch,) = DECODE.plan(operation, Configuration(RING), 132).launches
    a, b = launch.arguments[:2]
    assert isinstance(a, Tiles) and isinstance(b, Tiles)
    assert (a.boxes.box, b.boxes.box) == ((64, 16), (128, 64))
    assert a.boxes.swizzle_bytes == b.boxes.swizzle_bytes == 128
    assert launch.arguments[3:8] == (Pointer("scale_a"), Pointer("scale_b"), None, None, None)
    assert launch.arguments[-1] == (9, 256, 1024, 1024, 1, 1024, 1, 256, 1)


def test_loads_of_single_elements_are_for_unaligned_rows_only() -> None:
    for k, narrow in ((64, 0), (65, 1)):
        operation = parse_operation(f"matmul_2x64x{k}_bf16t_bf16n_bf16t")
        (launch,) = DECODE.plan(operation, Configuration(DIRECT), 132).launches
        assert dict(launch.compilation.macros)["NARROW"] == narrow
        alignments = [one.alignment for one in launch.arguments[:2] if isinstance(one, Pointer)]
        assert alignments == ([1, 1] if narrow else [16, 16])


def test_few_rows_are_chosen_by_default_and_many_are_not() -> None:
    few, many = (f"matmul_{m}x4096x4096_bf16t_bf16n_bf16t" for m in (16, 17))
    chosen = catalogue.choose(parse_operation(few))
    assert chosen is not None and chosen.name.startswith("decode_ring")
    other = catalogue.choose(parse_operation(many))
    assert other is None or not other.name.startswith("decode")


@pytest.mark.parametrize(
    ("shape", "split"), [("1x256x7168", 8), ("4x28672x8192", 1), ("16x4096x14336", 1)]
)
def test_blocks_share_tiles_where_there_are_few(shape: str, split: int) -> None:
    operation = parse_operation(f"matmul_{shape}_bf16t_bf16n_bf16t")
    first = DECODE.legal(operation)[0]
    assert first.parameters["split"] == split
    (launch,) = DECODE.plan(operation, first, 132).launches
    assert launch.grid.blocks[0] > 120


def test_loads_without_the_copy_engine_are_tried_last() -> None:
    aligned, other = (
        DECODE.legal(parse_operation(f"matmul_2x64x{k}_bf16t_bf16n_bf16t")) for k in (64, 65)
    )
    assert [one.parameters["direct"] for one in aligned] == [False] * 5 + [True]
    assert other and all(one.parameters["direct"] for one in other)
