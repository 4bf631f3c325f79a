from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.names import parse_operation
from gemmetry.domain.settings import RunSettings
from gemmetry.engine import bench as inputs_and_references
from gemmetry.engine.bench import InputsAndReferences
from gemmetry.verification import cache as reference_cache

SMALL = parse_operation("matmul_8x8x8_f32t_f32t_f32t")
OTHER = parse_operation("matmul_9x8x8_f32t_f32t_f32t")


class FakeExecutable:
    """Its device offers a float64 product and counts its use."""

    def __init__(self):
        self.device = self
        self.products = 0

    def float64_matmul(self):
        def multiply(a, b):
            self.products += 1
            return a.astype(np.float64) @ b.astype(np.float64)

        return multiply


def test_inputs_are_made_once_and_dropped_when_too_many(tmp_path, monkeypatch):
    known = InputsAndReferences(tmp_path, RunSettings())
    first = known.inputs(SMALL)
    assert known.inputs(SMALL) is first
    monkeypatch.setattr(inputs_and_references, "KEPT_BYTES", 1)
    other = known.inputs(OTHER)
    assert known.inputs(OTHER) is other, "the latest stay"
    again = known.inputs(SMALL)
    assert again is not first
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("providers", [("numpy",), ("device",)])
@pytest.mark.parametrize("limit", [1e12, 10.0])
def test_the_device_computes_references_that_are_large_or_on_request(
    tmp_path, monkeypatch, providers, limit
):
    monkeypatch.setattr(inputs_and_references, "HOST_REFERENCE_FLOPS", limit)
    monkeypatch.setattr(reference_cache, "FEWEST_FILE_FLOPS", 0)
    known = InputsAndReferences(tmp_path, RunSettings(verification_providers=providers))
    executable = FakeExecutable()
    reference = known.reference(SMALL, executable)
    a, b = (array.astype(np.float64) for array in known.inputs(SMALL))
    assert np.allclose(reference.value, a @ b, rtol=1e-12)
    assert (executable.products > 0) == (providers == ("device",) or limit == 10.0)
    before = executable.products
    assert (
        InputsAndReferences(tmp_path, RunSettings()).reference(SMALL, executable) is not reference
    )
    assert executable.products == before, "the experiment's folder had it"


def test_no_reference_where_the_host_would_take_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs_and_references, "HOST_REFERENCE_FLOPS", 10.0)
    monkeypatch.setattr(inputs_and_references, "host_flops_per_second", lambda: 1.0)
    known = InputsAndReferences(tmp_path, RunSettings())
    assert known.reference(SMALL, FakeExecutable()) is not None, "the device computes it"
    host = FakeExecutable()
    host.float64_matmul = lambda: None
    assert known.reference(OTHER, host) is None
    monkeypatch.setattr(inputs_and_references, "host_flops_per_second", lambda: 1e9)
    assert known.reference(OTHER, host) is not None


def test_the_host_is_measured():
    assert 1e8 < inputs_and_references.host_flops_per_second() < 1e14
    assert (
        inputs_and_references.host_flops_per_second()
        == inputs_and_references.host_flops_per_second()
    )
