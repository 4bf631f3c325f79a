"""What the tests of providers share: running one dispatch as the engine does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmetry.domain.contracts import Executable, Provider, Workspace
from gemmetry.domain.dispatch import Dispatch, Target, parse_operation
from gemmetry.domain.operation import Operation
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.numerics.storage import to_float64


@dataclass
class Launched:
    """One launch: its inputs and its output (stored arrays), and the executable."""

    operation: Operation
    executable: Executable
    inputs: tuple[np.ndarray, ...]
    buffers: list[Any]
    output: Any
    result: Any

    @property
    def host_result(self) -> np.ndarray:
        return self.executable.device.download(self.result, self.operation.output)

    def logical_result(self) -> np.ndarray:
        """The result as float64 in logical shape."""
        stored = to_float64(self.host_result)
        column_major = self.operation.output.storage_shape != self.operation.output.shape
        transposed = str(self.operation.output.layout) == "n" or column_major
        return stored.swapaxes(-1, -2) if transposed else stored

    def worst_error(self) -> float:
        """Largest error in units of |A||B| plus the other terms (0 for an exact integer result)."""
        reference = compute_reference(self.operation, self.inputs)
        error = np.abs(self.logical_result() - reference.value)
        return float((error / np.maximum(reference.magnitude, 1e-300)).max())


Launch = Callable[..., Launched]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(generated=tmp_path / "generated")


def dispatch_of(provider: Provider, operation: str, configuration: str, target: Target) -> Dispatch:
    """By the names of operation and configuration."""
    parsed = parse_operation(operation)
    found = provider.parse_configuration(configuration, parsed, target)
    assert found is not None, configuration
    return Dispatch(parsed, found, provider.name, target)


@pytest.fixture
def build(workspace: Workspace) -> Callable[[Provider, str, str, Target], Executable]:
    """Build the executable of provider, operation's name, configuration's name and target."""

    def make(provider: Provider, operation: str, configuration: str, target: Target) -> Executable:
        return provider.build(dispatch_of(provider, operation, configuration, target), workspace)

    return make


@pytest.fixture
def launch(build: Callable[..., Executable]) -> Launch:
    """Build and launch once on seeded inputs, into an output filled with 0xFF."""

    def run(
        provider: Provider,
        operation: str,
        configuration: str,
        target: Target,
        *,
        distribution: str = "uniform_signed",
        inputs: Sequence[np.ndarray] | None = None,
    ) -> Launched:
        parsed = parse_operation(operation)
        executable = build(provider, operation, configuration, target)
        device = executable.device
        arrays = tuple(inputs or make_inputs(parsed, distribution=distribution, seed=7))
        buffers = [
            device.upload(array, spec) for array, spec in zip(arrays, parsed.inputs, strict=True)
        ]
        output = device.allocate(parsed.output)
        device.fill_bytes(output, 0xFF)
        result = executable.run(buffers, output)
        device.synchronize()
        return Launched(parsed, executable, arrays, buffers, output, result)

    return run
