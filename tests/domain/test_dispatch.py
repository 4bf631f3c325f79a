from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.dispatch import (
    Configuration,
    Dispatch,
    Plan,
    ProviderRequest,
    Target,
    TargetKind,
    parse_operation,
    parse_target,
)
from gemmetry.domain.errors import RequestError

CPU = Target(TargetKind.CPU)


def test_a_dispatch_is_named_by_its_halves_and_keyed_with_provider_and_target():
    operation = parse_operation("matmul_4x4x4_f32t_f32t_f32t")
    dispatch = Dispatch(operation, Configuration("tile32", {"tile": 32}), "user", CPU)
    assert dispatch.name == "matmul_4x4x4_f32t_f32t_f32t_tile32"
    assert dispatch.key == ("cpu", "user", dispatch.name)
    assert str(dispatch) == f"user:{dispatch.name}"
    assert hash(dispatch) == hash(dataclasses.replace(dispatch))


@pytest.mark.parametrize(("parameters", "tile"), [
    ({"tile_m": 64, "tile_n": 32, "tile_k": 16}, (64, 32, 16)),
    ({"block_m": 64, "block_n": 32}, (64, 32, 1)),
    ({"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 16, "GROUP_M": 8}, (64, 32, 16)),
    ({"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 16}, (64, 32, 16)),
    ({"BM": 64, "BN": 32, "BK": 16, "num_warps": 4}, (64, 32, 16)),
    ({"tile": "64x32x16"}, (64, 32, 16)),
    ({"tile": 32}, (32, 32, 32)),
    ({"BLOCK": 32, "tile_m": 64}, (64, 1, 1)),
    ({"tile_m": "wide", "tile": True}, None),
    ({"tile": "auto", "stages": 3}, None),
    ({}, None),
])  # fmt: skip
def test_sizes_of_tiles_are_read_under_their_usual_names(parameters, tile):
    assert Configuration("some", parameters).tile == tile


def _hash(document):
    """The hash of the plan with this document."""
    request = {"operations": (), "providers": (ProviderRequest(name="null"),), "targets": (CPU,)}
    plan = Plan(name="x", document=document, **request)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.name = "y"  # type: ignore[misc]
    return plan.hash


def test_equal_documents_are_equal_plans_whatever_their_order():
    first = _hash({"a": 1, "b": [1, 2]})
    assert first == _hash({"b": [1, 2], "a": 1})
    assert first != _hash({"a": 1, "b": [2, 1]})
    # Experiments of an earlier version must be found again: the value is pinned.
    assert _hash({"name": "é", "seed": 42}) == "80574028fc"


@pytest.mark.parametrize(("text", "target", "name", "device"), [
    ("cpu", Target(TargetKind.CPU), "cpu", "cpu"),
    ("CUDA", Target(TargetKind.CUDA), "cuda", "cuda:0"),
    ("cuda:1", Target(TargetKind.CUDA, "", 1), "cuda", "cuda:1"),
    ("cuda-sm_90a", Target(TargetKind.CUDA, "sm_90a", None), "cuda-sm_90a", ""),
    ("cuda-sm_90:2", Target(TargetKind.CUDA, "sm_90", 2), "cuda-sm_90", "cuda:2"),
    (" hip-gfx942 ", Target(TargetKind.HIP, "gfx942", None), "hip-gfx942", ""),
    ("null:3", Target(TargetKind.NULL, "", 3), "null", "null:3"),
    ("vulkan", Target(TargetKind.VULKAN), "vulkan", "vulkan:0"),
])  # fmt: skip
def test_golden_targets(text, target, name, device):
    parsed = parse_target(text)
    assert parsed == target == dataclasses.replace(target, product="whichever")
    assert (parsed.name, parsed.device, str(parsed)) == (name, device, name)
    assert parsed.is_gpu is text.strip().lower().startswith(("cuda", "hip", "vulkan"))


@pytest.mark.parametrize(
    "text", ["", "gpu", "cuda:", "cuda-", "cuda:x", "cuda:-1", "tpu-v5", "cuda:" + "9" * 5000]
)
def test_other_texts_are_refused(text):
    with pytest.raises(RequestError, match="cannot read the target"):
        parse_target(text)


@given(st.text(max_size=30))
@settings(deadline=None)
def test_any_text_is_a_target_or_a_request_error(text):
    try:
        parse_target(text)
    except RequestError as error:
        assert "cuda:1" in error.hint
