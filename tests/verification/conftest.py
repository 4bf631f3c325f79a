"""Executables made of a Python function, right and wrong, on the host's memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from gemmetry.domain.contracts import Device
from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.operation import Operation
from gemmetry.domain.record import BuildFacts
from gemmetry.hardware.host_device import HostDevice
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import (
    Reference,
    apply_epilogue,
    compute_reference,
    factors_of_product,
    to_logical,
    to_storage,
)
from gemmetry.numerics.storage import Array, quantize, to_float32, to_float64
from gemmetry.verification.checks import CheckOutcome, CheckResult
from gemmetry.verification.companions import Companions
from gemmetry.verification.context import Context
from gemmetry.verification.launching import Launcher
from gemmetry.verification.protocol import verify

Tensors = Mapping[str, Array]
Kernel = Callable[[Operation, Tensors], Array]
"""(operation, role -> logical array) -> result in logical shape, any dtype."""
Meddle = Callable[[Sequence[Array], Array, int], object]
"""(inputs, output, launch number), after the kernel; may return a buffer."""


def right(operation: Operation, tensors: Tensors) -> Array:
    """Every sum in float64, one rounding."""
    return product(operation, tensors, to_float64)


def operands(tensors: Tensors) -> tuple[Array, Array]:
    """A and B in float32."""
    return to_float32(tensors["lhs"]), to_float32(tensors["rhs"])


def product(
    operation: Operation, tensors: Tensors, widen: Callable[[Array], Array] | None = None
) -> Array:
    """The product as most kernels compute it: sums in float32, or in float64 where the operands
    need it."""
    lhs = operation.signature.lhs
    needs_more = lhs.is_integer or lhs.storage_bits == 64
    widen = widen or (to_float64 if needs_more else to_float32)
    with np.errstate(all="ignore"):
        a, b = map(widen, factors_of_product(operation, tensors))
        return apply_epilogue(operation, to_float64(a @ b), tensors)


def accumulating(rounding: Callable[[Array], Array], step: int) -> Kernel:
    """A kernel that rounds its running sum with `rounding` after every `step` of k."""

    def kernel(operation: Operation, tensors: Tensors) -> Array:
        a, b = to_float64(tensors["lhs"]), to_float64(tensors["rhs"])
        total = np.zeros((a.shape[0], b.shape[1]), dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            for k in range(0, a.shape[1], step):
                total = to_float64(rounding(total + a[:, k : k + step] @ b[k : k + step]))
        return total

    return kernel


def truncated(values: Array, bits: int) -> Array:
    """Rounded towards zero at `bits` significand bits."""
    _, exponent = np.frexp(values)
    step = np.ldexp(1.0, exponent - bits)
    return np.trunc(values / step) * step


def drawn(
    name: str, distribution: str = "offset_uniform", seed: int = 42
) -> tuple[Operation, tuple[Array, ...], Reference]:
    """An operation, its inputs, and the reference."""
    operation = parse_operation(name)
    inputs = make_inputs(operation, distribution=distribution, seed=seed)
    return operation, inputs, compute_reference(operation, inputs)


def stored(operation: Operation, value: Array) -> Array:
    """A result in logical shape as it is stored, rounded to the operation's format."""
    spec = operation.output
    return to_storage(quantize(to_float64(np.asarray(value)), spec.dtype), spec)


def keeping(key: Callable[[Sequence[Array]], object], *, most: int | None = None) -> Meddle:
    """Answers from memory where it has seen what `key` makes of the inputs, among the last
    `most`."""
    answers: dict[str, Array] = {}

    def meddle(inputs: Sequence[Array], output: Array, launch: int) -> None:
        known = repr(key(inputs))
        if known not in answers:
            while most is not None and len(answers) >= most:
                answers.pop(next(iter(answers)))
            answers[known] = output.copy()
        output[...] = answers[known]

    return meddle


def addresses(inputs: Sequence[Array]) -> list[object]:
    """A key by which wrong kernels know their inputs."""
    return [(x.ctypes.data, x.shape) for x in inputs]


def assert_fails(result: CheckResult, words: str) -> None:
    """The check failed, for a reason that contains `words`."""
    assert result.outcome is CheckOutcome.FAILED
    assert words in result.detail


@dataclass
class FakeExecutable:
    """Runs `kernel`; `meddle` may do to the buffers what no kernel should."""

    operation: Operation
    kernel: Kernel = right
    meddle: Meddle | None = None
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
        if result.dtype in (np.float32, np.float64, np.int64):
            result = quantize(result.astype(np.float64), spec.dtype)
        stored = to_storage(result, spec)
        if self.writes_output:
            output[...] = stored
        else:
            output = stored.copy()
        replaced = self.meddle(inputs, output, self.launches) if self.meddle else None
        return output if replaced is None else replaced

    def close(self):
        pass


@pytest.fixture
def judge():
    """judge(name, kernel, ...) -> Verdict at a level, on inputs of a distribution; with `tile`,
    other shapes are tried too."""

    def run(
        name, kernel=right, *, level="standard", distribution="offset_uniform", tile=None,
        has_reference=True, on_failure=None, judge_rivals=False, **how,
    ):  # fmt: skip
        operation, inputs, reference = drawn(name, distribution)
        reference = reference if has_reference else None
        others = Companions(lambda other: FakeExecutable(other, kernel, **how), tile)
        return verify(
            FakeExecutable(operation, kernel, **how), operation, inputs, reference, level=level,
            companions=others if tile else None, on_failure=on_failure, judge_rivals=judge_rivals,
        )  # fmt: skip

    return run


@pytest.fixture
def context_of():
    """context_of(name, kernel=..., ...) -> the Context of a fake executable."""

    def make(
        name, *, companions=None, thorough=False, has_reference=True, distribution="normal", **how
    ):
        operation, inputs, reference = drawn(name, distribution)
        launcher = Launcher(FakeExecutable(operation, **how), operation)
        reference = reference if has_reference else None
        return Context(launcher, operation, inputs, reference, 42, companions, thorough=thorough)

    return make


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
