"""Sizes that planted kernels get wrong, or end at; all others are right."""

from __future__ import annotations

from typing import Any

import pytest

from gemmetry.domain.errors import LaunchError


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
