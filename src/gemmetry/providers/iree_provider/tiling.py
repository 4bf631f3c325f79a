"""The tile configurations and filter of IREE's dispatch profiler of 2023.

``tile_config_{m}x{n}_{k}x{stages}_tensorcore_mmasync`` named a block's tile, its K step and the
depth of an asynchronous copy pipeline, for the pipeline LLVMGPUMatmulTensorCoreMmaSync. The current
compiler has neither that pipeline nor the depth: the tile and its warps are translated to
TileAndFuse, and the depth is kept only in the name. The profiler's tiles and its validity filter
are here in full (its shapes are in ``domain/specs/operations.py``), so that its 109 default
dispatches are reproduced.

The tiles to try for an operation on a target, and the tiles that names stand for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.operation import MatmulShape, Operation, OperationKind, Signature
from gemmetry.providers.base import SHARED_BYTES
from gemmetry.providers.iree_provider.support import compile_architecture
from gemmetry.providers.iree_provider.tiles import (
    DATA_TILING,
    DEFAULT,
    LEGACY_DEFAULT,
    IreeTile,
    Lowering,
    divisibility_problem,
)
from gemmetry.providers.iree_provider.tiling_cpu import (
    CachedCpuTile,
    CpuConvTile,
    CpuTile,
    cpu_search_space,
    cpu_tiles,
    within_limit,
)
from gemmetry.providers.iree_provider.tiling_gpu import (
    WARP,
    MfmaTile,
    MmaTile,
    SimtTile,
    cuda_tiles,
    hip_tiles,
    nv_intrinsic,
)

_WARPS = {(256, 128): (4, 2), (128, 256): (2, 4)}
"""Warps along m and n of the tiles to which the profiler gave blocks of more than 2 x 2 warps ([64,
4, 1] and [128, 2, 1] threads)."""


@dataclass(frozen=True, slots=True)
class LegacyTile(IreeTile):
    """A configuration of the old profiler."""

    form: ClassVar[str] = "tile_config_{m}x{n}_{k}x{stages}_tensorcore_mmasync"
    m: int
    n: int
    k: int
    stages: int

    @property
    def warps(self) -> tuple[int, int]:
        """Along m and n."""
        return _WARPS.get((self.m, self.n), (2, 2))

    def problem(self, operation: Operation) -> str | None:
        """Why the current translation of the tile does not fit, or None."""
        if nv_intrinsic(operation) is not None:
            return MmaTile(self.m, self.n, self.k, *self.warps).problem(operation)
        return self._simt_tile().problem(operation) or divisibility_problem(
            operation, (self.m, self.n, self.k)
        )

    def _simt_tile(self) -> SimtTile:
        """The tile without tensor cores: the block's threads form a grid 16 wide, so that
        neighbouring threads read neighbouring columns."""
        warps_m, warps_n = self.warps
        rows_of_threads = warps_m * warps_n * WARP // 16
        thread_m, thread_n = max(1, self.m // rows_of_threads), max(1, self.n // 16)
        return SimtTile(self.m, self.n, self.k, thread_m, thread_n)

    def old_problem(self, operation: Operation, architecture: str = "sm_80") -> str | None:
        """The old profiler's filter: the tile divides the shape (K of the whole product) and all
        stages of both operands fit into shared memory."""
        s = operation.signature
        m, n, k, _ = operation.matmul_shape
        whole = Operation(
            Signature(OperationKind.MATMUL, s.lhs, s.rhs, s.result), MatmulShape(m, n, k)
        )
        problem = divisibility_problem(whole, (self.m, self.n, self.k))
        if problem is not None:
            return problem
        bits = self.m * self.k * s.lhs.storage_bits + self.k * self.n * s.rhs.storage_bits
        limit = SHARED_BYTES[architecture]
        if bits * self.stages // 8 > limit:
            return f"{bits * self.stages // 8} bytes of shared memory; {architecture} has {limit}"
        return None

    def lowering(self, operation: Operation) -> Lowering:
        depth = f"the pipeline depth {self.stages} of the old configuration no longer exists"
        if nv_intrinsic(operation) is not None:
            tile = MmaTile(self.m, self.n, self.k, *self.warps)
            return Lowering(tile.lowering(operation).compilation_info, notes=(depth,))
        no_mma = (
            f"IREE has no tensor-core instruction for {operation.signature.lhs}: the tile runs on "
            "plain multiply-adds"
        )
        info = self._simt_tile().lowering(operation).compilation_info
        return Lowering(info, notes=(depth, no_mma))


_F16_TILES = tuple(
    LegacyTile(*sizes)
    for sizes in (
        (256, 128, 32, 3), (128, 256, 32, 3), (128, 128, 64, 4), (128, 128, 32, 5),
        (128, 64, 32, 5), (64, 64, 64, 5), (64, 64, 32, 10),
    )
)  # fmt: skip
_F32_TILES = tuple(
    LegacyTile(*sizes)
    for sizes in (
        (128, 256, 16, 3), (256, 128, 16, 3), (128, 128, 16, 5), (128, 128, 32, 3),
        (128, 128, 32, 4), (128, 64, 32, 3), (128, 64, 16, 5), (64, 64, 32, 3), (64, 64, 16, 10),
    )
)  # fmt: skip


def listed_tiles(operation: Operation) -> tuple[LegacyTile, ...]:
    """The profiler's tiles for the operation's types, unfiltered."""
    s = operation.signature
    if s.lhs.is_integer or s.lhs.storage_bits > 32 or operation.kind is OperationKind.CONV2D:
        return ()
    return _F32_TILES if s.lhs.storage_bits == 32 else _F16_TILES


def legacy_tiles(operation: Operation, architecture: str = "sm_80") -> Iterator[LegacyTile]:
    """The profiler's tiles that pass its validity filter for `operation`."""
    for tile in listed_tiles(operation):
        if tile.old_problem(operation, architecture) is None:
            yield tile


def tiles_for(
    operation: Operation, target: Target, vector_limit_bytes: int | None = None
) -> Iterator[IreeTile]:
    """Tiles worth trying, the compiler's own choice first, without those that cannot fit.

    Args:
        operation: the operation to compute.
        target: the target to compile for.
        vector_limit_bytes: on a CPU, see :func:`cpu_tiles`.
    """
    yield DEFAULT
    if target.kind is TargetKind.CPU:
        yield from cpu_tiles(operation, vector_limit_bytes)
    elif target.kind is TargetKind.HIP:
        yield from hip_tiles(operation)
    elif target.kind is TargetKind.CUDA:
        for tile in legacy_tiles(operation, compile_architecture(target, operation)):
            if tile.problem(operation) is None:
                yield tile
        yield from cuda_tiles(operation)


def search_tiles(
    operation: Operation, target: Target, vector_limit_bytes: int | None = None
) -> Iterator[IreeTile]:
    """Those of :func:`tiles_for`, and on a CPU those that only a search tries."""
    found = dict.fromkeys(tiles_for(operation, target, vector_limit_bytes))
    if target.kind is TargetKind.CPU:
        more = within_limit(cpu_search_space(operation), operation, vector_limit_bytes)
        found |= dict.fromkeys(more)
    return iter(found)


def parse_tile(name: str, target: Target) -> IreeTile | None:
    """The tile called `name` in the grammar of the target, whether listed or not; else None."""
    choices = [DEFAULT, LEGACY_DEFAULT]
    forms: tuple[type[IreeTile], ...] = ()
    if target.kind is TargetKind.CPU:
        choices.append(DATA_TILING)
        forms = CpuTile, CachedCpuTile, CpuConvTile
    elif target.kind is TargetKind.HIP:
        forms = (MfmaTile,)
    elif target.kind is TargetKind.CUDA:
        forms = LegacyTile, MmaTile, SimtTile
    if chosen := next((choice for choice in choices if choice.name == name), None):
        return chosen
    return next((tile for form in forms if (tile := form.parse(name))), None)
