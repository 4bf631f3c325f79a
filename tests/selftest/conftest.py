"""Launches mutants of the host for the tests here, and judges the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch, Target, TargetKind, parse_operation
from gemmetry.domain.operation import Operation
from gemmetry.hardware.host_device import HostBuffer, HostDevice
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import Reference, compute_reference
from gemmetry.numerics.storage import Array
from gemmetry.selftest.emulator import HostExecutable, TiledGemm
from gemmetry.selftest.provider import Carrier, Mutant, MutantProvider, all_mutants
from gemmetry.verification.comparison import compare

DEVICE = HostDevice()
CPU = Target(TargetKind.CPU)
SENTINEL = 0xFF
Mask = npt.NDArray[np.bool_]


SMALL_TILE = (16, 32, 16)


class Bench:
    """One kernel of the catalogue with inputs and an output of its own."""

    def __init__(
        self, slug: str, shape: tuple[int, int, int] | None = None, item: Mutant | None = None
    ) -> None:
        seen = (p for p in all_mutants() if p.carrier is Carrier.HOST and not p.is_unseen)
        self.item = item or next(p for p in seen if p.slug == slug)
        self.operation = parse_operation(self.item.operation)
        if shape is not None:
            size = self.operation.matmul_shape._replace(m=shape[0], n=shape[1], k=shape[2])
            self.operation = Operation(self.operation.signature, size)
        dispatch = Dispatch(self.operation, self.item.as_configuration(), "mutant", CPU)
        executable = MutantProvider().build(dispatch, Workspace(generated=Path("unused")))
        assert isinstance(executable, HostExecutable)
        self.executable = executable
        self.kernel = executable.kernel
        self.inputs: tuple[Array, ...] = ()
        self._reference: Reference | None = None
        self.use(make_inputs(self.operation, distribution="uniform_signed", seed=1))

    def use(self, inputs: Sequence[Array]) -> None:
        """Take other inputs, in buffers of their own."""
        self._reference = self._reference if self.inputs is inputs else None
        self.inputs = tuple(inputs) if not isinstance(inputs, tuple) else inputs
        specs = self.operation.inputs
        self.buffers = [DEVICE.upload(a, spec) for a, spec in zip(inputs, specs, strict=True)]
        self.output = DEVICE.allocate_with_red_zones(self.operation.output, zone_bytes=1 << 16)

    @property
    def reference(self) -> Reference:
        if self._reference is None:
            self._reference = compute_reference(self.operation, self.inputs)
        return self._reference

    def launch(self) -> Array:
        """One launch into an output full of NaN; the result on the host."""
        DEVICE.fill_bytes(self.output, SENTINEL)
        result = self.executable.run(self.buffers, self.output)
        return DEVICE.download(result, self.operation.output)

    def wrong(self, output: Array | None = None) -> Mask:
        """Which elements of a result (the next launch's) are wrong; two-dimensional."""
        output = self.launch() if output is None else output
        reference = self.reference
        errors = compare(self.operation, output, reference, declared=self.executable.facts.declared)
        return np.zeros(reference.value.shape, np.bool_) if errors.bad is None else errors.bad

    def is_right(self) -> bool:
        return not self.wrong().any()

    def buffer(self, role: str) -> HostBuffer:
        """The buffer of the input with that role."""
        return self.buffers[[spec.role for spec in self.operation.inputs].index(role)]


@pytest.fixture(scope="session")
def plant() -> type[Bench]:
    """Called with a slug and, if it is to be another, a shape (M, N, K)."""
    return Bench


@pytest.fixture(scope="session")
def assert_right() -> Callable[..., None]:
    """Called with a class of the emulator, the name of an operation and a number of launches."""
    return _assert_right


def _assert_right(kernel: type[TiledGemm], name: str, launches: int = 1) -> None:
    operation = parse_operation(name)
    inputs = make_inputs(operation, distribution="uniform_signed", seed=7)
    reference = compute_reference(operation, inputs)
    buffers = [DEVICE.upload(a, spec) for a, spec in zip(inputs, operation.inputs, strict=True)]
    emulator = kernel(operation, SMALL_TILE)
    for _ in range(launches):
        output = DEVICE.allocate_with_red_zones(operation.output, zone_bytes=4096)
        DEVICE.fill_bytes(output, SENTINEL)
        assert emulator.launch(buffers, output) is output
        errors = compare(operation, output, reference)
        assert (errors.bad_count, errors.warned_count) == (0, 0)
        for buffer in (*buffers, output):
            assert DEVICE.red_zones_intact(buffer)
