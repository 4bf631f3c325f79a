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
    number = item.code
    assert item.is_bug == (number != 0)
    mentioned = re.search(rf"MUTANT [!=]= {number}\b", source) is not None
    assert mentioned == (item.is_bug and not item.recipe.in_launch)


def test_every_bug_of_the_sources_has_a_mutant() -> None:
    for source in {item.recipe.source for item in IN_CUDA}:
        numbers = {int(n) for n in re.findall(r"MUTANT [!=]= (\d+)", _source(f"{source}.cu"))}
        codes = {item.code for item in IN_CUDA}
        assert numbers <= codes, source


def test_tiles_are_those_of_the_sources() -> None:
    sizes = {
        name: tuple(
            int(re.search(rf"TILE_{axis} = (\d+)", _source(f"{name}.cu"))[1]) for axis in "MNK"
        )
        for name in {item.recipe.source for item in IN_CUDA}
    }
    for item in IN_CUDA:
        assert item.tile == sizes[item.recipe.source], item.configuration


def test_chunks_fit_the_tile_and_the_copy_engine() -> None:
    for item in IN_CUDA:
        recipe = item.recipe
        if recipe.source == HOPPER_SOURCE:
            assert 64 % recipe.chunk == 0 and recipe.chunk * 4 % 16 == 0
            assert recipe.chunk % 8 == 0  # fragments are 8 columns wide


def test_an_extra_buffer_holds_a_tile_of_a() -> None:
    extra = [item for item in IN_CUDA if item.recipe.extra_bytes]
    assert [item.slug for item in extra] == ["shared_memory_taken_for_zero"]
    rows, _, depth = extra[0].tile
    assert extra[0].recipe.extra_bytes == 4 * rows * depth


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
