"""Tests of what is passed to the kernel."""

from __future__ import annotations

from gemmetry.domain.names import parse_operation
from gemmetry.providers.triton_provider.plan import make_plan
from gemmetry.providers.triton_provider.tiles import TritonTile

NAMES = ("a", "b", "c", "addend", "bias", "m", "k", "lda", "stride_a", "EVEN_M", "ALPHA", "STEP_1")


def test_large_strides_take_64_bits() -> None:
    plan = make_plan(
        parse_operation("batch_matmul_2x65536x32x65536_f16t_f16t_f32t"),
        TritonTile(32, 32, 32, 4, 2),
    )
    assert plan.signature(NAMES)["stride_a"] == "i64"
    assert plan.signature(NAMES)["lda"] == "i32"
    assert plan.programs == 2 * 2048
