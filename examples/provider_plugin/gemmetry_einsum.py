"""numpy.einsum as a gemmetry provider: everything that a provider in its own package needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from gemmetry.domain.contracts import Executable, Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind
from gemmetry.domain.errors import OutOfMemoryError, UnsupportedError
from gemmetry.domain.operation import F32, F64, Layout, Operation, OperationKind, Scaling
from gemmetry.domain.record import BuildFacts
from gemmetry.hardware.opening import host_device
from gemmetry.providers.base import BaseProvider

Array = np.ndarray[Any, np.dtype[Any]]


class EinsumExecutable:
    """One einsum call on host arrays, writing into the output it is given."""

    writes_output = True

    def __init__(self, operation: Operation, *, optimize: bool) -> None:
        self.device = host_device()
        self.facts = BuildFacts(notes=("numpy.einsum",))
        self._operation = operation
        self._optimize = optimize

    def run(self, inputs: Sequence[Array], output: Array) -> Array:
        """C = A @ B. Buffers have the storage shape: a column-major matrix comes transposed."""
        specs = (*self._operation.inputs, self._operation.output)
        a, b, c = (
            _transposed(array) if spec.layout is Layout.COLUMN else array
            for array, spec in zip((*inputs, output), specs, strict=True)
        )
        try:
            np.einsum("...mk,...kn->...mn", a, b, out=c, optimize=self._optimize)
        except MemoryError as error:
            raise OutOfMemoryError(f"einsum of {self._operation}: {error}") from None
        return output

    def close(self) -> None:
        """Nothing is held between launches."""


class EinsumProvider(BaseProvider):
    """Plain products in f32 and f64, by einsum's own loops or by way of BLAS."""

    name: ClassVar[str] = "einsum"
    description: ClassVar[str] = "numpy.einsum on the host (example of a provider package)"

    def available(self) -> str | None:
        return None

    def supports(self, operation: Operation, target: Target) -> str | None:
        signature = operation.signature
        formats = {signature.lhs, signature.rhs, signature.result, signature.accumulator}
        if target.kind is not TargetKind.CPU:
            return "numpy computes on the CPU"
        if operation.kind not in (OperationKind.MATMUL, OperationKind.BATCH_MATMUL):
            return f"einsum is set up for products of matrices, not for {operation.kind}"
        if formats not in ({F32}, {F64}):
            return "this example takes f32 and f64, the same for all operands"
        is_scaled = signature.alpha != 1 or signature.beta != 0
        if is_scaled or signature.epilogue or signature.scaling is not Scaling.NONE:
            return "this example takes no alpha, beta, scaling or epilogue"
        return None

    def configurations(self, operation: Operation, target: Target) -> Iterable[Configuration]:
        # The default one first. Names: letters, digits and underscores.
        yield Configuration("loops", {"optimize": False})
        yield Configuration("blas", {"optimize": True})

    def build(self, dispatch: Dispatch, workspace: Workspace) -> Executable:
        reason = self.supports(dispatch.operation, dispatch.target)
        if reason is not None:
            raise UnsupportedError(f"{dispatch}: {reason}")
        return EinsumExecutable(dispatch.operation, optimize=dispatch.configuration.name == "blas")

    def versions(self) -> Mapping[str, str]:
        return {"numpy": np.__version__}


def _transposed(array: Array) -> Array:
    return array.swapaxes(-1, -2)
