from __future__ import annotations

import dataclasses

import pytest

from gemmetry.domain.plan import Plan, ProviderRequest
from gemmetry.domain.target import Target, TargetKind

CPU = Target(TargetKind.CPU)


def _plan(document):
    return Plan(
        name="x",
        operations=(),
        providers=(ProviderRequest(name="null"),),
        targets=(CPU,),
        document=document,
    )


def test_equal_documents_are_equal_plans_whatever_their_order():
    first = _plan({"a": 1, "b": [1, 2]}).hash
    assert first == _plan({"b": [1, 2], "a": 1}).hash
    assert first != _plan({"a": 1, "b": [2, 1]}).hash
    assert len(first) == 10
    assert int(first, 16) >= 0


def test_the_hash_is_the_same_in_every_version():
    """Experiments of an earlier version must be found again: the value is pinned."""
    assert _plan({"name": "é", "seed": 42}).hash == "80574028fc"


def test_plans_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        _plan({}).name = "y"  # type: ignore[misc]
