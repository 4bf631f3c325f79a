"""The kind and the place of a bug, in words and as a map."""

from __future__ import annotations

import numpy as np
import pytest
from tests.verification.conftest import drawn, stored

from gemmetry.domain.dispatch import parse_operation
from gemmetry.numerics.references import logical_tensors
from gemmetry.numerics.storage import quantize, to_float32, to_float64
from gemmetry.verification.comparison import compare
from gemmetry.verification.guess import (
    MAX_COLUMNS,
    MAX_ROWS,
    error_map,
    guess_bug,
    numbers_of,
    place_of,
)

OPERATION = parse_operation("matmul_64x64x16_f32t_f32t_f32t")


ALL = np.ones((64, 64), bool)


def guess(change):
    expected = np.random.default_rng(1).uniform(1, 2, OPERATION.output.shape)
    result = expected.astype(np.float32)
    changed = change(result)
    result = result if changed is None else changed
    bad = ~(np.abs(result - expected) <= 1e-5)
    return guess_bug(OPERATION, result.astype(np.float32), expected, bad)


def assign(where, value):
    def change(result):
        result[where] = value

    return change


@pytest.mark.parametrize(("change", "phrase"), [
    (lambda r: r * np.nan, "NaN: 4096 of the wrong elements are NaN"),
    (assign((3, 4), np.inf), "overflow: 1 of the wrong elements are infinite"),
    (lambda r: r * 0, "zeros: every wrong element is 0"),
    (assign(np.s_[60:], 0), "zeros: every wrong element is 0, tail: only rows from 60 on"),
    (assign(np.s_[:, 48:], 9), "tail: only columns from 48 on are wrong"),
    (lambda r: r.T.copy(), "transposed"),
    (lambda r: r * 1.001, "scale: the result is 1.001 times"),
    (lambda r: r[::-1].copy(), "index: row 0 contains what belongs to row 63"),
    (lambda r: np.roll(r, 16, 1), "columns from 0 on hold what belongs to columns from 48"),
    (lambda r: np.random.default_rng(5).permuted(r), "whose cause does not show"),
    (lambda r: r.astype(np.float16), "precision: small errors everywhere"),
    (assign((np.array([1, 30, 62]), np.array([60, 2, 31])), 1.2), "a few scattered elements"),
])  # fmt: skip
def test_kind_of_bug(change, phrase):
    assert phrase in guess(change)


@pytest.mark.parametrize(("k", "kept", "phrase"), [
    (256, slice(0, 248), "short by about 8 of 256 products"),
    (256, slice(0, 192), "short by about 64 of 256 products"),
    (256, slice(1, 256), "short by about 1 of 256 products"),
    (256, [*range(256), *range(16)], "over by about 16 of 256 products"),
    (4096, slice(0, 4080), "short by about 16 of 4096 products"),
])  # fmt: skip
@pytest.mark.parametrize("sign", [1, -1])
def test_a_part_of_k(k, kept, phrase, sign):
    guessed = guess_of_sums(k, lambda a, b: a[:, kept] @ b[kept], sign)
    assert guessed.startswith("part of K missing or counted twice")
    assert phrase in guessed or sign < 0


def guess_of_sums(k, result, sign=1):
    """Of `result` in place of the sums of `k` products, of which no element is right."""
    operation = parse_operation(f"matmul_64x48x{k}_f32t_f32t_f32t")
    random = np.random.default_rng(2)
    a, b = random.uniform(0.5, 1.5, (64, k)), sign * random.uniform(0.5, 1.5, (k, 48))
    wrong = result(a, b).astype(np.float32)
    return guess_bug(operation, wrong, a @ b, np.ones((64, 48), dtype=bool))


def test_a_factor_and_small_errors_of_one_sign_are_not_a_part_of_k():
    guessed = guess_of_sums(4096, lambda a, b: 0.996 * (a @ b))
    assert "scale: the result is 0.996 times" in guessed
    small = np.random.default_rng(3).uniform(0.1, 0.4, (64, 48))
    assert "precision" in guess_of_sums(256, lambda a, b: a @ b - small)


def test_finite_where_the_result_overflows():
    guessed = guess_bug(OPERATION, ALL.astype(np.float32), np.full((64, 64), np.inf), ALL)
    assert guessed.startswith("overflow: finite")


def test_most_of_k_gone_is_not_a_missing_part_of_k():
    operation, inputs, reference = drawn("matmul_64x64x64_f32t_f32t_f32t", seed=1)
    assert "part of K" not in guess_bug(operation, inputs[0] + inputs[1], reference.value, ALL)


def test_members_of_a_batch_are_named():
    operation = parse_operation("batch_matmul_4x32x16x8_f32t_f32t_f32t")
    expected = np.random.default_rng(1).uniform(1, 2, (4, 32, 16)).astype(np.float32)
    result = expected.copy()
    result[2, 28:] = 0
    text = guess_bug(operation, result, to_float64(expected), (result == 0).reshape(-1, 16))
    assert text == (
        "zeros: every wrong element is 0, tail: only rows from 28 on are wrong, "
        "in 1 of 4 members of the batch (first 2)"
    )


@pytest.mark.parametrize("formats", ["bf16t_bf16t_bf16t", "f32t_f32t_f32t"])
def test_small_errors_are_not_taken_from_elsewhere(formats):
    """Same-sign sums of long K are all nearly alike, so that many rows look alike."""
    operation, _, reference = drawn(f"matmul_64x64x4096_{formats}", seed=1)
    result = quantize(reference.value * 1.004, operation.output.dtype)
    assert "belongs" not in guess_bug(operation, result, reference.value, ALL)


SAME_SIGN = "matmul_96x96x512_bf16t_bf16n_bf16t"
"""Sums of K products of uniform data differ by a few per cent, whatever is done to them."""


@pytest.mark.parametrize(("kernel", "phrase"), [
    (lambda t: 1.004 * product(t), "scale: the result is 1.004 times"),
    # Nothing but its size distinguishes it from rounding: both are named.
    (lambda t: product({**t, "rhs": np.roll(t["rhs"], 1, axis=0)}),
     "small errors everywhere: a narrower format, or other products"),
])  # fmt: skip
def test_what_is_done_to_sums_of_one_sign(kernel, phrase):
    assert guess_of(SAME_SIGN, kernel, seed=1).startswith(phrase)


def test_errors_that_are_their_own_transpose_are_not_transposed():
    assert "transposed" not in guess_of(SAME_SIGN, lambda t: 0.99 * product(t), seed=1)


def test_overflow_next_to_the_wrong_elements_gives_no_hint():
    random = np.random.default_rng(1)
    expected = random.uniform(1, 2, (64, 64))
    overflows = random.random((64, 64)) < 0.3
    expected[overflows] = np.inf
    result = (expected * 1.5).astype(np.float32)
    assert "scale: the result is 1.5 times" in guess_bug(OPERATION, result, expected, ~overflows)
    assert guess_bug(OPERATION, result, expected, ALL).startswith("overflow: ")


F32 = "matmul_96x80x128_f32t_f32n_f32t"
BF16 = "matmul_96x80x128_bf16t_bf16n_bf16t"


def product(tensors, a=lambda a: a, k=slice(None)):
    lhs, rhs = to_float32(tensors["lhs"]), to_float32(tensors["rhs"])
    return to_float64(a(lhs)[..., k] @ rhs[..., k, :])


def guess_of(name, kernel, distribution="offset_uniform", seed=3):
    operation, inputs, reference = drawn(name, distribution, seed)
    result = stored(operation, kernel(logical_tensors(operation, inputs)))
    errors = compare(operation, result, reference)
    return guess_bug(operation, result, reference.value, errors.bad)


@pytest.mark.parametrize(("name", "kernel", "distribution", "phrase"), [
    (f"{F32}_relu", product, "normal", "epilogue: relu does not set negative results to zero"),
    (f"{F32}_alpham2_relu", lambda t: -2 * product(t), "offset_uniform",
     "epilogue: relu does not set negative"),
    (f"{F32}_gelu", product, "normal", "epilogue: gelu is left out"),
    (f"{F32}_bias", product, "offset_uniform",
     "epilogue: a term that is the same in the rows of each column"),
    (f"{F32}_beta2", product, "offset_uniform", "in products or in an operand of the epilogue"),
    (F32, lambda t: product(t) + 1, "normal", "added: a term that is the same in all elements"),
    (F32, lambda t: np.full((96, 80), 7.5), "normal", "constant: every wrong element is 7.5"),
    (F32, lambda t: np.clip(product(t), -3, 3), "normal",
     "range: every wrong element is limited to -3 or 3"),
    (F32, lambda t: np.abs(product(t)), "normal",
     "sign: every wrong element has the opposite sign"),
])  # fmt: skip
def test_a_pattern_of_numbers_is_named(name, kernel, distribution, phrase):
    assert phrase in guess_of(name, kernel, distribution)


def test_small_numbers_flushed_are_not_a_part_of_k():
    def flushing(tensors):
        return product(tensors, lambda a: np.where(np.abs(a) < 0.25, 0, a))

    def four_bits(a):
        return (a.view(np.uint32) & np.uint32(0xFFF80000)).view(np.float32)

    assert "whose cause does not show" in guess_of(F32, flushing)
    assert guess_of(BF16, flushing).endswith("or small numbers that are treated as zero")
    assert "part of K" not in guess_of(F32, lambda t: product(t, four_bits))


@pytest.mark.parametrize(
    "lost", [slice(1, None), slice(8, None), slice(64, None), np.flatnonzero(np.arange(128) % 4)]
)
def test_a_part_of_k_is_named_where_products_are_lost(lost):
    assert guess_of(F32, lambda t: product(t, k=lost)).startswith("part of K missing")


def test_zero_instead_of_a_number_is_not_blamed_on_precision():
    """Neither is a large number in place of zero."""
    result = np.random.default_rng(1).normal(-179, 40, (64, 64)).astype(np.float32)
    assert "precision" not in guess_bug(OPERATION, result, np.zeros((64, 64)), ALL)


def test_halfway_cases_that_go_away_from_zero():
    sums = np.random.default_rng(2).integers(256, 2000, (96, 80)).astype(np.float32)
    away = (sums.view(np.uint32) + np.uint32(0x8000)) & np.uint32(0xFFFF0000)
    operation = parse_operation(BF16)
    result, due = (quantize(x, operation.output.dtype) for x in (away.view(np.float32), sums))
    guessed = guess_bug(operation, result, due, to_float64(result) != to_float64(due))
    assert guessed.startswith("precision: halfway cases")


def test_a_member_of_a_batch_that_holds_another():
    name = "batch_matmul_4x32x32x64_f32t_f32n_f32t"
    guessed = guess_of(name, lambda t: product(t)[[1, 0, 3, 2]])
    assert guessed.startswith("index: member 0 of the batch holds member 1")


def test_the_ends_of_the_matrix_are_not_named_as_a_place():
    bad = np.random.default_rng(1).random((256, 256)) < 0.99
    bad[[0, -1]] = bad[:, [0, -1]] = True
    bad[100] = False
    assert "0–255" not in place_of(bad, None)
    one = np.zeros((256, 256), bool)
    one[128, np.arange(256) != 7] = True
    assert place_of(one, None) == "index: wrong only in row 128"


def place(*regions, tile=None):
    bad = np.zeros((100, 96), dtype=bool)
    for region in regions:
        bad[region] = True
    return place_of(bad, tile)


@pytest.mark.parametrize(("regions", "words"), [
    ([np.s_[96:]], "tail: wrong exactly in the last partial tile row (rows 96–99; tiles have "
     "32)"),
    ([np.s_[96:99], np.s_[99, ::2]], "tail: wrong only in the last partial tile row"),
    ([np.s_[:, 64:]], "tail: wrong exactly in the last tile column (columns 64–95"),
    ([np.s_[90:]], "tail: only rows from 90 on are wrong"),
    ([np.s_[32:64, 64:96]], "index: one tile of 32 × 32 is wrong, at (1, 2)"),
    ([np.s_[96:, 64:96]], "at (3, 2), the last"),
    ([np.s_[:32, 32:64], np.s_[32:64, 64:96]], "2 of 12 tiles of 32 × 32 are wrong: (0, 1), "
     "(1, 2)"),
    ([np.s_[64:96, 64:96], np.s_[96:]], "the last 4 of 12 tiles"),
    ([np.s_[:, :32]], "index: every 3rd tile of 32 × 32 is wrong, from (0, 0) on"),
    ([np.s_[:, 1::2]], "index: wrong in columns 1 of every 2"),
    ([np.s_[8:16, 16:32]], "index: wrong only in rows 8–15, columns 16–31"),
])  # fmt: skip
def test_places_among_tiles(regions, words):
    assert words in place(*regions, tile=(32, 32))


@pytest.mark.parametrize(("regions", "words"), [
    ([(3, 4)], "one element"), ([np.s_[96:]], "tail: only rows from 96 on are wrong"),
    ([np.s_[[i for i in range(100) if i % 16 >= 8]]],
     "index: wrong in rows 8–15 of every 16: a period that suggests fragments"),
])  # fmt: skip
def test_places_without_tiles(regions, words):
    assert words in place(*regions)
    assert place((1, 90), (30, 2), (62, 31)) == place(np.s_[:]) == ""
    assert place(np.s_[:], tile=(32, 32)) == ""


def test_elements_that_are_right_by_chance_do_not_hide_a_tile():
    bad = np.zeros((64, 64), dtype=bool)
    bad[32:, :32] = np.random.default_rng(1).random((32, 32)) > 0.03
    assert "one tile of 32 × 32" in place_of(bad, (32, 32))


SMALL = parse_operation("matmul_300x520x16_f32t_f32t_f32t")


def marked(operation, *places):
    m, n, _, batch = operation.matmul_shape
    bad = np.zeros((batch * m, n), dtype=bool)
    for region in places:
        bad[region] = True
    return bad


def test_a_character_is_a_tile():
    bad = marked(SMALL, np.s_[256:], np.s_[64:128, 100:200], (0, 0))
    assert error_map(SMALL, bad, tile=(64, 32, 16)) == (
        "each character is a tile of 64 × 32; the result is 300 × 520",
        "1................",
        "...8##2..........",
        ".................",
        ".................",
        "#################",
    )


@pytest.mark.parametrize(
    ("share", "character"), [(0, "."), (1, "1"), (10, "1"), (20, "2"), (99, "9"), (100, "#")]
)
def test_characters_are_tenths(share, character):
    operation = parse_operation("matmul_10x20x16_f32t_f32t_f32t")
    bad = marked(operation, np.s_[:, 10:])
    bad[:, :10].flat[:share] = True
    bad[:, :10] = np.roll(bad[:, :10], 3, axis=0)
    assert error_map(operation, bad, tile=(10, 10, 1))[1] == character + "#"


@pytest.mark.parametrize("tile", [None, (128, 256, 64), (7, 5, 3), (1, 1, 1)])
@pytest.mark.parametrize("shape", ["4096x2048", "1x100000", "100000x1", "33x65"])
def test_large_results_are_coarsened(tile, shape):
    operation = parse_operation(f"matmul_{shape}x16_f32t_f32t_f32t")
    bad = marked(operation, (0, 0), (-1, -1))
    caption, *lines = error_map(operation, bad, tile=tile)
    assert len(lines) <= MAX_ROWS and all(len(line) <= MAX_COLUMNS for line in lines)
    assert len({len(line) for line in lines}) == 1
    assert lines[0][0] != "." and lines[-1][-1] != "."
    assert sum(len(line) - line.count(".") for line in lines) == (1 if lines == ["1"] else 2)
    assert caption.startswith("each character is ")


def test_a_map_of_several_tiles_or_of_no_errors():
    operation = parse_operation("matmul_2048x2048x16_f32t_f32t_f32t")
    caption = error_map(operation, marked(operation, (0, 0)), tile=(32, 16, 16))[0]
    assert caption.startswith("each character is 2 × 2 tiles of 32 × 16;")
    assert error_map(SMALL, marked(SMALL)) == ()


def test_first_wrong_member_of_a_batch_is_drawn():
    operation = parse_operation("batch_matmul_4x8x8x16_f32t_f32t_f32t")
    caption, *lines = error_map(operation, marked(operation, (8 + 3, 5), (31, 7)))
    assert caption.endswith("member 1 of the batch, 2 of 4 have wrong elements")
    assert lines[3] == ".....#.."
    assert [line for line in lines if "#" in line] == [lines[3]]


def test_of_many_wrong_elements_none_may_be_an_exception():
    """Some are looked at first, evenly spread; the last one is not among them."""
    right = np.random.default_rng(2).uniform(1, 2, 20_000)
    signs = np.where(right > 1.5, 1.0, -1.0)
    for wrong, due, word in (
        (np.full(right.size, 3.0), right, "constant"), (signs, signs * right, "range"),
    ):  # fmt: skip
        assert numbers_of(OPERATION, wrong, due).partition(":")[0] == word
        wrong[-1] *= 1.1
        assert numbers_of(OPERATION, wrong, due) == ""
