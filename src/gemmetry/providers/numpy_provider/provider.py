"""numpy on the host: computes every operation with the BLAS that numpy was built with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from gemmetry.domain.contracts import Device, Executable, Workspace
from gemmetry.domain.dispatch import (
    DEFAULT_CONFIGURATION,
    Configuration,
    Dispatch,
    Target,
    TargetKind,
)
from gemmetry.domain.errors import OutOfMemoryError, RequestError, UnsupportedError
from gemmetry.domain.operation import F32, F64, S8, TF32, EpilogueStep, Operation, OperationKind
from gemmetry.domain.record import BuildFacts
from gemmetry.hardware.host_device import (
    HostBuffer,
    HostDevice,
    blas_name,
    blas_threads,
    set_blas_threads,
)
from gemmetry.numerics.references import compute_dtype_of_accumulator, evaluate, plain_product
from gemmetry.numerics.storage import numpy_dtype
from gemmetry.providers.base import BaseProvider
from gemmetry.providers.launch_model import CostProbe


class NumpyExecutable:
    """One operation as numpy calls on host arrays; fills the output passed to it."""

    writes_output = True

    def __init__(self, operation: Operation, facts: BuildFacts) -> None:
        self.device: Device = HostDevice()
        self.facts = facts
        self._operation = operation
        self._compute_dtype = compute_dtype_of_accumulator(operation)
        self._plain_product = plain_product(operation, self._compute_dtype)

    def run(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> HostBuffer:
        """Compute into `output`.

        Raises:
            OutOfMemoryError: the scratch memory for conversions does not fit.
        """
        if self._plain_product is not None:
            self._plain_product(inputs, output)
            return output
        try:
            evaluate(self._operation, inputs, output, self._compute_dtype)
        except MemoryError as error:
            raise OutOfMemoryError(
                f"numpy ran out of memory computing {self._operation}: {error}",
                hint="Choose a smaller shape; narrow types need room for their conversion.",
            ) from None
        return output

    def close(self) -> None:
        """Nothing is held between launches."""


class NumpyProvider(BaseProvider):
    """Options: ``threads``, the number of BLAS threads (0 or absent: the BLAS's own choice)."""

    name: ClassVar[str] = "numpy"
    description: ClassVar[str] = (
        "numpy's BLAS on the host; narrow types are converted at each launch"
    )

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        self._probe = CostProbe(_launch_on_ones)

    def supports(self, operation: Operation, target: Target) -> str | None:
        signature = operation.signature
        if target.kind is not TargetKind.CPU:
            return f"numpy computes on the CPU, not on {target}"
        if target.index is None:
            return "numpy does not compile for processors that this machine does not have"
        if TF32 in (signature.lhs, signature.rhs):
            return "no BLAS on the CPU multiplies in tf32; compare with f32 instead"
        if signature.accumulator.is_integer:
            if signature.lhs is not S8 or signature.rhs is not S8:
                return f"numpy multiplies s8 exactly, not {signature.lhs} by {signature.rhs}"
        elif signature.accumulator not in (F32, F64):
            return f"BLAS accumulates in f32 or f64, not in {signature.accumulator}"
        return None

    def configurations(self, operation: Operation, target: Target) -> Iterable[Configuration]:
        return (Configuration(DEFAULT_CONFIGURATION),)

    def build(self, dispatch: Dispatch, workspace: Workspace) -> Executable:
        if reason := self.supports(dispatch.operation, dispatch.target):
            raise UnsupportedError(f"{dispatch}: {reason}")
        thread_notes, threads = self._apply_threads(), blas_threads()
        facts = BuildFacts(
            default_configuration=blas_name() + (f", {threads} threads" if threads else ""),
            notes=(*_notes(dispatch.operation), *thread_notes),
        )
        return NumpyExecutable(dispatch.operation, facts)

    def seconds_per_launch(self, dispatch: Dispatch) -> float | None:
        """Prediction from smaller products (:mod:`gemmetry.providers.launch_model`)."""
        if self.supports(dispatch.operation, dispatch.target) is not None:
            return None
        self._apply_threads()
        return self._probe.seconds(dispatch.operation)

    def versions(self) -> Mapping[str, str]:
        return {"numpy": np.__version__, "numpy's BLAS": blas_name()}

    def _apply_threads(self) -> tuple[str, ...]:
        threads = self.options.get("threads", 0)
        if not isinstance(threads, int) or isinstance(threads, bool) or threads < 0:
            raise RequestError(
                f"numpy: threads must be a number of threads, not {threads!r}",
                hint="Give 0 to leave the choice to the BLAS.",
            )
        if threads and blas_threads() != threads and not set_blas_threads(threads):
            return (
                f"{blas_name()} did not accept {threads} threads; set OPENBLAS_NUM_THREADS or "
                "OMP_NUM_THREADS before the start",
            )
        return ()


def _notes(operation: Operation) -> tuple[str, ...]:
    """Notes needed to judge the time."""
    signature = operation.signature
    compute = compute_dtype_of_accumulator(operation)
    notes = []
    if signature.accumulator.is_integer:
        notes.append(
            f"s8 is converted to {compute}, in which the sums are exact, and multiplied by BLAS; "
            "the conversions are part of each launch"
        )
    elif {numpy_dtype(t) for t in (signature.lhs, signature.rhs, signature.result)} != {compute}:
        notes.append(
            f"operands are converted to {compute}, the result is rounded to {signature.result} "
            "once; the conversions are part of each launch"
        )
    if operation.kind is OperationKind.CONV2D:
        notes.append("im2col and one matrix multiply; the copy is part of each launch")
    if operation.kind is OperationKind.MATMUL_SPLITK:
        notes.append(f"{signature.split_k_slices} products in sequence, summed in {compute}")
    if EpilogueStep.GELU in signature.epilogue:
        notes.append("numpy has no erf: gelu goes through a float64 table and a Taylor series")
    return tuple(notes)


def _launch_on_ones(operation: Operation) -> Callable[[], object]:
    executable = NumpyExecutable(operation, BuildFacts())
    device = executable.device
    inputs = [
        device.upload(np.ones(spec.storage_shape, numpy_dtype(spec.dtype)), spec)
        for spec in operation.inputs
    ]
    output = device.allocate(operation.output)
    return lambda: executable.run(inputs, output)


PROVIDER = NumpyProvider
