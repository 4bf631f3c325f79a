"""Tests of the catalogue of Triton kernels against the source that carries them."""

from __future__ import annotations

import re
from importlib import resources
from importlib.metadata import PackageNotFoundError

import pytest

from gemmetry.domain.names import parse_operation
from gemmetry.domain.record import Trait
from gemmetry.selftest import provider
from gemmetry.selftest.catalogue import Carrier, all_mutants
from gemmetry.selftest.torch_callers import SLUGS

MUTANTS = [item for item in all_mutants() if item.carrier is Carrier.TRITON]
SOURCE = (resources.files("gemmetry.providers.kernels") / "triton_mutants.py").read_text()


def test_names_are_unique_and_operations_are_known() -> None:
    names = [item.configuration for item in MUTANTS]
    assert len(set(names)) == len(names)
    assert sum(item.is_bug for item in MUTANTS) == 32
    for item in MUTANTS:
        assert parse_operation(item.operation).signature.kind == "matmul"
        assert item.tile == (32, 32, 32)


def test_every_bug_is_in_the_source_or_in_the_launch() -> None:
    in_source = {int(code) for code in re.findall(r"MUTANT == (\d+)", SOURCE)}
    codes = [item.code for item in MUTANTS if item.is_bug and item.slug not in SLUGS]
    assert in_source | {32} == set(codes)
    assert len(set(codes)) == len(codes)
    assert {item.code for item in MUTANTS if not item.is_bug} == {0}


def test_right_kernels_are_special_in_something() -> None:
    recipes = [item.recipe for item in MUTANTS if not item.is_bug]
    assert len(set(recipes)) == len(recipes)
    for item in MUTANTS:
        assert (Trait.NONDETERMINISTIC in item.declared) == (item.recipe.splits > 1)


@pytest.mark.parametrize(
    ("triton", "numpy", "works"),
    [
        ("3.6.0", "2.5.2", False),
        ("3.6.0", "2.4.6", False),
        ("3.6.0", "2.3.5", True),
        ("3.9.0+git1", "2.5.2", True),
    ],
)
def test_versions_that_the_interpreter_cannot_use_are_reported(
    monkeypatch, triton: str, numpy: str, works: bool
) -> None:
    versions = {"triton": triton, "numpy": numpy}
    monkeypatch.setattr(provider, "version", versions.__getitem__)
    problem = provider.interpreter_problem()
    assert (problem is None) == works
    assert works or (triton in problem and numpy in problem)


def test_a_missing_triton_is_reported(monkeypatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(provider, "version", missing)
    assert provider.interpreter_problem() == "needs triton"
