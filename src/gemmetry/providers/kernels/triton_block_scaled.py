"""Our Triton kernel for operands whose blocks have scale factors; importing this module imports
triton.

    C = epilogue(alpha · (A∘SA) @ (B∘SB) + beta · addend)

with A row-major and B column-major, so that blocks are contiguous. Three methods:

``promoted``
    fp8 with f32 factors: the sum of each block of K is multiplied by its factors and added to an
    f32 accumulator, so that Hopper's 14-bit sums hold one block only (DeepSeek-V3, section 3.5.2).
``dotscaled``
    Triton's ``dot_scaled``: the tensor cores of Blackwell apply the factors; for other processors
    Triton widens both operands to bf16 first.
``widened``
    elements are multiplied by their factors in registers, in bf16, which holds these products
    exactly: for blocks that ``dot_scaled`` does not know.

Numbers of 4 bits are pairs in bytes along K, the first one in the lower half.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gemmetry.providers.kernels.triton_matmul import finish_tile, load_tile, place_of_tile

# mypy: disable-error-code="untyped-decorator, no-untyped-def"


@triton.jit
def _as_stored(tile, FORMAT: tl.constexpr):
    """A tile of bytes as its fp8 format."""
    if FORMAT == "e4m3":
        tile = tile.to(tl.float8e4nv, bitcast=True)
    elif FORMAT == "e5m2":
        tile = tile.to(tl.float8e5, bitcast=True)
    return tile


@triton.jit
def _widest(tile, WIDE: tl.constexpr):
    """A tile in the format in which it is multiplied."""
    if WIDE == "fp32":
        tile = tile.to(tl.float32)
    elif WIDE == "bf16":
        tile = tile.to(tl.bfloat16)
    return tile


@triton.jit
def _from_bits(bits, WIDE: tl.constexpr):
    """The bits of bf16 numbers, as uint16, in the format in which they are multiplied."""
    if WIDE == "fp32":
        values = (bits.to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    else:
        values = bits.to(tl.bfloat16, bitcast=True)
    return values


@triton.jit
def _e2m1_values(codes, WIDE: tl.constexpr):
    """Values 0, 0.5, 1, 1.5, 2, 3, 4, 6 for the codes 0 to 7, and their negatives for 8 to 15: from
    1 on the bits of a code are the last of the exponent and the first of the mantissa."""
    size = codes & 7
    half: tl.constexpr = 0x3F00
    bits = tl.where(size > 1, (size << 6) + half, tl.where(size == 1, half, 0))
    return _from_bits((bits | ((codes & 8) << 12)).to(tl.uint16), WIDE)


@triton.jit
def _values(tile, FORMAT: tl.constexpr, WIDE: tl.constexpr):
    """The numbers of a (lines, K) tile of bytes; two for each byte of e2m1."""
    if FORMAT == "e2m1":
        codes = tile.to(tl.uint16)
        pairs = tl.join(_e2m1_values(codes & 15, WIDE), _e2m1_values(codes >> 4, WIDE))
        values = pairs.reshape(tile.shape[0], 2 * tile.shape[1])
    else:
        values = _widest(_as_stored(tile, FORMAT), WIDE)
    return values


@triton.jit
def _factor_values(factors, FORMAT: tl.constexpr, WIDE: tl.constexpr):
    """Factors of 8 bits. The byte b of e8m0 is 2^(b - 127), and 255 is NaN."""
    if FORMAT == "e8m0":
        bits = factors.to(tl.uint16) << 7
        bits = tl.where(factors == 0, 0x0040, tl.where(factors == 255, 0x7FC0, bits))
        values = _from_bits(bits.to(tl.uint16), WIDE)
    else:
        values = _widest(factors.to(tl.float8e4nv, bitcast=True), WIDE)
        if WIDE == "fp32":
            # Triton's interpreter converts the NaN of e4m3 to 480.
            values = tl.where((factors & 127) == 127, float("nan"), values)
    return values


@triton.jit
def _widened(tile, factors, FORMAT: tl.constexpr, FACTORS: tl.constexpr, WIDE: tl.constexpr):
    """(lines, K) elements times their factors (lines, blocks): exact in bf16 unless it underflows,
    as both have at most 4 significand bits."""
    values = _values(tile, FORMAT, WIDE)
    lines: tl.constexpr = values.shape[0]
    depth: tl.constexpr = values.shape[1]
    blocks: tl.constexpr = factors.shape[1]
    blocked = values.reshape(lines, blocks, depth // blocks)
    scaled = blocked * _factor_values(factors, FACTORS, WIDE)[:, :, None]
    return scaled.reshape(lines, depth)


@triton.jit
def matmul_kernel_block_scaled(
    a,
    b,
    c,
    addend,
    scale_a,
    scale_b,
    bias,
    residual,
    m,
    n,
    k,
    lda,
    ldb,
    ldc,
    stride_a,
    stride_b,
    stride_c,
    line_a,
    line_b,
    block_a,
    block_b,
    stride_scale_a,
    stride_scale_b,
    C_ROW_MAJOR: tl.constexpr,
    EVEN_M: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
    METHOD: tl.constexpr,
    A_FORMAT: tl.constexpr,
    B_FORMAT: tl.constexpr,
    FACTORS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    WIDE: tl.constexpr,
    ALPHA: tl.constexpr,
    BETA: tl.constexpr,
    STEP_1: tl.constexpr,
    STEP_2: tl.constexpr,
    STEP_3: tl.constexpr,
    STEP_4: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """A is (m, k), B (k, n), C (m, n) in each batch, all given as bytes except C.

    lda, ldb, stride_a, stride_b count these bytes. line_a, line_b: elements of the factors between
    two (groups of) rows of A and columns of B; block_a, block_b: between two blocks of K. One
    factor is for ROWS rows, or COLUMNS columns, by DEPTH. WIDE: the format in which widened
    elements are multiplied; None: the formats as they are.
    """
    batch, first_row, first_column = place_of_tile(
        tl.program_id(0), m, n, BLOCK_M, BLOCK_N, GROUP_M
    )
    row = first_row + tl.arange(0, BLOCK_M)
    column = first_column + tl.arange(0, BLOCK_N)
    rows_inside = (row < m)[:, None]
    columns_inside = (column < n)[:, None]
    packed_a: tl.constexpr = 2 if A_FORMAT == "e2m1" else 1
    packed_b: tl.constexpr = 2 if B_FORMAT == "e2m1" else 1
    depth_a = tl.arange(0, BLOCK_K // packed_a)
    depth_b = tl.arange(0, BLOCK_K // packed_b)

    a_pointers = a + batch * stride_a + row[:, None].to(tl.int64) * lda + depth_a[None, :]
    b_pointers = b + batch * stride_b + column[:, None].to(tl.int64) * ldb + depth_b[None, :]
    factors_a = scale_a + batch * stride_scale_a + (row // ROWS).to(tl.int64) * line_a
    factors_b = scale_b + batch * stride_scale_b + (column // COLUMNS).to(tl.int64) * line_b

    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        inside_a = (start + depth_a * packed_a < k)[None, :]
        inside_b = (start + depth_b * packed_b < k)[None, :]
        a_tile = load_tile(a_pointers, rows_inside, inside_a, EVEN_M, EVEN_K)
        b_tile = load_tile(b_pointers, columns_inside, inside_b, EVEN_N, EVEN_K)
        if METHOD == "promoted":
            block = start // DEPTH
            factor_a = tl.load(factors_a + block * block_a, mask=row < m, other=0.0)
            factor_b = tl.load(factors_b + block * block_b, mask=column < n, other=0.0)
            a_tile = _widest(_as_stored(a_tile, A_FORMAT), WIDE)
            b_tile = _widest(_as_stored(b_tile, B_FORMAT), WIDE)
            product = tl.dot(a_tile, b_tile.T, out_dtype=tl.float32)
            accumulator += product * (factor_a[:, None] * factor_b[None, :])
        else:
            block = start // DEPTH + tl.arange(0, BLOCK_K // DEPTH)
            within = (block * DEPTH < k)[None, :]
            places_a = factors_a[:, None] + block[None, :] * block_a
            places_b = factors_b[:, None] + block[None, :] * block_b
            tile_a = load_tile(places_a, rows_inside, within, EVEN_M, EVEN_K)
            tile_b = load_tile(places_b, columns_inside, within, EVEN_N, EVEN_K)
            if METHOD == "dotscaled":
                if FACTORS == "e4m3":
                    tile_a = tile_a.to(tl.float8e4nv, bitcast=True)
                    tile_b = tile_b.to(tl.float8e4nv, bitcast=True)
                a_tile = _as_stored(a_tile, A_FORMAT)
                b_tile = _as_stored(b_tile, B_FORMAT)
                accumulator = tl.dot_scaled(
                    a_tile, tile_a, A_FORMAT, b_tile.T, tile_b, B_FORMAT, accumulator
                )
            else:
                wide_a = _widened(a_tile, tile_a, A_FORMAT, FACTORS, WIDE)
                wide_b = _widened(b_tile, tile_b, B_FORMAT, FACTORS, WIDE)
                accumulator = tl.dot(wide_a, wide_b.T, accumulator)
        a_pointers += BLOCK_K // packed_a
        b_pointers += BLOCK_K // packed_b

    finish_tile(
        accumulator, c, addend, bias, residual, batch, first_row, first_column, m, n, ldc, stride_c,
        C_ROW_MAJOR, ALPHA, BETA, STEP_1, STEP_2, STEP_3, STEP_4, BLOCK_M, BLOCK_N,
    )  # fmt: skip
