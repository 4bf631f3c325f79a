"""What the GPU tests share: one launch, checked against float64 within the error bound."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmetry.domain.contracts import Executable, Provider, Workspace
from gemmetry.domain.dispatch import Dispatch, Target, parse_operation
from gemmetry.numerics.bounds import bound_rule
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.numerics.storage import to_float64

Check = Callable[..., Executable]


@pytest.fixture(scope="session")
def gpu() -> Target:
    """The first GPU of this machine."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    from gemmetry.hardware.torch_device import gpu_targets

    targets = gpu_targets()
    if not targets:
        pytest.skip("torch sees no GPU on this machine")
    return targets[0]


@pytest.fixture(scope="session")
def device(gpu: Target) -> Any:
    """That GPU, opened by torch."""
    from gemmetry.hardware.torch_device import open_device

    return open_device(gpu)


@pytest.fixture
def two_gpus(gpu: Target) -> None:
    import torch

    if torch.cuda.device_count() < 2:
        pytest.skip(f"it needs two GPUs, and torch sees {torch.cuda.device_count()}")


@pytest.fixture
def generated(tmp_path: Path) -> Path:
    """Where providers write, and find what was compiled before."""
    return tmp_path / "generated"


@pytest.fixture
def check(generated: Path, gpu: Target) -> Check:
    """Run one dispatch and assert that its result is right; None where it is unsupported."""

    def run(
        provider: Provider,
        name: str,
        configuration: str = "default",
        *,
        tier: str = "fail",
        distribution: str = "uniform_signed",
    ) -> Executable:
        operation = parse_operation(name)
        assert provider.supports(operation, gpu) is None, name
        found = provider.parse_configuration(configuration, operation, gpu)
        assert found is not None, configuration
        dispatch = Dispatch(operation, found, provider.name, gpu)
        executable = provider.build(dispatch, Workspace(generated=generated))
        is_integer = operation.signature.lhs.is_integer
        if is_integer:
            distribution = "offset_uniform"
        inputs = make_inputs(operation, distribution=distribution, seed=11)
        device = executable.device
        buffers = [device.upload(a, spec) for a, spec in zip(inputs, operation.inputs, strict=True)]
        output = device.allocate(operation.output)
        device.fill_bytes(output, 0xFF)
        result = executable.run(buffers, output)
        device.synchronize()
        assert (result is output) == executable.writes_output
        stored = to_float64(device.download(result, operation.output))
        transposed = operation.output.storage_shape != operation.output.shape
        transposed |= str(operation.output.layout) == "n"
        got = stored.swapaxes(-1, -2) if transposed else stored
        reference = compute_reference(operation, inputs)
        bound = 0
        if not is_integer:
            rule = bound_rule(operation, reference)
            bound = (rule.fail if tier == "fail" else rule.warn)(reference)
        error = np.abs(got - reference.value)
        assert (error <= bound).all(), f"{name}: {float((error - bound).max())} above the bound"
        return executable

    return run
