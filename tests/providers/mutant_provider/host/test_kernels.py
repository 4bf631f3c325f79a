from __future__ import annotations

from typing import Any

import numpy as np

from gemmetry.devices.host import HostDevice
from gemmetry.providers.mutant_provider.catalogue import Carrier, planted
from gemmetry.providers.mutant_provider.host.kernels import KERNELS


def test_catalogue_and_kernels_name_each_other() -> None:
    seen = [item for item in planted() if not item.is_unseen]
    slugs = [item.slug for item in seen if item.vehicle is Carrier.HOST]
    assert sorted(slugs) == sorted(KERNELS)


def test_an_executable_declares_what_the_catalogue_says(plant: Any) -> None:
    bench = plant("tf32_by_policy")
    assert isinstance(bench.executable.device, HostDevice)
    assert bench.executable.facts.declared == bench.item.declared
    assert bench.executable.facts.notes == (f"correct but tricky: {bench.item.bug}",)
    assert bench.executable.writes_output
    assert np.isfinite(bench.launch()).all()
    bench.executable.close()
