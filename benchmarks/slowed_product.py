"""A product with a known amount of extra work, for the proofs of timing (docs/measurement.md).

It is an ordinary user kernel: ``gemmetry profile --kernel benchmarks/slowed_product.py:product``.
The extra work computes the upper left `rows` × `columns` of C a second time, in the same launch.
"""

from __future__ import annotations

import torch


def product(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    *,
    copy: int = 0,
    rows: int = 0,
    columns: int = 0,
) -> None:
    """C = A·B into `out`, and a part of it again.

    Args:
        a: (M, K).
        b: (K, N).
        out: (M, N), of a format that torch multiplies A and B to.
        copy: changes nothing; it makes the same dispatch another configuration.
        rows: of C to compute again; 0: none.
        columns: of C to compute again; 0: none.
    """
    torch.matmul(a, b, out=out)
    if rows and columns:
        torch.matmul(a[:rows], b[:, :columns], out=out[:rows, :columns])
