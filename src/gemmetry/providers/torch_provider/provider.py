"""The ``torch`` provider: what callers of torch get, on CPU, CUDA and ROCm.

It is the baseline of most comparisons (cuBLAS, hipBLAS or oneDNN do the work). docs/torch.md lists
the call for each operation and its accumulation precision.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch
from gemmetry.domain.errors import UnsupportedError
from gemmetry.domain.operation import Operation, OperationKind
from gemmetry.domain.target import Target, TargetKind
from gemmetry.providers.base import BaseProvider
from gemmetry.providers.cost_probe import CostProbe
from gemmetry.providers.torch_provider.support import reason_against

if TYPE_CHECKING:
    from gemmetry.devices.torch import TorchDevice
    from gemmetry.providers.torch_provider.executable import TorchExecutable

_LIBRARIES = {"default": "cublas", "cublaslt": "cublaslt"}
"""Configuration -> preferred BLAS library; torch's own default on CUDA is cuBLAS."""


class TorchProvider(BaseProvider):
    """Options: ``threads`` (CPU threads, 0: torch's choice)."""

    name: ClassVar[str] = "torch"
    description: ClassVar[str] = "torch.mm and its relatives: oneDNN, cuBLAS, hipBLAS, cuDNN"

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        self._probe = CostProbe(_launch_on_ones)

    def available(self) -> str | None:
        if importlib.util.find_spec("torch") is None:
            return "torch is not installed; pip install 'gemmetry[torch]'"
        return None

    def supports(self, operation: Operation, target: Target) -> str | None:
        return reason_against(operation, target)

    def configurations(self, operation: Operation, target: Target) -> Iterable[Configuration]:
        yield Configuration()
        s = operation.signature
        blas = s.kind in (OperationKind.MATMUL, OperationKind.BATCH_MATMUL)
        if target.kind is TargetKind.CUDA and blas and not (s.lhs.is_integer or s.lhs.is_fp8):
            yield Configuration("cublaslt", {"library": "cublaslt"})

    def targets(self) -> Sequence[Target]:
        found = [Target(TargetKind.CPU)]
        if self.available() is None:
            from gemmetry.devices.torch import gpu_targets

            found += gpu_targets()
        return found

    def prepare(self, target: Target) -> None:
        self._device(target)

    def build(self, dispatch: Dispatch, workspace: Workspace) -> TorchExecutable:
        from gemmetry.providers.torch_provider.executable import TorchExecutable
        from gemmetry.providers.torch_provider.products import (
            declared,
            make_product,
            math_mode,
            writes_output,
        )

        operation, target = dispatch.operation, dispatch.target
        if reason := self.supports(operation, target):
            raise UnsupportedError(reason)
        device = self._device(target)
        with device.errors(f"preparing {dispatch.name}"):
            product = make_product(operation, device.torch_device)
        library = _LIBRARIES[dispatch.configuration.name]
        mode = math_mode(operation, library) if target.kind is TargetKind.CUDA else None
        writes, traits = writes_output(operation), declared(operation)
        return TorchExecutable(dispatch.name, device, product, mode, writes, traits)

    def seconds_per_launch(self, dispatch: Dispatch) -> float | None:
        """Prediction from smaller products (:mod:`gemmetry.providers.cost_probe`); CPU only.

        Its purpose is to find operations that take seconds (f16 on CPUs without f16 arithmetic: 2 s
        for 1024³).
        """
        if dispatch.target.kind is not TargetKind.CPU:
            return None
        if self.supports(dispatch.operation, dispatch.target) is not None:
            return None
        self._device(dispatch.target)
        return self._probe.seconds(dispatch.operation)

    def versions(self) -> Mapping[str, str]:
        if self.available() is not None:
            return {}
        import torch

        found = {"torch": torch.__version__}
        if torch.version.cuda:
            found["cuda"] = torch.version.cuda
        if torch.version.hip:
            found["hip"] = torch.version.hip
        return found

    def _device(self, target: Target) -> TorchDevice:
        from gemmetry.devices.torch import open_device

        return open_device(target, threads=int(self.options.get("threads", 0)))


def _launch_on_ones(operation: Operation) -> Callable[[], object]:
    import torch

    from gemmetry.devices.torch_parts.storage import torch_dtype
    from gemmetry.providers.torch_provider.products import make_product

    product = make_product(operation, torch.device("cpu"))
    inputs = [
        torch.ones(spec.storage_shape).to(torch_dtype(spec.dtype)) for spec in operation.inputs
    ]
    output = torch.empty(operation.output.storage_shape, dtype=torch_dtype(operation.output.dtype))
    return lambda: product(inputs, output)


PROVIDER = TorchProvider
