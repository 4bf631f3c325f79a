from __future__ import annotations

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.engine.schema import Lane, PlannedDispatch


def test_names_are_formatted():
    assert str(Lane(1, "torch", {}, Target(TargetKind.CUDA, "sm_90", 1))) == "torch on cuda:1"
    assert str(Lane(1, "iree", {}, Target(TargetKind.HIP, "gfx942", None))) == "iree on hip-gfx942"
    assert PlannedDispatch(1, "matmul_1x1x1_f32t_f32t_f32t", 1, "fast").name.endswith("_fast")
