"""Numbers at the ends of s8 and fp8, and gelu: right ways are right, and deliberate slips show."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gemmetry.domain.names import parse_operation
from gemmetry.domain.operation import E4M3, E5M2
from gemmetry.numerics.references import gelu
from gemmetry.numerics.storage import Array, numpy_dtype
from gemmetry.selftest.arithmetic import (
    CountsTopOfE5m2,
    DecodesFp8,
    OffsetS8,
    PairedS8,
    RationalGelu,
    ReservesTopOfE4m3,
    TanhGelu,
)
from gemmetry.selftest.emulator import TiledGemm

TILE = (16, 32, 16)
CODES = np.arange(256, dtype=np.uint8)


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (PairedS8, "matmul_33x65x51_s8t_s8n_s32t_beta1_relu"),
        (OffsetS8, "batch_matmul_2x17x30x40_s8n_s8t_s32t_bias"),
        (DecodesFp8, "batch_matmul_3x33x30x70_e4m3n_e5m2t_bf16t_scalerow"),
        (DecodesFp8, "matmul_1x1x1_e5m2t_e4m3n_f32t"),
        (RationalGelu, "matmul_33x65x51_f16t_f16n_f32t_bias_gelu"),
    ],
)
def test_the_right_ways_are_right_for_other_forms(
    assert_right: Any, kernel: type[TiledGemm], name: str
) -> None:
    assert_right(kernel, name)


def constant(bench: Any, lhs: float, rhs: float) -> Any:
    """`bench` with one number all over A and one all over B."""
    bench.use([np.full_like(x, value) for x, value in zip(bench.inputs, (lhs, rhs), strict=True)])
    return bench


@pytest.mark.parametrize(
    ("slug", "k", "lhs", "rhs", "expected"),
    [
        ("s8_sums_in_f32", 1040, 127, 127, 127**2 * 1040),
        ("s8_sums_in_f32", 1041, 127, 127, 127**2 * 1041 - 1),  # odd, and above 2^24
        ("pairs_saturate", 32, -127, -128, 127 * 128 * 32),
        ("pairs_saturate", 32, -128, -128, (2**15 - 1) * 16),
        ("offset_pairs_saturate", 32, -60, 127, -60 * 127 * 32),
        ("offset_pairs_saturate", 32, 60, 127, (2**15 - 1) * 16 - 128 * 127 * 32),
        ("negated_in_s8", 32, 5, -128, -5 * 128 * 32),
        ("negated_in_s8", 32, -5, -127, 5 * 127 * 32),
        ("negated_in_s8", 32, -5, -128, -5 * 128 * 32),
        ("minus_128_clamped", 32, -128, 3, -127 * 3 * 32),
        ("minus_128_clamped", 32, 3, -128, -3 * 128 * 32),
    ],
)
def test_s8_sums(plant: Any, slug: str, k: int, lhs: int, rhs: int, expected: int) -> None:
    assert (constant(plant(slug, (3, 5, k)), lhs, rhs).launch() == expected).all()


@pytest.mark.parametrize("kernel", [DecodesFp8, ReservesTopOfE4m3, CountsTopOfE5m2])
@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_tables_of_fp8(kernel: type[DecodesFp8], dtype: Any) -> None:
    operation = parse_operation("matmul_4x4x4_e4m3t_e5m2n_f32t")
    table = kernel(operation, TILE).table(dtype)
    true = CODES.view(numpy_dtype(dtype)).astype(np.float32)
    same = (table == true) | (np.isnan(table) & np.isnan(true))
    assert (np.signbit(table) == (CODES >= 128))[~np.isnan(table)].all()
    if kernel is ReservesTopOfE4m3 and dtype is E4M3:
        assert (same == ((np.abs(true) < 256) | np.isnan(true))).all()
        assert np.isinf(table[0x78]) and np.isnan(table[0x79:0x7F]).all()
    elif kernel is CountsTopOfE5m2 and dtype is E5M2:
        assert (same == (np.isfinite(true) | (CODES & 127 == 127))).all()
        assert table[0x7C:0x7F].tolist() == [2.0**16, 1.25 * 2**16, 1.5 * 2**16]
    else:
        assert same.all()


@pytest.mark.parametrize("slug", ["e4m3_top_reserved", "scaled_e4m3_top_reserved"])
def test_one_number_of_the_top_spoils_its_row(plant: Any, slug: str) -> None:
    bench = plant(slug)
    assert bench.is_right()
    for value, rows in ((240, []), (-448, [5])):
        inputs = [np.array(array) for array in bench.inputs]
        inputs[0][5, 7] = ml_dtypes.float8_e4m3fn(value)
        bench.use(inputs)
        assert np.flatnonzero(bench.wrong().any(axis=1)).tolist() == rows


def test_infinity_of_e5m2_counts_as_a_number(plant: Any) -> None:
    bench = plant("e5m2_top_counted")
    assert bench.is_right()
    bench.buffer("lhs")[5, 7] = ml_dtypes.float8_e5m2(np.inf)
    assert np.isfinite(bench.launch()).all()


def gelu_of(kernel: type[TiledGemm], values: Array) -> Array:
    operation = parse_operation("matmul_4x4x4_f32t_f32t_f32t_gelu")
    return kernel(operation, TILE).gelu(values)


@pytest.mark.parametrize(
    ("kernel", "least", "most"), [(TanhGelu, 4e-4, 5e-4), (RationalGelu, 1e-8, 1e-6)]
)
def test_how_far_gelu_is_off(kernel: type[TiledGemm], least: float, most: float) -> None:
    values = np.linspace(-8, 8, 4001, dtype=np.float32)
    off = np.abs(gelu_of(kernel, values) - gelu(values.astype(np.float64)))
    assert least < off.max() < most


@pytest.mark.parametrize("kernel", [TiledGemm, RationalGelu, TanhGelu])
def test_gelu_of_what_is_not_finite(kernel: type[TiledGemm]) -> None:
    values = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 0], np.float32)
    with np.errstate(all="ignore"):
        found = gelu_of(kernel, values)
    assert found.dtype == np.float32
    assert np.isnan(found[0]) and found[1] == np.inf
    assert not found[2] or np.isnan(found[2])
    assert found[3:].tolist() == [np.float32(3e38), 0, 0]
