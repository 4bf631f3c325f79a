"""Every kernel in CUDA C++, in every configuration, on a Hopper GPU: proved at level standard on
small shapes, tails included."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, Target, parse_operation
from gemmetry.domain.errors import LaunchError, UnsupportedError, Verification
from gemmetry.domain.operation import Operation
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.providers.cuda_provider import catalogue
from gemmetry.providers.cuda_provider.kernel import CudaKernel
from gemmetry.providers.cuda_provider.provider import PROVIDER
from gemmetry.verification.companions import Companions
from gemmetry.verification.protocol import verify

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        importlib.util.find_spec("cuda") is None, reason="cuda-bindings is not installed"
    ),
]

SLOW_SHAPE = "48x40x72"
"""For kernels that announce their time: verification makes hundreds of launches."""


def cases() -> Iterator[Any]:
    """Every kernel with each of its configurations for the first operation that its row names, and
    with the first of them for each of the others."""
    for kernel in catalogue.kernels():
        for number, name in enumerate(kernel.checked):
            if kernel.seconds_per_launch is not None:
                kind, _, rest = name.split("_", 2)
                name = f"{kind}_{SLOW_SHAPE}_{rest}"
            operation = parse_operation(name)
            legal = kernel.legal(operation)
            early = (kernel.configuration(f"{one.name}{end}", operation)
                     for one in legal[:1] for end in ("_early", "_ahead"))  # fmt: skip
            legal[1:1] = [one for one in early if one and kernel.why_not(operation, one) is None]
            for configuration in legal[:1] if number else legal:
                yield pytest.param(kernel, name, configuration, id=f"{configuration.name}-{name}")


@pytest.fixture
def hopper(gpu: Target) -> Target:
    if not catalogue.is_hopper(gpu):
        pytest.skip(f"the kernels are for Hopper, this is {gpu}")
    return gpu


@pytest.mark.parametrize(("kernel", "name", "configuration"), [*cases()])
def test_every_configuration_is_proved(
    tmp_path: Path, hopper: Target, kernel: CudaKernel, name: str, configuration: Configuration
) -> None:
    operation = parse_operation(name)
    workspace = Workspace(generated=tmp_path / "generated")

    def build(other: Operation) -> Any:
        try:
            return PROVIDER().build(Dispatch(other, configuration, "cuda", hopper), workspace)
        except UnsupportedError:
            return None

    executable = build(operation)
    assert executable is not None
    facts = executable.facts
    assert facts.registers and facts.spill_bytes == 0 and facts.shared_memory_bytes is not None
    inputs = make_inputs(operation, distribution="uniform_signed", seed=11)
    stages = configuration.parameters.get("stages")
    verdict = verify(
        executable,
        operation,
        inputs,
        compute_reference(operation, inputs),
        companions=Companions(
            build=build,
            tile=configuration.tile,
            stages=int(stages) if stages else None,
            processors=executable.device.multiprocessors,
        ),
    )
    executable.close()
    failed = {check: text for check, text in verdict.checks.items() if text.startswith("failed")}
    assert verdict.status is not Verification.FAILED, failed


def test_a_launch_reads_the_buffers_of_its_own_call(tmp_path: Path, hopper: Target) -> None:
    """Addresses change from call to call, as they do where inputs are rotated."""
    operation = parse_operation("matmul_128x128x128_bf16t_bf16n_bf16t")
    for configuration in catalogue.worth_trying(operation):
        dispatch = Dispatch(operation, configuration, "cuda", hopper)
        executable = PROVIDER().build(dispatch, Workspace(generated=tmp_path / "generated"))
        device = executable.device
        results = []
        for seed in (1, 2, 1):
            arrays = make_inputs(operation, distribution="uniform_signed", seed=seed)
            buffers = [
                device.upload(array, spec)
                for array, spec in zip(arrays, operation.inputs, strict=True)
            ]
            results.append(executable.run(buffers, device.allocate(operation.output)))
        device.synchronize()
        first, second, third = results
        assert device.same_bytes(first, third) and not device.same_bytes(first, second)
        executable.close()


def test_unaligned_buffers_are_refused_where_they_are_not_supported(
    tmp_path: Path, hopper: Target
) -> None:
    operation = parse_operation("matmul_128x64x64_bf16t_bf16n_bf16t")
    dispatch = Dispatch(operation, Configuration("default"), "cuda", hopper)
    executable = PROVIDER().build(dispatch, Workspace(generated=tmp_path / "generated"))
    device = executable.device
    inputs = [device.allocate(spec) for spec in operation.inputs]
    for buffer in inputs:
        device.fill_bytes(buffer, 0)
    output = device.allocate(operation.output)
    executable.run(inputs, output)
    device.synchronize()
    try:
        executable.run([inputs[0].flatten()[1:], inputs[1]], output)
    except LaunchError as error:
        assert "aligned to 16 bytes" in error.message
    device.synchronize()
    executable.close()


def test_the_ladder_gains_where_it_must(tmp_path: Path, hopper: Target) -> None:
    """Three rungs on two sizes, verified and measured next to cuBLAS."""
    from gemmetry.dispatches.ladder import ladder_of, prepare_ladder
    from gemmetry.dispatches.results import load
    from gemmetry.engine import run

    plan, folder = prepare_ladder(
        sizes=(256, 1024), rungs=(1, 2, 4), configurations=1, device=hopper.device,
        regime="burst", experiment=tmp_path / "ladder",
    )  # fmt: skip
    assert run(plan, folder).exit_status == 0
    found = ladder_of(load(folder).result_set)
    assert all(one.tflops and one.of_library for one in found.rungs)
    steps = {(one.step.number, one.gain.over): one.gain for one in found.rungs if one.gain}
    assert set(steps) == {(2, "r01_thread_per_output"), (4, "r02_shared_tiles")}
    assert all(gain.ratio > 1 for gain in steps.values())
