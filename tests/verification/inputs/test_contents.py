from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.operation import DTYPES
from gemmetry.numerics.references import to_logical
from gemmetry.numerics.storage import smallest_normal, to_float64
from gemmetry.verification.inputs import contents


@pytest.mark.parametrize("structure", contents.STRUCTURES)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=10)
def test_one_would_see_a_structure_that_is_not_there(structure, seed):
    rng = np.random.default_rng(seed)
    base, other = rng.integers(1, 9, (2, 48, 40)) * rng.choice((-1.0, 1.0), (2, 48, 40))
    whole = contents.STRUCTURES[structure](base, rng)
    same, one, looked = (
        contents._varied(whole, other, how, rng)
        for how in ("whole", "but for one element", "where one would look")
    )
    assert np.array_equal(same, whole)
    assert (one != whole).sum() == 1
    for part in (np.s_[0], np.s_[:, -1], np.s_[::8, ::8]):
        assert np.array_equal(looked[part], whole[part])
    assert (looked != whole).mean() > 0.4


@pytest.mark.parametrize(
    "formats", ["f32t_f32n_f32t", "bf16t_bf16n_bf16t", "f16t_f16n_f16t", "f16t_f16n_f32t"]
)
def test_ends_are_finite_normal_numbers(formats):
    operation = parse_operation(f"matmul_40x36x44_{formats}")
    labels = set()
    for case in contents.ends(operation, 3):
        labels.add(case.label)
        for array, spec in zip(case.inputs, operation.inputs, strict=True):
            sizes = np.abs(to_float64(array))
            assert np.isfinite(sizes).all()
            if case.label != contents.BELOW_NORMAL:
                assert (sizes >= smallest_normal(spec.dtype)).all()
    assert len(labels) >= 3
    assert (contents.BELOW_NORMAL in labels) == formats.endswith("_f16t")


def test_nan_stands_at_every_remainder_of_k():
    operation = parse_operation("matmul_80x36x64_f32t_f32n_f32t")
    places = set()
    for case in contents.specials(operation, 3):
        if case.label == "NaN in lhs":
            array = to_logical(case.inputs[0], operation.inputs[0])
            rows, columns = np.nonzero(np.isnan(array))
            places.update(int(k) % 16 for k in columns)
            assert np.array_equal(case.affected.all(axis=1), np.isin(np.arange(80), rows))
    assert places == set(range(16))


@pytest.mark.parametrize("name", [n for n, d in DTYPES.items() if not d.is_integer and n != "e2m1"])
def test_every_code_is_nan(name):
    codes = contents.nan_codes(DTYPES[name], 12)
    assert np.isnan(to_float64(codes)).all()
    has_one = name in ("e4m3fnuz", "e5m2fnuz", "e8m0")
    assert (len({code.tobytes() for code in codes}) == 1) == has_one


def test_a_long_sum_has_one_term():
    operation = parse_operation("matmul_3x64x2000_f32t_f32n_f32t")
    case = contents.one_of_many(operation, 3, "lhs")
    ones = to_logical(case.inputs[1], operation.inputs[1])
    assert (np.abs(ones).sum(axis=0) == 1).all()
    assert np.abs(to_float64(case.inputs[0])).max() > 2**20
