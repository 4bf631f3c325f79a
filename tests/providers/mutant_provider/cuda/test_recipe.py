"""Tests of the rows of the tables of CUDA mutants."""

from __future__ import annotations

import pytest

from gemmetry.domain.names import parse_operation
from gemmetry.providers.mutant_provider.cuda.catalogue import ATOMIC, RING, TILED, bug, right


@pytest.mark.parametrize("recipe", [TILED, ATOMIC])
def test_only_bugs_in_tails_run_on_a_shape_that_tiles_divide(recipe) -> None:
    for killed_by, divides in (("tail_shapes",), True), (("tail_shapes", "values"), False):
        item = bug(3, "tail", "a text", *killed_by, recipe=recipe)
        shape = parse_operation(item.operation).matmul_shape
        remainders = [
            size % edge for size, edge in zip((shape.m, shape.n, shape.k), item.tile, strict=True)
        ]
        assert (not any(remainders)) is divides


def test_the_source_determines_the_tile_and_the_usual_operation() -> None:
    tiled, ring = right(1, "tiled", "a text"), right(1, "ring", "a text", recipe=RING)
    assert tiled.tile != ring.tile
    assert parse_operation(tiled.operation).signature.lhs.name == "f32"
    assert parse_operation(ring.operation).signature.lhs.name == "bf16"
    assert right(1, "own", "a text", operation=ring.operation).operation == ring.operation
    assert not tiled.is_bug and not tiled.killed_by
