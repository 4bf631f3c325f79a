from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.names import parse_operation
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.numerics.storage import quantize, to_float64
from gemmetry.verification.comparison import compare
from gemmetry.verification.guess import guess_bug

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
        (lambda r: r * 1.001, "scale: the result is 1.001 times"),
        (lambda r: r[::-1].copy(), "index: row 0 contains what belongs to row 63"),
        (
            lambda r: np.roll(r, 16, axis=1),
            "columns from 0 on hold what belongs to columns from 48",
        ),
        (lambda r: np.random.default_rng(5).permuted(r), "whose cause does not show"),
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


def test_a_few_products_of_a_long_k_are_not_called_a_factor():
    operation = parse_operation("matmul_64x48x4096_f32t_f32t_f32t")
    random = np.random.default_rng(2)
    a, b = random.uniform(0.5, 1.5, (64, 4096)), random.uniform(0.5, 1.5, (4096, 48))
    bad = np.ones((64, 48), dtype=bool)
    result = (a[:, :4080] @ b[:4080]).astype(np.float32)
    assert "short by about 16 of 4096 products" in guess_bug(operation, result, a @ b, bad)
    result = (0.996 * (a @ b)).astype(np.float32)
    assert "scale: the result is 0.996 times" in guess_bug(operation, result, a @ b, bad)


def test_small_errors_of_one_sign_are_not_a_part_of_k():
    operation = parse_operation("matmul_64x48x256_f32t_f32t_f32t")
    expected = np.random.default_rng(2).uniform(200, 300, (64, 48))
    result = expected - np.random.default_rng(3).uniform(0.1, 0.4, (64, 48))
    bad = np.ones((64, 48), dtype=bool)
    assert "precision" in guess_bug(operation, result.astype(np.float32), expected, bad)


def test_finite_where_the_result_overflows():
    expected = np.full((64, 64), np.inf)
    bad = np.ones((64, 64), dtype=bool)
    assert "overflow" in guess_bug(OPERATION, np.ones((64, 64), np.float32), expected, bad)


def test_most_of_k_gone_is_not_a_missing_part_of_k():
    operation = parse_operation("matmul_64x64x64_f32t_f32t_f32t")
    inputs = make_inputs(operation, distribution="offset_uniform", seed=1)
    reference = compute_reference(operation, inputs)
    output = (inputs[0] + inputs[1]).astype(np.float32)
    assert "part of K" not in guess_bug(operation, output, reference.value, np.ones((64, 64), bool))


def test_members_of_a_batch_are_named():
    operation = parse_operation("batch_matmul_4x32x16x8_f32t_f32t_f32t")
    expected = np.random.default_rng(1).uniform(1, 2, (4, 32, 16))
    result = expected.astype(np.float32)
    result[2, 28:] = 0
    bad = (result != expected.astype(np.float32)).reshape(-1, 16)
    text = guess_bug(operation, result, expected, bad)
    assert text == (
        "zeros: every wrong element is 0, tail: only rows from 28 on are wrong, "
        "in 1 of 4 members of the batch (first 2)"
    )


@pytest.mark.parametrize("formats", ["bf16t_bf16t_bf16t", "f32t_f32t_f32t"])
def test_small_errors_are_not_taken_from_elsewhere(formats):
    """Same-sign sums of long K are all nearly alike, so that many rows look alike."""
    operation = parse_operation(f"matmul_64x64x4096_{formats}")
    inputs = make_inputs(operation, distribution="offset_uniform", seed=1)
    want = compute_reference(operation, inputs).value
    result = quantize(want * 1.004, operation.output.dtype)
    text = guess_bug(operation, result, want, np.ones((64, 64), bool))
    assert "belongs" not in text


class TestSameSignData:
    """Sums of K products of uniform data differ by a few per cent, whatever is done to them."""

    operation = parse_operation("matmul_96x96x512_bf16t_bf16n_bf16t")

    def guess(self, change, k=512):
        inputs = make_inputs(self.operation, distribution="offset_uniform", seed=1)
        a, b = to_float64(inputs[0]), to_float64(inputs[1]).T
        reference = compute_reference(self.operation, inputs)
        result = quantize(change(a, b, reference.value), self.operation.output.dtype)
        errors = compare(self.operation, result, reference)
        assert errors.bad is not None
        return guess_bug(self.operation, result, reference.value, errors.bad)

    def test_a_factor_near_one(self):
        assert "scale: the result is 1.004 times" in self.guess(lambda a, b, c: c * 1.004)

    def test_another_operand(self):
        """Nothing but its size distinguishes it from rounding, so that both are named."""
        text = self.guess(lambda a, b, c: a @ np.roll(b, 1, axis=0))
        assert text.startswith("small errors everywhere: a narrower format, or other products")

    def test_errors_that_are_their_own_transpose_are_not_transposed(self):
        assert "transposed" not in self.guess(lambda a, b, c: c * 0.99)


def test_overflow_next_to_the_wrong_elements_gives_no_hint():
    random = np.random.default_rng(1)
    expected = random.uniform(1, 2, (64, 64))
    overflows = random.random((64, 64)) < 0.3
    expected[overflows] = np.inf
    result = (expected * 1.5).astype(np.float32)
    assert "scale: the result is 1.5 times" in guess_bug(OPERATION, result, expected, ~overflows)
    text = guess_bug(OPERATION, result, expected, np.ones((64, 64), bool))
    assert text.startswith("overflow: ")
