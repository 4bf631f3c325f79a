from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.names import parse_operation
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
