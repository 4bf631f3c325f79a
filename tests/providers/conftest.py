"""What the tests of providers share: running one dispatch as the engine does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmetry.domain.contracts import Executable, Provider, Workspace
from gemmetry.domain.dispatch import Dispatch, Target, parse_operation
from gemmetry.domain.operation import Operation
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference, to_logical
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
        return to_logical(to_float64(self.host_result), self.operation.output)

    def worst_error(self) -> float:
        """Largest error in units of |A||B| plus the other terms (0 for an exact integer result)."""
        reference = compute_reference(self.operation, self.inputs)
        error = np.abs(self.logical_result() - reference.value)
        return float((error / np.maximum(reference.magnitude, 1e-300)).max())


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
def build(workspace: Workspace) -> Iterator[Callable[..., Executable]]:
    """Builds the executable of provider, operation's name, configuration's name and target; the
    test's end closes it."""
    with contextlib.ExitStack() as stack:

        def make(*names: Any) -> Executable:
            executable = names[0].build(dispatch_of(*names), workspace)
            stack.callback(executable.close)
            return executable

        yield make


@pytest.fixture
def launch(build: Callable[..., Executable]) -> Callable[..., Launched]:
    """Builds and launches once on seeded inputs, into an output filled with 0xFF."""

    def run(
        *names: Any,
        distribution: str = "uniform_signed",
        inputs: Sequence[np.ndarray] | None = None,
    ) -> Launched:
        parsed, executable = parse_operation(names[1]), build(*names)
        device = executable.device
        arrays = tuple(inputs or make_inputs(parsed, distribution=distribution, seed=7))
        buffers = list(map(device.upload, arrays, parsed.inputs))
        output = device.allocate(parsed.output)
        device.fill_bytes(output, 0xFF)
        result = executable.run(buffers, output)
        device.synchronize()
        return Launched(parsed, executable, arrays, buffers, output, result)

    return run
