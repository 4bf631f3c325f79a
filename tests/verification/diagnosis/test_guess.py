"""The kind and the place of a bug, in words and as a map."""

from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.dispatch import parse_operation
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference, logical_tensors
from gemmetry.numerics.storage import quantize, to_float32, to_float64
from gemmetry.verification.comparison import compare
from gemmetry.verification.guess import (
    MAX_COLUMNS,
    MAX_ROWS,
    error_map,
    guess_bug,
    numbers_of,
    place_of,
)  # fmt: skip

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
        (assign(np.s_[:, 48:], 9), "tail: only columns from 48 on are wrong"),
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
    guessed = guess_of_sums(256, lambda a, b: a[:, kept] @ b[kept], sign)
    assert guessed.startswith("part of K missing or counted twice")
    assert phrase in guessed or sign < 0


def guess_of_sums(k, result, sign=1):
    """Of `result` in place of the sums of `k` products, of which no element is right."""
    operation = parse_operation(f"matmul_64x48x{k}_f32t_f32t_f32t")
    random = np.random.default_rng(2)
    a, b = random.uniform(0.5, 1.5, (64, k)), sign * random.uniform(0.5, 1.5, (k, 48))
    wrong = result(a, b).astype(np.float32)
    return guess_bug(operation, wrong, a @ b, np.ones((64, 48), dtype=bool))


def test_a_few_products_of_a_long_k_are_not_called_a_factor():
    guessed = guess_of_sums(4096, lambda a, b: a[:, :4080] @ b[:4080])
    assert "short by about 16 of 4096 products" in guessed
    guessed = guess_of_sums(4096, lambda a, b: 0.996 * (a @ b))
    assert "scale: the result is 0.996 times" in guessed


def test_small_errors_of_one_sign_are_not_a_part_of_k():
    small = np.random.default_rng(3).uniform(0.1, 0.4, (64, 48))
    assert "precision" in guess_of_sums(256, lambda a, b: a @ b - small)


def test_finite_where_the_result_overflows():
    everywhere = np.ones((64, 64), bool)
    infinite = np.full((64, 64), np.inf)
    guessed = guess_bug(OPERATION, np.ones((64, 64), np.float32), infinite, everywhere)
    assert guessed.startswith("overflow: finite")


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


F32 = "matmul_96x80x128_f32t_f32n_f32t"
BF16 = "matmul_96x80x128_bf16t_bf16n_bf16t"


def product(tensors, a=lambda a: a, k=slice(None)):
    lhs, rhs = to_float32(tensors["lhs"]), to_float32(tensors["rhs"])
    return to_float64(a(lhs)[..., k] @ rhs[..., k, :])


def guess_of(name, kernel, distribution="offset_uniform"):
    operation = parse_operation(name)
    inputs = make_inputs(operation, distribution=distribution, seed=3)
    reference = compute_reference(operation, inputs)
    tensors = logical_tensors(operation, inputs)
    result = quantize(np.asarray(kernel(tensors), np.float64), operation.output.dtype)
    errors = compare(operation, result, reference)
    return guess_bug(operation, result, reference.value, errors.bad)


@pytest.mark.parametrize(("name", "kernel", "phrase"), [
    (f"{F32}_relu", product, "epilogue: relu does not set negative results to zero"),
    (f"{F32}_alpham2_relu", lambda t: -2 * product(t), "epilogue: relu does not set negative"),
    (f"{F32}_gelu", product, "epilogue: gelu is left out"),
    (f"{F32}_bias", product, "epilogue: a term that is the same in the rows of each column"),
    (f"{F32}_beta2", product, "in products or in an operand of the epilogue"),
    (F32, lambda t: product(t) + 1, "added: a term that is the same in all elements"),
    (F32, lambda t: np.full((96, 80), 7.5), "constant: every wrong element is 7.5"),
    (F32, lambda t: np.clip(product(t), -3, 3), "range: every wrong element is limited to -3 or 3"),
    (F32, lambda t: np.abs(product(t)), "sign: every wrong element has the opposite sign"),
])  # fmt: skip
def test_a_pattern_of_numbers_is_named(name, kernel, phrase):
    distribution = "normal" if any(s in name for s in ("_relu", "_gelu")) or name == F32 else ""
    distribution = "offset_uniform" if "alpham2" in name else distribution or "offset_uniform"
    assert phrase in guess_of(name, kernel, distribution)


def flushing(tensors):
    return product(tensors, lambda a: np.where(np.abs(a) < 0.25, 0, a))


def cut(tensors):
    """A with four significand bits."""
    masked = lambda a: (a.view(np.uint32) & np.uint32(0xFFF80000)).view(np.float32)  # noqa: E731
    return product(tensors, masked)


def test_small_numbers_flushed_are_not_a_part_of_k():
    assert "whose cause does not show" in guess_of(F32, flushing)
    assert guess_of(BF16, flushing).endswith("or small numbers that are treated as zero")
    assert "part of K" not in guess_of(F32, cut)


@pytest.mark.parametrize(
    "lost", [slice(1, None), slice(8, None), slice(64, None), np.flatnonzero(np.arange(128) % 4)]
)
def test_a_part_of_k_is_named_where_products_are_lost(lost):
    assert guess_of(F32, lambda t: product(t, k=lost)).startswith("part of K missing")


def test_zero_instead_of_a_number_is_not_blamed_on_precision():
    """Neither is a large number in place of zero."""
    operation = parse_operation(F32)
    expected = np.zeros((96, 80))
    result = np.random.default_rng(1).normal(-179, 40, (96, 80)).astype(np.float32)
    guessed = guess_bug(operation, result, expected, np.ones((96, 80), bool))
    assert "precision" not in guessed


def test_halfway_cases_that_go_away_from_zero():
    operation = parse_operation(BF16)
    sums = np.random.default_rng(2).integers(256, 2000, (96, 80)).astype(np.float32)
    expected = quantize(sums, operation.output.dtype)
    bits = sums.view(np.uint32)
    away = ((bits + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32)
    result = quantize(away, operation.output.dtype)
    bad = to_float64(result) != to_float64(expected)
    assert guess_bug(operation, result, expected, bad).startswith("precision: halfway cases")


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
    one[128] = True
    one[128, 7] = False
    assert place_of(one, None) == "index: wrong only in row 128"


def place(*regions, shape=(100, 96), tile=None):
    bad = np.zeros(shape, dtype=bool)
    for region in regions:
        bad[region] = True
    return place_of(bad, tile)


@pytest.mark.parametrize(
    ("regions", "tile", "words"),
    [
        ([(3, 4)], None, "one element"),
        ([np.s_[96:]], None, "tail: only rows from 96 on are wrong"),
        ([np.s_[96:]], (32, 32), "tail: wrong exactly in the last partial tile row (rows 96–99; "
         "tiles have 32)"),
        ([np.s_[96:99], np.s_[99, ::2]], (32, 32), "tail: wrong only in the last partial tile row"),
        ([np.s_[:, 64:]], (32, 32), "tail: wrong exactly in the last tile column (columns 64–95"),
        ([np.s_[90:]], (32, 32), "tail: only rows from 90 on are wrong"),
        ([np.s_[32:64, 64:96]], (32, 32), "index: one tile of 32 × 32 is wrong, at (1, 2)"),
        ([np.s_[96:, 64:96]], (32, 32), "at (3, 2), the last"),
        ([np.s_[:32, 32:64], np.s_[32:64, 64:96]], (32, 32), "2 of 12 tiles of 32 × 32 are wrong: "
         "(0, 1), (1, 2)"),
        ([np.s_[64:96, 64:96], np.s_[96:]], (32, 32), "the last 4 of 12 tiles"),
        ([np.s_[:, :32]], (32, 32), "index: every 3rd tile of 32 × 32 is wrong, from (0, 0) on"),
        ([np.s_[[i for i in range(100) if i % 16 >= 8]]], None,
         "index: wrong in rows 8–15 of every 16: a period that suggests fragments"),
        ([np.s_[:, 1::2]], (32, 32), "index: wrong in columns 1 of every 2"),
        ([np.s_[8:16, 16:32]], (32, 32), "index: wrong only in rows 8–15, columns 16–31"),
        ([(1, 90), (30, 2), (62, 31)], None, ""),
        ([np.s_[:]], (32, 32), ""),
        ([np.s_[:]], None, ""),
    ],
)  # fmt: skip
def test_places(regions, tile, words):
    found = place(*regions, tile=tile)
    assert words in found
    assert bool(found) is bool(words)


def test_elements_that_are_right_by_chance_do_not_hide_a_tile():
    bad = np.zeros((64, 64), dtype=bool)
    bad[32:, :32] = np.random.default_rng(1).random((32, 32)) > 0.03
    assert "one tile of 32 × 32" in place_of(bad, (32, 32))


SMALL = parse_operation("matmul_300x520x16_f32t_f32t_f32t")


def marked(operation, *places):
    m, n, _, batch = operation.matmul_shape
    bad = np.zeros((batch * m, n), dtype=bool)
    for place in places:
        bad[place] = True
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
@pytest.mark.parametrize("shape", ["8192x4096", "1x100000", "100000x1", "33x65"])
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
    for wrong, due, word in (
        (np.full(right.size, 3.0), right, "constant"),
        (np.where(right > 1.5, 1.0, -1.0), np.where(right > 1.5, right, -right), "range"),
    ):
        assert numbers_of(OPERATION, wrong, due).partition(":")[0] == word
        wrong[-1] *= 1.1
        assert numbers_of(OPERATION, wrong, due) == ""
