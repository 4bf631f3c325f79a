from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.names import parse_operation
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import Reference, compute_reference, to_storage
from gemmetry.numerics.storage import quantize
from gemmetry.verification import comparison
from gemmetry.verification.comparison import compare, compare_exactly, outside_bound


@pytest.fixture
def case():
    """(operation, reference, right result in storage shape) of a batched, column-major product."""
    operation = parse_operation("batch_matmul_3x40x30x64_f16t_f16t_f16n")
    inputs = make_inputs(operation, distribution="normal", seed=1)
    reference = compute_reference(operation, inputs)
    logical = quantize(reference.value, operation.output.dtype)
    return operation, reference, to_storage(logical, operation.output)


def test_right_result_has_no_bad_element(case):
    operation, reference, result = case
    statistics = compare(operation, result, reference)
    assert statistics.bad is None and statistics.bad_count == 0
    assert statistics.elements == 3600
    assert 0 < statistics.max_ratio <= 1
    expected = np.linalg.norm(
        quantize(reference.value, operation.output.dtype).astype(float) - reference.value
    ) / np.linalg.norm(reference.value)
    assert statistics.relative_frobenius == pytest.approx(expected)


def test_bad_elements_are_counted_and_the_first_is_named(case):
    operation, reference, result = case
    result[1, 7, 11] = 99  # Storage is (batch, n, m): row 11, column 7.
    result[2, 0, 0] = -99
    statistics = compare(operation, result, reference)
    assert statistics.bad_count == 2
    assert statistics.bad[40 + 11, 7] and statistics.bad[80, 0]
    assert statistics.first_bad.startswith("[1, 11, 7]: got 99, expected ")
    assert statistics.max_ratio > 100


def test_pieces_change_nothing(case, monkeypatch):
    operation, reference, result = case
    result[0, 0, 0] = np.nan
    whole = compare(operation, result, reference)
    monkeypatch.setattr(comparison, "_PIECE", 64)
    pieces = compare(operation, result, reference)
    assert pieces.bad_count == whole.bad_count == 1
    assert pieces.nan_count == 1
    assert pieces.max_ratio == whole.max_ratio
    assert pieces.relative_frobenius == pytest.approx(whole.relative_frobenius)
    assert pieces.signed_bias == pytest.approx(whole.signed_bias)
    assert (pieces.bad == whole.bad).all()


def one_element(formats, value, magnitude=None):
    operation = parse_operation(f"matmul_1x1x16_{formats}")
    array = np.array([[float(value)]])
    scale = array if magnitude is None else np.array([[float(magnitude)]])
    return operation, Reference(array, np.abs(scale))


@pytest.mark.parametrize(
    ("formats", "expected", "got", "is_right"),
    [
        ("f16t_f16t_f16t", 70_000.0, np.inf, True),
        ("f16t_f16t_f16t", 65_519.99, np.inf, True),  # Within the bound of the threshold 65520.
        ("f16t_f16t_f16t", 65_519.99, 65504.0, True),
        ("f16t_f16t_f16t", 65_000.0, np.inf, False),
        ("f16t_f16t_f16t", 70_000.0, -np.inf, False),
        ("f16t_f16t_f16t", 70_000.0, np.nan, False),
        ("f16t_f16t_f16t", 70_000.0, 65504.0, False),
        ("bf16t_bf16t_bf16t", 1e38, np.nan, False),
        ("e4m3t_e4m3t_e4m3t", 500.0, np.nan, True),
        ("e4m3t_e4m3t_e4m3t", 500.0, 448.0, True),
        ("e4m3t_e4m3t_e4m3t", -500.0, 448.0, False),
        ("e4m3t_e4m3t_e4m3t", 400.0, np.nan, False),
        ("e5m2t_e5m2t_e5m2t", 1e5, 57344.0, True),
        ("e5m2t_e5m2t_e5m2t", 1e5, np.nan, False),
        ("f32t_f32t_f32t", 0.0, -0.0, True),
        ("f32t_f32t_f32t", 1e-40, 0.0, True),  # Flushed subnormal.
        ("f16t_f16t_f16t", 4e-5, 0.0, False),  # f16 has no flushing.
    ],
)
def test_special_values(formats, expected, got, is_right):
    operation, reference = one_element(formats, expected)
    result = np.array([[got]]).astype(quantize(np.zeros(1), operation.output.dtype).dtype)
    statistics = compare(operation, result, reference)
    assert (statistics.bad is None) is is_right
    assert np.isfinite(statistics.max_ratio)


def test_integers_must_be_equal():
    operation = parse_operation("matmul_2x3x16_s8t_s8t_s32t")
    value = np.arange(6).reshape(2, 3)
    reference = Reference(value.astype(np.int64), value.astype(float))
    result = value.astype(np.int32)
    assert compare(operation, result, reference).max_ratio == 0
    result[1, 1] += 1
    statistics = compare(operation, result, reference)
    assert statistics.bad_count == 1
    assert statistics.first_bad == "[1, 1]: got 5, expected 4"
    assert statistics.max_ratio == 2.0


def test_bias_is_negative_where_magnitudes_shrink():
    operation = parse_operation("matmul_64x64x16_bf16t_bf16t_bf16t")
    value = np.random.default_rng(1).normal(size=(64, 64))
    reference = Reference(value, np.abs(value))
    shrunk = quantize(np.sign(value) * np.abs(value) * (1 - 2.0**-9), operation.output.dtype)
    assert compare(operation, shrunk, reference).signed_bias < -0.2


class TestExactly:
    operation = parse_operation("matmul_2x3x16_bf16t_bf16t_bf16t")

    def test_equal_numbers_pass_whatever_their_zero_sign(self):
        expected = quantize(np.array([[0.0, 1, -2], [3, 0, 5]]), self.operation.output.dtype)
        result = expected.copy()
        result[0, 0] = -0.0
        assert compare_exactly(self.operation, result, expected).bad is None

    def test_one_ulp_is_told(self):
        expected = quantize(np.array([[256.0, 1, -2], [3, 0, 5]]), self.operation.output.dtype)
        result = expected.copy()
        result[0, 0] = 258
        statistics = compare_exactly(self.operation, result, expected)
        assert statistics.first_bad == "[0, 0]: got 258, expected 256"
        assert statistics.bad_count == 1

    def test_infinity_is_expected_where_the_cast_overflows(self):
        expected = np.array([[np.inf, 1, -np.inf], [3, 0, 5]]).astype(
            quantize(np.zeros(1), self.operation.output.dtype).dtype
        )
        assert compare_exactly(self.operation, expected.copy(), expected).bad is None
        result = expected.copy()
        result[0, 0] = np.nan
        assert compare_exactly(self.operation, result, expected).nan_count == 1


def test_outside_bound_looks_at_the_marked_elements_only(case):
    operation, reference, result = case
    result[1, 7, 11] = 99
    mask = np.zeros(result.shape, dtype=bool)
    mask[0, :3, :3] = True
    assert outside_bound(operation, result, reference, mask) == 0
    mask[1, 7, 11] = True
    assert outside_bound(operation, result, reference, mask) == 1
