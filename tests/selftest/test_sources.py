"""The rows of CUDA and Triton kernels against the sources that carry them."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from gemmetry.domain.record import Trait
from gemmetry.selftest.provider import HOPPER_SOURCE, Carrier, all_mutants
from gemmetry.selftest.torch_callers import SLUGS

IN_CUDA = [item for item in all_mutants() if item.carrier is Carrier.CUDA]
IN_TRITON = [item for item in all_mutants() if item.carrier is Carrier.TRITON]
FOLDER = resources.files("gemmetry.providers.kernels") / "mutants"
TRITON_SOURCE = (resources.files("gemmetry.providers.kernels") / "triton_mutants.py").read_text()


def _source(name: str) -> str:
    """A source with the headers of this package that it includes."""
    text = (FOLDER / name).read_text()
    included = re.findall(r'#include "([^"]+)"', text)
    return text + "".join((FOLDER / header).read_text() for header in included)


@pytest.mark.parametrize("item", IN_CUDA, ids=lambda item: item.configuration)
def test_a_bug_is_in_its_source_or_in_how_it_is_launched(item) -> None:
    source = _source(f"{item.recipe.source}.cu")
    assert item.is_bug == (item.code != 0)
    mentioned = re.search(rf"MUTANT [!=]= {item.code}\b", source) is not None
    assert mentioned == (item.is_bug and not item.recipe.in_launch)


@pytest.mark.parametrize("name", sorted({item.recipe.source for item in IN_CUDA}))
def test_every_bug_of_a_source_has_a_mutant_and_tiles_are_those_of_the_source(name) -> None:
    source = _source(f"{name}.cu")
    numbers = {int(n) for n in re.findall(r"MUTANT [!=]= (\d+)", source)}
    assert numbers <= {item.code for item in IN_CUDA}
    tile = tuple(int(re.search(rf"TILE_{axis} = (\d+)", source)[1]) for axis in "MNK")
    assert {item.tile for item in IN_CUDA if item.recipe.source == name} == {tile}


def test_chunks_fit_the_tile_and_fragments_of_8_columns() -> None:
    chunks = [one.recipe.chunk for one in IN_CUDA if one.recipe.source == HOPPER_SOURCE]
    assert all(64 % chunk == chunk % 8 == 0 for chunk in chunks)


def test_an_extra_buffer_holds_a_tile_of_a() -> None:
    (extra,) = [item for item in IN_CUDA if item.recipe.extra_bytes]
    assert extra.slug == "shared_memory_taken_for_zero"
    rows, _, depth = extra.tile
    assert extra.recipe.extra_bytes == 4 * rows * depth


def test_every_triton_bug_is_in_the_source_or_in_the_launch() -> None:
    in_source = {int(code) for code in re.findall(r"MUTANT == (\d+)", TRITON_SOURCE)}
    codes = [item.code for item in IN_TRITON if item.is_bug and item.slug not in SLUGS]
    assert in_source | {32} == set(codes)
    assert len(set(codes)) == len(codes)
    assert {item.code for item in IN_TRITON if not item.is_bug} == {0}


def test_right_kernels_are_special_in_something() -> None:
    recipes = [item.recipe for item in IN_TRITON if not item.is_bug]
    assert len(set(recipes)) == len(recipes)
    for item in IN_TRITON:
        assert (Trait.NONDETERMINISTIC in item.declared) == (item.recipe.splits > 1)
