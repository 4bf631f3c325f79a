from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.names import parse_operation
from gemmetry.domain.settings import RunSettings
from gemmetry.engine import bench
from gemmetry.engine.bench import Answers

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
    answers = Answers(tmp_path, RunSettings())
    first = answers.inputs(SMALL)
    assert answers.inputs(SMALL) is first
    monkeypatch.setattr(bench, "KEPT_BYTES", 1)
    other = answers.inputs(OTHER)
    assert answers.inputs(OTHER) is other, "the latest stay"
    again = answers.inputs(SMALL)
    assert again is not first
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("providers", [("numpy",), ("device",)])
@pytest.mark.parametrize("limit", [1e12, 10.0])
def test_the_device_computes_references_that_are_large_or_when_asked(
    tmp_path, monkeypatch, providers, limit
):
    monkeypatch.setattr(bench, "HOST_REFERENCE_FLOPS", limit)
    answers = Answers(tmp_path, RunSettings(verification_providers=providers))
    executable = FakeExecutable()
    reference = answers.reference(SMALL, executable)
    a, b = (array.astype(np.float64) for array in answers.inputs(SMALL))
    assert np.allclose(reference.value, a @ b, rtol=1e-12)
    assert (executable.products > 0) == (providers == ("device",) or limit == 10.0)
    before = executable.products
    assert Answers(tmp_path, RunSettings()).reference(SMALL, executable) is not reference
    assert executable.products == before, "the experiment's folder had it"
