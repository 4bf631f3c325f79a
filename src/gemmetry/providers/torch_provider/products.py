"""The torch calls behind each kind of operation, prepared once and run many times.

A product is a function of the input tensors (in the order of ``operation.inputs``) and the output
tensor; it returns the tensor that holds the result as it is stored.

A torch product that runs on prepared buffers: :func:`executable`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from gemmetry.domain.dispatch import Dispatch, TargetKind
from gemmetry.domain.operation import (
    BF16,
    F16,
    TF32,
    Conv2dShape,
    DType,
    EpilogueStep,
    Layout,
    Operation,
    OperationKind,
    Scaling,
)
from gemmetry.domain.record import BuildFacts, Trait
from gemmetry.hardware.torch_device import TorchDevice, torch_dtype
from gemmetry.providers.base import TorchLaunch

Product = Callable[[Sequence[torch.Tensor], torch.Tensor], torch.Tensor]
_Step = Callable[[torch.Tensor, Sequence[torch.Tensor]], object]


@dataclass(frozen=True, slots=True)
class MathMode:
    """torch's process-wide switches that determine the arithmetic of a GPU product."""

    _applied: ClassVar[list[MathMode]] = []

    tf32: bool
    accumulate_f16: bool
    library: str
    """A value of ``torch.backends.cuda.preferred_blas_library``."""

    def apply(self) -> None:
        """Set the switches unless they already have these values (dispatches of one worker
        interleave)."""
        if self._applied and self._applied[0] == self:
            return
        precision = "tf32" if self.tf32 else "ieee"
        torch.backends.cuda.matmul.fp32_precision = precision
        torch.backends.cudnn.conv.fp32_precision = precision
        torch.backends.cuda.matmul.allow_fp16_accumulation = self.accumulate_f16
        # Partial sums of split-K kernels stay in f32, as the operation's accumulator requires.
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        if self.library != str(torch.backends.cuda.preferred_blas_library()).split(".")[-1].lower():
            torch.backends.cuda.preferred_blas_library(self.library)
        self._applied[:] = [self]


def make_product(operation: Operation, device: torch.device) -> Product:
    """The calls that compute `operation` on `device`; scratch memory is allocated here."""
    s = operation.signature
    if isinstance(operation.shape, Conv2dShape):
        return _conv2d(operation)
    if s.kind is OperationKind.MATMUL_SPLITK:
        return _split_k(operation, device)
    if s.lhs.is_fp8:
        return _scaled_product(operation, device)
    if s.lhs.is_integer:
        return _integer_product(operation)
    return _blas_product(operation)


def _indices(operation: Operation) -> dict[str, int]:
    return {spec.role: index for index, spec in enumerate(operation.inputs)}


def _logical(tensor: torch.Tensor, layout: Layout) -> torch.Tensor:
    return tensor.mT if layout is Layout.COLUMN else tensor


def _epilogue(operation: Operation, done: int = 0) -> list[_Step]:
    """In-place functions of (logical result, inputs) for the steps after the first `done`."""
    at = _indices(operation)
    layout = operation.output.layout

    def step(kind: EpilogueStep) -> _Step:
        if kind is EpilogueStep.BIAS:
            return lambda value, inputs: value.add_(inputs[at["bias"]])
        if kind is EpilogueStep.RESIDUAL:
            return lambda value, inputs: value.add_(_logical(inputs[at["residual"]], layout))
        if kind is EpilogueStep.GELU:
            return lambda value, inputs: torch.ops.aten.gelu_(value)
        return lambda value, inputs: value.relu_()

    return [step(kind) for kind in operation.signature.epilogue[done:]]


def _starts_with_bias(operation: Operation) -> bool:
    return operation.signature.epilogue[:1] == (EpilogueStep.BIAS,)


def _wider(source: DType, result: DType) -> dict[str, Any]:
    """The ``out_dtype`` argument, only where the result is wider than the inputs."""
    needed = source in (F16, BF16) and result is not source
    return {"out_dtype": torch_dtype(result)} if needed else {}


def _blas_product(operation: Operation) -> Product:
    """mm or bmm; addmm or baddbmm where alpha, beta or the epilogue's first addend can be
    included."""
    s, at = operation.signature, _indices(operation)
    batched = operation.kind is OperationKind.BATCH_MATMUL
    plain, fused = (torch.bmm, torch.baddbmm) if batched else (torch.mm, torch.addmm)
    wider = _wider(s.lhs, s.result)
    first = s.epilogue[:1]
    adds_now = s.beta == 0 and first in ((EpilogueStep.BIAS,), (EpilogueStep.RESIDUAL,))
    steps = _epilogue(operation, done=int(adds_now))
    scale: dict[str, Any] = {"alpha": s.alpha, "beta": s.beta, **wider}

    def run(inputs: Sequence[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
        a, b = _logical(inputs[0], s.lhs_layout), _logical(inputs[1], s.rhs_layout)
        c = _logical(output, s.result_layout)
        if s.beta != 0:
            fused(_logical(inputs[at["addend"]], s.result_layout), a, b, out=c, **scale)
        elif adds_now:
            added = inputs[at[first[0]]]
            if first[0] is EpilogueStep.RESIDUAL:
                added = _logical(added, s.result_layout)
            fused(added, a, b, out=c, alpha=s.alpha, **wider)
        elif s.alpha != 1:
            # With beta 0 the first argument is not read, so the output is passed instead.
            fused(c, a, b, out=c, **scale)
        else:
            plain(a, b, out=c, **wider)
        for step in steps:
            step(c, inputs)
        return output

    return run


def _scaled_product(operation: Operation, device: torch.device) -> Product:
    """``_scaled_mm`` without fast accumulation; a column-major C is computed as Bᵀ·Aᵀ, because
    it writes row-major results only. alpha goes into A's scale."""
    s, at = operation.signature, _indices(operation)
    scaled_mm = torch.ops.aten._scaled_mm.out
    transposed = s.result_layout is Layout.COLUMN
    result_type = torch_dtype(s.result)
    bias_now = (
        not transposed and s.beta == 0 and s.result in (F16, BF16) and _starts_with_bias(operation)
    )
    steps = _epilogue(operation, done=int(bias_now))
    alpha = torch.full((), s.alpha, dtype=torch.float32, device=device)
    one = torch.ones((), dtype=torch.float32, device=device)
    factors = [(at[role], operation.inputs[at[role]].layout) for role in at if "scale" in role]

    def run(inputs: Sequence[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
        a, b = _logical(inputs[0], s.lhs_layout), _logical(inputs[1], s.rhs_layout)
        scale_a, scale_b = alpha, one
        if s.blocks is not None:
            scale_a, scale_b = (_logical(inputs[i], layout) for i, layout in factors)
        elif s.scaling is not Scaling.NONE:
            scale_a, scale_b = inputs[at["scale_a"]], inputs[at["scale_b"]]
            scale_a = scale_a if s.alpha == 1 else scale_a * s.alpha
        if transposed:
            a, b = b.mT, a.mT
            if s.scaling is Scaling.ROW:
                scale_a, scale_b = scale_a.reshape(1, -1), scale_b.reshape(-1, 1)
            scale_a, scale_b = scale_b, scale_a
        bias = inputs[at["bias"]] if bias_now else None
        scaled_mm(a, b, scale_a, scale_b, bias=bias, out_dtype=result_type, out=output)
        c = _logical(output, s.result_layout)
        if s.beta != 0:
            c.add_(_logical(inputs[at["addend"]], s.result_layout), alpha=s.beta)
        for step in steps:
            step(c, inputs)
        return output

    return run


def _integer_product(operation: Operation) -> Product:
    """``_int_mm``: s8 × s8 → s32, exact. (torch.mm on int8 returns int8 and wraps around.)"""
    s, at = operation.signature, _indices(operation)
    steps = _epilogue(operation)

    def run(inputs: Sequence[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
        a, b = _logical(inputs[0], s.lhs_layout), _logical(inputs[1], s.rhs_layout)
        if s.result_layout is Layout.COLUMN:
            a, b = b.mT, a.mT
        torch._int_mm(a, b, out=output)
        c = _logical(output, s.result_layout)
        if s.beta != 0:
            c.add_(_logical(inputs[at["addend"]], s.result_layout))
        for step in steps:
            step(c, inputs)
        return output

    return run


def _split_k(operation: Operation, device: torch.device) -> Product:
    """One batched product over the slices of K into partial sums, then their sum.

    Partial sums, and all steps until the result is stored, use the accumulator's type.
    """
    s, at = operation.signature, _indices(operation)
    m, n, k, _ = operation.matmul_shape
    slices = s.split_k_slices
    wide = torch_dtype(s.accumulator)
    partials = torch.empty((slices, m, n), dtype=wide, device=device)
    total = torch.empty((m, n), dtype=wide, device=device)
    wider = _wider(s.lhs, s.accumulator)
    steps = _epilogue(operation)

    def run(inputs: Sequence[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
        a, b = _logical(inputs[0], s.lhs_layout), _logical(inputs[1], s.rhs_layout)
        sliced_a = a.unflatten(1, (slices, k // slices)).transpose(0, 1)
        torch.bmm(sliced_a, b.unflatten(0, (slices, k // slices)), out=partials, **wider)
        torch.sum(partials, 0, out=total)
        if s.alpha != 1:
            total.mul_(s.alpha)
        if s.beta != 0:
            total.add_(_logical(inputs[at["addend"]], s.result_layout), alpha=s.beta)
        for step in steps:
            step(total, inputs)
        _logical(output, s.result_layout).copy_(total)
        return output

    return run


def _conv2d(operation: Operation) -> Product:
    """F.conv2d on views of the NHWC input and the HWCF filter; the result is NHWC again.

    torch converts the filter to its library's layout in every call; this is part of the timing.
    """
    at = _indices(operation)
    c = operation.shape
    assert isinstance(c, Conv2dShape)
    bias_now = _starts_with_bias(operation)
    steps = _epilogue(operation, done=int(bias_now))
    stride, padding = (c.stride_h, c.stride_w), (c.pad_h, c.pad_w)

    def run(inputs: Sequence[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
        bias = inputs[at["bias"]] if bias_now else None
        image, filters = inputs[0].permute(0, 3, 1, 2), inputs[1].permute(3, 2, 0, 1)
        result = torch.nn.functional.conv2d(image, filters, bias, stride, padding)
        value = result.permute(0, 2, 3, 1)
        for step in steps:
            step(value, inputs)
        return value.contiguous()

    return run


def executable(dispatch: Dispatch, device: TorchDevice, library: str) -> TorchLaunch:
    """The calls that compute a dispatch, with `library` as torch's preferred one on CUDA."""
    operation, s = dispatch.operation, dispatch.operation.signature
    with device.errors(f"preparing {dispatch.name}"):
        product = make_product(operation, device.torch_device)
    # The switches that give the operation the arithmetic promised by its name.
    mode = MathMode(s.lhs is TF32, s.accumulator is F16, library)

    def launch(inputs: Sequence[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
        mode.apply()
        return product(inputs, output)

    # There is no scaled product that also adds C.
    adds_later = s.lhs.is_fp8 and s.beta != 0 and s.kind is not OperationKind.MATMUL_SPLITK
    return TorchLaunch(
        dispatch.name,
        device,
        BuildFacts(declared=(Trait.ROUNDS_BEFORE_ADDING,) if adds_later else ()),
        launch if dispatch.target.kind is TargetKind.CUDA else product,
        # torch has no ``out=`` for convolutions, which return a new tensor.
        writes_output=operation.kind is not OperationKind.CONV2D,
        workspace_bytes=None,
    )
