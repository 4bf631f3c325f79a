"""A GEMM for Hopper in Gluon, Triton's language with explicit memory; importing it imports triton.

    C = A @ B

For readers who compare languages: what the rungs of ``kernels/gemm`` with wgmma, TMA and mbarriers
do in CUDA C++ (``r06_pipeline.cu``) stands here in Python. Buffers, barriers and layouts are
written out as there; registers, synchronisation of warps and the swizzle are the compiler's.

One program computes one tile of C. Tiles of A and B arrive in a ring of STAGES buffers by bulk
copies, each announced by a barrier. While the tensor cores multiply one stage, the copies of the
next ones are under way. Programs are numbered in groups of GROUP_M tile rows, as in
:mod:`gemmetry.providers.kernels.triton_matmul`.

Gluon is experimental: what is used here exists in Triton 3.6 and 3.9.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# ruff: noqa: RUF005  (Gluon has no starred expressions)


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
