"""What torch can compute natively, decided from the operation and the target alone.

Each rule was tried on torch 2.13 (CPU) and 2.11 with CUDA 13.0 on an H200; docs/torch.md has the
table. A product that torch can compute only by converting operands first is not supported: the
conversion would be timed as part of the product.

The ``torch`` provider: what callers of torch get, on CPU, CUDA and ROCm.

It is the baseline of most comparisons (cuBLAS, hipBLAS or oneDNN do the work). docs/torch.md lists
the call for each operation and its accumulation precision.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind
from gemmetry.domain.errors import UnsupportedError
from gemmetry.domain.operation import (
    BF16,
    E4M3,
    E4M3FNUZ,
    E5M2,
    E5M2FNUZ,
    F16,
    F32,
    F64,
    S8,
    TF32,
    Layout,
    Operation,
    OperationKind,
    Scaling,
    Signature,
    default_accumulator,
)
from gemmetry.providers.base import BaseProvider, compute_capability
from gemmetry.providers.launch_model import CostProbe

if TYPE_CHECKING:
    from gemmetry.hardware.torch_device import TorchDevice
    from gemmetry.providers.torch_provider.products import TorchExecutable


_BLAS_INPUTS = (F64, F32, TF32, F16, BF16)
_FNUZ_ARCHITECTURES = ("gfx940", "gfx941", "gfx942")
"""AMD CDNA 3 has only the FNUZ formats (AMD Instinct MI300 ISA guide); later ones have the OCP
formats."""
_FIRST_FP8_CUDA = 89
"""Compute capability 8.9, Ada: PTX ISA, ``mma`` with .e4m3 and .e5m2."""
_SCALE_BLOCK = 128
_BLOCK_SCALED_CUDA = (90,)
"""cuBLAS documentation, "Narrow precisions usage": 128-element and 128x128 block scaling are
supported on compute capability 9.0."""
_INT_MM_MIN_ROWS = 17
_INT_MM_MULTIPLE = 8
_SCALED_MM_MULTIPLE = 16
"""Checked by ATen: ``_int_mm`` and ``_scaled_mm`` on CUDA reject other sizes."""


def reason_against(operation: Operation, target: Target) -> str | None:
    """None if torch computes `operation` on `target` with one of its own calls, else the reason."""
    s = operation.signature
    if target.kind not in (TargetKind.CPU, TargetKind.CUDA, TargetKind.HIP):
        return f"torch has no {target.kind} device"
    if target.index is None:
        return "torch does not compile for devices that this machine does not have"
    if s.scaling is not Scaling.NONE and not (s.lhs.is_fp8 and s.rhs.is_fp8):
        return f"torch scales fp8 operands only (_scaled_mm), not {s.lhs}"
    return _accumulator_reason(s, target) or _product_reason(operation, target)


def _accumulator_reason(s: Signature, target: Target) -> str | None:
    if s.accumulator is default_accumulator(s.lhs, s.rhs, s.result):
        return None
    if s.accumulator is F16 and s.lhs is s.rhs is s.result is F16:
        if target.kind is not TargetKind.CUDA or s.kind in (
            OperationKind.CONV2D,
            OperationKind.MATMUL_SPLITK,
        ):
            return "torch accumulates f16 in f16 for matmul and batch_matmul on CUDA only"
        return None
    return f"torch has no switch that makes {s.lhs} accumulate in {s.accumulator}"


def _product_reason(operation: Operation, target: Target) -> str | None:
    s = operation.signature
    if s.lhs.is_fp8 or s.rhs.is_fp8:
        return _fp8_reason(operation, target)
    if s.lhs is S8 and s.rhs is S8:
        return _int8_reason(operation, target)
    if s.lhs not in _BLAS_INPUTS or s.lhs is not s.rhs:
        return f"torch has no product of {s.lhs} and {s.rhs}"
    if s.lhs is TF32 and target.kind is not TargetKind.CUDA:
        return f"torch offers tf32 on CUDA; on {target.kind} it would compute in f32"
    own_result = F32 if s.lhs is TF32 else s.lhs
    needs_wide_partials = s.kind is OperationKind.MATMUL_SPLITK and s.lhs in (F16, BF16)
    if s.result is not own_result or needs_wide_partials:
        widens = s.lhs in (F16, BF16) and (s.result is F32 or s.result is own_result)
        what = "f32 partial sums" if s.result is own_result else f"the result {s.result}"
        if not widens or s.kind is OperationKind.CONV2D:
            return f"torch has no {s.kind} of {s.lhs} with {what}"
        if target.kind is not TargetKind.CUDA:
            return (
                f"torch has no {s.lhs} product with {what} on {target.kind} (out_dtype is CUDA's)"
            )
    return None


def _fp8_reason(operation: Operation, target: Target) -> str | None:
    s = operation.signature
    if s.kind is not OperationKind.MATMUL:
        return f"torch's fp8 product (_scaled_mm) does matmul only, not {s.kind}"
    fnuz = target.kind is TargetKind.HIP and target.architecture in _FNUZ_ARCHITECTURES
    formats = (E4M3FNUZ, E5M2FNUZ) if fnuz else (E4M3, E5M2)
    if s.lhs not in formats or s.rhs not in formats:
        return f"{target} multiplies {formats[0]} and {formats[1]}, not {s.lhs} with {s.rhs}"
    if s.result not in (BF16, F16, F32):
        return f"without a result scale _scaled_mm returns bf16, f16 or f32, not {s.result}"
    if s.blocks is not None:
        return _blocks_reason(operation, target)
    if target.kind is TargetKind.CPU:
        return None
    if target.kind is TargetKind.CUDA and compute_capability(target.architecture) < _FIRST_FP8_CUDA:
        return f"{target} has no fp8 tensor cores (the first are those of sm_89)"
    if s.lhs.name.startswith("e5m2") and s.rhs.name.startswith("e5m2"):
        return "cuBLASLt does not multiply two e5m2 matrices"
    if s.lhs_layout is not Layout.ROW or s.rhs_layout is not Layout.COLUMN:
        return "_scaled_mm on a GPU takes A row-major and B column-major (layouts t, n)"
    m, n, k, _ = operation.matmul_shape
    free_size = m if s.result_layout is Layout.COLUMN else n
    if free_size % _SCALED_MM_MULTIPLE or k % _SCALED_MM_MULTIPLE:
        name = "M" if s.result_layout is Layout.COLUMN else "N"
        return f"_scaled_mm on a GPU takes K and {name} in multiples of {_SCALED_MM_MULTIPLE}"
    return None


def _blocks_reason(operation: Operation, target: Target) -> str | None:
    """``_scaled_mm`` with scales of blocks: ``get_joint_scaling`` and its callers in ATen's
    ``cuda/ScaledBlas.cpp``."""
    s, blocks = operation.signature, operation.signature.blocks
    assert blocks is not None
    m, n, k, _ = operation.matmul_shape
    known = {(1, 1), (1, _SCALE_BLOCK), (_SCALE_BLOCK, 1)}
    if (
        blocks.dtype is not F32
        or blocks.depth != _SCALE_BLOCK
        or ((blocks.rows, blocks.columns) not in known)
    ):
        return (
            f"_scaled_mm is used with f32 factors of 1x128 and 128x128, not {blocks}: its factors "
            "of 32 and 16 are Blackwell's and swizzled"
        )
    if (
        target.kind is not TargetKind.CUDA
        or compute_capability(target.architecture) not in _BLOCK_SCALED_CUDA
    ):
        return f"_scaled_mm takes factors of blocks on sm_90 only, not on {target}"
    if s.lhs is not E4M3 or s.rhs is not E4M3:
        return "_scaled_mm takes factors of blocks for e4m3 only"
    if s.result is F16:
        return "_scaled_mm with factors of blocks returns bf16 or f32"
    layouts = (s.lhs_layout, s.rhs_layout, s.result_layout)
    if layouts != (Layout.ROW, Layout.COLUMN, Layout.ROW):
        return "_scaled_mm with factors of blocks takes the layouts t, n and returns t"
    if s.alpha != 1:
        return "_scaled_mm has no alpha with factors of blocks"
    # One K of 128 looks like a factor per row; the columns of 128x128 are aligned to 16 bytes.
    multiple = _SCALE_BLOCK if blocks.rows == blocks.columns else 4 * _SCALE_BLOCK
    if k % multiple or k == _SCALE_BLOCK or m % _SCALED_MM_MULTIPLE or n % _SCALED_MM_MULTIPLE:
        return (
            f"_scaled_mm with factors of blocks takes K above 128 in multiples of {multiple}, M "
            f"and N in multiples of {_SCALED_MM_MULTIPLE}"
        )
    return None


def _int8_reason(operation: Operation, target: Target) -> str | None:
    s = operation.signature
    if s.kind is not OperationKind.MATMUL:
        return f"torch's s8 product (_int_mm) does matmul only; torch's {s.kind} would wrap in s8"
    m, n, k, _ = operation.matmul_shape
    if target.kind is TargetKind.CPU:
        # Found by gemmetry's tail shapes, with torch 2.13: the result keeps its earlier contents.
        return "_int_mm on the CPU writes no result for K = 1" if k == 1 else None
    rows, columns = (n, m) if s.result_layout is Layout.COLUMN else (m, n)
    if rows < _INT_MM_MIN_ROWS or columns % _INT_MM_MULTIPLE or k % _INT_MM_MULTIPLE:
        names = ("N", "M") if s.result_layout is Layout.COLUMN else ("M", "N")
        return f"_int_mm on a GPU takes {names[0]} above 16, {names[1]} and K in multiples of 8"
    return None


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
            from gemmetry.hardware.torch_device import gpu_targets

            found += gpu_targets()
        return found

    def prepare(self, target: Target) -> None:
        self._device(target)

    def build(self, dispatch: Dispatch, workspace: Workspace) -> TorchExecutable:
        from gemmetry.providers.torch_provider.products import (
            TorchExecutable,
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
        """Prediction from smaller products (:mod:`gemmetry.providers.launch_model`); CPU only.

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
        from gemmetry.hardware.torch_device import open_device

        return open_device(target, threads=int(self.options.get("threads", 0)))


def _launch_on_ones(operation: Operation) -> Callable[[], object]:
    import torch

    from gemmetry.hardware.torch_device import torch_dtype
    from gemmetry.providers.torch_provider.products import make_product

    product = make_product(operation, torch.device("cpu"))
    inputs = [
        torch.ones(spec.storage_shape).to(torch_dtype(spec.dtype)) for spec in operation.inputs
    ]
    output = torch.empty(operation.output.storage_shape, dtype=torch_dtype(operation.output.dtype))
    return lambda: product(inputs, output)


PROVIDER = TorchProvider
