"""The same multiply with a mistake: what is left of K after the last whole block is dropped.

Right whenever tile divides K, so that a test on 64 x 64 x 64 passes. Verification finds it:

    gemmetry profile --kernel examples/my_wrong_gemm.py:blocked --providers torch,user \
        --problem-m 257 --problem-n 129 --problem-k 65 --dtypes f32
"""

from __future__ import annotations

import numpy as np

CONFIGURATIONS = [{"tile": 32}, {"tile": 64}, {"tile": 65}]


def blocked(a: np.ndarray, b: np.ndarray, *, tile: int) -> np.ndarray:
    """C = A @ B for A (M, K) and B (K, N), if tile divides K."""
    m, k = a.shape
    n = b.shape[1]
    c = np.zeros((m, n), a.dtype)
    for i in range(0, m, tile):
        for j in range(0, n, tile):
            for block in range(k // tile):  # the mistake: k // tile leaves out a partial block
                p = block * tile
                rows, columns, depth = slice(i, i + tile), slice(j, j + tile), slice(p, p + tile)
                c[rows, columns] += a[rows, depth] @ b[depth, columns]
    return c
