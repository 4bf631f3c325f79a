"""Our Triton kernel for matmul with tensor descriptors; importing this module imports triton.

    C = epilogue(alpha · scale_a · scale_b · A @ B + beta · addend)

What the rungs of ``kernels/gemm`` with bulk copies and persistent blocks taught, in Triton: tiles
of A and B arrive by the copy engine (Hopper and later), which needs no addresses and masks in
registers, and tiles of C leave by it, in PARTS one after the other, so that less shared memory is
kept for them. With PERSISTENT, as many programs as the GPU runs at once compute all tiles in turn,
and the copies for the next tile begin before the last one is stored.

The copy engine replaces what lies outside a matrix by zero and does not store it. The interpreter
(TRITON_INTERPRET=1 before triton is first imported) runs the same source on CPU tensors.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gemmetry.providers.kernels.triton_matmul import finished, place_of_tile, scaled

# ruff: noqa: N806  (constants of the compiler, as arguments have them)
# mypy: disable-error-code="untyped-decorator, no-untyped-def"


@triton.jit
def _load(matrix, row, column, ROW_MAJOR: tl.constexpr):
    """A tile of A or B; a column-major matrix is described as its transpose."""
    return matrix.load([row, column]) if ROW_MAJOR else matrix.load([column, row]).T


@triton.jit
def _store(c, value, row, column, C_ROW_MAJOR: tl.constexpr):
    """A tile or a part of one; a column-major C is described as its transpose."""
    if C_ROW_MAJOR:
        c.store([row, column], value.to(c.dtype))
    else:
        c.store([column, row], value.to(c.dtype).T)


@triton.jit
def _finish(
    value,
    c,
    addend,
    scale_a,
    scale_b,
    bias,
    residual,
    first_row,
    first_column,
    m,
    n,
    ldc,
    C_ROW_MAJOR: tl.constexpr,
    ROW_SCALING: tl.constexpr,
    ALPHA: tl.constexpr,
    BETA: tl.constexpr,
    STEP_1: tl.constexpr,
    STEP_2: tl.constexpr,
    STEP_3: tl.constexpr,
    STEP_4: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Everything after the product, for ROWS × COLUMNS of it, stored in PARTS along the rows."""
    value = scaled(
        value, scale_a, scale_b, 0, first_row, first_column, m, n, ROW_SCALING, ROWS, COLUMNS
    )
    value, _, _ = finished(
        value, addend, bias, residual, 0, first_row, first_column, m, n, ldc, 0,
        C_ROW_MAJOR, ALPHA, BETA, STEP_1, STEP_2, STEP_3, STEP_4, ROWS, COLUMNS,
    )  # fmt: skip
    if PARTS == 1:
        _store(c, value, first_row, first_column, C_ROW_MAJOR)
    else:
        left, right = tl.split(tl.reshape(value, (ROWS, 2, COLUMNS // 2)).permute(0, 2, 1))
        _store(c, left, first_row, first_column, C_ROW_MAJOR)
        _store(c, right, first_row, first_column + COLUMNS // 2, C_ROW_MAJOR)


@triton.jit
def _compute_tile(
    number,
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
    ldc,
    A_ROW_MAJOR: tl.constexpr,
    B_ROW_MAJOR: tl.constexpr,
    C_ROW_MAJOR: tl.constexpr,
    PROMOTED: tl.constexpr,
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
    PARTS: tl.constexpr,
):
    """The tile of C with this number."""
    _, first_row, first_column = place_of_tile(number, m, n, BLOCK_M, BLOCK_N, GROUP_M)
    HALVES: tl.constexpr = PARTS if PROMOTED else 1
    ROWS: tl.constexpr = BLOCK_M // HALVES
    upper = tl.zeros((ROWS, BLOCK_N), dtype=tl.float32)
    lower = tl.zeros((ROWS, BLOCK_N), dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        a_tile = _load(a, first_row, start, A_ROW_MAJOR)
        b_tile = _load(b, start, first_column, B_ROW_MAJOR)
        if PROMOTED:
            # A product of its own, added by the ordinary units: those of one half are added while
            # the tensor cores multiply the other.
            upper += tl.dot(a_tile, b_tile)
            if HALVES == 2:
                lower += tl.dot(_load(a, first_row + ROWS, start, A_ROW_MAJOR), b_tile)
        else:
            upper = tl.dot(a_tile, b_tile, upper)
    _finish(
        upper, c, addend, scale_a, scale_b, bias, residual, first_row, first_column, m, n, ldc,
        C_ROW_MAJOR, ROW_SCALING, ALPHA, BETA, STEP_1, STEP_2, STEP_3, STEP_4,
        ROWS, BLOCK_N, PARTS // HALVES,
    )  # fmt: skip
    if HALVES == 2:
        _finish(
            lower, c, addend, scale_a, scale_b, bias, residual, first_row + ROWS, first_column,
            m, n, ldc, C_ROW_MAJOR, ROW_SCALING, ALPHA, BETA, STEP_1, STEP_2, STEP_3, STEP_4,
            ROWS, BLOCK_N, 1,
        )  # fmt: skip


@triton.jit
def matmul_kernel_descriptors(
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
    ldc,
    A_ROW_MAJOR: tl.constexpr,
    B_ROW_MAJOR: tl.constexpr,
    C_ROW_MAJOR: tl.constexpr,
    PROMOTED: tl.constexpr,
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
    PARTS: tl.constexpr,
    PERSISTENT: tl.constexpr,
):
    """A is (m, k), B (k, n), C (m, n); a, b and c describe them in tiles as they are stored, a
    column-major matrix as its transpose. PARTS (1 or 2): a tile of C is stored in so many pieces
    side by side. PROMOTED (fp8; BLOCK_K at most 128): the products of each step are summed by
    themselves and then added to sums in f32, because Hopper's tensor cores add fp8 products in a
    short accumulator; here the PARTS are the upper and the lower half of the tile, each with its
    own sums, and A is described in such halves. Triton's own promotion (max_num_imprecise_acc)
    waits after each instruction.

    The other arguments are those of :func:`gemmetry.providers.kernels.triton_matmul.matmul_kernel`,
    without batches."""
    if PERSISTENT:
        tiles = tl.cdiv(m, BLOCK_M) * tl.cdiv(n, BLOCK_N)
        for number in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
            _compute_tile(
                number, a, b, c, addend, scale_a, scale_b, bias, residual, m, n, k, ldc,
                A_ROW_MAJOR, B_ROW_MAJOR, C_ROW_MAJOR, PROMOTED, ROW_SCALING, ALPHA, BETA,
                STEP_1, STEP_2, STEP_3, STEP_4, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, PARTS,
            )  # fmt: skip
    else:
        _compute_tile(
            tl.program_id(0), a, b, c, addend, scale_a, scale_b, bias, residual, m, n, k, ldc,
            A_ROW_MAJOR, B_ROW_MAJOR, C_ROW_MAJOR, PROMOTED, ROW_SCALING, ALPHA, BETA,
            STEP_1, STEP_2, STEP_3, STEP_4, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, PARTS,
        )  # fmt: skip
