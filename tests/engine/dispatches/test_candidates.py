from __future__ import annotations

from gemmetry.domain.dispatch import Configuration, Target, TargetKind
from gemmetry.engine.planning import LaneProvider, Resolver
from gemmetry.engine.schema import Lane, PlannedDispatch
from gemmetry.providers.registry import load_provider


def test_rows_become_objects_also_for_configurations_that_are_not_listed():
    lane = Lane(1, "null", {}, Target(TargetKind.NULL))
    resolver = Resolver({1: LaneProvider(lane, load_provider("null"), None)})
    names = ["matmul_8x8x8_f32t_f32t_f32t", "matmul_9x8x8_f32t_f32t_f32t"]
    rows = [
        PlannedDispatch(1, names[0], 1, "fast"),
        PlannedDispatch(2, names[0], 1, "slow_7"),
        PlannedDispatch(3, names[1], 1, "gone"),
    ]
    fast, slow, gone = resolver.candidates(rows)
    assert fast.configuration == Configuration("fast", {"behaviour": "fast"})
    assert slow.configuration.parameters["value"] == 7
    assert fast.operation is slow.operation
    assert str(gone.operation) == names[1]
    assert gone.configuration == Configuration("gone")
    assert [candidate.id for candidate in (fast, slow, gone)] == [1, 2, 3]
    assert str(gone) == f"null:{names[1]}_gone"
