"""Inputs and float64 references of the operations that a worker verifies and times."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from gemmetry.domain.contracts import Executable, HostArray
from gemmetry.domain.operation import Operation
from gemmetry.domain.settings import RunSettings
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import Reference, compute_reference
from gemmetry.providers.cost_probe import least_seconds
from gemmetry.verification.context import HOST_PRODUCT_FLOPS
from gemmetry.verification.references.cache import ReferenceCache
from gemmetry.verification.references.device_products import checked

HOST_REFERENCE_FLOPS = HOST_PRODUCT_FLOPS
"""Products up to this size get their float64 reference from the host, larger ones from the device
if it can compute it, which the host checks."""

REFERENCE_SECONDS = 30.0
"""A float64 reference that would take the host longer is not computed; Freivalds' test replaces it.
Two cores of a small machine (40 GFLOP/s) reach 1.2e12 FLOPs, a product of 8192³."""

_PROBE_SIZE = 768
"""The edge of the float64 product whose time shows how fast the host is: about 20 ms on two
cores."""

KEPT_BYTES = 2 << 30
"""The host memory for inputs of recent operations; the latest are always kept."""


class InputsAndReferences:
    """Inputs and float64 references of operations; the most recent ones are kept in memory."""

    def __init__(self, references: Path, settings: RunSettings) -> None:
        self._cache = ReferenceCache(references)
        self._settings = settings
        self._inputs: OrderedDict[Operation, tuple[HostArray, ...]] = OrderedDict()
        self._held_bytes = 0

    def inputs(self, operation: Operation) -> tuple[HostArray, ...]:
        """Host arrays of the operation's inputs."""
        found = self._inputs.get(operation)
        if found is not None:
            self._inputs.move_to_end(operation)
            return found
        settings = self._settings
        found = make_inputs(operation, distribution=settings.distribution, seed=settings.seed)
        self._inputs[operation] = found
        self._held_bytes += _bytes(found)
        while self._held_bytes > KEPT_BYTES and len(self._inputs) > 1:
            _, dropped = self._inputs.popitem(last=False)
            self._held_bytes -= _bytes(dropped)
        return found

    def reference(self, operation: Operation, executable: Executable) -> Reference | None:
        """The operation's reference: from memory, from the experiment, or computed now; None if
        only the host could compute it, and would take too long."""
        settings = self._settings
        if operation.flops > HOST_REFERENCE_FLOPS and self._takes_too_long(operation, executable):
            return None

        def compute() -> Reference:
            matmul = None
            large = operation.flops > HOST_REFERENCE_FLOPS
            if large or settings.verification_providers[:1] == ("device",):
                matmul = executable.device.float64_matmul()
            return compute_reference(
                operation,
                self.inputs(operation),
                matmul=None if matmul is None else checked(matmul),
            )

        return self._cache.get(operation, settings.distribution, settings.seed, compute)

    def _takes_too_long(self, operation: Operation, executable: Executable) -> bool:
        if executable.device.float64_matmul() is not None:
            return False
        return operation.flops / host_flops_per_second() > REFERENCE_SECONDS


@cache
def host_flops_per_second() -> float:
    """The rate of numpy's float64 product on this host, measured with some products of
    :data:`_PROBE_SIZE`³."""
    matrix = np.ones((_PROBE_SIZE, _PROBE_SIZE))
    return 2 * _PROBE_SIZE**3 / least_seconds(lambda: np.matmul(matrix, matrix))


def _bytes(arrays: Sequence[HostArray]) -> int:
    return sum(int(array.nbytes) for array in arrays)
