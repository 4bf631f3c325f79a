from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.names import parse_operation
from gemmetry.domain.record import Trait
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference, to_storage
from gemmetry.numerics.storage import quantize
from gemmetry.verification import freivalds
from gemmetry.verification.freivalds import LINES, ElementSampler, spread


def right_result(name, distribution="normal", seed=1):
    operation = parse_operation(name)
    inputs = make_inputs(operation, distribution=distribution, seed=seed)
    value = compute_reference(operation, inputs).value
    output = to_storage(quantize(value.astype(float), operation.output.dtype), operation.output)
    return operation, inputs, output


@settings(deadline=None, max_examples=100)
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
    "batch_matmul_5x90x40x17_f16n_f16n_f16n_bias_relu",
    "matmul_90x40x65_e4m3t_e4m3n_bf16t_scalerow",
    "matmul_90x40x65_e4m3t_e4m3n_bf16t_scaletensor",
    "matmul_190x150x265_e4m3t_e4m3n_f32t_vs128x128_vs1x128",
    "batch_matmul_2x90x40x65_e2m1n_e2m1t_f16n_vs32_e8m0_relu",
    "matmul_splitk_90x40x64_f16t_f16t_f16t_slices4_accf16",
    "matmul_90x40x65_s8t_s8n_s32t_bias",
    "conv2d_2x9x17x3_3x2x50_stride2x1_pad1x0_f32nhwc_f32hwcf_f32nhwc_bias_relu_residual",
]


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("block", [40, 1 << 24])
def test_right_rows_and_columns_are_right(monkeypatch, name, block):
    monkeypatch.setattr(freivalds, "_BLOCK", block)
    operation, inputs, output = right_result(name)
    sampler = ElementSampler(operation, inputs, output, seed=2)
    samples = [sampler.rows()]
    if operation.kind != "conv2d":
        samples.append(sampler.columns())
    for sample in samples:
        assert sample.bad == set()
        assert sample.statistics.bad_count == sample.statistics.warned_count == 0
        assert sample.statistics.elements > 0
        assert {line.index for line in sample.lines} >= {0}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_wrong_element_is_found_in_its_line_and_named(name):
    operation, inputs, output = right_result(name)
    logical = output if output.ndim != 2 or operation.output.layout != "n" else output.T
    if operation.output.layout == "n" and output.ndim == 3:
        logical = output.swapaxes(-1, -2)
    last = tuple(size - 1 for size in operation.output.shape)
    logical[last] = 77
    sampler = ElementSampler(operation, inputs, output, seed=2)
    found = sampler.rows()
    height = operation.output.elements // operation.output.shape[-1]
    assert found.bad == {height - 1}
    assert found.statistics.bad_count == 1
    assert found.statistics.first_bad.startswith(f"{list(last)}: got 77, expected ")
    if operation.kind != "conv2d":
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
    assert ElementSampler(operation, inputs, output, seed=2).rows().bad
    declared = (Trait.NORMWISE,)
    widened = ElementSampler(operation, inputs, output, seed=2, declared=declared).rows()
    assert 1 in widened.bad or widened.bad == set()
    assert widened.statistics.bad_count < 64 * 32


def test_squared_errors_are_those_of_rounding():
    operation, inputs, output = right_result("matmul_90x400x65_bf16t_bf16t_bf16t")
    for line in ElementSampler(operation, inputs, output, seed=2).rows().lines:
        assert 0.2 < line.squared_error / line.squared_half_ulp < 0.5  # A third on average.
