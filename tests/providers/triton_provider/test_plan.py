"""What is passed to the kernel, and the files of tuned configurations."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gemmetry.domain.contracts import TunedDispatch
from gemmetry.domain.dispatch import Dispatch, parse_operation, parse_target
from gemmetry.domain.errors import RequestError
from gemmetry.providers.triton_provider.plan import make_plan, tuned_text
from gemmetry.providers.triton_provider.provider import TritonProvider
from gemmetry.providers.triton_provider.tiles import TritonTile

NAMES = ("a", "b", "c", "addend", "bias", "m", "k", "lda", "stride_a", "EVEN_M", "ALPHA", "STEP_1")


def test_large_strides_take_64_bits() -> None:
    operation = parse_operation("batch_matmul_2x65536x32x65536_f16t_f16t_f32t")
    plan = make_plan(operation, TritonTile(32, 32, 32, 4, 2))
    assert plan.signature(NAMES)["stride_a"] == "i64"
    assert plan.signature(NAMES)["lda"] == "i32"
    assert plan.programs == 2 * 2048


SQUARE = "matmul_4096x4096x4096_bf16t_bf16n_bf16t"
WINNER = "persistent_tile_128x256x64_warps8_stages4_group8_parts2"


def tuned(configuration, name=SQUARE, ns=2e5):
    operation, target = parse_operation(name), parse_target("cuda-sm_90")
    found = TritonProvider().parse_configuration(configuration, operation, target)
    return TunedDispatch(dispatch=Dispatch(operation, found, "triton", target), median_ns=ns)


SHAPES = [[tuned(WINNER), tuned("tile_128x128x64_warps4_stages3_group8")]]


def test_the_module_has_a_list_of_configs_for_each_operation():
    triton = pytest.importorskip("triton")
    names: dict[str, Any] = {}
    exec(tuned_text(SHAPES, "NVIDIA H200", ".py"), names)
    assert names["__doc__"].endswith("NVIDIA H200.")
    (winner, second) = names["CONFIGS"].pop(SQUARE)
    assert names["CONFIGS"] == {} and isinstance(winner, triton.Config)
    assert (winner.num_warps, winner.num_stages) == (8, 4)
    assert winner.kwargs == {
        "BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8, "PARTS": 2,
        "PERSISTENT": True,
    }  # fmt: skip
    assert (second.num_warps, second.num_stages) == (4, 3)


def test_the_same_as_json():
    found = json.loads(tuned_text(SHAPES, "NVIDIA H200", ".json"))
    assert found["device"] == "NVIDIA H200"
    first = found["configurations"][SQUARE][0]
    assert (first["name"], first["kernel"]) == (WINNER, "matmul_kernel_descriptors")
    with pytest.raises(RequestError, match="no configuration"):
        tuned_text([], "", ".py")
