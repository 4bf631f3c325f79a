"""Executables made of a Python function, right and wrong, on the host's memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest

from gemmetry.domain.contracts import Device
from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.operation import Operation
from gemmetry.domain.record import BuildFacts
from gemmetry.hardware.host_device import HostDevice
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import apply_epilogue, compute_reference, to_logical, to_storage
from gemmetry.numerics.storage import Array, quantize, to_float64
from gemmetry.verification.companions import Companions
from gemmetry.verification.context import Context
from gemmetry.verification.launching import Launcher
from gemmetry.verification.protocol import verify

Tensors = Mapping[str, Array]
Kernel = Callable[[Operation, Tensors], Array]
"""(operation, role -> logical array) -> result in logical shape, any dtype."""


def right(operation: Operation, tensors: Tensors) -> Array:
    """Every sum in float64, one rounding."""
    product = to_float64(tensors["lhs"]) @ to_float64(tensors["rhs"])
    return apply_epilogue(operation, product, tensors)


@dataclass
class FakeExecutable:
    """Runs `kernel`; `meddle` may do to the buffers what no kernel should."""

    operation: Operation
    kernel: Kernel = right
    meddle: Callable[..., object] | None = None
    """Called as meddle(inputs, output, launch number) after the kernel; may return a buffer."""
    writes_output: bool = True
    device: HostDevice = field(default_factory=HostDevice)
    facts: BuildFacts = BuildFacts()
    launches: int = 0

    def run(self, inputs, output):
        self.launches += 1
        specs = self.operation.inputs
        tensors = {
            spec.role: to_logical(buffer, spec) for spec, buffer in zip(specs, inputs, strict=True)
        }
        result = np.asarray(self.kernel(self.operation, tensors))
        spec = self.operation.output
        if result.dtype == np.float32 or result.dtype == np.float64 or result.dtype == np.int64:
            result = quantize(result.astype(np.float64), spec.dtype)
        stored = to_storage(result, spec)
        if self.writes_output:
            output[...] = stored
        else:
            output = stored.copy()
        if self.meddle is not None:
            replaced = self.meddle(inputs, output, self.launches)
            if replaced is not None:
                return replaced
        return output

    def close(self):
        pass


@pytest.fixture
def judge():
    """judge(name, kernel, ...) -> Verdict at a level, on inputs of a distribution."""

    def run(
        name,
        kernel=right,
        *,
        level="standard",
        distribution="offset_uniform",
        tile=None,
        has_reference=True,
        on_failure=None,
        judge_rivals=False,
        **how,
    ):
        """`tile`: try other shapes too, with that tile."""
        operation = parse_operation(name)
        inputs = make_inputs(operation, distribution=distribution, seed=42)
        reference = compute_reference(operation, inputs) if has_reference else None
        executable = FakeExecutable(operation, kernel, **how)
        companions = None
        if tile is not None:
            companions = Companions(lambda other: FakeExecutable(other, kernel, **how), tile)
        return verify(
            executable,
            operation,
            inputs,
            reference,
            level=level,
            companions=companions,
            judge_rivals=judge_rivals,
            on_failure=on_failure,
        )

    return run


@pytest.fixture
def context_of():
    """context_of(name, kernel=..., ...) -> the Context of a fake executable."""

    def make(name, *, companions=None, thorough=False, has_reference=True, **how):
        operation = parse_operation(name)
        inputs = make_inputs(operation, distribution="normal", seed=42)
        launcher = Launcher(FakeExecutable(operation, **how), operation)
        reference = compute_reference(operation, inputs) if has_reference else None
        return Context(launcher, operation, inputs, reference, 42, companions, thorough=thorough)

    return make


@pytest.fixture
def executable_of():
    """The class of the fake executables."""
    return FakeExecutable


class PlainDevice:
    """Host memory with the methods that every device has, and nothing more."""

    def __init__(self):
        host = HostDevice()
        self.last_level_cache_bytes = host.last_level_cache_bytes
        for name in Device.__dict__:
            if not name.startswith("_") and callable(getattr(host, name, None)):
                setattr(self, name, getattr(host, name))


@pytest.fixture
def plain_device():
    """A device without red zones and without an order of work."""
    return PlainDevice()
