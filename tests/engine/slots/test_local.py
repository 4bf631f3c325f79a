from __future__ import annotations

import pytest

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import RequestError
from gemmetry.engine.planning import LaneProvider
from gemmetry.engine.schema import Lane
from gemmetry.engine.slots import serving_devices
from gemmetry.providers.registry import load_provider


def _lanes(*targets, devices=3):
    options = {"devices": devices}
    provider = load_provider("null", options)
    return [
        LaneProvider(Lane(number, "null", options, target), provider, None)
        for number, target in enumerate(targets, 1)
    ]


NULL = [Target(TargetKind.NULL, "", index) for index in range(3)]


def test_named_devices_and_all_of_the_kind():
    lanes = _lanes(NULL[0])
    assert serving_devices((), lanes) == []
    assert serving_devices(["null:2", "null:1", "null:2"], lanes) == [NULL[2], NULL[1]]
    assert serving_devices(["all"], lanes) == NULL
    assert serving_devices(["null:1"], lanes) == [NULL[1]], "the plan's own need not take part"


def test_what_cannot_serve_is_refused_with_what_can():
    with pytest.raises(RequestError, match="no device null:7") as refused:
        serving_devices(["null:7"], _lanes(NULL[0]))
    assert "null:0, null:1, null:2" in refused.value.hint
    with pytest.raises(RequestError, match="no device cpu that can serve null"):
        serving_devices(["cpu"], _lanes(NULL[0]))
    with pytest.raises(RequestError, match="serves one target"):
        serving_devices(["all"], _lanes(*NULL[:2]))
    compiled = Target(TargetKind.CUDA, "sm_90", None)
    assert serving_devices(["cuda-sm_90"], _lanes(compiled)) == []
    with pytest.raises(RequestError, match="only compiles"):
        serving_devices(["all"], _lanes(Target(TargetKind.CUDA, "sm_90", None)))
