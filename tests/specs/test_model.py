from __future__ import annotations

import pytest
from pydantic import ValidationError

from gemmetry.domain.settings import MOST_PROCESSES
from gemmetry.domain.specs.model import ProfileSpec, ProviderSpec


def test_defaults_need_nothing():
    spec = ProfileSpec()
    assert spec.seed == 42
    assert spec.verification_enabled
    assert spec.model_fields_set == set()


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("torch,iree", ["torch", "iree"]),
        (["torch iree"], ["torch", "iree"]),
        ({"torch": None, "null": {"devices": 2}}, ["torch", "null"]),
        ([None], ["null"]),
        (None, ["null"]),
        ([{"name": None, "options": {}}], ["null"]),
        ([ProviderSpec(name="torch")], ["torch"]),
    ],
)
def test_providers_are_read_in_every_form(value, names):
    assert [p.name for p in ProfileSpec(providers=value).providers] == names


@pytest.mark.parametrize(
    "values",
    [
        {"nonsense": 1},
        {"name": "../x"},
        {"seed": -1},
        {"interval_width": 0},
        {"interval_width": 1.0},
        {"min_samples": 20, "max_samples": 10},
        {"processes": MOST_PROCESSES + 1},
        {"active_steps": 1, "dispatch_repeat_count": 1},
        {"layouts": "tt", "transpose_a": True},
        {"layouts": "tt", "enable_layout_search": True},
        {"distribution": "gauss"},
        {"regime": "fast"},
        {"alpha": float("nan")},
        {"cuda_arch": "90"},
        {"deadlines": {"compile": 0}},
        {"providers": [{"options": {}}]},
        {"format": "pdf"},
    ],
)
def test_refuses(values):
    with pytest.raises(ValidationError):
        ProfileSpec(**values)


def test_a_spec_cannot_be_changed():
    with pytest.raises(ValidationError):
        ProfileSpec().seed = 3
