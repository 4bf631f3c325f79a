"""Numbers at the ends of s8 and fp8, and gelu: right ways are right, and deliberate slips show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.operation import E4M3, E5M2
from gemmetry.numerics.references import gelu
from gemmetry.numerics.storage import numpy_dtype
from gemmetry.selftest.arithmetic import (
    CountsTopOfE5m2,
    DecodesFp8,
    RationalGelu,
    ReservesTopOfE4m3,
    TanhGelu,
)
from gemmetry.selftest.emulator import TiledGemm

TILE = (16, 32, 16)
CODES = np.arange(256, dtype=np.uint8)


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


OF_GELU = parse_operation("matmul_4x4x4_f32t_f32t_f32t_gelu")


@pytest.mark.parametrize(
    ("kernel", "least", "most"), [(TanhGelu, 4e-4, 5e-4), (RationalGelu, 1e-8, 1e-6)]
)
def test_how_far_gelu_is_off(kernel: type[TiledGemm], least: float, most: float) -> None:
    values = np.linspace(-8, 8, 4001, dtype=np.float32)
    off = np.abs(kernel(OF_GELU, TILE).gelu(values) - gelu(values.astype(np.float64)))
    assert least < off.max() < most


@pytest.mark.parametrize("kernel", [TiledGemm, RationalGelu, TanhGelu])
def test_gelu_of_what_is_not_finite(kernel: type[TiledGemm]) -> None:
    values = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 0], np.float32)
    with np.errstate(all="ignore"):
        found = kernel(OF_GELU, TILE).gelu(values)
    assert found.dtype == np.float32
    assert np.isnan(found[0]) and found[1] == np.inf
    assert not found[2] or np.isnan(found[2])
    assert found[3:].tolist() == [np.float32(3e38), 0, 0]
