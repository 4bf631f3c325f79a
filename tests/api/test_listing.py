from __future__ import annotations

import pytest

from gemmetry.dispatches.profile import prepare
from gemmetry.domain.errors import EmptySelectionError
from gemmetry.domain.specs.model import ProfileSpec
from gemmetry.engine.catalogue import list_dispatches


def listed(**values):
    return list(list_dispatches(prepare(ProfileSpec(**values)).plan))


def test_dispatches_in_the_order_of_the_plan():
    found = listed(providers="null", shapes="8x8x8,4x4x4")
    assert [dispatch.name for dispatch in found] == [
        "matmul_8x8x8_f32t_f32t_f32t_default",
        "matmul_8x8x8_f32t_f32t_f32t_fast",
        "matmul_4x4x4_f32t_f32t_f32t_default",
        "matmul_4x4x4_f32t_f32t_f32t_fast",
    ]
    assert {dispatch.refusal for dispatch in found} == {""}


def test_refusals_are_reported():
    (dispatch,) = listed(providers="numpy", device="cuda-sm_80", shapes="8x8x8")
    assert dispatch.refusal


def test_an_empty_selection_is_an_error():
    with pytest.raises(EmptySelectionError):
        listed(providers="null", dispatches="matmul_9*")
