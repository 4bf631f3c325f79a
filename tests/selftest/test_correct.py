"""Correct but tricky kernels: within the bounds, and tricky in the way that is claimed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gemmetry.domain.operation import F16
from gemmetry.domain.record import Trait
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.numerics.storage import Array, numpy_dtype, smallest_normal, to_float32, to_float64
from gemmetry.selftest.emulator import TiledGemm


def plain(bench: Any) -> Array:
    """The emulator's result for the same inputs."""
    output = np.empty_like(bench.output)
    TiledGemm(bench.operation, bench.item.tile).launch(bench.buffers, output)
    return output


@pytest.mark.parametrize(
    "slug",
    ["kahan_sum", "tf32_tensor_core", "tf32_by_policy", "bf16x9", "fp8_promoted",
     "stochastic_rounding", "strassen", "one_by_one", "fma_contraction"],
)  # fmt: skip
def test_its_bits_are_not_the_usual_ones(plant: Any, slug: str) -> None:
    bench = plant(slug)
    assert not np.array_equal(bench.launch(), plain(bench))


def test_truncation_makes_large_sums_small(plant: Any) -> None:
    bench = plant("truncating_sums")
    bench.use(make_inputs(bench.operation, distribution="uniform", seed=5))
    reference = compute_reference(bench.operation, bench.inputs)
    assert (to_float64(bench.launch()) < reference.value).all()


@pytest.mark.parametrize("slug", ["split_k_atomics", "stochastic_rounding"])
def test_what_varies_is_declared(plant: Any, slug: str) -> None:
    assert Trait.NONDETERMINISTIC in plant(slug).executable.facts.declared


def test_stochastic_rounding_differs_from_launch_to_launch(plant: Any) -> None:
    bench = plant("stochastic_rounding")
    assert not np.array_equal(bench.launch(), bench.launch())


def test_zeros_are_negative_and_nan_has_a_payload(plant: Any) -> None:
    bench = plant("negative_zeros")
    bench.buffer("lhs")[2, 2] = np.nan
    output = bench.launch()
    zeros = output == 0
    assert zeros.sum() > 1000
    assert np.signbit(output[zeros]).all()
    assert (output.view(np.uint32)[2] == 0xFFC0BEEF).all()


def test_relu_makes_zero_of_nan(plant: Any) -> None:
    bench = plant("relu_by_maxnum")
    bench.buffer("lhs")[2, 2] = np.nan
    assert not to_float32(bench.launch()[2]).any()


def test_about_half_of_the_results_overflow(plant: Any) -> None:
    bench = plant("true_overflow")
    bench.use(make_inputs(bench.operation, distribution="offset_uniform", seed=5))
    assert 0.2 < np.isinf(bench.launch()).mean() < 0.8


def test_results_lie_around_the_largest_f16(plant: Any) -> None:
    bench = plant("rounds_to_overflow")
    bench.use(make_inputs(bench.operation, distribution="offset_uniform", seed=5))
    output = bench.launch()
    assert 0.1 < np.isinf(output).mean() < 0.9
    assert (output == numpy_dtype(F16).type(65504)).sum() > 10


def test_results_beyond_e4m3_saturate(plant: Any) -> None:
    bench = plant("saturating_cast")
    bench.use(make_inputs(bench.operation, distribution="offset_uniform", seed=5))
    values = to_float64(bench.launch())
    reference = compute_reference(bench.operation, bench.inputs).value
    assert (np.abs(reference) > 470).sum() > 100
    assert (values[np.abs(reference) > 470] == 448).all()


def test_a_view_of_longer_rows_is_returned(plant: Any) -> None:
    bench = plant("padded_view_returned")
    assert not bench.executable.writes_output
    result = bench.executable.run(bench.buffers, bench.output)
    assert not result.flags.c_contiguous
    assert not np.shares_memory(result, bench.output)


def test_subnormals_are_flushed_and_declared(plant: Any) -> None:
    bench = plant("subnormals_flushed")
    tiny = smallest_normal(bench.operation.signature.lhs) / 4
    bench.use([np.full(bench.inputs[0].shape, tiny, np.float32), bench.inputs[1] * 0 + 1e3])
    assert not bench.launch().any()
    assert bench.is_right()
    assert bench.executable.facts.declared == (Trait.FLUSHES_SUBNORMALS,)


def test_bf16x9_keeps_infinity_and_the_largest_numbers(plant: Any) -> None:
    bench = plant("bf16x9")
    lhs, rhs = (np.zeros(array.shape, np.float32) for array in bench.inputs)
    lhs[0, 0], lhs[1, 0], rhs[0, :] = np.inf, np.finfo(np.float32).max, 1.0
    bench.use([lhs, rhs])
    output = bench.launch()
    assert np.isinf(output[0]).all()
    assert (output[1] == np.finfo(np.float32).max).all()
