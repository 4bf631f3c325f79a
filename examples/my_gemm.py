"""A matrix multiply of one's own, on numpy arrays: one block of C at a time.

Profile it against torch:

    gemmetry profile --kernel examples/my_gemm.py:blocked --providers torch,user \
        --problem-m 257 --problem-n 129 --problem-k 65 --dtypes f32
"""

from __future__ import annotations

import numpy as np

CONFIGURATIONS = [{"tile": 32}, {"tile": 64}, {"tile": 128}]


def blocked(a: np.ndarray, b: np.ndarray, *, tile: int) -> np.ndarray:
    """C = A @ B for A (M, K) and B (K, N), in blocks of tile x tile x tile.

    Python cuts a slice at the end of its array, so the last block of each direction is right
    without further care.
    """
    m, k = a.shape
    n = b.shape[1]
    c = np.zeros((m, n), a.dtype)
    for i in range(0, m, tile):
        for j in range(0, n, tile):
            for p in range(0, k, tile):
                rows, columns, depth = slice(i, i + tile), slice(j, j + tile), slice(p, p + tile)
                c[rows, columns] += a[rows, depth] @ b[depth, columns]
    return c
