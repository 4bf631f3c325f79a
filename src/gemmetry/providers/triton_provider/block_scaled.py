"""Facts about the GPU architectures that the validity filter and the compiler need.

Blocks with scale factors in Triton: which methods compute an operation, and their arguments.

The methods are those of :mod:`gemmetry.providers.kernels.triton_block_scaled`. The names of
configurations begin with the method, because it decides what is measured:
``dotscaled_tile_128x128x128_…`` is the instruction of Blackwell, or what Triton does without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from typing import Any

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.operation import (
    BF16,
    E2M1,
    E4M3,
    E4M3FNUZ,
    E5M2,
    E5M2FNUZ,
    E8M0,
    F16,
    F32,
    S8,
    S32,
    TF32,
    BlockScaling,
    DType,
    Layout,
    Operation,
    Signature,
)
from gemmetry.providers.base import SHARED_BYTES, compute_capability

_KIB = 1024


@dataclass(frozen=True, slots=True)
class Architecture:
    """Resources and features of one architecture."""

    name: str
    shared_memory_bytes: int
    """Maximum shared memory per block in bytes."""
    warp_size: int
    registers_per_thread: int
    """Vector registers that may hold an accumulator."""
    fp8: tuple[DType, ...] = ()
    """fp8 formats that its matrix instructions multiply."""
    tf32: bool = False

    @property
    def is_amd(self) -> bool:
        return self.name.startswith("gfx")

    @property
    def has_wgmma(self) -> bool:
        """Whether its matrix instructions read shared memory: wgmma (9.x) or tcgen05 (10.x)."""
        return not self.is_amd and 90 <= self.number < 120

    @property
    def number(self) -> int:
        """90 for ``sm_90``."""
        return compute_capability(self.name)


def _nvidia(name: str) -> Architecture:
    """fp8: PTX ISA, mma and wgmma."""
    fp8 = (E4M3, E5M2) if compute_capability(name) >= 89 else ()
    return Architecture(name, SHARED_BYTES[name], 32, 255, fp8, tf32=True)


_KNOWN = {
    architecture.name: architecture
    for architecture in (
        *(_nvidia(name) for name in SHARED_BYTES if name != "sm_75"),
        # AMD: LDS per workgroup from the CDNA 2, CDNA 3 and CDNA 4 instruction set guides; 512
        # vector registers a lane where one wave runs on a SIMD (same guides).
        Architecture("gfx90a", 64 * _KIB, 64, 512),
        Architecture("gfx942", 64 * _KIB, 64, 512, (E4M3FNUZ, E5M2FNUZ)),
        Architecture("gfx950", 160 * _KIB, 64, 512, (E4M3, E5M2)),
    )
}

CROSS_COMPILED = ("sm_80", "sm_90", "sm_100", "gfx942", "gfx950")
"""Architectures that can be compiled for on machines without such a GPU."""

TRITON_TYPES = {
    F32: "fp32",
    TF32: "fp32",
    F16: "fp16",
    BF16: "bf16",
    E4M3: "fp8e4nv",
    E5M2: "fp8e5",
    E4M3FNUZ: "fp8e4b8",
    E5M2FNUZ: "fp8e5b16",
    E2M1: "u8",
    E8M0: "u8",
    S8: "i8",
    S32: "i32",
}
"""Triton's names of the formats (``triton.language.dtype``)."""


def architecture_of(target: Target) -> Architecture | None:
    """The architecture of a GPU target, or None if the kernel does not run on it."""
    if target.kind not in (TargetKind.CUDA, TargetKind.HIP):
        return None
    # sm_90a is sm_90 with architecture-specific instructions, which Triton uses anyway.
    name = target.architecture
    return _KNOWN.get(name.rstrip("af") if name.startswith("sm_") else name)


def cross_targets() -> list[Target]:
    """The architectures of :data:`CROSS_COMPILED` as targets without a device."""
    return [
        Target(TargetKind.HIP if name.startswith("gfx") else TargetKind.CUDA, name, None)
        for name in CROSS_COMPILED
    ]


PROMOTED, DOT_SCALED, WIDENED = METHODS = ("promoted", "dotscaled", "widened")

_RESULTS = (F32, F16, BF16)
_DEEPEST_STEP = 128
"""fp8 products summed before a sum is promoted: the interval that the error bounds assume."""
_FEWEST_PRODUCTS = 32
"""K of the smallest fp8 matrix instruction (PTX ISA, mma and wgmma)."""
_DEPTHS = (16, 32)
"""Depths of blocks that are widened in registers."""
_NATIVE = {(E8M0, 32): (E4M3, E5M2, E2M1), (E4M3, 16): (E2M1,)}
"""Format and depth of factors -> formats that Triton's ``dot_scaled`` takes with them
(``TritonSemantic.deduce_scale_factor``: 16 for factors in e4m3, 32 for e8m0)."""
_FIRST_NATIVE = 100
"""tcgen05.mma with block scaling: PTX ISA, sm_100 and the later ones of that family; the kernels
that Triton makes for sm_120 are native too."""

_DECOMPOSES = (3, 9)


def reason_against(operation: Operation, architecture: Architecture | None) -> str | None:
    """None if one of the methods computes `operation`, else the reason; architecture None: the
    interpreter."""
    s, k = operation.signature, operation.matmul_shape.k
    if not methods(s, architecture):
        return no_method(s, architecture)
    if s.lhs_layout is not Layout.ROW or s.rhs_layout is not Layout.COLUMN:
        return "blocks are read along K: A row-major and B column-major (layouts t, n)"
    if E2M1 in (s.lhs, s.rhs) and k % 2:
        return f"two numbers of e2m1 share a byte, and K={k} is odd"
    if s.accumulator is not F32:
        return f"blocks are accumulated in f32, not {s.accumulator}"
    if s.result not in _RESULTS:
        return f"the Triton kernel stores {', '.join(map(str, _RESULTS))}, not {s.result}"
    return None


def no_method(s: Signature, architecture: Architecture | None) -> str:
    """Reason why none of the methods computes a signature with blocks."""
    blocks = s.blocks
    assert blocks is not None
    if architecture is not None and architecture.is_amd:
        return f"the Triton kernel for blocks with factors is NVIDIA's, not {architecture.name}'s"
    if blocks.dtype is F32 and blocks.depth % _FEWEST_PRODUCTS:
        return f"f32 factors need blocks that are a multiple of {_FEWEST_PRODUCTS} deep"
    if blocks.dtype is not F32 and (blocks.rows, blocks.columns) != (1, 1):
        return f"{blocks.dtype} factors are for blocks of one row"
    if blocks.dtype is not F32 and blocks.depth not in _DEPTHS:
        return f"{blocks.dtype} factors are for 16 or 32 elements, not {blocks.depth}"
    if architecture is not None and not architecture.fp8 and _has_fp8(s):
        return f"fp8 needs sm_89 or newer, not {architecture.name}"
    return f"the Triton kernel has no product of {s.lhs} and {s.rhs} with {blocks.dtype} factors"


def methods(signature: Signature, architecture: Architecture | None) -> tuple[str, ...]:
    """The methods that compute a signature with blocks, the default one first: Triton's own where
    an instruction applies the factors. Where both widen the operands, our kernel was the faster
    (docs/block-scaled.md, their times on an H200)."""
    s, blocks = signature, signature.blocks
    assert blocks is not None
    formats = {s.lhs, s.rhs}
    if architecture is not None and architecture.is_amd:
        return ()
    if blocks.dtype is F32:
        fp8 = {E4M3, E5M2} if architecture is None else set(architecture.fp8)
        return (PROMOTED,) if formats <= fp8 and not blocks.depth % _FEWEST_PRODUCTS else ()
    if not formats <= {E4M3, E5M2, E2M1} or blocks.rows != 1 or blocks.columns != 1:
        return ()
    if architecture is not None and not architecture.fp8 and _has_fp8(s):
        return ()
    native = () if why_no_dot_scaled(s, architecture) else (DOT_SCALED,)
    widened = (WIDENED,) if blocks.depth in _DEPTHS else ()
    if architecture is not None and why_not_native(s, architecture):
        return widened + native
    return native + widened


def _has_fp8(s: Signature) -> bool:
    """Whether elements or factors are fp8, which Triton converts on processors that have it."""
    return not {E4M3, E5M2}.isdisjoint((s.lhs, s.rhs, s.blocks.dtype if s.blocks else s.rhs))


def why_no_dot_scaled(signature: Signature, architecture: Architecture | None) -> str:
    """Reason why Triton's ``dot_scaled`` does not compute these blocks; "" if it does."""
    s, blocks = signature, signature.blocks
    assert blocks is not None
    if not {s.lhs, s.rhs} <= set(_NATIVE.get((blocks.dtype, blocks.depth), ())):
        return f"dot_scaled has no {blocks.dtype} factors of {blocks.depth} {s.lhs} elements"
    if blocks.dtype is E8M0:
        return ""
    if architecture is None:
        return "Triton's interpreter reads any byte of a factor as an exponent (3.9)"
    if not _decomposes_factors(architecture):
        return f"this Triton cannot widen operands with {blocks.dtype} factors"
    return ""


def _decomposes_factors(architecture: Architecture) -> bool:
    """Whether ``dot_scaled`` compiles with factors that are no powers of two. Where no instruction
    applies them, Triton 3.6.0 fails (``TritonGPUAccelerateMatmul``, seen for sm_90), and 3.9.0
    widens the operands."""
    if architecture.number >= _FIRST_NATIVE:
        return True
    try:
        release = metadata.version("triton").split(".")[:2]
    except metadata.PackageNotFoundError:
        return True  # What a newer one will do.
    return tuple(map(int, release)) >= _DECOMPOSES


def why_not_native(signature: Signature, architecture: Architecture) -> str:
    """Reason why no matrix instruction of `architecture` applies the factors; "" if one does."""
    if reason := why_no_dot_scaled(signature, architecture):
        return reason
    if architecture.number < _FIRST_NATIVE:
        return f"{architecture.name} has no instruction with factors of blocks"
    return ""


def note(signature: Signature, method: str, architecture: Architecture) -> str:
    """Note on the method for a reader of times."""
    if method == PROMOTED:
        return "sums of each block are multiplied by their f32 factors outside the instruction"
    reason = why_not_native(signature, architecture)
    if method == DOT_SCALED and not reason:
        return "the matrix instruction applies the factors"
    why = f" ({reason})" if reason else ""
    who = "Triton" if method == DOT_SCALED else "the kernel"
    return f"decomposed{why}: {who} widens both operands to bf16 before the matrix instruction"


def step(blocks: BlockScaling, method: str, block_k: int) -> int:
    """The step along K nearest to `block_k` that fits the blocks: within one block for sums that
    are multiplied by its factors, whole blocks otherwise."""
    if method == PROMOTED:
        return min(block_k, _DEEPEST_STEP, blocks.depth & -blocks.depth)
    return max(block_k, 64)


def bytes_of_step(dtype: DType, elements: int, method: str) -> int:
    """Shared memory for a tile of `elements`: widened tiles pass through it in bf16."""
    return 2 * elements if method != PROMOTED else elements * dtype.storage_bits // 8


def constants(signature: Signature, method: str, *, interprets: bool) -> dict[str, Any]:
    """The kernel's constants that depend on the blocks."""
    blocks = signature.blocks
    assert blocks is not None
    # Triton's interpreter multiplies neither fp8 nor bf16.
    wide = "fp32" if interprets else "bf16" if method == WIDENED else None
    return {
        "METHOD": method,
        "A_FORMAT": str(signature.lhs),
        "B_FORMAT": str(signature.rhs),
        "FACTORS": str(blocks.dtype),
        "ROWS": blocks.rows,
        "COLUMNS": blocks.columns,
        "DEPTH": blocks.depth,
        "WIDE": wide,
    }


def strides(operation: Operation) -> dict[str, int]:
    """Bytes between two lines and two matrices of A and B, whose lines are contiguous; elements
    between the factors of two lines, two blocks and two matrices."""
    s, (m, n, k, _) = operation.signature, operation.matmul_shape
    lda, ldb = (k * dtype.storage_bits // 8 for dtype in (s.lhs, s.rhs))
    found = {"lda": lda, "ldb": ldb, "stride_a": m * lda, "stride_b": n * ldb}
    for spec in operation.inputs:
        if spec.role in ("scale_a", "scale_b"):
            side, (rows, columns) = spec.role[-1], spec.shape[-2:]
            steps = (1, rows) if spec.layout is Layout.COLUMN else (columns, 1)
            line, block = steps if side == "a" else reversed(steps)
            found |= {f"line_{side}": line, f"block_{side}": block}
            found[f"stride_scale_{side}"] = rows * columns
    return found
