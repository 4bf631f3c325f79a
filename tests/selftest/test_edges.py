"""Rows of zeros, the previous content of the output, vectors that end past K, and exceptional
sizes: kernels that are wrong only there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gemmetry.domain.errors import LaunchError
from gemmetry.selftest.memory import NormalisesRows

TM, TN, TK = 64, 64, 32


@pytest.mark.parametrize("slug", ["zero_rows_skipped", "zero_by_zero"])
def test_only_rows_of_zeros_are_wrong(plant: Any, slug: str) -> None:
    bench = plant(slug)
    assert bench.is_right()
    inputs = [np.array(array) for array in bench.inputs]
    inputs[0][[3, 70]] = 0
    inputs[0][4, 1:] = 0
    bench.use(inputs)
    assert np.flatnonzero(bench.wrong().all(axis=1)).tolist() == [3, 70]
    assert np.flatnonzero(bench.wrong().any(axis=1)).tolist() == [3, 70]


@pytest.mark.parametrize(
    "name",
    [
        "matmul_33x65x50_f32t_f32t_f32t_alpha0p5_beta2",
        "batch_matmul_3x33x30x70_f16t_f16n_f32t_bias",
        "matmul_33x30x70_e4m3t_e4m3n_bf16t_scalerow",
    ],
)
def test_rows_may_be_divided_by_a_power_of_two(assert_right: Any, name: str) -> None:
    assert_right(NormalisesRows, name)


def test_rows_of_any_size_can_be_divided(plant: Any) -> None:
    bench = plant("rows_normalised")
    sizes = np.exp2(np.linspace(-120, 100, bench.inputs[0].shape[0], dtype=np.float32))
    sizes[5] = 0
    bench.use([bench.inputs[0] * sizes[:, np.newaxis], bench.inputs[1]])
    assert bench.is_right()
    bench.buffer("lhs")[7, 3] = np.inf
    output = bench.launch()
    assert not np.isfinite(output[7]).any()
    assert np.isfinite(np.delete(output, 7, axis=0)).all()


@pytest.mark.parametrize(
    ("slug", "least"),
    [("minimum_with_output", True), ("maximum_with_output", False), ("maximum_behind_relu", False)],
)
def test_numbers_of_the_output_count_and_nan_does_not(plant: Any, slug: str, least: bool) -> None:
    bench = plant(slug)
    assert bench.is_right()  # over NaN
    right = bench.launch()
    assert right.min() < 1.5 < right.max()
    bench.output[...] = 1.5
    bench.executable.run(bench.buffers, bench.output)
    expected = np.minimum(right, 1.5) if least else np.maximum(right, 1.5)
    assert (bench.output == expected).all()


@pytest.mark.parametrize(
    ("slug", "k", "is_right"),
    [
        ("vectors_past_k", 4 * TK, True),
        ("vectors_past_k", 4 * TK - 2, True),
        ("vectors_past_k", 4 * TK - 3, True),
        ("vectors_past_k", 4 * TK - 4, False),
        ("vectors_past_k", TK + 4, False),
        ("vectors_past_k", TK + 8, True),
        ("s8_vectors_past_k", TK + 4, True),
        ("s8_vectors_past_k", TK + 8, False),
        ("s8_vectors_past_k", 8, False),
    ],
)
def test_half_a_vector_past_k_counts(plant: Any, slug: str, k: int, is_right: bool) -> None:
    bench = plant(slug, (TM + 1, TN + 1, k))
    wrong = bench.wrong()
    assert wrong.any() != is_right
    if not is_right:
        assert wrong.mean() > 0.9


@pytest.mark.parametrize(
    ("slug", "shape"),
    [
        ("one_column_without_b", (64, 1, 64)),
        ("eight_columns_in_pairs", (64, 8, 64)),
        ("one_product_without_b", (64, 64, 1)),
        ("columns_past_512_dropped", (64, 576, 32)),
        ("products_past_1024_dropped", (64, 64, 1056)),
    ],
)
def test_one_size_is_wrong(plant: Any, slug: str, shape: tuple[int, int, int]) -> None:
    assert plant(slug).is_right()
    assert not plant(slug, shape).is_right()


@pytest.mark.parametrize(
    ("slug", "shape", "error"),
    [
        ("index_error_on_tail", (65, 64, 32), IndexError),
        ("recursion_on_tail", (64, 64, 33), RecursionError),
        ("key_error_on_tail", (64, 65, 32), KeyError),
        ("tails_refused", (64, 65, 32), LaunchError),
    ],
)
def test_tails_end_in_an_error(plant: Any, slug: str, shape: Any, error: Any) -> None:
    assert plant(slug).is_right()
    with pytest.raises(error):
        plant(slug, shape).launch()
