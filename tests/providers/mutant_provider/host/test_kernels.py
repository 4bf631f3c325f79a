from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gemmetry.domain.dispatch import Dispatch, Target, TargetKind
from gemmetry.domain.names import parse_operation
from gemmetry.domain.record import Trait
from gemmetry.hardware.host_device import HostDevice
from gemmetry.providers.mutant_provider import mutant
from gemmetry.providers.mutant_provider.host.emulator import Array, TiledGemm, bug, build, tricky


def test_a_class_is_registered_by_its_decorators_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutant, "ON_HOST", registered_before := [])
    operation = "matmul_16x16x16_f32t_f32t_f32t"

    @bug(5, "negates", "stores the negative result", operation, "values")
    @bug(4, "negates_too", "does so again", operation, "values", tile=(16, 16, 16))
    class Negates(TiledGemm):
        def rounded(self, values: Array) -> Array:
            return super().rounded(-values)

    @tricky(3, "is_right", "is right", operation, Trait.NORMWISE)
    class IsRight(TiledGemm):
        pass

    names = ["m05_negates_host", "m04_negates_too_host", "ok03_is_right_host"]
    assert [item.configuration for item in registered_before] == names
    assert [item.recipe for item in registered_before] == [Negates, Negates, IsRight]
    assert registered_before[1].tile == (16, 16, 16)
    assert registered_before[2].declared == (Trait.NORMWISE,)
    dispatch = Dispatch(
        parse_operation(operation), registered_before[0].as_configuration(), "mutant",
        Target(TargetKind.CPU),
    )  # fmt: skip
    one = np.eye(16, dtype=np.float32)
    output = np.zeros_like(one)
    build(registered_before[0], dispatch).run([one, one], output)
    assert np.array_equal(output, -one)


def test_an_executable_declares_what_the_catalogue_says(plant: Any) -> None:
    bench = plant("tf32_by_policy")
    assert isinstance(bench.executable.device, HostDevice)
    assert bench.executable.facts.declared == bench.item.declared
    assert bench.executable.facts.notes == (f"correct but tricky: {bench.item.bug}",)
    assert bench.executable.writes_output
    assert np.isfinite(bench.launch()).all()
    bench.executable.close()
