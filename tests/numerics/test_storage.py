from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.operation import BF16, DTYPES, E4M3, E4M3FNUZ, E5M2, F16, F32, F64, S8, TF32
from gemmetry.numerics import storage

FLOATS = [dtype for dtype in DTYPES.values() if not dtype.is_integer and dtype is not TF32]


def nearest_even(value: float, significand_bits: int) -> float:
    """`value` rounded to nearest even in exact arithmetic, for normal results."""
    _, exponent = np.frexp(abs(value))
    step = Fraction(2) ** (int(exponent) - significand_bits)
    return float(round(Fraction(value) / step) * step)  # Fraction's round() is to nearest even.


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_limits_agree_with_the_storage_types(dtype):
    limits = ml_dtypes.finfo(storage.numpy_dtype(dtype))
    assert storage.smallest_normal(dtype) == float(limits.smallest_normal)
    assert storage.smallest_subnormal(dtype) == float(limits.smallest_subnormal)
    assert dtype.maximum == float(limits.max)


@pytest.mark.parametrize("dtype", [BF16, F16, E5M2, F32], ids=str)
def test_overflow_threshold_is_the_first_value_that_rounds_to_infinity(dtype):
    threshold = storage.overflow_threshold(dtype)
    below = np.nextafter(threshold, 0.0)
    with np.errstate(over="ignore"):
        rounded = storage.to_float64(storage.quantize(np.array([below, threshold]), dtype))
    assert rounded.tolist() == [dtype.maximum, np.inf]


@settings(max_examples=200)
@given(st.floats(width=32, allow_subnormal=False, min_value=-(2.0**100), max_value=2.0**100))
def test_tf32_rounds_to_nearest_even(value):
    got = storage.round_to_tf32(np.array([value, np.inf, -np.inf, np.nan], dtype=np.float32))
    np.testing.assert_array_equal(got, [nearest_even(value, 11), np.inf, -np.inf, np.nan])


@settings(max_examples=300)
@given(st.floats(min_value=2.0**-5, max_value=200), st.sampled_from([BF16, E4M3, E5M2, F16]))
def test_float64_is_rounded_once(value, dtype):
    got = storage.to_float64(storage.quantize(np.array([value, -value]), dtype))
    rounded = nearest_even(value, dtype.significand_bits)
    assert got.tolist() == [rounded, -rounded]


def test_double_rounding_case():
    """Just above a tie of bf16: through float32 it would become the tie, and round to even."""
    value = np.array([1 + 2.0**-8 + 2.0**-40])
    assert float(value.astype(ml_dtypes.bfloat16)[0]) == 1.0
    assert float(storage.quantize(value, BF16)[0]) == 1 + 2.0**-7


@pytest.mark.parametrize("dtype", [E4M3, E5M2, BF16, F16, S8, E4M3FNUZ], ids=str)
def test_widening_is_exact_for_every_bit_pattern(dtype):
    width = storage.numpy_dtype(dtype).itemsize
    patterns = np.arange(256 ** min(width, 2), dtype=f"u{width}").view(storage.numpy_dtype(dtype))
    wide = storage.to_float64(patterns)
    narrow = storage.to_float32(patterns)
    numbers = np.isfinite(wide)
    assert wide[numbers].tolist() == [float(value) for value in patterns[numbers]]
    assert (narrow[numbers] == wide[numbers]).all()
    assert np.isnan(narrow[np.isnan(wide)]).all()


def test_count_zeros_sees_both_signs_and_no_nan():
    values = np.array([0.0, -0.0, 1.0, np.nan], dtype=np.float32)
    assert storage.count_zeros(storage.quantize(values, BF16)) == 2
    fnuz = np.array([0x00, 0x80, 0x01], dtype=np.uint8).view(ml_dtypes.float8_e4m3fnuz)
    assert storage.count_zeros(fnuz) == 1  # 0x80 is NaN there.
    assert storage.count_zeros(np.array([0, 3, 0], dtype=np.int8)) == 2


def test_same_bytes_is_bitwise():
    nan = np.array([np.nan], dtype=np.float32)
    assert storage.same_bytes(nan, nan.copy())
    assert not storage.same_bytes(np.array([0.0]), np.array([-0.0]))
    assert not storage.same_bytes(np.zeros(2, np.float32), np.zeros(2, np.int32))
    assert storage.numpy_dtype(F64) == np.float64


@pytest.mark.parametrize("dtype", list(DTYPES.values()), ids=str)
def test_absolute_values_are_in_the_same_format(dtype):
    values = np.arange(256, dtype=np.uint8).repeat(dtype.itemsize).view(storage.numpy_dtype(dtype))
    assert values.size == 256  # Of the format's size.
    values = values[values != -128] if dtype is S8 else values  # abs(-128) wraps in int8.
    found = storage.absolute(values)
    assert found.dtype == values.dtype
    expected = np.abs(storage.to_float64(values))
    np.testing.assert_array_equal(storage.to_float64(found), expected)


def test_finite_range_leaves_out_what_is_not_finite(monkeypatch):
    monkeypatch.setattr(storage, "_RANGE_PIECE", 4)
    array = np.array([[1, -2], [np.nan, 3], [np.inf, 0.5], [-np.inf, 2]]).astype(np.float16)
    for one in (array, array.T, array.reshape(2, 2, 2)):
        assert storage.finite_range(one) == (-2.0, 3.0)
    assert storage.finite_range(np.array([-np.inf, -2.0, -3.0])) == (-3.0, -2.0)
    for one in (np.array([np.nan, np.inf]), np.zeros((0, 3))):
        assert storage.finite_range(one) == (0.0, 0.0)
