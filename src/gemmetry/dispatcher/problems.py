"""What a table is keyed by: the size of a product, everything else about it, and candidates."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.names import operation_name, parse_operation
from gemmetry.domain.operation import Operation

CUBLAS = "torch:default"
"""The candidate that computes everything: torch's own call, which is cuBLAS on NVIDIA."""

ANY_CLASS = "any"
"""Stands for all classes of tails."""

_DEFAULT_TILE = (128, 128, 64)
"""Assumed where a configuration does not specify a tile, as verification assumes it."""
_PROOF_SIZES = ((136, 1032, 4608), (128, 1792, 4608))
"""Of N, 1032 is no multiple of any tile, but of 8, so that operands need no packed copy; 1792 is a
multiple of 112, 128 and 256. K is a multiple of 512, which some kernels for few rows require."""
_SMALL_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
_ROW_STEP = 256


class MatmulProblem(NamedTuple):
    """A matmul: its size, and what its name has after the size."""

    signature: str
    """Formats, layouts and modifiers, as in ``bf16t_bf16n_bf16t_bias_relu``."""
    m: int
    n: int
    k: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.m, self.n, self.k

    @property
    def name(self) -> str:
        """The operation's name."""
        return f"matmul_{self.m}x{self.n}x{self.k}_{self.signature}"

    @property
    def row_bucket(self) -> int:
        """M rounded up to 1, 2, 4 … 128, or to a multiple of 256: kernels of one bucket run the
        same number of rows of tiles."""
        if self.m > _SMALL_ROWS[-1]:
            return -(-self.m // _ROW_STEP) * _ROW_STEP
        return next(rows for rows in _SMALL_ROWS if rows >= self.m)

    @property
    def for_proof(self) -> tuple[MatmulProblem, ...]:
        """Small problems with tails and without, of at most as many rows (kernels for few rows
        accept no more): verifying large ones with many checks takes the host seconds each, and
        shows nothing more of a kernel that is the same for all sizes."""
        return tuple(
            MatmulProblem(self.signature, min(self.m, rows), columns, depth)
            for rows, columns, depth in _PROOF_SIZES
        )

    def distance(self, other: MatmulProblem) -> float:
        """Euclidean distance in octaves of M, N and K."""
        pairs = zip(self.shape, other.shape, strict=True)
        return math.hypot(*(math.log2(a / b) for a, b in pairs))


def problem_of(operation: Operation) -> MatmulProblem:
    """The problem of a matmul."""
    m, n, k, _ = operation.matmul_shape
    return MatmulProblem(operation_name(operation).split("_", 2)[2], m, n, k)


@lru_cache(maxsize=4096)
def operation_of(problem: MatmulProblem) -> Operation:
    """The operation of a problem.

    Raises:
        NameSyntaxError: the signature does not follow docs/names.md.
    """
    return parse_operation(problem.name)


def candidate_of(provider: str, configuration: str) -> str:
    """``provider:configuration``."""
    return f"{provider}:{configuration}"


def parts_of(candidate: str) -> tuple[str, str]:
    """The provider and the configuration's name."""
    provider, _, configuration = candidate.partition(":")
    return provider, configuration


def tail_class(problem: MatmulProblem, configuration: Configuration) -> str:
    """The axes that are no multiples of the configuration's tile, as in ``mk``; ``whole`` if
    there are none. A kernel that is correct for one shape of a class takes the same paths for the
    others."""
    tile = configuration.tile or _DEFAULT_TILE
    sizes = zip("mnk", problem.shape, tile, strict=True)
    return "".join(axis for axis, size, step in sizes if size % step) or "whole"
