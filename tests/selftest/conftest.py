"""Launches mutants of the host for the tests here, and judges the results."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.dispatches.conftest import make_record_fixture  # noqa: F401

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch, Target, TargetKind, parse_operation
from gemmetry.domain.operation import Operation
from gemmetry.hardware.host_device import HostDevice
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import Reference, compute_reference
from gemmetry.numerics.storage import Array
from gemmetry.selftest.emulator import HostExecutable
from gemmetry.selftest.provider import Carrier, Mutant, MutantProvider, all_mutants
from gemmetry.verification.comparison import compare

DEVICE = HostDevice()
CPU = Target(TargetKind.CPU)
SENTINEL = 0xFF
Mask = npt.NDArray[np.bool_]


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
        self.executable, self.kernel = executable, executable.kernel
        self.use(drawn(self.operation, "uniform_signed", 1))

    def use(self, inputs: Sequence[Array]) -> None:
        """Take other inputs, in buffers of their own."""
        self.inputs, specs = tuple(inputs), self.operation.inputs
        self.buffers = [DEVICE.upload(a, spec) for a, spec in zip(inputs, specs, strict=True)]
        self.output = DEVICE.allocate_with_red_zones(self.operation.output, zone_bytes=1 << 16)

    def draw(self, distribution: str, seed: int = 5) -> None:
        """Take inputs of that distribution."""
        self.use(drawn(self.operation, distribution, seed))

    @property
    def reference(self) -> Reference:
        return compute_reference(self.operation, self.inputs)

    def run(self) -> Any:
        """What a launch into an output full of NaN returns."""
        DEVICE.fill_bytes(self.output, SENTINEL)
        return self.executable.run(self.buffers, self.output)

    def launch(self) -> Array:
        """The result of :meth:`run` on the host."""
        return DEVICE.download(self.run(), self.operation.output)

    def wrong(self, output: Array | None = None) -> Mask:
        """Which elements of a result (the next launch's) are wrong; two-dimensional."""
        output = self.launch() if output is None else output
        reference = self.reference
        errors = compare(self.operation, output, reference, declared=self.executable.facts.declared)
        return np.zeros(reference.value.shape, np.bool_) if errors.bad is None else errors.bad

    def is_right(self) -> bool:
        return not self.wrong().any()


@cache
def drawn(operation: Operation, distribution: str, seed: int) -> tuple[Array, ...]:
    return make_inputs(operation, distribution=distribution, seed=seed)


@pytest.fixture(scope="session")
def plant() -> type[Bench]:
    """Called with a slug and, if it is to be another, a shape (M, N, K)."""
    return Bench
