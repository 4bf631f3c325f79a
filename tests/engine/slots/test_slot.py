from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.record import Environment
from gemmetry.engine.schema import StoredRound
from gemmetry.engine.slots import Slot, device_id

CUDA = Target(TargetKind.CUDA, "sm_90", 1)


def _environment(visible=None, ids=("GPU-aa", "GPU-bb", "GPU-cc")):
    variables = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    return Environment(hostname="node7", device_ids=ids, variables=variables)


@pytest.mark.parametrize(
    ("target", "environment", "expected"),
    [
        (CUDA, _environment(), "GPU-bb"),
        (CUDA, _environment(visible="2,0"), "GPU-aa"),
        (CUDA, _environment(visible="GPU-cc,GPU-b"), "GPU-bb"),
        (CUDA, _environment(visible="2"), "node7/cuda:1"),
        (CUDA, _environment(ids=()), "node7/cuda:1"),
        (Target(TargetKind.CPU), _environment(), "node7/cpu"),
        (Target(TargetKind.NULL, "", 3), _environment(), "node7/null:3"),
    ],
)
def test_a_device_differs_from_others_of_its_kind(target, environment, expected):
    assert device_id(target, environment) == expected


@pytest.mark.parametrize(
    ("environment", "device", "continues"),
    [
        ("env", "mine", True),
        ("env", "", True),
        ("env", "another", False),
        ("other", "mine", False),
    ],
)
def test_rounds_continue_only_where_they_were_taken(environment, device, continues):
    slot = Slot(CUDA, "mine", "env", context=None, alike=["env"])
    document = {"device_id": device} if device else {}
    rounds = [StoredRound(1, 0, np.ones(1), 1.0, document, environment)]
    assert slot.continues(rounds) is continues
