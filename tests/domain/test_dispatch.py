from __future__ import annotations

import dataclasses

from gemmetry.domain.dispatch import Configuration, Dispatch
from gemmetry.domain.names import parse_operation
from gemmetry.domain.target import Target, TargetKind

CPU = Target(TargetKind.CPU)


def test_a_dispatch_is_named_by_its_halves_and_keyed_with_provider_and_target():
    operation = parse_operation("matmul_4x4x4_f32t_f32t_f32t")
    dispatch = Dispatch(operation, Configuration("tile32", {"tile": 32}), "user", CPU)
    assert dispatch.name == "matmul_4x4x4_f32t_f32t_f32t_tile32"
    assert dispatch.key == ("cpu", "user", dispatch.name)
    assert str(dispatch) == f"user:{dispatch.name}"
    assert hash(dispatch) == hash(dataclasses.replace(dispatch))
