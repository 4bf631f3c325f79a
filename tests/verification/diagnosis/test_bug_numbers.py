"""Phrases for how wrong elements differ from their expectation, on results of whole kernels."""

from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.names import parse_operation
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference, logical_tensors
from gemmetry.numerics.storage import quantize, to_float32, to_float64
from gemmetry.verification.comparison import compare
from gemmetry.verification.guess import guess_bug, place_of

F32 = "matmul_96x80x128_f32t_f32n_f32t"
BF16 = "matmul_96x80x128_bf16t_bf16n_bf16t"


def product(tensors, a=lambda a: a, k=slice(None)):
    lhs, rhs = to_float32(tensors["lhs"]), to_float32(tensors["rhs"])
    return to_float64(a(lhs)[..., k] @ rhs[..., k, :])


def guess(name, kernel, distribution="offset_uniform"):
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
    assert phrase in guess(name, kernel, distribution)


def flushing(tensors):
    return product(tensors, lambda a: np.where(np.abs(a) < 0.25, 0, a))


def cut(tensors):
    """A with four significand bits."""
    masked = lambda a: (a.view(np.uint32) & np.uint32(0xFFF80000)).view(np.float32)  # noqa: E731
    return product(tensors, masked)


def test_small_numbers_flushed_are_not_a_part_of_k():
    assert "whose cause does not show" in guess(F32, flushing)
    assert guess(BF16, flushing).endswith("or small numbers that are treated as zero")
    assert "part of K" not in guess(F32, cut)


@pytest.mark.parametrize(
    "lost", [slice(1, None), slice(8, None), slice(64, None), np.flatnonzero(np.arange(128) % 4)]
)
def test_a_part_of_k_is_named_where_products_are_lost(lost):
    assert guess(F32, lambda t: product(t, k=lost)).startswith("part of K missing")


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
    guessed = guess(name, lambda t: product(t)[[1, 0, 3, 2]])
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
