from __future__ import annotations

import pytest

from gemmetry.domain.dispatch import TargetKind
from gemmetry.domain.errors import RequestError
from gemmetry.domain.specs.loader import make_spec
from gemmetry.domain.specs.planning import make_plan


def test_null_runs_on_its_own_device_and_asks_no_other_provider(laptop):
    plan = make_plan(make_spec({"providers": "null"}), laptop).plan
    assert plan.targets[0].kind is TargetKind.NULL
    assert set(laptop.requests) == {"null"}


def test_the_cpu_by_name_asks_no_provider_for_its_devices(laptop):
    plan = make_plan(make_spec({"providers": "numpy", "device": "cpu"}), laptop).plan
    assert plan.targets[0].device == "cpu"
    assert set(laptop.requests) == {"numpy"}


def test_a_request_without_a_working_provider_is_reported(without_torch):
    with pytest.raises(RequestError, match=r"works on this machine: its library is not installed"):
        make_plan(make_spec({"providers": "torch"}), without_torch)
    with pytest.raises(RequestError, match="supports hip-gfx942"):
        make_plan(make_spec({"device": "hip-gfx942"}), without_torch)


def test_user_named_alone_has_no_baseline(laptop, tmp_path):
    (tmp_path / "k.py").write_text("")
    spec = make_spec({"providers": "user", "kernel": "k.py:f"})
    plan = make_plan(spec, laptop, base=tmp_path).plan
    assert [request.name for request in plan.providers] == ["user"]
