from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.names import parse_operation
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.verification.diagnosis import guess_bug

OPERATION = parse_operation("matmul_64x64x16_f32t_f32t_f32t")


def guess(change, operation=OPERATION):
    expected = np.random.default_rng(1).uniform(1, 2, operation.output.shape)
    result = expected.astype(np.float32)
    changed = change(result)
    result = result if changed is None else changed
    bad = np.abs(result - expected) > 1e-5
    bad |= np.isnan(result)
    return guess_bug(operation, result.astype(np.float32), expected, bad)


def assign(where, value):
    def change(result):
        result[where] = value

    return change


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        (lambda r: r * np.nan, "NaN: 4096 of the wrong elements are NaN"),
        (assign((3, 4), np.inf), "overflow: 1 of the wrong elements are infinite"),
        (lambda r: r * 0, "zeros: every wrong element is 0"),
        (assign(np.s_[60:], 0), "zeros: every wrong element is 0, tail: only rows from 60 on"),
        (assign(np.s_[60:], 9), "tail: only rows from 60 on are wrong"),
        (assign(np.s_[:, 48:], 9), "tail: only columns from 48 on are wrong"),
        (assign(np.s_[8:16, 16:32], 9), "index: wrong only in rows 8–15, columns 16–31"),
        (assign((3, 4), 9), "one element"),
        (lambda r: r.T.copy(), "transposed"),
        (lambda r: r * 1.001, "scale: wrong elements are 1.001 times"),
        (lambda r: r[::-1].copy(), "index: products are missing"),
        (lambda r: r.astype(np.float16), "precision: small errors everywhere"),
        (assign((np.array([1, 30, 62]), np.array([60, 2, 31])), 1.2), "a few scattered elements"),
    ],
)
def test_kind_of_bug(change, phrase):
    assert phrase in guess(change)


@pytest.mark.parametrize(
    ("kept", "phrase"),
    [
        (slice(0, 248), "short by about 8 of 256 products"),
        (slice(0, 192), "short by about 64 of 256 products"),
        (slice(1, 256), "short by about 1 of 256 products"),
        ([*range(256), *range(16)], "over by about 16 of 256 products"),
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_part_of_k(kept, phrase, sign):
    operation = parse_operation("matmul_64x48x256_f32t_f32t_f32t")
    random = np.random.default_rng(2)
    a, b = random.uniform(0.5, 1.5, (64, 256)), sign * random.uniform(0.5, 1.5, (256, 48))
    result = (a[:, kept] @ b[kept]).astype(np.float32)
    bad = np.ones((64, 48), dtype=bool)
    guessed = guess_bug(operation, result, a @ b, bad)
    assert guessed.startswith("part of K missing or counted twice")
    if sign == 1:
        assert phrase in guessed


def test_a_few_products_of_a_long_k_are_no_factor():
    operation = parse_operation("matmul_64x48x4096_f32t_f32t_f32t")
    random = np.random.default_rng(2)
    a, b = random.uniform(0.5, 1.5, (64, 4096)), random.uniform(0.5, 1.5, (4096, 48))
    bad = np.ones((64, 48), dtype=bool)
    result = (a[:, :4080] @ b[:4080]).astype(np.float32)
    assert "short by about 16 of 4096 products" in guess_bug(operation, result, a @ b, bad)
    result = (0.996 * (a @ b)).astype(np.float32)
    assert "scale: wrong elements are 0.996 times" in guess_bug(operation, result, a @ b, bad)


def test_small_errors_of_one_sign_are_no_part_of_k():
    operation = parse_operation("matmul_64x48x256_f32t_f32t_f32t")
    expected = np.random.default_rng(2).uniform(200, 300, (64, 48))
    result = expected - np.random.default_rng(3).uniform(0.1, 0.4, (64, 48))
    bad = np.ones((64, 48), dtype=bool)
    assert "precision" in guess_bug(operation, result.astype(np.float32), expected, bad)


def test_column_major_results_are_read_in_their_logical_order():
    operation = parse_operation("matmul_64x32x16_f32t_f32t_f32n")
    expected = np.random.default_rng(1).uniform(1, 2, (64, 32))
    result = np.ascontiguousarray(expected.T).astype(np.float32)
    result[:, 60:] = 9
    bad = np.zeros((64, 32), dtype=bool)
    bad[60:] = True
    assert guess_bug(operation, result, expected, bad) == "tail: only rows from 60 on are wrong"


def test_finite_where_the_result_overflows():
    expected = np.full((64, 64), np.inf)
    bad = np.ones((64, 64), dtype=bool)
    assert "overflow" in guess_bug(OPERATION, np.ones((64, 64), np.float32), expected, bad)


def test_most_of_k_gone_is_no_missing_part_of_k():
    operation = parse_operation("matmul_64x64x64_f32t_f32t_f32t")
    inputs = make_inputs(operation, distribution="offset_uniform", seed=1)
    reference = compute_reference(operation, inputs)
    output = (inputs[0] + inputs[1]).astype(np.float32)
    assert "part of K" not in guess_bug(operation, output, reference.value, np.ones((64, 64), bool))
