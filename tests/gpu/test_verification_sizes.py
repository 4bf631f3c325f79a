"""Verification on a GPU: orders of factors, scale, special numbers, and more tiles than a wave."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch, Target, parse_operation
from gemmetry.engine.bench import CompanionBuilder
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.providers.registry import load_provider
from gemmetry.verification.companions import Companions, covering_operations
from gemmetry.verification.protocol import verify

pytestmark = pytest.mark.gpu

NAMES = [
    f"matmul_256x384x512_{formats}{factors}"
    for formats in ("f32t_f32n_f32t", "f16t_f16n_f16t", "bf16t_bf16n_bf16t", "f64t_f64n_f64t")
    for factors in ("", "_alpha0p1_beta1p7", "_alpham2")
]


@pytest.mark.parametrize("name", NAMES)
def test_cublas_is_right_at_standard(gpu: Target, name: str, tmp_path: Path) -> None:
    operation = parse_operation(name)
    provider = load_provider("torch")
    if provider.supports(operation, gpu) is not None:
        pytest.skip("torch has no such product here")
    configuration = next(iter(provider.configurations(operation, gpu)))
    dispatch = Dispatch(operation, configuration, "torch", gpu)
    workspace = Workspace(generated=tmp_path)
    executable = provider.build(dispatch, workspace)
    inputs = make_inputs(operation, distribution="offset_uniform", seed=42)
    verdict = verify(
        executable,
        operation,
        inputs,
        compute_reference(operation, inputs),
        companions=CompanionBuilder(provider, workspace).companions(dispatch, "standard"),
    )
    assert verdict.status in ("passed", "warned"), verdict.reason
    assert verdict.checks["scaled_along_k"] == "passed"


def test_a_small_operation_is_tried_with_more_tiles_than_multiprocessors(gpu: Target) -> None:
    from gemmetry.hardware.torch_device import open_device

    count = open_device(gpu).multiprocessors
    assert count > 1
    operation = parse_operation("matmul_128x128x128_bf16t_bf16n_bf16t")
    companions = Companions(lambda other: None, (128, 128, 64), processors=count)
    shapes = [o[0].matmul_shape for o in covering_operations(operation, companions, 42)]
    assert max(-(-shape.m // 128) * -(-shape.n // 128) for shape in shapes) > count
