"""Tests of the rows of rungs 0 to 4."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.names import parse_operation
from gemmetry.hardware.cuda_plans import Pointer
from gemmetry.providers.cuda_provider import catalogue

RUNGS = [catalogue.kernel_of(key) for key in ("r00", "r01", "r02", "r03", "r04")]
assert None not in RUNGS
NAIVE, THREADS, SHARED, REGISTERS, MMA = RUNGS
FOLDER = resources.files("gemmetry.providers.kernels") / "gemm"


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("matmul_8x8x8_f32t_f32n_f32t", "multiply bf16 and f16"),
        ("matmul_8x8x8_bf16t_f16n_f32t", "multiply bf16 and f16"),
        ("matmul_8x8x8_bf16t_bf16n_f16t", "return bf16 or f32"),
        ("matmul_8x8x8_f16t_f16n_f16t_accf16", "accumulate in f32"),
        ("matmul_8x8x8_bf16t_bf16t_bf16t", "layouts t, n, t"),
        ("matmul_8x8x8_bf16t_bf16n_bf16n", "layouts t, n, t"),
        ("matmul_8x8x8_bf16t_bf16n_bf16t_alpha2", "without alpha"),
        ("matmul_8x8x8_bf16t_bf16n_bf16t_bias", "or an epilogue"),
    ],
)
def test_what_they_do_not_do_is_refused(name: str, part: str) -> None:
    for kernel in RUNGS:
        assert part in (kernel.refusal(parse_operation(name)) or "")


def test_one_thread_is_given_no_more_than_it_can_finish() -> None:
    largest, larger = "matmul_512x512x512_", "matmul_512x513x512_"
    formats = "bf16t_bf16n_bf16t"
    assert NAIVE.refusal(parse_operation(largest + formats)) is None
    assert "up to 512x512x512" in (NAIVE.refusal(parse_operation(larger + formats)) or "")
    assert THREADS.refusal(parse_operation(larger + formats)) is None
    seconds = NAIVE.seconds_per_launch
    assert seconds is not None
    assert seconds(parse_operation(largest + formats)) > seconds(
        parse_operation(f"matmul_8x8x8_{formats}")
    )


def test_every_element_has_a_thread() -> None:
    operation = parse_operation("matmul_33x65x7_f16t_f16n_f32t")
    (launch,) = THREADS.plan(operation, Configuration("r01"), 132).launches
    assert launch.grid.blocks[0] * launch.grid.threads[0] >= 33 * 65
    assert launch.arguments == (Pointer("lhs"), Pointer("rhs"), Pointer("result"), 33, 65, 7)
    assert dict(launch.compilation.macros) == {"IN_F16": 1, "OUT_F16": 0, "OUT_F32": 1}


def _constant(source: str, name: str) -> int:
    text = (FOLDER / f"{source}.cu").read_text()
    return int(re.search(rf"\b{name} = (\d+)", text)[1])


@pytest.mark.parametrize("kernel", [SHARED, REGISTERS, MMA], ids=lambda kernel: kernel.name)
def test_every_tile_has_a_block(kernel) -> None:
    operation = parse_operation("matmul_300x513x40_bf16t_bf16n_f32t")
    for configuration in kernel.legal(operation):
        (launch,) = kernel.plan(operation, configuration, 132).launches
        tile_m, tile_n, _ = configuration.tile
        assert launch.grid.blocks == (-(-300 // tile_m) * -(-513 // tile_n), 1, 1)
        assert launch.arguments[3:] == (300, 513, 40)
        macros = dict(launch.compilation.macros)
        assert (macros["OUT_F32"], macros["IN_F16"]) == (1, 0)


def test_the_register_tile_is_that_of_the_source() -> None:
    operation = parse_operation("matmul_256x256x256_bf16t_bf16n_bf16t")
    (configuration,) = REGISTERS.legal(operation)
    (launch,) = REGISTERS.plan(operation, configuration, 132).launches
    tile, tile_k, threads = (
        _constant("r03_register_tiles", name) for name in ("TILE", "TILE_K", "THREADS")
    )
    assert configuration.tile == (tile, tile, tile_k)
    assert launch.grid.threads == (threads, 1, 1)


def test_a_shared_tile_has_a_thread_for_each_element() -> None:
    operation = parse_operation("matmul_256x256x256_bf16t_bf16n_bf16t")
    for name, threads in (("r02_tile32", 1024), ("r02_tile16", 256)):
        configuration = SHARED.configuration(name, operation)
        (launch,) = SHARED.plan(operation, configuration, 132).launches
        assert launch.grid.threads == (threads, 1, 1)
        assert dict(launch.compilation.macros)["TILE"] ** 2 == threads


def test_stages_fit_shared_memory_and_warps_divide_the_tile() -> None:
    operation = parse_operation("matmul_256x256x256_bf16t_bf16n_bf16t")
    listed = MMA.legal(operation)
    assert len({one.name for one in listed}) == len(listed) >= 5
    for configuration in listed:
        (launch,) = MMA.plan(operation, configuration, 132).launches
        macros = dict(launch.compilation.macros)
        bytes_of_stage = (macros["TILE_M"] + macros["TILE_N"]) * macros["TILE_K"] * 2
        assert launch.grid.dynamic_bytes == macros["STAGES"] * bytes_of_stage <= 227 * 1024
        assert launch.grid.threads == (32 * macros["WARPS_M"] * macros["WARPS_N"], 1, 1)
        assert macros["TILE_M"] % (16 * macros["WARPS_M"]) == 0
        assert macros["TILE_N"] % (16 * macros["WARPS_N"]) == 0
        name = "x".join(str(macros[f"TILE_{axis}"]) for axis in "MNK")
        assert configuration.name == f"r04_{name}_s{macros['STAGES']}"
