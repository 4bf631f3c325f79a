from __future__ import annotations

import copy
import pickle

import pytest

from gemmetry.domain.errors import UnknownNameError
from gemmetry.domain.operation import (
    DTYPE_ALIASES,
    DTYPES,
    default_accumulator,
    default_result,
    parse_dtype,
)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_names_parse_back(dtype):
    assert str(dtype) == dtype.name
    assert parse_dtype(f" {dtype.name.upper()} ") is parse_dtype(dtype.name) is dtype
    copies = copy.deepcopy(dtype), pickle.loads(pickle.dumps(dtype))  # noqa: S301
    assert copies[0] is copies[1] is dtype, "there is one object per format"


def test_aliases_name_real_formats_and_no_other():
    assert not DTYPE_ALIASES.keys() & DTYPES.keys()
    for alias, name in DTYPE_ALIASES.items():
        assert parse_dtype(alias) is DTYPES[name]


FORMATS = {
    "f64": (8, 53, 2**1024 - 2**971), "f32": (4, 24, 2**128 - 2**104),
    "tf32": (4, 11, 2**128 - 2**117), "f16": (2, 11, 65504), "bf16": (2, 8, 2**128 - 2**120),
    "e4m3": (1, 4, 448), "e5m2": (1, 3, 57344), "e4m3fnuz": (1, 4, 240),
    "e5m2fnuz": (1, 3, 57344), "e2m1": (1, 2, 6), "e8m0": (1, 1, 2**127),
}  # fmt: skip
"""Bytes, bits of the significand, and largest value: (2 - 2^(1-p))·2^emax of each definition,
written as a difference of powers."""


def test_sizes_kinds_and_ranges_of_formats():
    floats = {name: dtype for name, dtype in DTYPES.items() if not dtype.is_integer}
    assert {name: (d.itemsize, d.significand_bits, d.maximum) for name, d in floats.items()} == {
        name: (size, bits, float(largest)) for name, (size, bits, largest) in FORMATS.items()
    }
    assert all(dtype.unit_roundoff == 2.0**-dtype.significand_bits for dtype in floats.values())
    integers = {name: dtype.itemsize for name, dtype in DTYPES.items() if dtype.is_integer}
    assert integers == {"s8": 1, "s32": 4}
    assert DTYPES["s8"].unit_roundoff == 0
    assert {n for n, d in DTYPES.items() if d.is_fp8} == {"e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz"}


@pytest.mark.parametrize("text", ["", "f17", "float33", "tf", "s4"])
def test_unknown_formats_are_refused(text):
    with pytest.raises(UnknownNameError, match="unknown dtype"):
        parse_dtype(text)


@pytest.mark.parametrize(("lhs", "rhs", "result", "accumulator"), [
    ("f16", "f16", "f16", "f32"), ("s8", "s8", "s32", "s32"), ("e4m3", "e5m2", "bf16", "f32"),
    ("tf32", "tf32", "f32", "f32"), ("f64", "f64", "f64", "f64"), ("bf16", "f32", "f32", "f32"),
])  # fmt: skip
def test_defaults(lhs, rhs, result, accumulator):
    left, right = DTYPES[lhs], DTYPES[rhs]
    assert default_result(left, right) is DTYPES[result]
    assert default_accumulator(left, right, DTYPES[result]) is DTYPES[accumulator]
    assert default_accumulator(DTYPES["f32"], DTYPES["f32"], DTYPES["f64"]) is DTYPES["f64"]
