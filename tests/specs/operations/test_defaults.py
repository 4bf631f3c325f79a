from __future__ import annotations

import pytest

from gemmetry.domain.dispatch import TargetKind
from gemmetry.domain.operation import OperationKind
from gemmetry.domain.specs.fields import canonical_dtypes
from gemmetry.domain.specs.operations import FIRST_RUN_CPU, FIRST_RUN_GPU, first_run, legacy
from gemmetry.domain.specs.shapes import parse_shapes

LEGACY = legacy("iree")


@pytest.mark.parametrize("defaults", [FIRST_RUN_CPU, FIRST_RUN_GPU, LEGACY])
def test_every_kind_has_shapes_and_formats(defaults):
    for kind in OperationKind:
        assert parse_shapes(defaults.shapes[kind])
        for dtypes in defaults.dtypes[kind]:
            assert canonical_dtypes(dtypes) == dtypes


def test_a_first_run_suits_its_device():
    assert first_run(TargetKind.CPU) is first_run(TargetKind.NULL) is FIRST_RUN_CPU
    assert first_run(TargetKind.CUDA) is first_run(TargetKind.HIP) is FIRST_RUN_GPU
