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


@pytest.mark.parametrize("name", DTYPES)
def test_names_parse_back(name):
    assert str(parse_dtype(name)) == name
    assert parse_dtype(f" {name.upper()} ") is DTYPES[name]


@pytest.mark.parametrize(("alias", "name"), DTYPE_ALIASES.items())
def test_aliases_name_real_formats_and_no_other(alias, name):
    assert parse_dtype(alias) is DTYPES[name]
    assert alias not in DTYPES


@pytest.mark.parametrize("text", ["", "f17", "float33", "tf", "s4"])
def test_unknown_formats_are_refused(text):
    with pytest.raises(UnknownNameError, match="unknown dtype"):
        parse_dtype(text)


@pytest.mark.parametrize(("name", "bits", "largest"), [
    ("f64", 53, 2**1024 - 2**971), ("f32", 24, 2**128 - 2**104), ("tf32", 11, 2**128 - 2**117),
    ("f16", 11, 65504), ("bf16", 8, 2**128 - 2**120), ("e4m3", 4, 448), ("e5m2", 3, 57344),
    ("e4m3fnuz", 4, 240), ("e5m2fnuz", 3, 57344), ("e2m1", 2, 6), ("e8m0", 1, 2**127),
])  # fmt: skip
def test_significand_and_largest_value(name, bits, largest):
    """Largest = (2 - 2^(1-p))·2^emax of each definition, written as a difference of powers."""
    dtype = DTYPES[name]
    assert dtype.significand_bits == bits
    assert dtype.maximum == float(largest)
    assert dtype.unit_roundoff == 2.0**-bits


def test_sizes_in_memory():
    sizes = {name: dtype.itemsize for name, dtype in DTYPES.items()}
    assert sizes == {
        "f64": 8, "f32": 4, "tf32": 4, "f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1,
        "e4m3fnuz": 1, "e5m2fnuz": 1, "e2m1": 1, "e8m0": 1, "s8": 1, "s32": 4,
    }  # fmt: skip


def test_a_wide_result_has_a_wide_accumulator():
    narrow, wide = DTYPES["f32"], DTYPES["f64"]
    assert default_accumulator(narrow, narrow, wide) is wide


def test_kinds_of_formats():
    assert {n for n, d in DTYPES.items() if d.is_integer} == {"s8", "s32"}
    assert {n for n, d in DTYPES.items() if d.is_fp8} == {"e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz"}
    assert DTYPES["s8"].unit_roundoff == 0


@pytest.mark.parametrize(("lhs", "rhs", "result", "accumulator"), [
    ("f16", "f16", "f16", "f32"), ("s8", "s8", "s32", "s32"), ("e4m3", "e5m2", "bf16", "f32"),
    ("tf32", "tf32", "f32", "f32"), ("f64", "f64", "f64", "f64"), ("bf16", "f32", "f32", "f32"),
])  # fmt: skip
def test_defaults(lhs, rhs, result, accumulator):
    left, right = DTYPES[lhs], DTYPES[rhs]
    assert default_result(left, right) is DTYPES[result]
    assert default_accumulator(left, right, DTYPES[result]) is DTYPES[accumulator]


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_there_is_one_object_per_format(dtype):
    assert copy.deepcopy(dtype) is pickle.loads(pickle.dumps(dtype)) is dtype  # noqa: S301
