"""Which operations IREE 3.13 supports on which target, with a reason for each unsupported one.

The limits were found by compiling; odd ones are gaps in that compiler.
"""

from __future__ import annotations

from gemmetry.domain.dtypes import BF16, E4M3FNUZ, E5M2FNUZ, F16, F64, TF32, DType
from gemmetry.domain.operation import EpilogueStep, Operation, Scaling
from gemmetry.domain.target import Target, TargetKind
from gemmetry.providers.iree_provider.compiling.linalg import MLIR_TYPES
from gemmetry.providers.iree_provider.targets import cuda_number, uses_fp8, uses_ocp_fp8


def unsupported_reason(operation: Operation, target: Target) -> str | None:
    """None if `operation` compiles for `target` with at least the default configuration."""
    return _language(operation) or _on_target(operation, target)


def _language(operation: Operation) -> str | None:
    """Limits that hold on every target."""
    s = operation.signature
    if s.scaling is not Scaling.NONE:
        return "scaled matmuls (scale_a, scale_b) are not lowered here"
    if TF32 in (s.lhs, s.rhs):
        return "MLIR has no tf32 type; IREE multiplies f32 in full precision"
    untyped = [str(d) for d in (s.lhs, s.rhs) if d.name not in MLIR_TYPES]
    if untyped:
        return f"{untyped[0]} is not lowered here"
    if not s.lhs.is_integer and s.accumulator.storage_bits < max(
        s.lhs.storage_bits, s.rhs.storage_bits
    ):
        return f"an {s.accumulator} accumulator is narrower than the operands"
    return None


def _on_target(operation: Operation, target: Target) -> str | None:
    reasons = {
        TargetKind.CPU: _on_cpu,
        TargetKind.CUDA: _on_cuda,
        TargetKind.HIP: _on_hip,
        TargetKind.VULKAN: _on_vulkan,
    }
    check = reasons.get(target.kind)
    if check is None:
        return f"IREE has no backend for {target.kind}"
    return check(operation, target)


def _on_cpu(operation: Operation, target: Target) -> str | None:
    s = operation.signature
    if EpilogueStep.GELU in s.epilogue and s.accumulator is F64:
        return "IREE's CPU backend cannot lower math.erf in f64"
    return None


def _on_cuda(operation: Operation, target: Target) -> str | None:
    s = operation.signature
    number = cuda_number(target.architecture)
    if target.architecture and number < 80:
        return f"IREE's tensor-core code needs sm_80 or newer, not {target.architecture}"
    if uses_fp8(operation) and number < 89:
        return f"fp8 needs sm_89 or newer, not {target.architecture or 'an unknown GPU'}"
    if any(d in (E4M3FNUZ, E5M2FNUZ) for d in (s.lhs, s.rhs, s.result)):
        return "the FNUZ formats exist on AMD GPUs only"
    if s.result.is_fp8:
        return "IREE's CUDA backend cannot round a result to fp8"
    return _same_operands(s.lhs, s.rhs) or _bf16_accumulator(s.accumulator)


def _on_hip(operation: Operation, target: Target) -> str | None:
    s = operation.signature
    if not target.architecture:
        return f"the architecture of {target.product or 'this AMD GPU'} is not known here"
    if target.architecture == "gfx942" and uses_ocp_fp8(operation):
        return "gfx942 has the FNUZ fp8 formats (e4m3fnuz, e5m2fnuz), not the OCP ones"
    if s.accumulator is F16:
        return "IREE's ROCm backend cannot distribute a product accumulated in f16"
    return _same_operands(s.lhs, s.rhs) or _bf16_accumulator(s.accumulator)


def _on_vulkan(operation: Operation, target: Target) -> str | None:
    s = operation.signature
    if uses_fp8(operation) or BF16 in (s.lhs, s.rhs, s.result, s.accumulator):
        return "IREE's SPIR-V backend lowers f64, f32, f16 and s8 products only"
    return _same_operands(s.lhs, s.rhs)


def _same_operands(lhs: DType, rhs: DType) -> str | None:
    if lhs is rhs:
        return None
    return f"IREE's GPU backends multiply operands of one type, not {lhs} by {rhs}"


def _bf16_accumulator(accumulator: DType) -> str | None:
    if accumulator is BF16:
        return "IREE's GPU backends cannot distribute a product accumulated in bf16"
    return None
