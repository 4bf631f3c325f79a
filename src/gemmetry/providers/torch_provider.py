"""The ``torch`` provider: what people get who call torch, on CPU, CUDA and ROCm.

It is the baseline of most comparisons (cuBLAS, hipBLAS or oneDNN do the work). docs/torch.md says
which call each operation becomes and in what precision it accumulates.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch
from gemmetry.domain.errors import UnsupportedError
from gemmetry.domain.operation import Conv2dShape, MatmulShape, Operation, OperationKind
from gemmetry.domain.target import Target, TargetKind
from gemmetry.providers._torch_support import reason_against
from gemmetry.providers.base import BaseProvider

if TYPE_CHECKING:
    from gemmetry.providers._torch_device import TorchDevice
    from gemmetry.providers._torch_executable import TorchExecutable

_LIBRARIES = {"default": "cublas", "cublaslt": "cublaslt"}
"""Configuration -> preferred BLAS library; torch's own default on CUDA is cuBLAS."""
_PROBE_SIZE = 256
"""Largest dimension of the product that the cost probe runs."""


class TorchProvider(BaseProvider):
    """Options: ``threads`` (CPU threads, 0: torch's choice)."""

    name: ClassVar[str] = "torch"
    description: ClassVar[str] = "torch.mm and its relatives: oneDNN, cuBLAS, hipBLAS, cuDNN"

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
            from gemmetry.providers._torch_device import gpu_targets

            found += gpu_targets()
        return found

    def build(self, dispatch: Dispatch, workspace: Workspace) -> TorchExecutable:
        from gemmetry.providers._torch_executable import TorchExecutable
        from gemmetry.providers._torch_products import make_product, math_mode, writes_output

        operation, target = dispatch.operation, dispatch.target
        if reason := self.supports(operation, target):
            raise UnsupportedError(reason)
        device = self._device(target)
        with device.errors(f"preparing {dispatch.name}"):
            product = make_product(operation, device.torch_device)
        library = _LIBRARIES[dispatch.configuration.name]
        mode = math_mode(operation, library) if target.kind is TargetKind.CUDA else None
        return TorchExecutable(dispatch.name, device, product, mode, writes_output(operation))

    def seconds_per_launch(self, dispatch: Dispatch) -> float | None:
        """Time of a product of at most 256 in each dimension, scaled by the FLOPs; CPU only.

        Small products run less efficiently, so it errs towards long; it is there to find what
        takes seconds (f16 on CPUs without f16 arithmetic: 2 s for 1024³).
        """
        operation = dispatch.operation
        small = _shrunk(operation)
        if dispatch.target.kind is not TargetKind.CPU or small.flops * 8 > operation.flops:
            return None
        if self.supports(operation, dispatch.target) is not None:
            return None
        import torch

        from gemmetry.providers._torch_device import torch_dtype
        from gemmetry.providers._torch_products import make_product

        self._device(dispatch.target)
        product = make_product(small, torch.device("cpu"))
        inputs = [
            torch.ones(spec.storage_shape).to(torch_dtype(spec.dtype)) for spec in small.inputs
        ]
        output = torch.empty(small.output.storage_shape, dtype=torch_dtype(small.output.dtype))
        seconds = []
        for _ in range(3):
            before = time.perf_counter()
            product(inputs, output)
            seconds.append(time.perf_counter() - before)
        return min(seconds) * operation.flops / small.flops

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
        from gemmetry.providers._torch_device import open_device

        return open_device(target, threads=int(self.options.get("threads", 0)))


def _shrunk(operation: Operation) -> Operation:
    """The same operation at a size that takes no time, for the cost probe."""
    shape = operation.shape
    if isinstance(shape, Conv2dShape):
        height = min(shape.h, max(shape.r, 16))
        width = min(shape.w, max(shape.s, 16))
        small: MatmulShape | Conv2dShape = shape._replace(n=1, h=height, w=width)
    else:
        slices = operation.signature.split_k_slices
        depth = max(min(shape.k, _PROBE_SIZE) // slices, 1) * slices
        small = MatmulShape(min(shape.m, _PROBE_SIZE), min(shape.n, _PROBE_SIZE), depth)
    return Operation(operation.signature, small)


PROVIDER = TorchProvider
