"""A GEMM for NVIDIA Hopper in Gluon, the language with explicit memory that comes with Triton.

    C = A @ B

For readers who compare languages: what the rungs of ``providers/kernels/gemm`` with wgmma, TMA and
mbarriers do in CUDA C++ (``r06_pipeline.cu``) stands here in Python. Buffers, barriers and layouts
are written out as there; registers, synchronisation of warps and the swizzle are the compiler's.

One program computes one tile of C. Tiles of A and B arrive in a ring of STAGES buffers by bulk
copies, each announced by a barrier. While the tensor cores multiply one stage, the copies of the
next ones are under way. Programs are numbered in groups of GROUP_M tile rows.

Profile it against torch and CUDA C++, or compile it for Hopper on any machine:

    gemmetry profile --kernel examples/gluon_gemm.py:matmul --providers torch,cuda,user \
        --device cuda:0 --problem-m 4096 --problem-n 4096 --problem-k 4096 \
        --dtypes bf16 --layouts tn
    python examples/gluon_gemm.py

Gluon is experimental: what is used here exists in Triton 3.6 and 3.9.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# ruff: noqa: RUF005  (Gluon has no starred expressions)

_TILES = (
    (128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (256, 128, 64, 8, 3), (256, 128, 64, 8, 4),
    (128, 128, 64, 8, 4), (128, 128, 64, 4, 4), (128, 128, 128, 8, 3), (64, 256, 64, 4, 4),
    (64, 128, 64, 4, 4), (64, 64, 64, 4, 4),
)  # fmt: skip
CONFIGURATIONS = [
    dict(zip(("tile_m", "tile_n", "tile_k", "warps", "stages"), row, strict=True)) for row in _TILES
]

_GROUP = 8
_FORMATS = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16, torch.float32: gl.float32}
_ROW_BYTES = 16
"""Rows must be multiples of it (cuTensorMapEncodeTiled, globalStrides)."""


# Triton 3.9 has renamed both.
copy_to_shared = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
copy_from_shared = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global


@gluon.jit
def _copy_stage(
    a,
    b,
    a_ring,
    b_ring,
    full,
    step,
    first_row,
    first_column,
    STAGES: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    B_ROW_MAJOR: gl.constexpr,
):
    """Begin to copy the tiles of `step` into its place of the ring."""
    place = step % STAGES
    barrier = full.index(place)
    depth = step * BLOCK_K
    mbarrier.expect(barrier, (BLOCK_M + BLOCK_N) * BLOCK_K * a.dtype.primitive_bitwidth // 8)
    copy_to_shared(a, [first_row, depth], barrier, a_ring.index(place))
    if B_ROW_MAJOR:
        copy_to_shared(b, [depth, first_column], barrier, b_ring.index(place))
    else:
        copy_to_shared(b, [first_column, depth], barrier, b_ring.index(place))


@gluon.jit
def gluon_matmul_kernel(
    a,
    b,
    c,
    m,
    n,
    k,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr,
    STAGES: gl.constexpr,
    WARPS: gl.constexpr,
    B_ROW_MAJOR: gl.constexpr,
):
    """A is (m, k) row-major, B (k, n), C (m, n) row-major; a, b and c describe them for bulk
    copies, which replace what lies outside by zero and do not store it. A column-major B is
    described as its transpose."""
    tiles_m = gl.cdiv(m, BLOCK_M)
    tiles_n = gl.cdiv(n, BLOCK_N)
    tile = gl.program_id(0)
    group = tile // (GROUP_M * tiles_n)
    height = min(tiles_m - group * GROUP_M, GROUP_M)
    in_group = tile % (GROUP_M * tiles_n)
    first_row = (group * GROUP_M + in_group % height) * BLOCK_M
    first_column = (in_group // height) * BLOCK_N

    a_ring = gl.allocate_shared_memory(a.dtype, [STAGES, BLOCK_M, BLOCK_K], a.layout)
    b_ring = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_type.shape, b.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
    fence_async_shared()  # the copy engine must see initialised barriers

    steps = gl.cdiv(k, BLOCK_K)
    for first in gl.static_range(STAGES - 1):
        if first < steps:
            _copy_stage(a, b, a_ring, b_ring, full, first, first_row, first_column, STAGES,
                        BLOCK_M, BLOCK_N, BLOCK_K, B_ROW_MAJOR)  # fmt: skip

    # Each group of four warps multiplies 64 rows; the last size is K of the instruction.
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, BLOCK_N, 16]
    )
    sums = gl.zeros((BLOCK_M, BLOCK_N), gl.float32, layout)
    for step in range(steps):
        place = step % STAGES
        mbarrier.wait(full.index(place), step // STAGES & 1)
        right = b_ring.index(place)
        if not B_ROW_MAJOR:
            right = right.permute((1, 0))
        sums = warpgroup_mma(a_ring.index(place), right, sums, is_async=True)
        # The instructions of the step before have read their buffers, which can be filled again.
        sums = warpgroup_mma_wait(num_outstanding=1, deps=(sums,))
        ahead = step + STAGES - 1
        if ahead < steps:
            _copy_stage(a, b, a_ring, b_ring, full, ahead, first_row, first_column, STAGES,
                        BLOCK_M, BLOCK_N, BLOCK_K, B_ROW_MAJOR)  # fmt: skip
    sums = warpgroup_mma_wait(num_outstanding=0, deps=(sums,))
    for stage in gl.static_range(STAGES):
        mbarrier.invalidate(full.index(stage))

    result = gl.allocate_shared_memory(c.dtype, c.block_type.shape, c.layout)
    result.store(sums.to(c.dtype))
    fence_async_shared()
    copy_from_shared(c, [first_row, first_column], result)
    tma.store_wait(0)


def _layout(rows, columns, dtype):
    """How a tile lies in shared memory: with the swizzle that bulk copies apply."""
    return gl.NVMMASharedLayout.get_default_for([rows, columns], _FORMATS[dtype])


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    out: torch.Tensor,
    tile_m: int,
    tile_n: int,
    tile_k: int,
    warps: int,
    stages: int,
) -> None:
    """C = A @ B into `out`, in bf16 or f16 with sums in f32; A and C row-major.

    Raises:
        ValueError: formats, layouts, sizes or addresses are none that bulk copies can describe.
    """
    (m, k), n = a.shape, b.shape[1]
    b_row_major = b.is_contiguous()
    stored = (a, b if b_row_major else b.T, out)
    if a.dtype not in (torch.bfloat16, torch.float16) or a.dtype != b.dtype:
        raise ValueError(f"the kernel multiplies bf16 and f16, not {a.dtype} with {b.dtype}")
    if out.dtype not in (a.dtype, torch.float32) or not all(x.is_contiguous() for x in stored):
        raise ValueError("the kernel needs a row-major A and C, and C in A's format or in f32")
    if any(x.shape[1] * x.element_size() % _ROW_BYTES or x.data_ptr() % 16 for x in stored):
        raise ValueError(f"bulk copies need rows and addresses of multiples of {_ROW_BYTES} bytes")
    boxes = _boxes(tile_m, tile_n, tile_k, b_row_major)
    described = [
        TensorDescriptor.from_tensor(x, list(box), _layout(*box, x.dtype))
        for x, box in zip(stored, boxes, strict=True)
    ]
    grid = (triton.cdiv(m, tile_m) * triton.cdiv(n, tile_n),)
    gluon_matmul_kernel[grid](
        *described, m, n, k, tile_m, tile_n, tile_k, _GROUP, stages, warps, b_row_major,
        num_warps=warps,
    )  # fmt: skip


def _boxes(tile_m, tile_n, tile_k, b_row_major):
    """Shapes of the tiles of A, B and C as they are stored."""
    right = (tile_k, tile_n) if b_row_major else (tile_n, tile_k)
    return (tile_m, tile_k), right, (tile_m, tile_n)


def compile_for_hopper(
    configuration: dict[str, int],
    *,
    dtype: torch.dtype = torch.bfloat16,
    result: torch.dtype = torch.bfloat16,
    b_row_major: bool = False,
) -> Any:
    """Triton's compiled kernel for sm_90; no GPU is needed."""
    tile = [configuration[name] for name in ("tile_m", "tile_n", "tile_k")]
    constants = dict(
        zip(
            ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "STAGES", "WARPS", "B_ROW_MAJOR"),
            (*tile, _GROUP, configuration["stages"], configuration["warps"], b_row_major),
            strict=True,
        )
    )
    names = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
    types = [
        f"tensordesc<{names[kind]}[{box[0]}, {box[1]}],{_layout(*box, kind)!r}>"
        for box, kind in zip(_boxes(*tile, b_row_major), (dtype, dtype, result), strict=True)
    ]
    types += ["i32"] * 3
    signature = dict(zip(gluon_matmul_kernel.arg_names, types, strict=False))
    signature |= dict.fromkeys(constants, "constexpr")
    source = GluonASTSource(gluon_matmul_kernel, signature, constants, {})
    options = {"num_warps": configuration["warps"], "enable_fp_fusion": True}
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


if __name__ == "__main__":
    for each in CONFIGURATIONS:
        kernel = compile_for_hopper(each)
        uses = "wgmma" in kernel.asm["ptx"]
        print(each, f"{kernel.metadata.shared} bytes of shared memory", "wgmma" if uses else "")
