"""The facts that a kernel's name can encode."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class KernelKind(StrEnum):
    """Kind of work that a kernel does."""

    GEMM = "gemm"
    GEMM_REDUCTION = "gemm_reduction"
    """A helper pass of a GEMM: sums the slices of split-k, or scales C first."""
    GEMV = "gemv"
    """Matrix by vector, and the vector by vector kernels that BLAS calls for a matmul."""
    ATTENTION = "attention"
    CONVOLUTION = "convolution"
    """Convolutions, including implicit-GEMM ones, and their helper passes."""
    NORMALISATION = "normalisation"
    SOFTMAX = "softmax"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    """Sums, means, scans, pooling, losses."""
    COPY = "copy"
    """Copies, concatenations, transpositions, changes of layout."""
    FILL = "fill"
    COLLECTIVE = "collective"
    """Communication between GPUs."""
    EMBEDDING = "embedding"
    """Rows by index: embedding tables, gather, scatter, index_select."""
    SORT = "sort"
    """Sorts, top-k, searches."""
    OPTIMIZER = "optimizer"
    RANDOM = "random"
    """Random numbers, dropout, sampling."""
    OTHER = "other"


GEMM_KINDS = frozenset({KernelKind.GEMM, KernelKind.GEMM_REDUCTION, KernelKind.GEMV})
"""The kinds whose time is GEMM time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelName:
    """Facts encoded in a name; None where it does not specify a fact."""

    kind: KernelKind
    family: str = ""
    """The library or generator: ``cublas``, ``cublaslt``, ``nvjet``, ``cutlass2``, ``cutlass3``,
    ``xmma``, ``triton``, ``hipblaslt``, ``tensile``, ``ck``, ``aiter``, ``pytorch``, ``nccl`` ...
    "" where it is not known."""
    tile: tuple[int, int, int] | None = None
    """M, N, K of a thread block's tile; K is 0 where only M and N are specified."""
    stages: int | None = None
    """Number of pipeline stages between memory and the multiplication."""
    cluster: tuple[int, int] | None = None
    """Blocks of a cluster along M and N."""
    layout: str | None = None
    """``nn``, ``nt``, ``tn`` or ``tt``: op(A) and op(B) in BLAS's column-major convention."""
    dtype: str | None = None
    """Format in which the inputs are multiplied (``tf32`` for f32 inputs on TF32 tensor cores)."""
    result_dtype: str | None = None
    accumulator: str | None = None
    split_k: int | None = None
    """Slices of k; None where the name does not specify their number."""
    collective: str | None = None
    """The collective, named as in nccl-tests: ``all_reduce``, ``all_gather``, ``reduce_scatter``,
    ``all_to_all``, ``broadcast``, ``reduce``, ``gather``, ``scatter``, ``send_recv``."""
    algorithm: str | None = None
    """``ring``, ``tree``, ``nvls``, ``nvls_tree``, ``collnet_direct``, ``collnet_chain``, ``pat``,
    ``one_shot``, ``two_shot``, ``multimem``, ``symmetric``."""
    protocol: str | None = None
    """``ll``, ``ll128``, ``simple``."""
    short: str = ""
    """A readable name of at most 60 characters on one line."""
