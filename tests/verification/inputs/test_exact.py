from __future__ import annotations

import itertools

import numpy as np
import pytest

from gemmetry.domain.dispatch import parse_operation
from gemmetry.numerics.inputs import ChangeKind, changed_inputs, make_inputs
from gemmetry.numerics.references import (
    compute_reference,
    exact_product,
    logical_tensors,
    to_logical,
    to_storage,
)
from gemmetry.numerics.storage import quantize, to_float64
from gemmetry.verification.inputs import exact
from gemmetry.verification.inputs.exact import (
    CaseCache,
    changes_of,
    draw_steps,
    integers,
    integers_up_to,
)
from gemmetry.verification.inputs.scaled import selects_lhs, selects_rhs

NAMES = [
    "matmul_33x17x65_bf16t_bf16n_bf16t", "matmul_7x5x33_f32n_f32t_f32n",
    "matmul_5x40x13_f16t_f16t_f32t_alpha0p5_relu", "matmul_40x5x13_e4m3t_e4m3n_bf16t_scalerow",
    "matmul_40x9x70_e4m3t_e5m2n_bf16t_vs32_e8m0",
    "matmul_20x40x70_e2m1t_e2m1n_f16t_vs16_e4m3_bias",
    "matmul_20x40x70_e4m3t_e4m3n_f32t_vs1x16_vs16x16_alpha0p5",
    "batch_matmul_3x12x7x40_e4m3t_e4m3n_bf16t_vs1x16", "matmul_1x1x300_bf16t_bf16t_bf16t",
    "matmul_16x16x16_f64t_f64t_f64t", "batch_matmul_3x9x7x21_f16n_f16t_f16n",
    "batch_matmul_4x7x21x5_f32t_f32t_f32t_bias", "matmul_9x9x64_s8t_s8n_s32t_bias_relu",
    "matmul_12x8x100_bf16t_bf16t_bf16t_beta1_residual", "matmul_12x8x100_f16t_f16t_f16t_accf16",
    "conv2d_2x6x5x3_3x2x4_stride2x1_pad1x0_f32nhwc_f32hwcf_f32nhwc_bias",
    "conv2d_1x8x8x16_3x3x8_stride1x1_pad1x1_s8nhwc_s8hwcf_s32nhwc",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("make", [integers, selects_lhs, selects_rhs])
def test_expectation_is_the_general_reference_and_no_partial_sum_rounds(name, make):
    """The gathered, multiplication-free expectation equals the float64 product."""
    operation = parse_operation(name)
    case = make(operation, 5, np.matmul)
    for array, spec in zip(case.inputs, operation.inputs, strict=True):
        assert array.shape == spec.storage_shape
    value = compute_reference(operation, case.inputs).value
    if case.expected is None:
        np.testing.assert_array_equal(case.reference.value, value)
        assert (case.reference.magnitude >= np.abs(value) * (1 - 1e-12)).all()
    else:
        exact = quantize(to_float64(value), operation.output.dtype)
        assert (case.expected == exact).all()
    accumulator = operation.signature.accumulator
    exact_up_to = 2**31 - 1 if accumulator.is_integer else 2**accumulator.significand_bits
    sizes = [np.abs(to_float64(array)) for array in case.inputs]
    if operation.kind == "conv2d":
        sizes[1] = in_units(sizes[1], (0, 1, 2))
    else:
        for index, k_axis in ((0, -1), (1, -2)):
            spec = operation.inputs[index]
            sizes[index] = to_storage(in_units(to_logical(sizes[index], spec), k_axis), spec)
    assert exact_product(operation, sizes, np.matmul).max() <= exact_up_to


def in_units(values, axis):
    """`values` divided by the power of two that all along `axis` are whole multiples of."""
    fraction, exponent = np.frexp(values)
    mantissa = np.ldexp(fraction, 53).astype(np.int64)
    lowest = np.ldexp((mantissa & -mantissa).astype(np.float64), exponent - 53)
    unit = np.min(np.where(values == 0, np.inf, lowest), axis=axis, keepdims=True)
    return np.where(np.isinf(unit), values, values / unit)


def test_s8_reaches_its_ends_and_sums_beyond_float32():
    operation = parse_operation("matmul_9x12x1100_s8t_s8n_s32t")
    case = integers(operation, 5, np.matmul)
    tensors = logical_tensors(operation, case.inputs)
    lhs, rhs = tensors["lhs"].astype(np.int64), tensors["rhs"].astype(np.int64)
    assert (case.expected == lhs @ rhs).all()
    for one in (lhs, rhs):
        assert (one.min(), one.max(), one.all()) == (-128, 127, True)
    assert (lhs[1::3] >= 120).all() and (rhs[:, 2::3] <= -120).all()
    in_float32 = lhs.astype(np.float32) @ rhs.astype(np.float32)
    assert (in_float32.astype(np.int64) != case.expected).any()
    pairs = lhs[2, 0::2, None] * rhs[0::2, 2] + lhs[2, 1::2, None] * rhs[1::2, 2]
    assert pairs.max() == 2 * 128**2 > 2**15 - 1


def test_s8_sums_stay_within_s32_however_long():
    longest = (2**31 - 1 - 3 * 127) // 128**2
    for k, lowest in ((longest, -128), (longest + 1, -127)):
        operation = parse_operation(f"matmul_3x3x{k}_s8t_s8n_s32t_bias")
        case = integers(operation, 5, np.matmul)
        assert case.inputs[0].min() == lowest
        value = compute_reference(operation, case.inputs).value
        assert np.abs(value).max() <= 2**31 - 1
        assert (case.expected == value).all()


@pytest.mark.parametrize("limit", [1, 3, 16])
def test_rungs_of_the_ladder_are_exact(limit):
    operation = parse_operation("matmul_8x8x64_bf16t_bf16t_f32t_bias")
    case = integers_up_to(limit, operation, 5, np.matmul)
    assert np.abs(to_float64(case.inputs[0])).max() == limit
    due = compute_reference(operation, case.inputs).value
    np.testing.assert_array_equal(case.reference.value, due)
    assert integers_up_to(1000, operation, 5, np.matmul) is None


def test_results_rounded_by_chance_get_a_reference():
    operation = parse_operation("matmul_8x8x64_bf16t_bf16t_bf16t")
    once, by_chance = (integers(operation, 5, np.matmul, of) for of in (True, False))
    assert once.reference is by_chance.expected is None
    rounded = quantize(to_float64(by_chance.reference.value), operation.output.dtype)
    assert (rounded == once.expected).all()


def test_none_where_not_even_one_is_exact():
    operation = parse_operation("matmul_8x8x4096_bf16t_bf16t_bf16t_accbf16")
    for make in (integers, selects_lhs):
        assert make(operation, 1, np.matmul) is None


def test_members_of_a_batch_differ():
    operation = parse_operation("batch_matmul_3x8x8x8_f32t_f32t_f32t")
    _, rhs = selects_lhs(operation, 1, np.matmul).inputs
    assert not np.array_equal(rhs[0], rhs[1])


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("name", [NAMES[0], "matmul_12x9x9_f16n_f16t_f16n"])
def test_the_blocks_of_integers_that_threads_finish_change_nothing(name, place, monkeypatch):
    spec = parse_operation(name).inputs[place]
    scales = np.exp2(np.arange(spec.shape[place]) % 3.0).reshape([(-1, 1), (-1,)][place])
    whole = exact.random_integers(spec, 9, 5, scales)
    plain = to_float64(to_logical(exact.random_integers(spec, 9, 5), spec))
    np.testing.assert_array_equal(to_float64(to_logical(whole, spec)), plain * scales)
    assert 0 < np.abs(plain).min() <= np.abs(plain).max() <= 9
    finished = []

    def backwards(function, items):
        finished.extend(items)
        return map(function, reversed(items))

    monkeypatch.setattr(exact, "_BLOCK", 20)
    monkeypatch.setattr(exact, "in_order", backwards)
    np.testing.assert_array_equal(exact.random_integers(spec, 9, 5, scales), whole)
    assert len(finished) > 1


def test_cases_are_kept_within_their_limit(monkeypatch):
    operations = [parse_operation(f"matmul_8x8x{k}_f32t_f32t_f32t") for k in (8, 16, 32)]
    made = []

    def get(cache, number, name="integers"):
        def make():
            made.append((number, name))
            return integers(operations[number], 1, np.matmul)

        return cache.get(operations[number], (name,), make)

    cache = CaseCache()
    cases = [get(cache, number) for number in (0, 1)]
    assert get(cache, 0) is cases[0]
    monkeypatch.setattr(exact, "CASE_CACHE_BYTES", cases[1].nbytes)
    for number in (2, 1):
        get(cache, number)
    assert made == [(number, "integers") for number in (0, 1, 2, 1)]
    # Cases of one operation beyond the limit leave the first ones.
    monkeypatch.setattr(exact, "CASE_CACHE_BYTES", 2 * cases[0].nbytes)
    cache = CaseCache()
    made.clear()
    for name in "abcabc":  # Two dispatches, each of which needs three cases in this order.
        get(cache, 0, name)
    assert [name for _, name in made] == ["a", "b", "c", "c"]


def operations():
    shapes = ("24x16x32", "1x16x32", "24x1x32", "24x16x1", "2x2x2", "1x1x1")
    formats = ("f32t_f32t_f32t", "bf16t_bf16n_bf16n", "e4m3t_e4m3n_bf16t_scalerow",
               "e4m3t_e4m3n_bf16t_scaletensor")  # fmt: skip
    added = ("", "_alpha0p7", "_beta1", "_bias", "_residual", "_relu", "_beta1_bias_residual")
    floats = itertools.product(shapes, formats, added)
    for shape, *parts in (*floats, *itertools.product(shapes, ["s8t_s8n_s32t"], ["", "_beta1"])):
        yield f"matmul_{shape}_{''.join(parts)}"
    yield "batch_matmul_3x5x4x6_f32n_f32t_f32n_residual_relu"
    yield CHAINS[-1]


def test_every_operand_gets_each_essential_kind():
    kept_sums = {ChangeKind.EXCHANGED, ChangeKind.ELEMENTS_SWAPPED, ChangeKind.SWAPPED}
    for name in operations():
        operation = parse_operation(name)
        wanted = changes_of(operation)
        assert len(set(wanted)) == len(wanted)
        assert [place for _, place in wanted[:2]] == [0, 1]
        for place, spec in enumerate(operation.inputs):
            kinds = {kind for kind, of in wanted if of == place}
            assert kinds & {ChangeKind.ONE_ELEMENT, ChangeKind.NEGATED}, (name, spec.role)
            assert kinds & kept_sums or np.prod(spec.shape) == 1, (name, spec.role)
            is_crossed = ChangeKind.EXCHANGED in kinds
            assert is_crossed or min(spec.shape) == 1 or len(spec.shape) != 2, (name, spec.role)
            assert (ChangeKind.CROSSED in kinds) == is_crossed
            assert place > 1 or ChangeKind.ONE_ELEMENT in kinds


CHAINS = (
    "matmul_9x7x5_bf16n_bf16n_bf16n_beta1_bias_residual_gelu",
    "matmul_4x6x8_e4m3t_e4m3n_bf16t_scalerow_beta2_bias_residual",
    "matmul_4x6x8_e4m3t_e4m3n_bf16t_scaletensor",
    "matmul_2x1x5_f16t_f16n_f16t",
    "conv2d_2x9x17x3_3x2x50_stride2x1_pad1x0_f32nhwc_f32hwcf_f32nhwc_bias_relu_residual",
)


def drawn(name):
    operation = parse_operation(name)
    return operation, make_inputs(operation, distribution="normal", seed=3)


@pytest.mark.parametrize("name", CHAINS)
def test_each_launch_differs_from_the_one_before_by_one_change(name):
    operation, inputs = drawn(name)
    kept = [array.copy() for array in inputs]
    wanted = changes_of(operation)
    steps = draw_steps(operation, inputs, wanted, np.random.default_rng(5))
    assert sorted(wanted) == sorted((step.change.kind, step.change.place) for step in steps)
    current = tuple(inputs)
    for step in steps:
        after = changed_inputs(operation, current, step.change)
        differs = [not np.array_equal(a, b) for a, b in zip(current, after, strict=True)]
        assert differs == [place == step.change.place for place in range(len(inputs))]
        # The part that is looked at follows from the step alone.
        axis = -4 if step.seen.place == 0 and "conv" in name else (-2, -1)[step.seen.place == 1]
        if step.seen.place < 2:
            seen = changed_inputs(operation, step.inputs, step.seen)
            found, due = (
                np.take(compute_reference(operation, one).value, step.seen.lines, axis)
                for one in (seen, after)
            )
            np.testing.assert_array_equal(found, due)
        current = after
    assert all((a == b).all() for a, b in zip(inputs, kept, strict=True))


def test_a_few_of_the_changes_are_those_of_all():
    operation, inputs = drawn("matmul_9x7x5_f32t_f32t_f32t_beta1")
    wanted = changes_of(operation)
    for count in range(1, len(wanted) + 1):
        steps = draw_steps(operation, inputs, wanted[:count], np.random.default_rng(5))
        assert sorted((s.change.kind, s.change.place) for s in steps) == sorted(wanted[:count])
