"""What gemmetry's Triton kernel can compute, decided from the operation and the target alone."""

from __future__ import annotations

import os
import sys

from gemmetry.domain.dtypes import BF16, F16, F32, S8, S32, TF32, default_accumulator
from gemmetry.domain.errors import UnsupportedError
from gemmetry.domain.operation import Operation, OperationKind, Signature
from gemmetry.domain.target import Target, TargetKind
from gemmetry.providers.triton_provider import block_scaled
from gemmetry.providers.triton_provider.architectures import Architecture, architecture_of

_RESULTS = (F32, F16, BF16)
_INTERPRETED = {F32, F16, S8, S32}
"""Triton 3.9's interpreter multiplies the bits of bf16 as integers and rejects fp8."""
_LARGEST_STRIDE = 2**22
"""Elements between two rows or columns: offsets within a tile (up to 256 of them) are 32-bit."""
_LARGEST_GRID = 2**31 - 1
"""Blocks along x: CUDA C++ Programming Guide, technical specifications."""
_SMALLEST_TILE = 16


def reason_against(operation: Operation, target: Target, *, interprets: bool) -> str | None:
    """None if the kernel computes `operation` on `target`, else the reason."""
    s = operation.signature
    architecture = architecture_of(target)
    if interprets:
        if target.kind is not TargetKind.CPU:
            return "the interpreter runs on the CPU only"
    elif architecture is None:
        return f"the Triton kernel runs on NVIDIA from sm_80 and AMD CDNA 2 to 4, not on {target}"
    if s.kind not in (OperationKind.MATMUL, OperationKind.BATCH_MATMUL):
        return f"the Triton kernel does matmul and batch_matmul, not {s.kind}"
    if s.blocks is not None:
        if interprets and s.result not in _INTERPRETED:
            return f"Triton's interpreter stores f32 and f16 correctly, not {s.result}"
        return block_scaled.reason_against(operation, architecture) or _size_reason(operation)
    if interprets and not {s.lhs, s.result} <= _INTERPRETED:
        return f"Triton's interpreter multiplies f32, f16, s8 correctly, not {s.lhs} to {s.result}"
    return (
        _type_reason(s, architecture)
        or _accumulator_reason(s, architecture)
        or _size_reason(operation)
    )


def _type_reason(s: Signature, architecture: Architecture | None) -> str | None:
    if s.lhs.is_fp8 and s.rhs.is_fp8:
        formats = architecture.fp8 if architecture else (s.lhs, s.rhs)
        if s.lhs not in formats or s.rhs not in formats:
            own = " and ".join(str(dtype) for dtype in formats) or "no fp8"
            name = architecture.name if architecture else "cpu"
            return f"{name} multiplies {own}, not {s.lhs} with {s.rhs}"
    elif s.lhs is not s.rhs or s.lhs not in (F32, TF32, F16, BF16, S8):
        return f"the Triton kernel has no product of {s.lhs} and {s.rhs}"
    if s.lhs is TF32 and not (architecture and architecture.tf32):
        return "tf32 needs NVIDIA tensor cores"
    results = (S32,) if s.lhs is S8 else (F32,) if s.lhs in (F32, TF32) else _RESULTS
    if s.result not in results:
        return f"the Triton kernel stores {', '.join(map(str, results))}, not {s.result}"
    return None


def _accumulator_reason(s: Signature, architecture: Architecture | None) -> str | None:
    if s.accumulator is default_accumulator(s.lhs, s.rhs, s.result):
        return None
    if s.accumulator is F16 and s.lhs is F16:
        if architecture is None or architecture.is_amd:
            return "f16 accumulators need NVIDIA tensor cores (AMD's mfma accumulates in f32)"
        return None
    return f"no matrix instruction accumulates {s.lhs} in {s.accumulator}"


def _size_reason(operation: Operation) -> str | None:
    m, n, k, batch = operation.matmul_shape
    if max(m, n, k) > _LARGEST_STRIDE:
        return f"sizes above {_LARGEST_STRIDE} overflow the kernel's 32-bit offsets"
    if -(-m // _SMALLEST_TILE) * -(-n // _SMALLEST_TILE) * batch > _LARGEST_GRID:
        return f"more than {_LARGEST_GRID} tiles do not fit one launch"
    return None


def require_interpreter() -> None:
    """Have Triton interpret its functions, which it determines when it is imported.

    Raises:
        UnsupportedError: it is already imported as a compiler.
    """
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise UnsupportedError(
            "triton is already imported as a compiler in this process",
            hint="Set TRITON_INTERPRET=1 before starting.",
        )
    os.environ["TRITON_INTERPRET"] = "1"
