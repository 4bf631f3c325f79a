"""Checks of rare values, calls, sizes and threads on a GPU: right kernels pass, and one whose
result is that of its thread does not."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch, Target, parse_operation
from gemmetry.engine.bench import CompanionBuilder
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.providers.registry import load_provider
from gemmetry.verification.checks import CheckOutcome, CheckResult
from gemmetry.verification.context import Context
from gemmetry.verification.launching import Launcher
from gemmetry.verification.protocol import CHECKS

pytestmark = pytest.mark.gpu

RUN = {check.name: check.run for check in CHECKS}
NAMES = (
    "matmul_256x256x256_f32t_f32n_f32t_relu",
    "matmul_256x256x256_bf16t_bf16n_bf16t_beta1",
    "matmul_256x256x256_f16t_f16n_f16t_alpha0p3_betam1p7",
    "matmul_256x256x256_e4m3t_e4m3n_bf16t_scalerow",
    "matmul_256x256x256_e4m3t_e4m3n_bf16t_scaletensor",
)
WANTED = (
    "scale_factors",
    "addend_cancels",
    "inf_spreads",
    "other_thread",
    "unaligned_buffers",
    "long_axes",
    "rare_launches",
    "under_load",
    "many_calls",
)


class Meddling:
    """An executable that wraps another one and launches it through `meddle`."""

    def __init__(self, inner: Any, meddle: Any) -> None:
        self.inner, self.meddle, self.launches = inner, meddle, 0
        self.device, self.facts = inner.device, inner.facts
        self.writes_output = inner.writes_output

    def run(self, inputs: Sequence[Any], output: Any) -> Any:
        self.launches += 1
        return self.meddle(self, inputs, output)

    def close(self) -> None:
        self.inner.close()


def results(gpu: Target, provider_name: str, name: str, folder: Path) -> dict[str, CheckResult]:
    operation = parse_operation(name)
    provider = load_provider(provider_name)
    if provider.available() is not None or provider.supports(operation, gpu) is not None:
        pytest.skip(f"{provider_name} has no such product here")
    configuration = next(iter(provider.configurations(operation, gpu)))
    dispatch = Dispatch(operation, configuration, provider_name, gpu)
    workspace = Workspace(generated=folder)
    executable = provider.build(dispatch, workspace)
    inputs = make_inputs(operation, distribution="offset_uniform", seed=42)
    reference = compute_reference(operation, inputs)
    companions = CompanionBuilder(provider, workspace).companions(dispatch, "standard")
    launcher = Launcher(executable, operation, configuration.tile)
    context = Context(launcher, operation, inputs, reference, 42, companions)
    return {check: RUN[check](context) for check in WANTED}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("provider", ["torch", "triton"])
def test_right_kernels_pass(gpu: Target, provider: str, name: str, tmp_path: Path) -> None:
    found = results(gpu, provider, name, tmp_path)
    texts = {check: result.text for check, result in found.items() if result.is_failure}
    assert not texts
    assert found["other_thread"].outcome is CheckOutcome.PASSED
    assert found["unaligned_buffers"].outcome is CheckOutcome.PASSED


def test_what_belongs_to_a_thread_is_found(gpu: Target, tmp_path: Path) -> None:
    name = "matmul_256x256x256_f32t_f32n_f32t"
    operation, provider = parse_operation(name), load_provider("torch")
    here = threading.get_ident()

    def meddle(own: Meddling, inputs: Sequence[Any], output: Any) -> Any:
        result = own.inner.run(inputs, output)
        return result if threading.get_ident() == here else result.mul_(2)

    dispatch = Dispatch(
        operation, next(iter(provider.configurations(operation, gpu))), "torch", gpu
    )
    executable = Meddling(provider.build(dispatch, Workspace(generated=tmp_path)), meddle)
    inputs = make_inputs(operation, distribution="offset_uniform", seed=42)
    reference = compute_reference(operation, inputs)
    context = Context(Launcher(executable, operation), operation, inputs, reference, 42)
    result = RUN["other_thread"](context)
    assert result.is_failure
    assert "thread" in result.detail
