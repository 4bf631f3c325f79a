"""IREE's configurations: named tiles that lower an operation, and which of them to try.

Names describe the tiling, and a name of each form parses back to its tile:

=========================================================  ======================================
``default``, ``tile_config_default``                       all left to the compiler
``data_tiling``                                            operands packed into tiles, CPU
``tile_config_64x64_vector8x32x4``                         distribution and vector tile, CPU
``tile_config_128x128_cache64x64x64_vector8x32x1``         the same with a cache level, CPU
``tile_config_4x64_vector8x32x4_conv``                     convolution, CPU
``tile_config_128x128_32x5_tensorcore_mmasync``            the old dispatch profiler's, CUDA
``tile_config_128x128x32_warps2x2_mma``                    tensor cores, CUDA
``tile_config_64x64x32_threads4x4_simt``                   no tensor cores, CUDA
``tile_config_128x128x64_waves2x2_mfma16``                 matrix cores, ROCm
=========================================================  ======================================

On a CPU a tile becomes ``#iree_cpu.lowering_config`` with the pipeline DoubleTilingExpert
(convolutions: ConvTileAndDecomposeExpert). Any size is valid; the compiler rejects tiles that form
vectors too large for the processor (:func:`vector_limit_bytes`), which is that configuration's
compile error. Such tiles are not offered.

On a GPU it becomes ``#iree_gpu.lowering_config``. CUDA tensor cores go through the pipeline
TileAndFuse, where ``reduction`` and ``subgroup`` count matrix instructions; ROCm's matrix cores go
through VectorDistribute, where they count elements.
"""

from __future__ import annotations

import re
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import ClassVar, Self

from gemmetry.domain.dispatch import Configuration, Dispatch, Parameter, Target, TargetKind
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
    Layout,
    Operation,
    OperationKind,
)
from gemmetry.providers.base import SHARED_BYTES
from gemmetry.providers.iree_provider.linalg import MLIR_TYPES
from gemmetry.providers.iree_provider.support import compile_architecture


@dataclass(frozen=True, slots=True)
class Lowering:
    """The compiler's attributes and flags of a configuration, for one operation."""

    compilation_info: str | None = None
    """Attribute of the contraction; None leaves it to the compiler."""
    flags: tuple[str, ...] = ()
    """Additional ``iree-compile`` flags, which require a separate compile call."""
    vector_bytes: int = 0
    """Bytes of the largest vector that the compiler will form on a CPU; 0 where it chooses itself.
    Only the compiler decides, but configurations that exceed its limit are not listed, and if
    requested by name they are compiled separately, so that their failure costs the others no second
    call."""
    notes: tuple[str, ...] = ()
    """Note on the translation, for the record."""


class IreeTile(ABC):
    """One configuration of one form; forms are frozen dataclasses of positive integers."""

    form: ClassVar[str] = ""
    """Name of the configuration, with a field of the dataclass in braces for each number."""

    @property
    def name(self) -> str:
        """Parses back to this tile."""
        return self.form.format(**self._sizes())

    @property
    def configuration(self) -> Configuration:
        """Configuration with the sizes as parameters for records and selection."""
        sizes = self._sizes().items()
        named: dict[str, Parameter] = {f"tile_{n}" if n in "mnk" else n: size for n, size in sizes}
        return Configuration(self.name, named)

    def _sizes(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in re.findall(r"{(\w+)}", self.form)}

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """The tile called `name`; None for names of another form, and for sizes of zero."""
        match = re.fullmatch(re.sub(r"{(\w+)}", r"(?P<\1>\\d+)", cls.form), name, re.ASCII)
        if match is None:
            return None
        sizes = {field: int(text) for field, text in match.groupdict().items()}
        tile = cls(**sizes)
        # One name per tile: 064 would be another name of 64.
        return tile if min(sizes.values()) > 0 and tile.name == name else None

    def problem(self, operation: Operation) -> str | None:
        """Why the tile does not fit the operation (the validity filter), or None."""
        return None

    @abstractmethod
    def lowering(self, operation: Operation) -> Lowering:
        """The attributes and flags that make the compiler use it."""


@dataclass(frozen=True, slots=True)
class CompilerChoice(IreeTile):
    """No attributes: the compiler chooses, and its choice is read back into the record."""

    form: str = "default"  # type: ignore[misc]  # a name without numbers, of each instance
    flags: tuple[str, ...] = ()

    def lowering(self, operation: Operation) -> Lowering:
        return Lowering(flags=self.flags)


DEFAULT = CompilerChoice()
LEGACY_DEFAULT = CompilerChoice("tile_config_default")
"""The old dispatch profiler's name for the compiler's choice (--default-config)."""
DATA_TILING = CompilerChoice("data_tiling", ("--iree-opt-data-tiling",))
"""A flag of the whole compilation, not an attribute: operands are packed into tiles suited to the
vector unit (mmt4d) before the product, and the result is unpacked."""


def loop_sizes(operation: Operation) -> tuple[int, int, int]:
    """(m, n, k) of the emitted product: swapped for a column-major C, with k of one slice."""
    m, n, k, _ = operation.matmul_shape
    if operation.output.layout is Layout.COLUMN:
        m, n = n, m
    return m, n, k // operation.signature.split_k_slices


def _level(operation: Operation, lead: int, *sizes: int) -> str:
    """``[1, 64, 64, 0]``: sizes along m, n and k, after `lead` for a batch or the slices of K."""
    has_lead = operation.kind in (OperationKind.BATCH_MATMUL, OperationKind.MATMUL_SPLITK)
    return str([*[lead] * has_lead, *sizes])


def _compilation_info(backend: str, config: str, pipeline: str) -> str:
    return (
        f"#iree_codegen.compilation_info<lowering_config = #iree_{backend}.lowering_config"
        f"<{config}>, translation_info = #iree_codegen.translation_info<"
        f"pipeline = #iree_{backend}.pipeline{pipeline}>>"
    )


def _remainder(sizes: Sequence[int], tile: Sequence[int]) -> str | None:
    """Reason why the (m, n, k) `tile` leaves a remainder of `sizes`, or None."""
    steps = zip("mnk", sizes, tile, strict=True)
    uneven = [f"{letter}={size} by {step}" for letter, size, step in steps if size % step]
    return f"the tile does not divide {', '.join(uneven)}" if uneven else None


@dataclass(frozen=True, slots=True)
class CpuTile(IreeTile):
    """A matmul tile: the sizes per thread and in vector registers."""

    form: ClassVar[str] = "tile_config_{m}x{n}_vector{vector_m}x{vector_n}x{vector_k}"
    m: int
    n: int
    vector_m: int
    vector_n: int
    vector_k: int

    @property
    def cache(self) -> tuple[int, int, int] | None:
        """Sizes per cache level; None: there is no such level."""
        return None

    def problem(self, operation: Operation) -> str | None:
        if operation.kind is OperationKind.CONV2D:
            return "a convolution has other loops; its tiles end in _conv"
        return None

    def lowering(self, operation: Operation) -> Lowering:
        levels = {"distribution": _level(operation, 1, self.m, self.n, 0)}
        if self.cache is not None:
            cache_m, cache_n, cache_k = self.cache
            levels["cache_parallel"] = _level(operation, 1, cache_m, cache_n, 0)
            levels["cache_reduction"] = _level(operation, 0, 0, 0, cache_k)
        levels["vector_common_parallel"] = _level(operation, 1, self.vector_m, self.vector_n, 0)
        levels["vector_reduction"] = _level(operation, 0, 0, 0, self.vector_k)
        return _on_cpu(operation, levels, "DoubleTilingExpert", self._largest_vector(operation))

    def _largest_vector(self, operation: Operation) -> int:
        """Elements of the largest vector that IREE 3.13 forms: the products of the vector tile, or
        the zeros that C's part of a cache tile starts from. Those are filled in as one vector,
        before the loop over K, unless every loop around them has constant sizes and K needs none
        (found by compiling; `tests/providers/iree_provider/test_tiles.py` compiles again)."""
        m, n, k = loop_sizes(operation)
        products = min(self.vector_m, m) * min(self.vector_n, n) * min(self.vector_k, k)
        if self.cache is None:
            return products
        cache_m, cache_n, cache_k = self.cache
        rows, is_constant_m = _cached_extent(m, self.m, cache_m)
        columns, is_constant_n = _cached_extent(n, self.n, cache_n)
        if k <= cache_k and is_constant_m and is_constant_n:
            return products
        return max(products, rows * columns)


@dataclass(frozen=True, slots=True)
class CachedCpuTile(CpuTile):
    """A matmul tile with sizes per cache level too."""

    form: ClassVar[str] = (
        "tile_config_{m}x{n}_cache{cache_m}x{cache_n}x{cache_k}"
        "_vector{vector_m}x{vector_n}x{vector_k}"
    )
    cache_m: int
    cache_n: int
    cache_k: int

    @property
    def cache(self) -> tuple[int, int, int]:
        return self.cache_m, self.cache_n, self.cache_k


@dataclass(frozen=True, slots=True)
class CpuConvTile(IreeTile):
    """A convolution tile: output rows and channels per thread, and the vector tile of output
    columns x channels x input channels (filter taps one at a time)."""

    form: ClassVar[str] = (
        "tile_config_{tile_rows}x{tile_channels}"
        "_vector{vector_columns}x{vector_channels}x{vector_depth}_conv"
    )
    tile_rows: int
    tile_channels: int
    vector_columns: int
    vector_channels: int
    vector_depth: int

    def problem(self, operation: Operation) -> str | None:
        return None if operation.kind is OperationKind.CONV2D else "for convolutions only"

    def lowering(self, operation: Operation) -> Lowering:
        # Loops: image, output row, output column, output channel, filter row, column, depth.
        columns, channels, depth = self.vector_columns, self.vector_channels, self.vector_depth
        levels = {
            "distribution": str([1, self.tile_rows, 0, self.tile_channels, 0, 0, 0]),
            "vector_common_parallel": str([1, 1, columns, channels, 0, 0, 0]),
            "vector_reduction": str([0, 0, 0, 0, 1, 1, depth]),
        }
        return _on_cpu(operation, levels, "ConvTileAndDecomposeExpert", columns * channels * depth)


def _cached_extent(size: int, tile: int, cache: int) -> tuple[int, bool]:
    """Rows (columns) of a cache tile of a thread's tile of a matrix, and whether all such tiles
    have that many. Where they do not, the compiler plans for as many as the tile could have."""
    if tile < size and size % tile:
        return cache, False
    thread = min(tile, size)
    return min(cache, thread), cache >= thread or thread % cache == 0


def _on_cpu(operation: Operation, levels: dict[str, str], pipeline: str, elements: int) -> Lowering:
    config = ", ".join(f"{level} = {sizes}" for level, sizes in levels.items())
    return Lowering(
        _compilation_info("cpu", config, f"<{pipeline}>"),
        vector_bytes=elements * operation.signature.accumulator.itemsize,
    )


WARP = 32
WAVE = 64
MAX_THREADS = 1024
"""Threads of a block: CUDA C++ Programming Guide, table of technical specifications; the same
number is HIP's limit."""

_NV_DEPTHS = {(F16, F32): 16, (F16, F16): 16, (BF16, F32): 16, (E4M3, F32): 32, (E5M2, F32): 32}
"""(operand, accumulator) -> K of the intrinsic. There is none for f32 (tf32), f64 or s8."""

_MFMA_DEPTHS = {
    16: {
        (F16, F32): 16, (BF16, F32): 16, (F32, F32): 4, (F64, F64): 4, (S8, S32): 32,
        (E4M3FNUZ, F32): 32, (E5M2FNUZ, F32): 32, (E4M3, F32): 32, (E5M2, F32): 32,
    },
    32: {(F16, F32): 8, (BF16, F32): 8, (S8, S32): 16},
}  # fmt: skip
"""Rows -> (operand, accumulator) -> K of the intrinsic; the OCP fp8 ones need gfx950."""

_CONVOLUTION = "convolutions are left to the compiler's implicit GEMM"


_Instruction = tuple[str, int, int, int]
"""A matrix instruction: its name for IREE, and the rows, columns and K that it multiplies."""


@dataclass(frozen=True, slots=True)
class _GpuTile(IreeTile):
    """A block's tile of C and K step."""

    m: int
    n: int
    k: int

    def remainder(self, operation: Operation) -> str | None:
        """Why it does not divide the emitted product, or None."""
        return _remainder(loop_sizes(operation), (self.m, self.n, self.k))


class _MatrixTile(_GpuTile):
    """A tile that is shared by a grid of warps with matrix instructions."""

    lanes: ClassVar[int]
    what: ClassVar[str]
    """The kind of instruction, for messages."""

    @property
    def grid(self) -> tuple[int, int]:
        """Warps along m and n."""
        _, _, _, along_m, along_n, *_ = self._sizes().values()
        return along_m, along_n

    @abstractmethod
    def instruction(self, operation: Operation) -> _Instruction | None:
        """Matrix instruction for the operation's formats; None if IREE has none."""

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.grid[0] * self.grid[1] * self.lanes

    def problem(self, operation: Operation) -> str | None:
        if operation.kind is OperationKind.CONV2D:
            return _CONVOLUTION
        found = self.instruction(operation)
        if found is None:
            s = operation.signature
            return f"IREE has no {self.what} instruction for {s.lhs} into {s.accumulator}"
        _, m, n, k = found
        steps = (m * self.grid[0], n * self.grid[1], k)
        if any(size % step for size, step in zip((self.m, self.n, self.k), steps, strict=True)):
            return f"the tile is not a multiple of its warps' {'x'.join(map(str, steps))}"
        if self.threads > MAX_THREADS:
            return f"a block has at most {MAX_THREADS} threads"
        return None


def nv_intrinsic(operation: Operation) -> _Instruction | None:
    """The tensor-core intrinsic for the operation's types; None if IREE has none."""
    # 16 rows and 8 columns of C in every ``mma.sync`` shape that IREE has.
    return _intrinsic("NV_MMA_SYNC", operation, 16, 8, _NV_DEPTHS)


def _intrinsic(
    lead: str,
    operation: Operation,
    rows: int,
    columns: int,
    depths: Mapping[tuple[DType, DType], int],
) -> _Instruction | None:
    s = operation.signature
    depth = depths.get((s.lhs, s.accumulator)) if s.lhs is s.rhs else None
    if depth is None:
        return None
    to, of = (MLIR_TYPES[dtype.name].upper() for dtype in (s.accumulator, s.lhs))
    return f"{lead}_{to}_{rows}x{columns}x{depth}_{of}", rows, columns, depth


@dataclass(frozen=True, slots=True)
class MmaTile(_MatrixTile):
    """A CUDA block's tile of C and K step, shared by a grid of warps."""

    form: ClassVar[str] = "tile_config_{m}x{n}x{k}_warps{warps_m}x{warps_n}_mma"
    lanes: ClassVar[int] = WARP
    what: ClassVar[str] = "tensor-core"
    warps_m: int
    warps_n: int

    def instruction(self, operation: Operation) -> _Instruction | None:
        return nv_intrinsic(operation)

    def lowering(self, operation: Operation) -> Lowering:
        name, rows, columns, depth = self.instruction(operation) or ("", 16, 8, 1)
        mma = f"mma_kind = #iree_gpu.mma_layout<{name}>, "
        if self.remainder(operation) is not None:
            # Without padding to whole tiles the compiler rejects shapes that leave a remainder.
            mma += f"padding = {_level(operation, 1, self.m, self.n, self.k)}, "
        inner = (self.m // (self.warps_m * rows), self.n // (self.warps_n * columns))
        subgroup = f"subgroup = {_level(operation, 0, *inner, 0)}"
        tile = (self.m, self.n, self.k // depth)
        return _tile_and_fuse(operation, tile, mma, subgroup, self.threads)


@dataclass(frozen=True, slots=True)
class SimtTile(_GpuTile):
    """A CUDA block's tile of C and K step, and the part that each thread computes."""

    form: ClassVar[str] = "tile_config_{m}x{n}x{k}_threads{thread_m}x{thread_n}_simt"
    thread_m: int
    thread_n: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return (self.m // self.thread_m) * (self.n // self.thread_n)

    def problem(self, operation: Operation) -> str | None:
        if operation.kind is OperationKind.CONV2D:
            return _CONVOLUTION
        if self.m % self.thread_m or self.n % self.thread_n:
            return "the block's tile is not a multiple of a thread's"
        if not WARP <= self.threads <= MAX_THREADS:
            return f"{self.threads} threads; a block has {WARP} to {MAX_THREADS}"
        return None

    def lowering(self, operation: Operation) -> Lowering:
        thread = f"thread = {_level(operation, 1, self.thread_m, self.thread_n, 0)}"
        return _tile_and_fuse(operation, (self.m, self.n, self.k), "", thread, self.threads)


def _tile_and_fuse(
    operation: Operation, tile: tuple[int, int, int], mma: str, inner: str, threads: int
) -> Lowering:
    """Compilation info of the TileAndFuse pipeline; both operands go through shared memory."""
    m, n, k = tile
    config = (
        f"{{{mma}promote_operands = [0, 1], workgroup = {_level(operation, 1, m, n, 0)}, "
        f"reduction = {_level(operation, 0, 0, 0, k)}, {inner}}}"
    )
    size = f"<TileAndFuse> workgroup_size = [{threads}, 1, 1] subgroup_size = {WARP}"
    return Lowering(_compilation_info("gpu", config, size))


@dataclass(frozen=True, slots=True)
class MfmaTile(_MatrixTile):
    """A ROCm workgroup's tile of C and K step, shared by a grid of waves of 64 lanes."""

    form: ClassVar[str] = "tile_config_{m}x{n}x{k}_waves{waves_m}x{waves_n}_mfma{mfma_rows}"
    lanes: ClassVar[int] = WAVE
    what: ClassVar[str] = "MFMA"
    waves_m: int
    waves_n: int
    mfma_rows: int
    """Rows of the matrix instruction: 16 or 32."""

    def instruction(self, operation: Operation) -> _Instruction | None:
        rows = self.mfma_rows
        return _intrinsic("MFMA", operation, rows, rows, _MFMA_DEPTHS.get(rows, {}))

    def problem(self, operation: Operation) -> str | None:
        return _MatrixTile.problem(self, operation) or self.remainder(operation)

    def lowering(self, operation: Operation) -> Lowering:
        name, *_ = self.instruction(operation) or ("",)
        basis = _level(operation, 1, self.waves_m, self.waves_n, 1)
        order = list(range(basis.count(",") + 1))
        config = (
            f"{{mma_kind = #iree_gpu.mma_layout<{name}>, promote_operands = [0, 1], "
            f"workgroup = {_level(operation, 1, self.m, self.n, 0)}, "
            f"reduction = {_level(operation, 0, 0, 0, self.k)}, "
            f"subgroup_basis = [{basis}, {order}]}}"
        )
        pipeline = (
            f"<VectorDistribute> workgroup_size = [{self.threads}, 1, 1] subgroup_size = {WAVE}, "
            "{gpu_pipeline_options = #iree_gpu.pipeline_options<prefetch_num_stages = 2>}"
        )
        return Lowering(_compilation_info("gpu", config, pipeline))


_WARPS = {(256, 128): (4, 2), (128, 256): (2, 4)}
"""Warps along m and n of the tiles to which the profiler gave blocks of more than 2 x 2 warps ([64,
4, 1] and [128, 2, 1] threads)."""


@dataclass(frozen=True, slots=True)
class LegacyTile(_GpuTile):
    """A configuration of IREE's dispatch profiler of 2023.

    Its name stated a block's tile, its K step and the depth of an asynchronous copy pipeline, for
    the pipeline LLVMGPUMatmulTensorCoreMmaSync. The current compiler has neither: the tile and its
    warps are translated to TileAndFuse, and the depth is kept only in the name. The profiler's
    tiles and its validity filter are here in full (its shapes are in
    ``domain/specs/operations.py``), so that its 109 default dispatches are reproduced.
    """

    form: ClassVar[str] = "tile_config_{m}x{n}_{k}x{stages}_tensorcore_mmasync"
    stages: int

    def _translated(self, operation: Operation) -> MmaTile | SimtTile:
        """The current tile; without tensor cores the block's threads form a grid 16 wide, so that
        neighbouring threads read neighbouring columns."""
        warps_m, warps_n = _WARPS.get((self.m, self.n), (2, 2))
        if nv_intrinsic(operation) is not None:
            return MmaTile(self.m, self.n, self.k, warps_m, warps_n)
        thread_m = max(1, self.m // (warps_m * warps_n * WARP // 16))
        return SimtTile(self.m, self.n, self.k, thread_m, max(1, self.n // 16))

    def problem(self, operation: Operation) -> str | None:
        """Why the current translation of the tile does not fit, or None."""
        tile = self._translated(operation)
        if (problem := tile.problem(operation)) or isinstance(tile, MmaTile):
            return problem
        return self.remainder(operation)

    def old_problem(self, operation: Operation, architecture: str = "sm_80") -> str | None:
        """The old profiler's filter: the tile divides the shape (K of the whole product) and all
        stages of both operands fit into shared memory."""
        s = operation.signature
        if problem := _remainder(operation.matmul_shape[:3], (self.m, self.n, self.k)):
            return problem
        bits = self.m * self.k * s.lhs.storage_bits + self.k * self.n * s.rhs.storage_bits
        limit = SHARED_BYTES[architecture]
        if bits * self.stages // 8 > limit:
            return f"{bits * self.stages // 8} bytes of shared memory; {architecture} has {limit}"
        return None

    def lowering(self, operation: Operation) -> Lowering:
        tile = self._translated(operation)
        notes = [f"the pipeline depth {self.stages} of the old configuration no longer exists"]
        if isinstance(tile, SimtTile):
            notes.append(
                f"IREE has no tensor-core instruction for {operation.signature.lhs}: the tile runs "
                "on plain multiply-adds"
            )
        return Lowering(tile.lowering(operation).compilation_info, notes=tuple(notes))


_F16_LEGACY = (
    (256, 128, 32, 3), (128, 256, 32, 3), (128, 128, 64, 4), (128, 128, 32, 5), (128, 64, 32, 5),
    (64, 64, 64, 5), (64, 64, 32, 10),
)  # fmt: skip
_F32_LEGACY = (
    (128, 256, 16, 3), (256, 128, 16, 3), (128, 128, 16, 5), (128, 128, 32, 3), (128, 128, 32, 4),
    (128, 64, 32, 3), (128, 64, 16, 5), (64, 64, 32, 3), (64, 64, 16, 10),
)  # fmt: skip


def legacy_tiles(operation: Operation, architecture: str = "sm_80") -> Iterator[LegacyTile]:
    """The old profiler's tiles that pass its validity filter for `operation`."""
    s = operation.signature
    if s.lhs.is_integer or s.lhs.storage_bits > 32 or operation.kind is OperationKind.CONV2D:
        return
    for sizes in _F32_LEGACY if s.lhs.storage_bits == 32 else _F16_LEGACY:
        tile = LegacyTile(*sizes)
        if tile.old_problem(operation, architecture) is None:
            yield tile


_CPU_TILES: tuple[CpuTile, ...] = (
    CpuTile(64, 64, 8, 32, 4),
    CpuTile(64, 64, 8, 32, 2),
    CachedCpuTile(64, 64, 8, 32, 1, 64, 64, 64),
    CachedCpuTile(128, 128, 8, 32, 1, 32, 64, 128),
    CpuTile(128, 128, 8, 32, 4),
    CpuTile(128, 128, 4, 64, 1),
    CpuTile(64, 64, 4, 64, 1),
    CpuTile(32, 64, 8, 32, 4),
    CpuTile(64, 64, 4, 16, 4),
)
"""Tiles worth trying: the winners of a sweep of 134 tiles on two cores with AVX-512 (512³ in f32,
bf16 and s8, 1024³ and 257x129x65 in f32), and the last one for processors with AVX2."""
_CONV_TILES = (
    CpuConvTile(1, 64, 8, 32, 1),
    CpuConvTile(1, 64, 4, 32, 4),
    CpuConvTile(4, 64, 8, 16, 4),
)
_THREAD_SIZES = (16, 32, 64, 128, 256)
_VECTOR_ROWS, _VECTOR_COLUMNS, _VECTOR_DEPTHS = (4, 8), (16, 32, 64), (1, 2, 4)
"""Vectors that a search combines; others were slower in that sweep."""
_MMA_TILES = tuple(
    MmaTile(*sizes)
    for sizes in (
        (128, 128, 64, 2, 2), (128, 128, 32, 4, 2), (128, 64, 64, 2, 2), (64, 128, 64, 2, 2),
        (64, 64, 64, 2, 2),
    )
)  # fmt: skip
_SIMT_TILES = (
    SimtTile(128, 128, 16, 8, 8),
    SimtTile(64, 64, 32, 4, 4),
    SimtTile(32, 128, 32, 4, 4),
)
_MFMA_TILES = tuple(
    MfmaTile(*sizes)
    for sizes in (
        (128, 128, 64, 2, 2, 16), (128, 128, 32, 2, 2, 16), (64, 128, 64, 2, 2, 16),
        (64, 64, 64, 2, 2, 16), (256, 128, 32, 2, 2, 16), (128, 128, 64, 2, 2, 32),
        (128, 128, 32, 2, 2, 32),
    )
)  # fmt: skip


def tiles_for(
    operation: Operation, target: Target, vector_limit_bytes: int | None = None
) -> Iterator[IreeTile]:
    """Tiles worth trying, the compiler's own choice first, without those that cannot fit.

    Args:
        operation: the operation to compute.
        target: the target to compile for.
        vector_limit_bytes: on a CPU, tiles that form a vector of this size or more are left out,
            because the compiler rejects them; None: the limit is not known.
    """
    yield DEFAULT
    tiles: Sequence[IreeTile] = ()
    if target.kind is TargetKind.CPU and operation.kind is OperationKind.CONV2D:
        tiles = _CONV_TILES
    elif target.kind is TargetKind.CPU:
        yield DATA_TILING
        m, n, _ = loop_sizes(operation)
        # A tile of more than twice the matrix equals a smaller one, padded.
        tiles = [tile for tile in _CPU_TILES if tile.m < 2 * m and tile.n < 2 * n]
    elif target.kind is TargetKind.HIP:
        tiles = _MFMA_TILES
    elif target.kind is TargetKind.CUDA:
        own = _MMA_TILES if nv_intrinsic(operation) else _SIMT_TILES
        tiles = [*legacy_tiles(operation, compile_architecture(target, operation)), *own]
    yield from _fitting(tiles, operation, vector_limit_bytes)


def search_tiles(
    operation: Operation, target: Target, vector_limit_bytes: int | None = None
) -> Iterator[IreeTile]:
    """Tiles of :func:`tiles_for`, and on a CPU those that only a search tries: matmul tiles of
    threads with sides up to a factor of two apart, with every vector that fits into them."""
    found = dict.fromkeys(tiles_for(operation, target, vector_limit_bytes))
    if target.kind is TargetKind.CPU and operation.kind is not OperationKind.CONV2D:
        m, n, _ = loop_sizes(operation)
        more = (
            CpuTile(rows, columns, *vector)
            for rows, columns in product(_THREAD_SIZES, _THREAD_SIZES)
            if max(rows, columns) <= 2 * min(rows, columns) and rows < 2 * m and columns < 2 * n
            for vector in product(_VECTOR_ROWS, _VECTOR_COLUMNS, _VECTOR_DEPTHS)
            if vector[0] <= rows and vector[1] <= columns
        )
        found |= dict.fromkeys(_fitting(more, operation, vector_limit_bytes))
    return iter(found)


def _fitting(
    tiles: Iterable[IreeTile], operation: Operation, vector_limit_bytes: int | None
) -> Iterator[IreeTile]:
    for tile in tiles:
        if tile.problem(operation) is None and (
            vector_limit_bytes is None or tile.lowering(operation).vector_bytes < vector_limit_bytes
        ):
            yield tile


_CHOICES = (DEFAULT, LEGACY_DEFAULT)
_GRAMMAR: dict[TargetKind, tuple[tuple[CompilerChoice, ...], tuple[type[IreeTile], ...]]] = {
    TargetKind.CPU: ((*_CHOICES, DATA_TILING), (CpuTile, CachedCpuTile, CpuConvTile)),
    TargetKind.HIP: (_CHOICES, (MfmaTile,)),
    TargetKind.CUDA: (_CHOICES, (LegacyTile, MmaTile, SimtTile)),
}
"""Kind of target -> compiler's choices, and forms of tiles."""


def parse_tile(name: str, target: Target) -> IreeTile | None:
    """The tile called `name` in the grammar of the target, whether listed or not; else None."""
    choices, forms = _GRAMMAR.get(target.kind, (_CHOICES, ()))
    chosen = [choice for choice in choices if choice.name == name]
    return next(filter(None, (*chosen, *(form.parse(name) for form in forms))), None)


def lowering_of(dispatch: Dispatch) -> Lowering:
    """The lowering that the dispatch's configuration specifies; empty for an unknown name."""
    tile = parse_tile(dispatch.configuration.name, dispatch.target)
    return Lowering() if tile is None else tile.lowering(dispatch.operation)


REGISTERS = 512
"""Vector registers whose bytes a vector may not reach, by default: IREE rejects functions with a
larger one ("large vector sizes"; compiler/src/iree/compiler/Codegen/LLVMCPU/
LLVMCPUVerifyVectorSizeLegality.cpp). That is 32 KiB with AVX-512, 16 KiB with AVX2, 8 KiB with SSE
or NEON. The width of a register depends on target and flags, so the compiler states it."""

SMALLEST_LIMIT_BYTES = 16 * REGISTERS
"""Limit that every processor meets: no vector register that IREE compiles for is narrower."""

_REGISTERS_FLAG = "--iree-llvmcpu-max-allowed-number-of-native-vectors="
_ASK_TIMEOUT_S = 60.0
_ANY_FUNCTION = b"""
func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> {
  %b = arith.addf %a, %a : tensor<4xf32>
  return %b : tensor<4xf32>
}
"""


def vector_limit_bytes(program: Path, flags: Sequence[str]) -> int | None:
    """Vector size in bytes from which functions are rejected; None where the compiler does not show
    it.

    Args:
        program: an ``iree-compile``.
        flags: the target's flags, and the user's.
    """
    try:
        changed_ns = program.stat().st_mtime_ns
    except OSError:
        return None
    width = _register_bytes(program, changed_ns, tuple(flags))
    given = [flag.removeprefix(_REGISTERS_FLAG) for flag in flags if _REGISTERS_FLAG in flag]
    registers = int(given[-1]) if given and given[-1].isdigit() else REGISTERS
    return None if width is None else width * registers


@cache
def _register_bytes(program: Path, changed_ns: int, flags: tuple[str, ...]) -> int | None:
    """Width of the vector registers that code is generated for, determined in about 0.1 s;
    `changed_ns` distinguishes a compiler from a later build at the same path."""
    command = [str(program), "-", "-o", "-", *flags, "--compile-to=preprocessing"]
    try:
        done = subprocess.run(
            command, input=_ANY_FUNCTION, capture_output=True, timeout=_ASK_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(rb"\bnative_vector_size = (\d+)", done.stdout)
    return int(match[1]) if match else None
