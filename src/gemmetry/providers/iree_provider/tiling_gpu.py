"""Tiles for CUDA and ROCm, as ``#iree_gpu.lowering_config``.

CUDA tensor cores go through the pipeline TileAndFuse, where ``reduction`` and ``subgroup`` count
matrix instructions; ROCm's matrix cores go through VectorDistribute, where they count elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

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
    S32,
    DType,
    Operation,
    OperationKind,
)
from gemmetry.providers.iree_provider.tiles import (
    IreeTile,
    Lowering,
    attribute_list,
    batch_dims,
    divisibility_problem,
)

WARP = 32
WAVE = 64
MAX_THREADS = 1024
"""Threads of a block: CUDA C++ Programming Guide, table of technical specifications; the same
number is HIP's limit."""

_MMA_M, _MMA_N = 16, 8
"""Rows and columns of C of every ``mma.sync`` shape that IREE has."""

_NV_KINDS: dict[tuple[DType, DType], tuple[str, int]] = {
    (F16, F32): ("NV_MMA_SYNC_F32_16x8x16_F16", 16),
    (F16, F16): ("NV_MMA_SYNC_F16_16x8x16_F16", 16),
    (BF16, F32): ("NV_MMA_SYNC_F32_16x8x16_BF16", 16),
    (E4M3, F32): ("NV_MMA_SYNC_F32_16x8x32_F8E4M3FN", 32),
    (E5M2, F32): ("NV_MMA_SYNC_F32_16x8x32_F8E5M2", 32),
}
"""(operand, accumulator) -> intrinsic and its K. There is none for f32 (tf32), f64 or s8."""

_MFMA_KINDS: dict[tuple[DType, DType, int], tuple[str, int]] = {
    (F16, F32, 16): ("MFMA_F32_16x16x16_F16", 16),
    (F16, F32, 32): ("MFMA_F32_32x32x8_F16", 8),
    (BF16, F32, 16): ("MFMA_F32_16x16x16_BF16", 16),
    (BF16, F32, 32): ("MFMA_F32_32x32x8_BF16", 8),
    (F32, F32, 16): ("MFMA_F32_16x16x4_F32", 4),
    (F64, F64, 16): ("MFMA_F64_16x16x4_F64", 4),
    (S8, S32, 16): ("MFMA_I32_16x16x32_I8", 32),
    (S8, S32, 32): ("MFMA_I32_32x32x16_I8", 16),
    (E4M3FNUZ, F32, 16): ("MFMA_F32_16x16x32_F8E4M3FNUZ", 32),
    (E5M2FNUZ, F32, 16): ("MFMA_F32_16x16x32_F8E5M2FNUZ", 32),
    (E4M3, F32, 16): ("MFMA_F32_16x16x32_F8E4M3FN", 32),
    (E5M2, F32, 16): ("MFMA_F32_16x16x32_F8E5M2", 32),
}
"""(operand, accumulator, rows) -> intrinsic and its K; the OCP fp8 ones need gfx950."""


def nv_intrinsic(operation: Operation) -> tuple[str, int] | None:
    """Tensor-core intrinsic for the operation's types and its K; None if IREE has none."""
    s = operation.signature
    return _NV_KINDS.get((s.lhs, s.accumulator)) if s.lhs is s.rhs else None


@dataclass(frozen=True, slots=True)
class MmaTile(IreeTile):
    """A CUDA block's tile of C and K step, shared by a grid of warps."""

    form: ClassVar[str] = "tile_config_{m}x{n}x{k}_warps{warps_m}x{warps_n}_mma"
    m: int
    n: int
    k: int
    warps_m: int
    warps_n: int

    def problem(self, operation: Operation) -> str | None:
        intrinsic = nv_intrinsic(operation)
        if operation.kind is OperationKind.CONV2D:
            return "convolutions are left to the compiler's implicit GEMM"
        if intrinsic is None:
            s = operation.signature
            return f"IREE has no tensor-core instruction for {s.lhs} into {s.accumulator}"
        steps = (_MMA_M * self.warps_m, _MMA_N * self.warps_n, intrinsic[1])
        if any(size % step for size, step in zip((self.m, self.n, self.k), steps, strict=True)):
            return f"the block's tile is not a multiple of its warps' {'x'.join(map(str, steps))}"
        if self.warps_m * self.warps_n * WARP > MAX_THREADS:
            return f"a block has at most {MAX_THREADS} threads"
        return None

    def lowering(self, operation: Operation) -> Lowering:
        kind, depth = nv_intrinsic(operation) or ("", 1)
        subgroup = (self.m // (self.warps_m * _MMA_M), self.n // (self.warps_n * _MMA_N))
        mma = f"mma_kind = #iree_gpu.mma_layout<{kind}>, "
        tile = (self.m, self.n, self.k)
        if divisibility_problem(operation, tile) is not None:
            # Without padding to whole tiles the compiler rejects shapes that leave a remainder.
            padding = [*[1] * batch_dims(operation), *tile]
            mma += f"padding = {attribute_list(padding)}, "
        return Lowering(
            tile_and_fuse(
                operation,
                (self.m, self.n, self.k // depth),
                mma,
                ("subgroup", subgroup),
                self.warps_m * self.warps_n * WARP,
            )
        )


@dataclass(frozen=True, slots=True)
class SimtTile(IreeTile):
    """A CUDA block's tile of C and K step, and the part that each thread computes."""

    form: ClassVar[str] = "tile_config_{m}x{n}x{k}_threads{thread_m}x{thread_n}_simt"
    m: int
    n: int
    k: int
    thread_m: int
    thread_n: int

    @property
    def threads(self) -> int:
        return (self.m // self.thread_m) * (self.n // self.thread_n)

    def problem(self, operation: Operation) -> str | None:
        if operation.kind is OperationKind.CONV2D:
            return "convolutions are left to the compiler's implicit GEMM"
        if self.m % self.thread_m or self.n % self.thread_n:
            return "the block's tile is not a multiple of a thread's"
        if not WARP <= self.threads <= MAX_THREADS:
            return f"{self.threads} threads; a block has {WARP} to {MAX_THREADS}"
        return None

    def lowering(self, operation: Operation) -> Lowering:
        thread = ("thread", (self.thread_m, self.thread_n))
        tile = (self.m, self.n, self.k)
        return Lowering(tile_and_fuse(operation, tile, "", thread, self.threads))


def tile_and_fuse(
    operation: Operation,
    tile: tuple[int, int, int],
    mma_kind: str,
    inner: tuple[str, tuple[int, int]],
    threads: int,
) -> str:
    """Compilation info of the TileAndFuse pipeline; both operands go through shared memory."""
    lead = batch_dims(operation)
    zeros, ones = [0] * lead, [1] * lead
    m, n, k = tile
    level, (inner_m, inner_n) = inner
    inner_lead = ones if level == "thread" else zeros
    return (
        "#iree_codegen.compilation_info<lowering_config = #iree_gpu.lowering_config<{"
        f"{mma_kind}promote_operands = [0, 1], "
        f"workgroup = {attribute_list([*ones, m, n, 0])}, "
        f"reduction = {attribute_list([*zeros, 0, 0, k])}, "
        f"{level} = {attribute_list([*inner_lead, inner_m, inner_n, 0])}}}>, "
        "translation_info = #iree_codegen.translation_info<"
        "pipeline = #iree_gpu.pipeline<TileAndFuse> "
        f"workgroup_size = [{threads}, 1, 1] subgroup_size = {WARP}>>"
    )


@dataclass(frozen=True, slots=True)
class MfmaTile(IreeTile):
    """A ROCm workgroup's tile of C and K step, shared by a grid of waves of 64 lanes."""

    form: ClassVar[str] = "tile_config_{m}x{n}x{k}_waves{waves_m}x{waves_n}_mfma{mfma_rows}"
    m: int
    n: int
    k: int
    waves_m: int
    waves_n: int
    mfma_rows: int
    """Rows of the matrix instruction: 16 or 32."""

    def _intrinsic(self, operation: Operation) -> tuple[str, int] | None:
        s = operation.signature
        return _MFMA_KINDS.get((s.lhs, s.accumulator, self.mfma_rows)) if s.lhs is s.rhs else None

    def problem(self, operation: Operation) -> str | None:
        intrinsic = self._intrinsic(operation)
        if operation.kind is OperationKind.CONV2D:
            return "convolutions are left to the compiler's implicit GEMM"
        if intrinsic is None:
            s = operation.signature
            return f"no {self.mfma_rows}-row MFMA of {s.lhs} into {s.accumulator} is known to IREE"
        steps = (self.mfma_rows * self.waves_m, self.mfma_rows * self.waves_n, intrinsic[1])
        if any(size % step for size, step in zip((self.m, self.n, self.k), steps, strict=True)):
            return f"the tile is not a multiple of its waves' {'x'.join(map(str, steps))}"
        if self.waves_m * self.waves_n * WAVE > MAX_THREADS:
            return f"a workgroup has at most {MAX_THREADS} threads"
        return divisibility_problem(operation, (self.m, self.n, self.k))

    def lowering(self, operation: Operation) -> Lowering:
        lead = batch_dims(operation)
        zeros, ones = [0] * lead, [1] * lead
        kind, _ = self._intrinsic(operation) or ("", 1)
        basis = attribute_list([*ones, self.waves_m, self.waves_n, 1])
        order = attribute_list(range(lead + 3))
        return Lowering(
            "#iree_codegen.compilation_info<lowering_config = #iree_gpu.lowering_config<{"
            f"mma_kind = #iree_gpu.mma_layout<{kind}>, promote_operands = [0, 1], "
            f"workgroup = {attribute_list([*ones, self.m, self.n, 0])}, "
            f"reduction = {attribute_list([*zeros, 0, 0, self.k])}, "
            f"subgroup_basis = [{basis}, {order}]}}>, "
            "translation_info = #iree_codegen.translation_info<"
            "pipeline = #iree_gpu.pipeline<VectorDistribute> "
            f"workgroup_size = [{self.waves_m * self.waves_n * WAVE}, 1, 1] "
            f"subgroup_size = {WAVE}, "
            "{gpu_pipeline_options = #iree_gpu.pipeline_options<prefetch_num_stages = 2>}>>"
        )


_MMA_TILES = (
    MmaTile(128, 128, 64, 2, 2),
    MmaTile(128, 128, 32, 4, 2),
    MmaTile(128, 64, 64, 2, 2),
    MmaTile(64, 128, 64, 2, 2),
    MmaTile(64, 64, 64, 2, 2),
)
_SIMT_TILES = (
    SimtTile(128, 128, 16, 8, 8),
    SimtTile(64, 64, 32, 4, 4),
    SimtTile(32, 128, 32, 4, 4),
)
_MFMA_TILES = (
    MfmaTile(128, 128, 64, 2, 2, 16),
    MfmaTile(128, 128, 32, 2, 2, 16),
    MfmaTile(64, 128, 64, 2, 2, 16),
    MfmaTile(64, 64, 64, 2, 2, 16),
    MfmaTile(256, 128, 32, 2, 2, 16),
    MfmaTile(128, 128, 64, 2, 2, 32),
    MfmaTile(128, 128, 32, 2, 2, 32),
)


def cuda_tiles(operation: Operation) -> Iterator[IreeTile]:
    """Current CUDA tiles that fit `operation`; the old profiler's are in ``legacy.py``."""
    tiles: tuple[IreeTile, ...] = _MMA_TILES if nv_intrinsic(operation) else _SIMT_TILES
    yield from (tile for tile in tiles if tile.problem(operation) is None)


def hip_tiles(operation: Operation) -> Iterator[IreeTile]:
    """ROCm tiles that fit `operation`."""
    yield from (tile for tile in _MFMA_TILES if tile.problem(operation) is None)
