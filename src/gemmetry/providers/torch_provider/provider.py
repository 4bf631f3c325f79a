"""Operations that torch computes natively, decided from the operation and the target alone.

Each rule was tried on torch 2.13 (CPU) and 2.11 with CUDA 13.0 on an H200; docs/torch.md has the
table. A product that torch can compute only by converting operands first is not supported: the
conversion would be timed as part of the product.

The ``torch`` provider: torch's own functions on CPU, CUDA and ROCm.

It is the baseline of most comparisons (cuBLAS, hipBLAS or oneDNN do the work). docs/torch.md lists
the call for each operation and its accumulation precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from gemmetry.domain.contracts import Executable, TunedDispatch, Workspace
from gemmetry.domain.dispatch import (
    DEFAULT_CONFIGURATION,
    Configuration,
    Dispatch,
    Target,
    TargetKind,
)
from gemmetry.domain.errors import RequestError, UnsupportedError
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
from gemmetry.providers.base import BaseProvider, Requirement
from gemmetry.providers.cublaslt_provider.provider import all_f16, fine_scales_reason, fp8_reason
from gemmetry.providers.launch_model import CostProbe

if TYPE_CHECKING:
    from gemmetry.hardware.torch_device import TorchDevice


_BLAS_INPUTS = (F64, F32, TF32, F16, BF16)
_FNUZ_ARCHITECTURES = ("gfx940", "gfx941", "gfx942")
"""AMD CDNA 3 has only the FNUZ formats (AMD Instinct MI300 ISA guide); later ones have the OCP
formats."""
_BLAS_KINDS = (OperationKind.MATMUL, OperationKind.BATCH_MATMUL)
_INT_MM_MIN_ROWS = 17
_INT_MM_MULTIPLE = 8
"""Checked by ATen: ``_int_mm`` on CUDA rejects other sizes."""


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
    if not all_f16(s):
        return f"torch has no switch that makes {s.lhs} accumulate in {s.accumulator}"
    if target.kind is TargetKind.CUDA and s.kind in _BLAS_KINDS:
        return None
    return "torch accumulates f16 in f16 for matmul and batch_matmul on CUDA only"


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
    is_short = s.lhs in (F16, BF16)
    if s.result is not own_result or (s.kind is OperationKind.MATMUL_SPLITK and is_short):
        widens = is_short and s.result in (F32, own_result)
        what = "f32 partial sums" if s.result is own_result else f"the result {s.result}"
        if not widens or s.kind is OperationKind.CONV2D:
            return f"torch has no {s.kind} of {s.lhs} with {what}"
        if target.kind is not TargetKind.CUDA:
            where = f"{target.kind} (out_dtype is CUDA's)"
            return f"torch has no {s.lhs} product with {what} on {where}"
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
    return fp8_reason("_scaled_mm on a GPU", operation, target)


def _blocks_reason(operation: Operation, target: Target) -> str | None:
    """``_scaled_mm`` with scales of blocks: ``get_joint_scaling`` and its callers in ATen's
    ``cuda/ScaledBlas.cpp``. Its factors of 32 and 16 are Blackwell's and swizzled."""
    s = operation.signature
    if target.kind is not TargetKind.CUDA:
        return f"_scaled_mm takes factors of blocks on sm_90 only, not on {target}"
    if reason := fine_scales_reason("_scaled_mm", operation, target):
        return reason
    if f"{s.lhs_layout}{s.rhs_layout}{s.result_layout}" != "tnt":
        return "_scaled_mm with factors of blocks takes the layouts t, n and returns t"
    if s.alpha != 1:
        return "_scaled_mm has no alpha with factors of blocks"
    if operation.matmul_shape.k == 128:
        return "_scaled_mm with factors of blocks takes K above 128: one K looks like a row's"
    return None


def _int8_reason(operation: Operation, target: Target) -> str | None:
    s = operation.signature
    if s.kind is not OperationKind.MATMUL:
        return f"torch's s8 product (_int_mm) does matmul only; torch's {s.kind} would wrap in s8"
    m, n, k, _ = operation.matmul_shape
    if target.kind is TargetKind.CPU:
        # Found by gemmetry's tail shapes, with torch 2.13: the result keeps its earlier contents.
        return "_int_mm on the CPU writes no result for K = 1" if k == 1 else None
    (rows, first), (columns, second) = (m, "M"), (n, "N")
    if s.result_layout is Layout.COLUMN:
        (rows, first), (columns, second) = (n, "N"), (m, "M")
    if rows < _INT_MM_MIN_ROWS or columns % _INT_MM_MULTIPLE or k % _INT_MM_MULTIPLE:
        return f"_int_mm on a GPU takes {first} above 16, {second} and K in multiples of 8"
    return None


_LIBRARIES = {"default": "cublas", "cublaslt": "cublaslt"}
"""Configuration -> preferred BLAS library; torch's own default on CUDA is cuBLAS."""


class TorchProvider(BaseProvider):
    """Options: ``threads`` (CPU threads, 0: torch's choice)."""

    name: ClassVar[str] = "torch"
    description: ClassVar[str] = "torch.mm and its relatives: oneDNN, cuBLAS, hipBLAS, cuDNN"

    requires: ClassVar[Sequence[Requirement]] = (("torch",) * 3,)

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        self._probe = CostProbe(_launch_on_ones)

    def supports(self, operation: Operation, target: Target) -> str | None:
        return reason_against(operation, target)

    def configurations(self, operation: Operation, target: Target) -> Iterable[Configuration]:
        yield Configuration()
        s = operation.signature
        is_blas = s.kind in _BLAS_KINDS and not (s.lhs.is_integer or s.lhs.is_fp8)
        if target.kind is TargetKind.CUDA and is_blas:
            yield Configuration("cublaslt", {"library": "cublaslt"}, is_proposed=False)

    def targets(self) -> Sequence[Target]:
        return [Target(TargetKind.CPU), *self.gpus()]

    def prepare(self, target: Target) -> None:
        self._device(target)

    def build(self, dispatch: Dispatch, workspace: Workspace) -> Executable:
        from gemmetry.providers.torch_provider.products import executable

        if reason := self.supports(dispatch.operation, dispatch.target):
            raise UnsupportedError(reason)
        device = self._device(dispatch.target)
        return executable(dispatch, device, _LIBRARIES[dispatch.configuration.name])

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

        libraries = {"cuda": torch.version.cuda, "hip": torch.version.hip}
        present = {name: text for name, text in libraries.items() if text}
        return {"torch": torch.__version__, **present}

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


_NAMES = {F32: "float", TF32: "tf32", F64: "double", F16: "Half", BF16: "BFloat16"}
"""PyTorch's names of formats (``BLASTypeName`` and ``TypeName`` in ATen/cuda/tunable)."""
_SOLUTION = "Default"
"""PyTorch's name of what it runs without tuning (``TunableOp.h``)."""


def tuned_text(shapes: Sequence[Sequence[TunedDispatch]], _device: str, _suffix: str) -> str:
    """Torch's default with its time in ms, for each shape; what such a file has, PyTorch does not
    tune again. It can name PyTorch's own solutions only, so that kernels of other providers are not
    in it (see :class:`gemmetry.domain.contracts.TunedFormat`).

    Raises:
        RequestError: TunableOp has a name for none of the shapes.
    """
    rows = []
    for tuned in shapes:
        for one in tuned:
            key = tunable_key(one.dispatch.operation)
            if key is not None and one.dispatch.configuration.name == DEFAULT_CONFIGURATION:
                rows.append(f"{key},{_SOLUTION},{one.median_ns / 1e6:.6g}")
    if not rows:
        raise RequestError(
            "TunableOp's file would be empty: no shape has a time of torch's default in f16, bf16, "
            "f32, tf32 or f64 with a row-major result and without epilogue",
            hint="Tune with --baseline torch, or write another format.",
        )
    return "\n".join([*_validators(), *rows]) + "\n"


def _validators() -> list[str]:
    """The first lines of a file, by which PyTorch recognises files that were made for its version
    and libraries; without them it does not read one (``TuningResultsValidator`` in
    ATen/cuda/tunable/Tunable.cpp: PT_VERSION is mandatory, on ROCm there are more)."""
    import torch

    known = {"PT_VERSION": torch.__version__.partition("+")[0]}
    if hasattr(torch._C, "_cuda_tunableop_get_validators"):  # not in a build for CPUs
        from torch.cuda import tunable

        with suppress(RuntimeError):  # a build for GPUs on a machine without one
            known = dict(tunable.get_validators())
    return [f"Validator,{key},{value}" for key, value in known.items()]


def tunable_key(operation: Operation) -> str | None:
    """``GemmTunableOp_BFloat16_TN,tn_…`` (``GemmParams`` in ATen/cuda/tunable/GemmCommon.h); None
    where TunableOp has another name, or none.

    BLAS is column-major: a row-major C is the product of B and A, transposed.
    """
    s = operation.signature
    is_plain = s.kind is OperationKind.MATMUL and not s.epilogue and s.alpha == 1 and s.beta == 0
    formats = {F32 if one is TF32 else one for one in (s.lhs, s.rhs, s.result)}
    if not is_plain or len(formats) > 1 or s.lhs not in _NAMES or s.result_layout is Layout.COLUMN:
        return None
    m, n, k, _ = operation.matmul_shape
    b_is_row, a_is_row = s.rhs_layout is Layout.ROW, s.lhs_layout is Layout.ROW
    letters = ("n" if b_is_row else "t") + ("n" if a_is_row else "t")
    ldb, lda = n if b_is_row else k, k if a_is_row else m
    name = f"GemmTunableOp_{_NAMES[s.lhs]}_{letters.upper()}"
    return f"{name},{letters}_{n}_{m}_{k}_ld_{ldb}_{lda}_{n}"


PROVIDER = TorchProvider
