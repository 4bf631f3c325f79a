from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.verification.conftest import accumulating, drawn, product, stored, truncated

from gemmetry.domain.operation import BF16
from gemmetry.domain.record import Trait
from gemmetry.numerics.bounds import half_ulp
from gemmetry.numerics.references import (
    logical_tensors,
    to_logical,
)
from gemmetry.numerics.storage import quantize, to_float32, to_float64
from gemmetry.verification import freivalds as module
from gemmetry.verification.freivalds import (
    FALSE_ALARM,
    LINES,
    ElementSampler,
    freivalds,
    largest_right_deviation,
    scan,
    spread,
)

PLAIN = "matmul_256x192x300_bf16t_bf16t_bf16t"


class Case:
    """Inputs and the result of a right kernel: float32 sums, one rounding."""

    def __init__(self, name, distribution="uniform", seed=1):
        self.operation, self.inputs, reference = drawn(name, distribution, seed)
        self.tensors = logical_tensors(self.operation, self.inputs)
        is_product = self.operation.kind != "conv2d"
        self.logical = product(self.operation, self.tensors) if is_product else reference.value

    def judge(self, logical=None, **how):
        output = stored(self.operation, self.logical if logical is None else logical)
        return freivalds(self.operation, self.inputs, output, **{"seed": 3, **how})

    def judge_edited(self, where, value, **how):
        """Judge the right result with `value` in a place."""
        changed = self.logical.copy()
        changed[where] = value
        return self.judge(changed, **how)


@pytest.mark.parametrize("name", [
    PLAIN, "matmul_257x191x300_bf16n_bf16n_bf16n",
    "matmul_100x150x300_f32t_f32n_f32n_alpha0p5_betam2_bias_residual",
    "matmul_100x150x300_f16t_f16t_f16t_accf16", "matmul_90x70x640_e4m3t_e5m2n_bf16t_scalerow",
    "batch_matmul_3x100x52x64_f16t_f16n_f16n_bias_residual",
    "matmul_90x70x640_e4m3t_e4m3n_bf16t_scaletensor", "matmul_64x64x64_f64t_f64t_f64t",
    "matmul_90x150x600_e4m3t_e4m3n_bf16t_vs1x128_vs128x128",
    "batch_matmul_2x90x70x320_e2m1t_e2m1n_f16n_vs16_e4m3_bias", "matmul_1x1x1_f32t_f32t_f32t",
    "matmul_splitk_64x65x64_tf32t_tf32t_f32t_slices4", "matmul_1x300x200_bf16t_bf16t_f32t",
    "matmul_300x1x200_bf16t_bf16t_bf16t",
])  # fmt: skip
@pytest.mark.parametrize("distribution", ["offset_uniform", "normal", "integers", "zeros"])
def test_right_results_raise_no_alarm(name, distribution):
    case = Case(name, distribution)
    for seed in range(5):
        found = case.judge(seed=seed)
        assert found.is_right, found.detail
        assert found.inapplicable == ""
        assert not found.mask.any()
        assert found.statistics.elements > 0


def test_no_false_alarm_over_many_seeds():
    """The largest deviation of 448 lines stays well below the limit."""
    largest = []
    for data in range(8):
        case = Case(PLAIN, "normal" if data % 2 else "uniform", seed=data)
        for seed in range(10):
            found = case.judge(seed=seed, vectors=2 + data % 4)
            assert found.is_right
            largest.append(found.largest_deviation)
    assert 0.8 < np.median(largest) < 2.5


@pytest.mark.parametrize(("name", "step", "bits"), [
    ("matmul_96x64x4096_bf16t_bf16t_f32t", 16, 24),
    ("matmul_96x64x2048_e4m3t_e4m3n_f32t", 32, 14),
])  # fmt: skip
def test_truncating_sums_may_be_uniformly_inaccurate_but_are_not_wrong(name, step, bits):
    """Tensor cores cut every block: errors of one sign in every element. fp8 has no promotion."""
    case = Case(name)
    kernel = accumulating(lambda total: truncated(total, bits), step)
    found = case.judge(kernel(case.operation, case.tensors))
    assert found.is_right
    assert found.statistics.warned_count > 0 or bits == 24


def tiles_swapped(result, row, _column):
    tile = result[row // 64 * 64 :][:64]
    tile[:, :64], tile[:, 64:128] = tile[:, 64:128].copy(), tile[:, :64].copy()


def fragment_rows_swapped(result, row, _column):
    i = row % 248
    result[[i, i + 8]] = result[[i + 8, i]]


@pytest.mark.parametrize("bug", [
    lambda c, i, j: np.put(c[i], j, 0), lambda c, i, j: c[i].fill(0),
    lambda c, i, j: c[:, -8:].fill(0), lambda c, i, j: np.put(c[i], j, np.nan),
    tiles_swapped, fragment_rows_swapped,
])  # fmt: skip
@pytest.mark.parametrize("vectors", [2, 4])
def test_planted_bugs_are_found(bug, vectors):
    """At random places, on U[0, 1); docs/verification.md has the rates of more trials."""
    case = Case(PLAIN)
    rng = np.random.default_rng(7)
    for seed in range(20):
        changed = case.logical.copy()
        bug(changed, *rng.integers(changed.shape))
        assert not case.judge(changed, seed=seed, vectors=vectors).is_right


def test_a_lost_k_is_found():
    case = Case("matmul_256x192x300_bf16t_bf16t_f32t")
    a, b = (to_float64(case.tensors[role]) for role in ("lhs", "rhs"))
    for k in range(0, 300, 50):
        assert not case.judge(case.logical - np.outer(a[:, k], b[k]), seed=k).is_right


def test_narrower_inputs_are_found():
    case = Case(PLAIN, "normal")
    narrow = {
        role: to_float32(case.tensors[role]).astype(ml_dtypes.float8_e4m3fn)
        for role in ("lhs", "rhs")
    }
    assert not case.judge(product(case.operation, narrow)).is_right


def test_rows_and_columns_cross_where_it_is_wrong():
    found = Case("matmul_256x192x300_bf16t_bf16t_f32n").judge_edited(np.s_[100:104, 50:60], 0)
    assert found.mask.shape == (256, 192)
    assert found.mask.sum() == found.mask[100:104, 50:60].sum() == 40
    assert "4 of 256 rows (100–103)" in found.detail
    assert "10 of 192 columns (50–59)" in found.detail


def test_rows_of_a_batch_are_counted_on():
    case = Case("batch_matmul_3x40x30x64_f16t_f16t_f32t")
    found = case.judge_edited((2, 7, 11), case.logical[2, 7, 11] + 1)
    assert (found.bad_rows, found.bad_columns) == ((2 * 40 + 7,), (11,))


def test_one_direction_alone_marks_whole_lines():
    result = Case(PLAIN).judge()
    rows, columns = replace(result, bad_rows=(3,)), replace(result, bad_columns=(5, 7))
    assert rows.mask.sum() == 192 and rows.mask[3].all()
    assert columns.mask.sum() == 512 and columns.mask[:, [5, 7]].all()
    assert not rows.is_right and not columns.is_right


@pytest.mark.parametrize("modulo", [False, True])
def test_any_difference_of_integers_shows(monkeypatch, modulo):
    case = Case("batch_matmul_2x60x50x70_s8t_s8n_s32n_bias", "uniform_signed")
    monkeypatch.setattr(module._ProjectedSums, "wraps_around", lambda self: modulo)
    assert case.judge(vectors=1).is_right
    for index in [(0, 0, 0), (1, 59, 49), (0, 17, 33)]:
        found = case.judge_edited(index, case.logical[index] + 1, vectors=1)
        assert (found.bad_rows, found.bad_columns) == ((index[0] * 60 + index[1],), (index[2],))


@pytest.mark.parametrize(("name", "words"), [
    ("matmul_256x192x64_f16t_f16t_f16t_relu", "after relu"),
    ("matmul_256x192x64_f16t_f16t_f16t_bias_gelu", "after gelu"),
    ("conv2d_2x9x17x3_3x2x5_f32nhwc_f32hwcf_f32nhwc", "convolution"),
    ("matmul_64x64x64_f16t_f16t_f16t_alpha65504", "64 rows overflow"),
    ("matmul_64x64x2048_e4m3t_e4m3n_e4m3t", "overflow"),
])  # fmt: skip
def test_the_sample_alone_is_judged(name, words):
    case = Case(name)
    found = case.judge()
    assert found.is_right, found.detail
    assert words in found.inapplicable and words in found.detail
    assert not case.judge_edited(np.s_[..., 0], -5.0).is_right  # Every row.


def test_rows_that_overflow_wrongly_are_looked_at():
    found = Case("matmul_256x192x64_f16t_f16t_f16t").judge_edited((77, 5), np.inf)
    assert not found.is_right
    assert 77 in found.bad_rows
    assert found.statistics.first_bad.startswith("[77, 5]: got inf")


def test_stochastic_rounding_needs_its_declaration():
    case = Case("matmul_256x192x300_f16t_f16t_f16t")
    _, exponent = np.frexp(case.logical)
    scaled = np.ldexp(case.logical, 11 - exponent)
    up = np.random.default_rng(1).random(scaled.shape) < scaled - np.floor(scaled)
    rounded = np.ldexp(np.floor(scaled) + up, exponent - 11)
    assert not case.judge(rounded).is_right
    for seed in range(10):
        found = case.judge(rounded, declared=(Trait.STOCHASTIC_ROUNDING,), seed=seed)
        assert found.is_right, found.detail


def test_limit_is_above_the_tail_that_normal_deviations_have():
    rng = np.random.default_rng(1)
    for vectors in (1, 2, 4, 8):
        deviations = np.sqrt(np.square(rng.standard_normal((200_000, vectors))).mean(axis=1))
        lines = 1000 * FALSE_ALARM  # So that one in a thousand may be beyond.
        assert (deviations > largest_right_deviation(vectors, lines)).mean() <= 1e-3
        assert largest_right_deviation(vectors, 10) < largest_right_deviation(vectors, 10_000)
    assert largest_right_deviation(4, 4096) == pytest.approx(4.1, abs=0.05)


def right_result(name):
    operation, inputs, reference = drawn(name, "normal", 1)
    return operation, inputs, stored(operation, reference.value)


@settings(max_examples=100)
@given(st.integers(1, 5000), st.integers(2, 64), st.integers(0, 2**32))
def test_places_are_spread_over_all_of_a_result(size, count, seed):
    chosen = spread(size, count, np.random.default_rng(seed))
    assert chosen.size == min(size, count)
    assert (np.diff(chosen) > 0).all()
    assert chosen[0] == 0 and chosen[-1] == size - 1
    assert np.diff(chosen).max(initial=0) <= 2 * (size // count + 1)


OPERATIONS = [
    "matmul_100x70x33_f32t_f32n_f32n",
    "matmul_70x100x33_bf16n_bf16t_bf16t_alpha0p5_beta2_bias_gelu_residual",
    "batch_matmul_5x90x40x17_f16n_f16n_f16n_bias_relu", "matmul_90x40x65_s8t_s8n_s32t_bias",
    "matmul_90x40x65_e4m3t_e4m3n_bf16t_scalerow", "matmul_90x40x65_e4m3t_e4m3n_bf16t_scaletensor",
    "matmul_190x150x265_e4m3t_e4m3n_f32t_vs128x128_vs1x128",
    "batch_matmul_2x90x40x65_e2m1n_e2m1t_f16n_vs32_e8m0_relu",
    "matmul_splitk_90x40x64_f16t_f16t_f16t_slices4_accf16",
    "conv2d_2x9x17x3_3x2x50_stride2x1_pad1x0_f32nhwc_f32hwcf_f32nhwc_bias_relu_residual",
]  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("block", [1000, 1 << 24])
def test_a_wrong_element_is_found_in_its_line_and_named(monkeypatch, name, block):
    monkeypatch.setattr(module, "_BLOCK", block)
    operation, inputs, output = right_result(name)
    has_columns = operation.kind != "conv2d"
    sampler = ElementSampler(operation, inputs, output, seed=2)
    for sample in (sampler.rows(), *([sampler.columns()] if has_columns else [])):
        assert sample.bad == set()
        assert sample.statistics.bad_count == sample.statistics.warned_count == 0
        assert sample.statistics.elements > 0
        assert {line.index for line in sample.lines} >= {0}
    last = tuple(size - 1 for size in operation.output.shape)
    to_logical(output, operation.output)[last] = 77
    sampler = ElementSampler(operation, inputs, output, seed=2)
    found = sampler.rows()
    assert found.bad == {operation.output.elements // operation.output.shape[-1] - 1}
    assert found.statistics.bad_count == 1
    assert found.statistics.first_bad.startswith(f"{list(last)}: got 77, expected ")
    if has_columns:
        columns = sampler.columns()
        assert columns.bad == {operation.output.shape[-1] - 1}
        assert columns.statistics.first_bad == found.statistics.first_bad


def test_requested_lines_are_among_them():
    operation, inputs, output = right_result("batch_matmul_9x200x10x17_f16t_f16t_f16t")
    sampler = ElementSampler(operation, inputs, output, seed=2)
    rows = [line.index for line in sampler.rows(also=[450, 451, 3]).lines]
    assert {450, 451, 3} <= set(rows)
    assert len(rows) == len(set(rows)) <= LINES + 3
    assert all(line.member == line.index // 200 for line in sampler.rows(also=[450]).lines)


def test_norms_of_the_whole_bound_the_sample():
    operation, inputs, output = right_result("matmul_64x64x16_f32t_f32t_f32t")
    inputs[0][1, 5] = 1e4  # Not in a sampled row, but a fast algorithm would mix it in.
    output += 1e-3
    plain, widened = (
        ElementSampler(operation, inputs, output, seed=2, declared=declared).rows()
        for declared in ((), (Trait.NORMWISE,))
    )
    assert plain.bad
    assert 1 in widened.bad or widened.bad == set()
    assert widened.statistics.bad_count < 64 * 32


def test_squared_errors_are_those_of_rounding():
    operation, inputs, output = right_result("matmul_90x400x65_bf16t_bf16t_bf16t")
    for line in ElementSampler(operation, inputs, output, seed=2).rows().lines:
        assert 0.2 < line.squared_error / line.squared_half_ulp < 0.5  # A third on average.


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("piece", [16, 1 << 19])
def test_one_pass_gives_products_and_norms_of_both_sides(monkeypatch, order, piece):
    monkeypatch.setattr(module, "_PIECE", piece)
    rng = np.random.default_rng(1)
    matrix = np.asarray(quantize(rng.normal(size=(13, 7)), BF16), order=order)
    x, y = rng.choice([-1.0, 1.0], (7, 4)), rng.choice([-1.0, 1.0], (13, 4))
    wide = to_float64(matrix)
    found = scan(matrix, x=x, y=y, squares=True)
    np.testing.assert_allclose(found.right, wide @ x, atol=1e-12)
    np.testing.assert_allclose(found.left, wide.T @ y, atol=1e-12)
    np.testing.assert_allclose(found.row_squares, (wide**2).sum(axis=1))
    np.testing.assert_allclose(found.column_squares, (wide**2).sum(axis=0))
    ulps = half_ulp(np.ascontiguousarray(wide), BF16)
    halves = scan(matrix, half_ulps_of=BF16)
    np.testing.assert_allclose(halves.row_squares, (ulps**2).sum(axis=1))
    np.testing.assert_allclose(halves.column_fourths, (ulps**4).sum(axis=0))
    np.testing.assert_allclose(halves.flipped.row_fourths, (ulps**4).sum(axis=0))


def test_integers_wrap_around_on_request():
    matrix = np.full((2, 4), 2**31 - 1, dtype=np.int32)
    x = np.full((4, 1), 2**62, dtype=np.int64)
    found = scan(matrix, x=x, modulo=True).right
    assert found.dtype == np.int64
    with np.errstate(over="ignore"):
        assert (found == matrix.astype(np.int64) @ x).all()
