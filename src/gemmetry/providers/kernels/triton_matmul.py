"""Our Triton kernel for matmul and batched matmul; importing this module imports triton.

    C = epilogue(alpha · scale_a · scale_b · A @ B + beta · addend)

One program computes one BLOCK_M × BLOCK_N tile of C. Programs are numbered batch by batch and,
within a batch, in groups of GROUP_M tile rows walked column by column, so that programs running
at the same time share tiles of A and B in the L2 cache.

Sizes that are not multiples of the tile are masked; where EVEN_M, EVEN_N or EVEN_K is set, the mask
is left out. The interpreter (TRITON_INTERPRET=1 before triton is first imported) runs the same
source on CPU tensors.
"""

from __future__ import annotations

import triton
import triton.language as tl

# mypy: disable-error-code="untyped-decorator, no-untyped-def"


@triton.jit
def load_tile(
    pointers, rows_inside, columns_inside, EVEN_ROWS: tl.constexpr, EVEN_COLUMNS: tl.constexpr
):
    """A tile of A or B; elements outside the matrix are zero."""
    if EVEN_ROWS and EVEN_COLUMNS:
        tile = tl.load(pointers)
    elif EVEN_ROWS:
        tile = tl.load(pointers, mask=columns_inside, other=0.0)
    elif EVEN_COLUMNS:
        tile = tl.load(pointers, mask=rows_inside, other=0.0)
    else:
        tile = tl.load(pointers, mask=rows_inside & columns_inside, other=0.0)
    return tile


@triton.jit
def _apply_step(value, STEP: tl.constexpr, bias, residual_pointers, columns, n, inside):
    """One epilogue step on a tile of the result, in the accumulator's precision."""
    if STEP == "bias":
        vector = tl.load(bias + columns, mask=columns < n, other=0.0)
        value += vector.to(value.dtype)[None, :]
    if STEP == "relu":
        value = tl.maximum(value, 0)
    if STEP == "gelu":
        value = 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476))
    if STEP == "residual":
        value += tl.load(residual_pointers, mask=inside, other=0.0).to(value.dtype)
    return value


@triton.jit
def place_of_tile(
    number, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr
):
    """The matrix of the batch, the first row and the first column of a tile, given its number."""
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(n, BLOCK_N)
    batch = (number // (tiles_m * tiles_n)).to(tl.int64)
    tile = number % (tiles_m * tiles_n)
    group = tile // (GROUP_M * tiles_n)
    group_height = min(tiles_m - group * GROUP_M, GROUP_M)
    in_group = tile % (GROUP_M * tiles_n)
    first_row = (group * GROUP_M + in_group % group_height) * BLOCK_M
    first_column = (in_group // group_height) * BLOCK_N
    return batch, first_row, first_column


@triton.jit
def finished(
    value,
    addend,
    bias,
    residual,
    batch,
    first_row,
    first_column,
    m,
    n,
    ldc,
    stride_c,
    C_ROW_MAJOR: tl.constexpr,
    ALPHA: tl.constexpr,
    BETA: tl.constexpr,
    STEP_1: tl.constexpr,
    STEP_2: tl.constexpr,
    STEP_3: tl.constexpr,
    STEP_4: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """A tile of C from one of the product: alpha, beta·addend and the epilogue's steps; and where
    it belongs in C, with what of it is inside."""
    rows = first_row + tl.arange(0, BLOCK_M)
    columns = first_column + tl.arange(0, BLOCK_N)
    if ALPHA != 1:
        value *= ALPHA
    if C_ROW_MAJOR:
        offsets = rows[:, None].to(tl.int64) * ldc + columns[None, :]
    else:
        offsets = rows[:, None] + columns[None, :].to(tl.int64) * ldc
    offsets += batch * stride_c
    inside = (rows < m)[:, None] & (columns < n)[None, :]
    if addend is not None:
        present = tl.load(addend + offsets, mask=inside, other=0.0).to(value.dtype)
        if BETA != 1:
            present *= BETA
        value += present
    residual_pointers = residual
    if residual is not None:
        residual_pointers = residual + offsets
    value = _apply_step(value, STEP_1, bias, residual_pointers, columns, n, inside)
    value = _apply_step(value, STEP_2, bias, residual_pointers, columns, n, inside)
    value = _apply_step(value, STEP_3, bias, residual_pointers, columns, n, inside)
    value = _apply_step(value, STEP_4, bias, residual_pointers, columns, n, inside)
    return value, offsets, inside


@triton.jit
def finish_tile(
    value,
    c,
    addend,
    bias,
    residual,
    batch,
    first_row,
    first_column,
    m,
    n,
    ldc,
    stride_c,
    C_ROW_MAJOR: tl.constexpr,
    ALPHA: tl.constexpr,
    BETA: tl.constexpr,
    STEP_1: tl.constexpr,
    STEP_2: tl.constexpr,
    STEP_3: tl.constexpr,
    STEP_4: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Alpha, beta·addend and the epilogue's steps on a tile of the product, and its store to C."""
    value, offsets, inside = finished(
        value, addend, bias, residual, batch, first_row, first_column, m, n, ldc, stride_c,
        C_ROW_MAJOR, ALPHA, BETA, STEP_1, STEP_2, STEP_3, STEP_4, BLOCK_M, BLOCK_N,
    )  # fmt: skip
    tl.store(c + offsets, value.to(c.dtype.element_ty), mask=inside)


@triton.jit
def scaled(
    value,
    scale_a,
    scale_b,
    batch,
    first_row,
    first_column,
    m,
    n,
    ROW_SCALING: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """A tile of the product times its scale factors, where there are any."""
    if scale_a is not None:
        if ROW_SCALING:
            rows = first_row + tl.arange(0, BLOCK_M)
            columns = first_column + tl.arange(0, BLOCK_N)
            factors_a = tl.load(scale_a + batch * m + rows, mask=rows < m, other=0.0)
            factors_b = tl.load(scale_b + batch * n + columns, mask=columns < n, other=0.0)
            value *= factors_a[:, None] * factors_b[None, :]
        else:
            value *= tl.load(scale_a) * tl.load(scale_b)
    return value


@triton.jit
def matmul_kernel(
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
    A_ROW_MAJOR: tl.constexpr,
    B_ROW_MAJOR: tl.constexpr,
    C_ROW_MAJOR: tl.constexpr,
    EVEN_M: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
    IMPRECISE_STEPS: tl.constexpr,
    ACCUMULATE_F16: tl.constexpr,
    ROW_SCALING: tl.constexpr,
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
    """A is (m, k), B (k, n), C (m, n) in each batch.

    lda, ldb, ldc: elements between two rows (row-major) or two columns (column-major);
    stride_a, stride_b, stride_c: elements between two matrices of a batch. addend and residual have
    the layout of C. scale_a and scale_b are f32: one factor each, or with ROW_SCALING one per row
    of A and per column of B. Absent tensors and steps are None. IMPRECISE_STEPS: how many fp8
    products Hopper's tensor cores may add in their short accumulator before the sum is carried over
    to f32 (None: other types).
    """
    batch, first_row, first_column = place_of_tile(
        tl.program_id(0), m, n, BLOCK_M, BLOCK_N, GROUP_M
    )

    row = tl.arange(0, BLOCK_M)
    column = tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    rows_inside = (first_row + row < m)[:, None]
    columns_inside = (first_column + column < n)[None, :]

    # The offset of the tile's corner needs 64 bits; within the tile 32 bits are enough.
    a += batch * stride_a
    b += batch * stride_b
    if A_ROW_MAJOR:
        a_pointers = a + first_row.to(tl.int64) * lda + (row[:, None] * lda + depth[None, :])
        a_step = BLOCK_K
    else:
        a_pointers = a + first_row + (row[:, None] + depth[None, :] * lda)
        a_step = BLOCK_K * lda
    if B_ROW_MAJOR:
        b_pointers = b + first_column + (depth[:, None] * ldb + column[None, :])
        b_step = BLOCK_K * ldb
    else:
        b_pointers = b + first_column.to(tl.int64) * ldb + (depth[:, None] + column[None, :] * ldb)
        b_step = BLOCK_K

    if a.dtype.element_ty == tl.int8:
        accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    elif ACCUMULATE_F16:
        accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float16)
    else:
        accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        depth_inside = depth < k - start
        a_tile = load_tile(a_pointers, rows_inside, depth_inside[None, :], EVEN_M, EVEN_K)
        b_tile = load_tile(b_pointers, depth_inside[:, None], columns_inside, EVEN_K, EVEN_N)
        accumulator = tl.dot(
            a_tile,
            b_tile,
            accumulator,
            input_precision=INPUT_PRECISION,
            max_num_imprecise_acc=IMPRECISE_STEPS,
            out_dtype=accumulator.dtype,
        )
        a_pointers += a_step
        b_pointers += b_step

    value = accumulator
    if ACCUMULATE_F16:
        value = value.to(tl.float32)
    value = scaled(
        value, scale_a, scale_b, batch, first_row, first_column, m, n,
        ROW_SCALING, BLOCK_M, BLOCK_N,
    )  # fmt: skip
    finish_tile(
        value, c, addend, bias, residual, batch, first_row, first_column, m, n, ldc, stride_c,
        C_ROW_MAJOR, ALPHA, BETA, STEP_1, STEP_2, STEP_3, STEP_4, BLOCK_M, BLOCK_N,
    )  # fmt: skip
