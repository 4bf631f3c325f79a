"""A small Triton matmul with deliberate bugs; importing this module imports triton.

    C = A @ B, row-major; f32 or f16 in, f32 out (one bug: s8 in, s32 out)

MUTANT is the code of the bug (0: none), a compile-time constant, so that each bug is a kernel of
its own. The interpreter (TRITON_INTERPRET=1 before triton is first imported) runs the same source
on CPU tensors.
"""

from __future__ import annotations

import triton
import triton.language as tl

# mypy: disable-error-code="untyped-decorator, no-untyped-def"


@triton.jit
def _truncated(value, MASK: tl.constexpr):
    """f32 with the bits that are not set in MASK cleared."""
    return (value.to(tl.int32, bitcast=True) & MASK).to(tl.float32, bitcast=True)


@triton.jit
def _with_shared_exponents(values, AXIS: tl.constexpr):
    """f32 truncated to 24 bits relative to the largest number along AXIS."""
    largest = tl.max(tl.abs(values), axis=AXIS, keep_dims=True)
    exponent = largest.to(tl.int32, bitcast=True) & 0x7F800000
    # Adding and subtracting 1.5 · 2^e clears all bits below 2^(e - 22).
    shift = exponent.to(tl.float32, bitcast=True) * 1.5
    return tl.where(largest > 0.0, (values + shift) - shift, values)


@triton.jit
def _sum_of_thirds(a, b):
    """The product of f32 tiles as nine products of thirds of eight bits each, smallest first."""
    a_high = _truncated(a, -65536)
    a_middle = _truncated(a - a_high, -65536)
    a_low = a - a_high - a_middle
    b_high = _truncated(b, -65536)
    b_middle = _truncated(b - b_high, -65536)
    b_low = b - b_high - b_middle
    sums = tl.dot(a_low, b_low, input_precision="ieee")
    sums += tl.dot(a_low, b_middle, input_precision="ieee")
    sums += tl.dot(a_middle, b_low, input_precision="ieee")
    sums += tl.dot(a_low, b_high, input_precision="ieee")
    sums += tl.dot(a_middle, b_middle, input_precision="ieee")
    sums += tl.dot(a_high, b_low, input_precision="ieee")
    sums += tl.dot(a_middle, b_high, input_precision="ieee")
    sums += tl.dot(a_high, b_middle, input_precision="ieee")
    return sums + tl.dot(a_high, b_high, input_precision="ieee")


@triton.jit
def mutant_matmul(
    a,
    b,
    c,
    m,
    n,
    k,
    MUTANT: tl.constexpr,
    SPLITS: tl.constexpr,
    REVERSED: tl.constexpr,
    THIRDS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """Distribute the tiles of C over the programs; with SPLITS above 1, each tile's steps along K
    are divided among that many programs, which add to C by atomics."""
    tiles_m = (m + BLOCK_M - 1) // BLOCK_M
    tiles_n = (n + BLOCK_N - 1) // BLOCK_N
    tiles = tiles_m * tiles_n * SPLITS
    if MUTANT == 29:
        tiles -= 1
    for index in range(tl.program_id(0), tiles, tl.num_programs(0)):
        tile, split = index // SPLITS, index % SPLITS
        group = tile // (GROUP_M * tiles_n)
        height = min(tiles_m - group * GROUP_M, GROUP_M)
        if MUTANT == 30:
            height = GROUP_M
        in_group = tile % (GROUP_M * tiles_n)
        first_row = (group * GROUP_M + in_group % height) * BLOCK_M
        first_column = (in_group // height) * BLOCK_N
        rows = first_row + tl.arange(0, BLOCK_M)
        columns = first_column + tl.arange(0, BLOCK_N)
        row_inside = (rows < m)[:, None]
        column_inside = (columns < n)[None, :]

        first_step = 0
        steps = (k + BLOCK_K - 1) // BLOCK_K
        if MUTANT == 5:
            steps = k // BLOCK_K
        if MUTANT == 70:
            steps = min(steps, 1024 // BLOCK_K)
        if MUTANT == 8:
            first_step = 1
        sums = tl.full((BLOCK_M, BLOCK_N), 0.0, tl.float32)
        for step in range(first_step + split, steps, SPLITS):
            position = step
            if REVERSED:
                position = steps - 1 - step
            depths = position * BLOCK_K + tl.arange(0, BLOCK_K)
            depth_inside = depths < k
            if MUTANT == 63:
                depth_inside = depths < tl.where(k % 8 == 4, k + 4, k)
            if MUTANT == 6:
                depth_inside = depths >= 0
            a_tile = tl.load(
                a + rows[:, None] * k + depths[None, :],
                mask=row_inside & depth_inside[None, :],
                other=0,
            )
            if MUTANT == 92:
                is_lost = (a_tile != a_tile) & (depths % 8 == 5)[None, :]
                a_tile = tl.where(is_lost, 0.0, a_tile)
            if MUTANT == 94:
                corner = tl.load(a + first_row * k + position * BLOCK_K)
                a_tile = tl.where(corner == 0.0, 0.0, a_tile)
            b_offsets = depths[:, None] * n + columns[None, :]
            if MUTANT == 47:
                b_offsets = columns[None, :] * k + depths[:, None]
            b_tile = tl.load(b + b_offsets, mask=depth_inside[:, None] & column_inside, other=0)
            if MUTANT == 38:
                a_tile = _truncated(a_tile, -8192)
                b_tile = _truncated(b_tile, -8192)
            if MUTANT == 67:
                a_tile = _with_shared_exponents(a_tile, 1)
            if MUTANT == 167:
                b_tile = tl.where(tl.abs(b_tile) < 1.0e-12, 0.0, b_tile)
            if MUTANT == 68:
                a_tile = tl.where(tl.abs(a_tile.to(tl.float32)) < 6.1e-5, 0.0, a_tile).to(
                    tl.float16
                )
            if MUTANT == 57:
                a_tile = a_tile.to(tl.float32)
                b_tile = b_tile.to(tl.float32)
            if THIRDS:
                sums += _sum_of_thirds(a_tile, b_tile)
            else:
                sums = tl.dot(a_tile, b_tile, sums, input_precision="ieee")
            if MUTANT == 36:
                sums = sums.to(tl.float16).to(tl.float32)

        if MUTANT == 54:
            sums = tl.where(sums == sums, sums, 0.0)
        if MUTANT == 69:
            sums = tl.where(tl.abs(sums) > 3.4e38, tl.abs(sums), sums)
        if MUTANT == 78:
            sums = (sums + tl.abs(sums)) * 0.5
        if MUTANT == 91:
            sums = tl.where((sums > 1.0e30) & (sums < 3.4e38), 1.0e30, sums)
        targets = c + rows[:, None] * n + columns[None, :]
        inside = row_inside & column_inside
        if MUTANT == 3:
            inside = inside & (rows < m // BLOCK_M * BLOCK_M)[:, None]
        if MUTANT == 4:
            inside = inside & (columns < n // BLOCK_N * BLOCK_N)[None, :]
        if MUTANT == 170:
            inside = inside & (columns < 512)[None, :]
        if MUTANT == 61:
            inside = inside & (sums != 0.0)
        if MUTANT == 51:
            there = tl.load(targets, mask=inside, other=float("nan"))
            inside = inside & ((there != there) | (tl.abs(there) > 1.0e30))
        if MUTANT == 151:
            corner = tl.load(c + (rows * 0 + first_row)[:, None] * n + (columns * 0 + first_column))
            inside = inside & ((corner != corner) | (tl.abs(corner) > 1.0e30))
        if SPLITS > 1:
            tl.atomic_add(targets, sums, mask=inside)
        else:
            if MUTANT == 46:
                sums += tl.load(targets, mask=inside, other=0.0)
            tl.store(targets, sums, mask=inside)
