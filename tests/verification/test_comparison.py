from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial

import ml_dtypes
import numpy as np
import pytest
from tests.verification.conftest import accumulating, drawn, right, stored, truncated

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.errors import RequestError, StorageError
from gemmetry.domain.record import Trait
from gemmetry.numerics.bounds import accuracy_class, bound_rule, half_ulp
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import Reference, logical_tensors
from gemmetry.numerics.storage import numpy_dtype, quantize, round_to_tf32, same_bytes, to_float64
from gemmetry.verification import comparison
from gemmetry.verification.comparison import (
    ARRAYS_NAME,
    ErrorStatistics,
    Evidence,
    RoundingBias,
    compare,
    compare_exactly,
    in_order,
    load,
    outside_bound,
    save,
)


def right_result(name, distribution="normal", seed=1):
    """(operation, reference, right result in storage shape)."""
    operation, _, reference = drawn(name, distribution, seed)
    return operation, reference, stored(operation, reference.value)


@pytest.fixture
def case():
    """A batched, column-major product."""
    return right_result("batch_matmul_3x40x30x64_f16t_f16t_f16n")


def test_bad_elements_are_counted_and_the_first_is_named(case):
    operation, reference, result = case
    # Storage is (batch, n, m): row 11, column 7.
    result[1, 7, 11], result[2, 0, 0], result[2, 1, 0] = 99, -99, np.nan
    statistics = compare(operation, result, reference)
    assert (statistics.bad_count, statistics.nan_count) == (3, 1)
    assert statistics.bad[40 + 11, 7] and statistics.bad[80, 0]
    assert statistics.first_bad.startswith("[1, 11, 7]: got 99, expected ")
    assert statistics.max_ratio > 100


@pytest.mark.parametrize(("dtype", "expected", "right", "wrong"), [
    ("f16", 70_000.0, [np.inf], [-np.inf, np.nan, 65504.0]),
    ("f16", 65_519.99, [np.inf, 65504.0], []),  # Within the bound of the threshold 65520.
    ("f16", 65_000.0, [], [np.inf]), ("bf16", 1e38, [], [np.nan]),
    ("e4m3", 500.0, [np.nan, 448.0], []), ("e4m3", -500.0, [], [448.0]),
    ("e4m3", 400.0, [], [np.nan]), ("e5m2", 1e5, [57344.0], [np.nan]), ("f32", 0.0, [-0.0], []),
    ("f32", 1e-40, [0.0], []), ("f16", 4e-5, [], [0.0]),  # f16 has no flushing of subnormals.
])  # fmt: skip
def test_special_values(dtype, expected, right, wrong):
    operation = parse_operation(f"matmul_1x1x16_{dtype}t_{dtype}t_{dtype}t")
    reference = Reference(np.array([[expected]]), np.array([[abs(expected)]]))
    for got in (*right, *wrong):
        result = np.array([[got]]).astype(numpy_dtype(operation.output.dtype))
        statistics = compare(operation, result, reference)
        assert (statistics.bad is None) is (got in right), got
        assert np.isfinite(statistics.max_ratio)


def test_integers_must_be_equal():
    operation = parse_operation("matmul_2x3x16_s8t_s8t_s32t")
    value = np.arange(6).reshape(2, 3)
    reference, result = Reference(value, value.astype(float)), value.astype(np.int32)
    assert compare(operation, result, reference).max_ratio == 0
    result[1, 1] += 1
    statistics = compare(operation, result, reference)
    assert (statistics.bad_count, statistics.max_ratio) == (1, 2.0)
    assert statistics.first_bad == "[1, 1]: got 5, expected 4"


def test_exact_results_may_differ_in_the_sign_of_zero_alone():
    operation = parse_operation("matmul_2x3x16_bf16t_bf16t_bf16t")
    expected = np.array([[256, np.inf, -np.inf], [0, 0, 5]], numpy_dtype(operation.output.dtype))
    result = expected.copy()
    result[1, 0] = -0.0
    assert compare_exactly(operation, result, expected).bad is None
    result[0, :2] = 258, np.nan
    statistics = compare_exactly(operation, result, expected)
    assert statistics.first_bad == "[0, 0]: got 258, expected 256"
    assert (statistics.bad_count, statistics.nan_count) == (2, 1)


def test_outside_bound_looks_at_the_marked_elements_only(case):
    operation, reference, result = case
    result[1, 7, 11] = 99
    mask = np.zeros(result.shape, dtype=bool)
    mask[0, :3, :3] = True
    assert outside_bound(operation, result, reference, mask).sum() == 0
    mask[1, 7, 11] = True
    assert outside_bound(operation, result, reference, mask).sum() == 1


@pytest.mark.parametrize(
    "name", ["matmul_300x700x16_f16t_f16t_f16t", "matmul_700x300x16_s8t_s8t_s32n"]
)
@pytest.mark.parametrize("is_wrong", [False, True])
def test_threads_and_blocks_change_nothing(monkeypatch, name, is_wrong):
    operation, reference, result = right_result(name)
    if is_wrong:
        result[::97] += 3
    found = [compare(operation, result, reference)]
    monkeypatch.setattr(comparison, "_BLOCK", 10_000)
    monkeypatch.setattr(comparison, "_PIECE", 4_096)
    for cores in (1, 7):
        monkeypatch.setattr(comparison, "usable_cores", lambda cores=cores: cores)
        found.append(compare(operation, result, reference))
    masks = [statistics.bad for statistics in found]
    assert all((mask is None) is (not is_wrong) for mask in masks)
    assert not is_wrong or all((mask == masks[0]).all() for mask in masks)
    whole, one, several = (replace(statistics, bad=None) for statistics in found)
    assert one == several
    for name in (
        "bad_count", "warned_count", "max_ratio", "max_warn_ratio", "largest_error", "first_bad",
        "signed_bias", "relative_frobenius",
    ):  # fmt: skip
        due = getattr(one, name)
        is_sum = name in ("signed_bias", "relative_frobenius")
        assert getattr(whole, name) == (pytest.approx(due) if is_sum else due)


def test_exact_comparison_is_the_same_in_blocks(monkeypatch):
    operation, reference, result = right_result("matmul_300x70x16_f16t_f16t_f16n")
    expected = quantize(reference.value, operation.output.dtype)
    result[5, 200] += 1
    whole = compare_exactly(operation, result, expected)
    monkeypatch.setattr(comparison, "_BLOCK", 1000)
    blocks = compare_exactly(operation, result, expected)
    assert whole.first_bad.startswith("[200, 5]")
    assert whole.bad_count == 1
    assert (blocks.first_bad, blocks.bad_count) == (whole.first_bad, whole.bad_count)
    assert (whole.bad == blocks.bad).all()


@pytest.mark.parametrize("formats", ["f32t_f32t_f32t", "bf16t_bf16t_bf16t", "f16t_f16t_f32t"])
def test_statistics_are_those_of_their_definitions(formats):
    """The shortcuts that `compare` takes inside the bounds, compared with the plain formulas."""
    operation, reference, _ = right_result(f"matmul_40x50x64_{formats}", seed=4)
    noise = np.random.default_rng(2).normal(size=reference.value.shape) * 1e-6
    result = quantize(reference.value + noise * reference.magnitude, operation.output.dtype)
    got = to_float64(result)
    rule = bound_rule(operation, reference)
    warn, fail = rule.warn(reference), rule.fail(reference)
    error = got - reference.value
    excess = np.abs(error) - half_ulp(got, operation.output.dtype)
    found = compare(operation, result, reference)
    assert (found.bad, found.bad_count, found.elements) == (None, 0, 2000)
    assert found.warned_count == (np.abs(error) > warn).sum()
    for statistic, definition in (
        (found.max_ratio, (np.abs(error) / fail).max()),
        (found.max_warn_ratio, (np.abs(error) / warn).max()),
        (found.relative_frobenius, np.linalg.norm(error) / np.linalg.norm(reference.value)),
        (found.signed_bias, (error / warn * np.sign(reference.value)).mean()),
        (found.largest_error, max(0.0, (excess / reference.magnitude).max())),
    ):
        assert statistic == pytest.approx(definition)


def stochastic(values, share=None):
    """Rounded to 8 bits, up with the probability of the part that is cut (or `share`)."""
    _, exponent = np.frexp(values)
    scaled = np.ldexp(values, 8 - exponent)
    below = np.floor(scaled)
    chance = scaled - below if share is None else share
    up = np.random.default_rng(3).random(values.shape) < chance
    return np.ldexp(below + up, exponent - 8)


BIASED = "stochastic rounding is declared, but errors average"


@pytest.mark.parametrize(("rounding", "words"), [
    (stochastic, ""), (partial(stochastic, share=0.0), BIASED),
    (partial(stochastic, share=1.0), BIASED), (partial(truncated, bits=8), "away from zero"),
])  # fmt: skip
def test_stochastic_rounding_is_right_where_it_is_declared_and_biased_one_way(rounding, words):
    operation, reference, _ = right_result("matmul_64x48x64_bf16t_bf16t_bf16t", seed=4)
    result = quantize(rounding(reference.value), operation.output.dtype)
    assert compare(operation, result, reference).bad_count > 0
    declared = (Trait.STOCHASTIC_ROUNDING,)
    statistics = compare(operation, result, reference, declared=declared)
    assert statistics.bad is None
    assert words in statistics.bias_problem
    assert words or (statistics.warned_count, statistics.bias_problem) == (0, "")


def tf32_lhs(operation, tensors):
    lhs = round_to_tf32(np.asarray(tensors["lhs"], np.float32))
    return right(operation, {**tensors, "lhs": lhs})


def to_bf16(values):
    return values.astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(("formats", "kernel", "expected"), [
    ("f64t_f64t_f64t", right, "fp64"),
    ("f64t_f64t_f64t", accumulating(np.float32, 16), "fp32"),
    ("f32t_f32t_f32t", accumulating(np.float32, 1), "fp32"),
    ("f32t_f32t_f32t", tf32_lhs, "tf32"),
    ("bf16t_bf16t_f32t", accumulating(partial(truncated, bits=24), 16), "fp32-accumulated"),
    ("bf16t_bf16t_f32t", accumulating(np.float16, 16), "fp16-accumulated"),
    ("bf16t_bf16t_f32t", accumulating(to_bf16, 1), "bf16-accumulated"),
    ("e4m3t_e4m3t_f32t", accumulating(np.float32, 128), "fp32-accumulated"),
    ("e4m3t_e4m3t_f32t", accumulating(partial(truncated, bits=14), 32), "fp8-14bit"),
])  # fmt: skip
def test_errors_show_the_arithmetic_that_made_them(formats, kernel, expected):
    k = 4096 if formats.startswith("e4m3") else 64
    operation, inputs, reference = drawn(f"matmul_48x32x{k}_{formats}", seed=1)
    result = stored(operation, kernel(operation, logical_tensors(operation, inputs)))
    errors = compare(operation, result, reference)
    assert accuracy_class(operation, errors.largest_error) == expected


def test_parts_add_up():
    whole = ErrorStatistics(elements=10)
    whole.add(ErrorStatistics(4, bad_count=1, max_ratio=2.0, squared_error=1.0, first_bad="one"))
    whole.add(
        ErrorStatistics(6, warned_count=3, max_ratio=0.5, squared_reference=4.0, first_bad="two")
    )
    assert (whole.elements, whole.bad_count, whole.warned_count) == (10, 1, 3)
    assert (whole.max_ratio, whole.first_bad, whole.relative_frobenius) == (2.0, "one", 0.5)
    assert ErrorStatistics(1).relative_frobenius == 0.0
    assert ErrorStatistics(1, squared_error=1.0).relative_frobenius is None


@pytest.mark.parametrize(("outward", "upward", "words"), [
    (0.0, 0.0, ""), (29.0, -29.0, ""), (-5000.0, 0.0, "-0.5 ulp away from zero"),
    (0.0, 5000.0, "+0.5 ulp upward"),
])  # fmt: skip
def test_bias_of_stochastic_rounding(outward, upward, words):
    bias = RoundingBias(count=10_000, upward=upward, outward=outward, drift=10.0)
    assert (bias.problem == "") is (words == "")
    assert words in bias.problem
    statistics = ErrorStatistics(10_000)
    assert statistics.bias_problem == ""
    statistics.add(ErrorStatistics(10_000, rounding=bias))
    assert statistics.bias_problem == bias.problem
    # The scatter of the accumulation is granted.
    assert RoundingBias(count=100, outward=50.0).problem
    assert not RoundingBias(count=100, outward=50.0, squared_scatter=400.0).problem


def evidence_of(name):
    operation = parse_operation(name)
    spec = operation.output
    output = np.arange(spec.elements, dtype=np.float64).reshape(spec.storage_shape)
    inputs = make_inputs(operation, distribution="normal", seed=3)
    stored = output.astype(numpy_dtype(spec.dtype))
    return Evidence("values", operation, inputs, stored, output + 1, output % 2 == 0)


@pytest.mark.parametrize("name", [
    "matmul_3x5x7_f32t_f32t_f32t", "matmul_3x5x7_bf16t_bf16n_bf16t_bias",
    "matmul_16x16x16_e4m3t_e5m2n_bf16t_scalerow", "matmul_16x16x16_e4m3fnuzt_e4m3fnuzn_bf16t",
    "matmul_4x4x4_s8t_s8t_s32t",
])  # fmt: skip
def test_what_is_saved_comes_back_bit_for_bit(tmp_path, name):
    saved = evidence_of(name)
    save(tmp_path / "a" / "b", saved)
    found = load(tmp_path / "a" / "b")
    assert (found.check, found.operation) == (saved.check, saved.operation)
    arrays = [(*one.inputs, one.output, one.expected, one.bad) for one in (found, saved)]
    assert all(map(same_bytes, *arrays))


def test_expectation_and_mask_may_be_missing_and_the_output_of_another_form(tmp_path):
    saved = evidence_of("matmul_3x5x7_bf16t_bf16t_f32t")
    assert saved.nbytes == 2 * (3 * 7 + 7 * 5) + 4 * 3 * 5 + 8 * 15 + 15
    with np.load(save(tmp_path, saved), allow_pickle=False) as arrays:  # Without us.
        assert {"header", "input_lhs", "input_rhs", "output", "expected", "bad"} == set(arrays)
        assert arrays["input_lhs"].dtype == np.uint16
    output = np.ones((2, 2), np.float16)
    save(tmp_path, replace(saved, expected=None, bad=None, output=output))
    found = load(tmp_path)
    assert found.expected is found.bad is None
    assert found.output.dtype == np.float16


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    def full(*_args, **_more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space"):
        save(tmp_path, evidence_of("matmul_3x5x7_f32t_f32t_f32t"))
    assert list(tmp_path.iterdir()) == []


def test_missing_and_damaged_files_are_reported(tmp_path):
    with pytest.raises(RequestError):
        load(tmp_path)
    (tmp_path / ARRAYS_NAME).write_bytes(b"PK\x03\x04 not really")
    with pytest.raises(StorageError):
        load(tmp_path)


def test_results_come_in_the_order_of_the_items(monkeypatch):
    monkeypatch.setattr(comparison, "usable_cores", lambda: 4)
    release = threading.Event()

    def square(number):
        if number == 0:
            release.wait(10)  # The first item ends last.
        elif number == 3:
            release.set()
        return number**2

    assert list(in_order(square, range(4))) == [0, 1, 4, 9]


def test_one_processor_or_item_works_in_the_calling_thread(monkeypatch):
    here = threading.get_ident()
    for processors, items in ((lambda: 1, range(3)), (lambda: 1 / 0, [7])):
        monkeypatch.setattr(comparison, "usable_cores", processors)
        assert {*in_order(lambda _: threading.get_ident(), items)} == {here}
