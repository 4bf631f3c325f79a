"""One call of a user's Python function on logical views of the buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gemmetry.domain.contracts import Buffer, Device
from gemmetry.domain.errors import (
    GemmetryError,
    LaunchError,
    OutOfMemoryError,
    WrongResultError,
)
from gemmetry.domain.operation import (
    Conv2dShape,
    EpilogueStep,
    Layout,
    Operation,
    OperationKind,
    Signature,
    TensorSpec,
)
from gemmetry.domain.record import BuildFacts
from gemmetry.providers.user_provider.kernel import (
    UserKernel,
    call_user_code,
    describe_error,
    error_line,
)


class UserExecutable:
    """One call of the user's function on logical views of the buffers."""

    def __init__(
        self,
        kernel: UserKernel,
        operation: Operation,
        configuration: Mapping[str, Any],
        device: Device,
    ) -> None:
        self.device = device
        self.facts = BuildFacts(
            notes=(f"{kernel} with {kernel.arrays} arrays",), declared=kernel.declared
        )
        self.writes_output = kernel.writes_output
        self._kernel = kernel
        self._operation = operation
        self._inputs = operation.inputs
        self._keywords = {**scalar_keywords(operation), **configuration}
        self._result = operation.output

    def run(self, inputs: Sequence[Buffer], output: Buffer) -> Buffer:
        """Call the function.

        Raises:
            LaunchError: it raised, or returned something that is not C.
            OutOfMemoryError: it ran out of memory.
        """
        views = [_logical(array, spec) for array, spec in zip(inputs, self._inputs, strict=True)]
        keywords = self._keywords
        if len(views) > 2:
            extra = {spec.role: v for spec, v in zip(self._inputs[2:], views[2:], strict=True)}
            keywords = {**keywords, **extra}
        target = _logical(output, self._result)
        if self._kernel.wants_dtype:
            keywords = {**keywords, "out_dtype": output.dtype}
        if self.writes_output:
            keywords = {**keywords, "out": target}
        result = call_user_code(
            self._kernel.function, self._explain, views[0], views[1], **keywords
        )
        if self.writes_output:
            if result is not None and result is not target:
                self._check_is_output(result, target)
            return output
        return self._take(result, inputs, output, target)

    def close(self) -> None:
        """Nothing is held between launches."""

    def _take(
        self, result: Any, inputs: Sequence[Buffer], output: Buffer, target: Buffer
    ) -> Buffer:
        """The returned array in storage layout; a copy only if its layout differs."""
        if type(result) is not type(output):
            raise self._bad_result(f"returned {_describe(result)}")
        if result.shape != target.shape or result.dtype != output.dtype:
            raise self._bad_result(f"returned {_describe(result)}")
        if any(_share_memory(result, array) for array in inputs):
            raise self._bad_result("returned a view of one of its inputs")
        if getattr(result, "device", None) != getattr(output, "device", None):
            raise self._bad_result(f"returned a result on the device {result.device}")
        stored = _logical(result, self._result)
        if isinstance(stored, np.ndarray):
            return np.ascontiguousarray(stored)
        return stored.contiguous()

    def _check_is_output(self, result: Any, target: Buffer) -> None:
        same = type(result) is type(target) and result.shape == target.shape
        if not (same and _share_memory(result, target)):
            raise WrongResultError(
                f"{self._kernel} takes out= but returned {_describe(result)}",
                hint="Write C into out and return nothing, or remove the parameter out.",
            )

    def _bad_result(self, what: str) -> WrongResultError:
        spec = self._result
        return WrongResultError(
            f"{self._kernel} {what} where {spec.dtype} of shape {spec.shape} is expected",
            hint=f"Return a new {self._kernel.arrays} array, or take out= and write into it.",
        )

    def _explain(self, error: BaseException) -> GemmetryError:
        path = self._kernel.path
        described = describe_error(error, path)
        translate = getattr(self.device, "translate", None)
        if translate is not None and isinstance(error, RuntimeError | MemoryError):
            # Only the torch device can distinguish a lost or full GPU from an ordinary error.
            explained: GemmetryError = translate(
                error, f"running {self._kernel}{error_line(error, path)}"
            )
            return explained
        if isinstance(error, MemoryError):
            return OutOfMemoryError(
                f"{self._kernel} ran out of memory: {described}", hint="Choose a smaller shape."
            )
        return LaunchError(
            f"{self._kernel} raised {described}",
            hint=f"It was called for {self._operation}.",
        )


def scalar_keywords(operation: Operation) -> dict[str, Any]:
    """Keyword arguments passed to a function in addition to the tensors: ``alpha`` and ``beta``
    where they are not 1 and 0, ``slices`` of a split-k, ``stride`` and ``padding`` (height, width)
    of a convolution, and ``epilogue`` (names in order) where steps other than additions are
    fused."""
    signature = operation.signature
    keywords = dict.fromkeys(scalar_names(signature))
    values: dict[str, Any] = {
        "alpha": signature.alpha,
        "beta": signature.beta,
        "slices": signature.split_k_slices,
        "epilogue": tuple(str(step) for step in signature.epilogue),
    }
    if isinstance(operation.shape, Conv2dShape):
        shape = operation.shape
        values["stride"] = (shape.stride_h, shape.stride_w)
        values["padding"] = (shape.pad_h, shape.pad_w)
    return {name: values[name] for name in keywords}


def scalar_names(signature: Signature) -> list[str]:
    """Names of the numbers that a function must take for operations of this signature."""
    names = []
    if signature.alpha != 1:
        names.append("alpha")
    if signature.beta != 0:
        names.append("beta")
    if signature.split_k_slices > 1:
        names.append("slices")
    if signature.kind is OperationKind.CONV2D:
        names += ["stride", "padding"]
    if not _ADDITIONS.issuperset(signature.epilogue):
        names.append("epilogue")
    return names


_ADDITIONS = {EpilogueStep.BIAS, EpilogueStep.RESIDUAL}
"""Steps that commute, so that a function does not need a list of steps in order."""


def _logical(array: Buffer, spec: TensorSpec) -> Buffer:
    """A numpy or torch array as ``spec.shape``; a column-major one becomes a strided view."""
    return array.swapaxes(-1, -2) if spec.layout is Layout.COLUMN else array


def _share_memory(first: Any, second: Any) -> bool:
    if isinstance(first, np.ndarray):
        return np.may_share_memory(first, second)
    return bool(
        first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
        and first.numel() > 0
    )


def _describe(result: Any) -> str:
    if hasattr(result, "shape") and hasattr(result, "dtype"):
        kind = f"{type(result).__module__.partition('.')[0]}.{type(result).__name__}"
        return f"a {kind} of {result.dtype}, shape {tuple(result.shape)}"
    return "None" if result is None else f"a {type(result).__name__}"
