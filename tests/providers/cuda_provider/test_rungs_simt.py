"""Tests of the rows of rungs 0 to 4."""

from __future__ import annotations

import pytest

from gemmetry.devices.cuda_plans import Pointer
from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.names import parse_operation
from gemmetry.providers.cuda_provider.launching import catalogue

NAIVE, THREADS = (catalogue.kernel_of(key) for key in ("r00", "r01"))
assert NAIVE is not None and THREADS is not None


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("matmul_8x8x8_f32t_f32n_f32t", "multiply bf16 and f16"),
        ("matmul_8x8x8_bf16t_f16n_f32t", "multiply bf16 and f16"),
        ("matmul_8x8x8_bf16t_bf16n_f16t", "return bf16 or f32"),
        ("matmul_8x8x8_f16t_f16n_f16t_accf16", "accumulate in f32"),
        ("matmul_8x8x8_bf16t_bf16t_bf16t", "layouts t, n, t"),
        ("matmul_8x8x8_bf16t_bf16n_bf16n", "layouts t, n, t"),
        ("matmul_8x8x8_bf16t_bf16n_bf16t_alpha2", "without alpha"),
        ("matmul_8x8x8_bf16t_bf16n_bf16t_bias", "or an epilogue"),
    ],
)
def test_what_they_do_not_do_is_refused(name: str, part: str) -> None:
    for kernel in (NAIVE, THREADS):
        assert part in (kernel.refusal(parse_operation(name)) or "")


def test_one_thread_is_given_no_more_than_it_can_finish() -> None:
    largest, larger = "matmul_512x512x512_", "matmul_512x513x512_"
    formats = "bf16t_bf16n_bf16t"
    assert NAIVE.refusal(parse_operation(largest + formats)) is None
    assert "up to 512x512x512" in (NAIVE.refusal(parse_operation(larger + formats)) or "")
    assert THREADS.refusal(parse_operation(larger + formats)) is None
    seconds = NAIVE.seconds_per_launch
    assert seconds is not None
    assert seconds(parse_operation(largest + formats)) > seconds(
        parse_operation(f"matmul_8x8x8_{formats}")
    )


def test_every_element_has_a_thread() -> None:
    operation = parse_operation("matmul_33x65x7_f16t_f16n_f32t")
    (launch,) = THREADS.plan(operation, Configuration("r01"), 132).launches
    assert launch.grid.blocks[0] * launch.grid.threads[0] >= 33 * 65
    assert launch.arguments == (Pointer("lhs"), Pointer("rhs"), Pointer("result"), 33, 65, 7)
    assert dict(launch.compilation.macros) == {"IN_F16": 1, "OUT_F16": 0, "OUT_F32": 1}
