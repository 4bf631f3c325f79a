"""Facts about the GPU architectures that the validity filter and the compiler need."""

from __future__ import annotations

from dataclasses import dataclass

from gemmetry.domain.dtypes import (
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
    DType,
)
from gemmetry.domain.target import Target, TargetKind

_KIB = 1024


@dataclass(frozen=True, slots=True)
class Architecture:
    """Resources and features of one architecture."""

    name: str
    shared_memory_bytes: int
    """Most shared memory per block, in bytes."""
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
        return int(self.name.removeprefix("sm_"))


def _nvidia(capability: int, kib: int) -> Architecture:
    fp8 = (E4M3, E5M2) if capability >= 89 else ()
    return Architecture(f"sm_{capability}", kib * _KIB, 32, 255, fp8, tf32=True)


_KNOWN = {
    architecture.name: architecture
    for architecture in (
        # NVIDIA: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability",
        # row "Maximum amount of shared memory per thread block"; fp8: PTX ISA, mma and wgmma.
        _nvidia(80, 163),
        _nvidia(86, 99),
        _nvidia(87, 163),
        _nvidia(89, 99),
        _nvidia(90, 227),
        _nvidia(100, 227),
        _nvidia(103, 227),
        _nvidia(120, 99),
        _nvidia(121, 99),
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
