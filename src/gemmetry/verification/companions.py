"""Builds the same configuration for other operations, and lists shapes worth trying with it.

Tiled kernels fail at the edges: at the last tile along an axis that is not a multiple of the tile,
a reduction shorter than one step, one more step than the pipeline has stages, an odd number of
tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from gemmetry.domain.contracts import Executable
from gemmetry.domain.errors import RequestError
from gemmetry.domain.operation import (
    Conv2dShape,
    MatmulShape,
    Operation,
    OperationKind,
    Shape,
    check_shape,
)
from gemmetry.verification.checks.results import CheckResult

DEFAULT_TILE = (128, 128, 64)
"""Tile assumed where a configuration does not specify one: the most common on current GPUs (the
default of CUTLASS 3 for Hopper is 128 × 128 × 64)."""

DEFAULT_STAGES = 4
"""Assumed depth of a software pipeline: Triton's tuning lists and CUTLASS use 3 to 5."""

ALIGNMENT = 16
"""Multiple to which a size is rounded up where the exact tail is rejected: libraries require an
alignment of 16 bytes, which is 16 elements of the narrowest format (cuBLASLt, fp8)."""

_ROUNDINGS = ((1, 1, 1), (1, 1, ALIGNMENT), (ALIGNMENT, ALIGNMENT, ALIGNMENT))
"""Of M, N and K, until one is accepted. Kernels that fetch rows along K want these to be aligned,
and still compute any number of rows and columns."""

PROCESSORS = 132
"""Streaming multiprocessors of an H100 SXM and an H200 (NVIDIA H100 white paper): a persistent
kernel has a full last wave with this number of tiles, and a single tile in its last wave with one
more."""

COLUMN_THREADS = 512
"""A kernel with one thread per column, or a loop that ends there, drops columns from here on;
blocks of more than 1024 threads are impossible (CUDA C++ Programming Guide, compute
capabilities)."""

_ALONE = 2
"""Index of a shape, which makes it a batch of one."""

LONG_K = 1024
"""Number of products after which kernels exceed a table or counter of their steps."""


@dataclass(frozen=True)
class Companions:
    """Builds executables of one provider and configuration for other operations."""

    build: Callable[[Operation], Executable | None]
    """Build an executable; None where the provider does not support the operation in this
    configuration. The caller closes the executable."""
    tile: tuple[int, int, int] | None = None
    """Sizes of one thread block's tile, where the configuration specifies them."""
    stages: int | None = None
    """Depth of the pipeline, where the configuration specifies it."""
    processors: int | None = None
    """Number of the device's multiprocessors, where it is a GPU that reports them."""
    known: MutableMapping[str, CheckResult] = field(default_factory=dict, compare=False)
    """Results that are valid for every shape of the operation; the caller keeps them for the next
    one."""


class Sizes(NamedTuple):
    """M, N and K of a tail shape."""

    m: int
    n: int
    k: int


def tail_operations(
    operation: Operation, companions: Companions, *, thorough: bool
) -> Iterator[tuple[Operation, ...]]:
    """Small operations with the signature of `operation`, each with alternatives for where it is
    rejected: K, or all sizes, rounded up to multiples of :data:`ALIGNMENT`.

    Args:
        thorough: every size of ``{1, B-1, B, B+1, 2B-1, prime}`` along M with every along N, a
            longer list along K, and as many tiles as a large GPU has processors, instead of a
            handful that covers each of these once. More tiles than the device has multiprocessors
            are always tried if it reports their number and `operation` has fewer tiles.
    """
    bm, bn, bk = companions.tile or DEFAULT_TILE
    stages = companions.stages or DEFAULT_STAGES
    tile = Sizes(bm, bn, bk)
    listed = _thorough(tile, stages) if thorough else _few(tile, stages)
    waves = _more_than_a_wave(operation, tile, companions.processors)
    seen: set[Operation] = set()
    for number, sizes in enumerate(chain(listed, waves)):
        options = _options(operation, sizes, number)
        if options and options[0] not in seen:
            seen.add(options[0])
            yield options


def whole_tile(operation: Operation, companions: Companions, tiles: int = 1) -> Operation | None:
    """The operation with the signature of `operation` that consists of one tile and one step, or of
    so many along each axis; None where its kind has no such shape."""
    m, n, k = companions.tile or DEFAULT_TILE
    return _operation(operation, Sizes(tiles * m, tiles * n, tiles * k), _ALONE, _ROUNDINGS[0])


def rounded_options(operation: Operation, sizes: Sizes) -> tuple[Operation, ...]:
    """The operation of `sizes` with the signature of `operation`, and its alternatives as those of
    :func:`tail_operations`. Empty where its kind has no such shape."""
    return _options(operation, sizes, _ALONE)


def _options(operation: Operation, sizes: Sizes, number: int) -> tuple[Operation, ...]:
    found = (_operation(operation, sizes, number, multiples) for multiples in _ROUNDINGS)
    return tuple(dict.fromkeys(option for option in found if option is not None))


def _few(tile: Sizes, stages: int) -> Iterator[Sizes]:
    """The most informative shapes come first: a check that runs out of time skips the last ones."""
    bm, bn, bk = tile
    yield Sizes(bm + 1, bn - 1, bk + 1)
    # One more step of K than the pipeline has stages: barriers and buffers wrap around.
    yield Sizes(bm - 1, bn + 1, (stages + 1) * bk)
    # Three tiles along M; N below one fragment.
    yield Sizes(2 * bm + 1, 17, 3 * bk - 1)
    # Full tiles: an odd number of them, then an even number in a rectangular grid. K below one
    # step, and half of a vector of sixteen.
    yield Sizes(3 * bm, 3 * bn, max(1, min(bk // 2, 8)))
    yield Sizes(4 * bm, 2 * bn, 2 * bk)
    # Fewer rows than a tile, K below one step, an N beyond 192 that is not a multiple of 16.
    yield Sizes(1, max(prime_from(2 * bn), 193), 2)
    # Primes, M ≠ N, so that no swizzle divides them; K leaves half a vector of eight.
    yield Sizes(prime_from(bm + 2), prime_from(2 * bn + 2), stages * bk - 4)
    # One column, and eight; one product. With these and the next, K has every remainder modulo
    # eight.
    yield Sizes(bm + 3, 1, 2 * bk + 5)
    yield Sizes(19, 8, 1)
    # More columns than a block has threads, and more products than tables of steps have entries.
    # Few rows, and thus few tiles, as interpreted kernels take a millisecond per step and tile.
    yield Sizes(5, prime_from(COLUMN_THREADS + 1), 3)
    yield Sizes(3, 24, LONG_K + 6)


def _more_than_a_wave(operation: Operation, tile: Sizes, processors: int | None) -> Iterator[Sizes]:
    """A grid with at least one tile more than a full wave, if `operation` itself has no more
    tiles."""
    bm, bn, bk = tile
    m, n, _, batch = operation.matmul_shape
    if processors is None or batch * -(-m // bm) * -(-n // bn) > processors:
        return
    columns = 3
    rows = -(-(processors + 1) // columns)
    yield Sizes((rows - 1) * bm + 1, columns * bn, bk)


def _thorough(tile: Sizes, stages: int) -> Iterator[Sizes]:
    yield from _few(tile, stages)
    bm, bn, bk = tile
    depths = [1, bk - 1, bk, bk + 1, 2 * bk - 1, prime_from(bk)]
    depths += [(stages - 1) * bk, stages * bk, (stages + 1) * bk, (2 * stages + 1) * bk + 1]
    for i, m in enumerate(_edges(bm)):
        for j, n in enumerate(_edges(bn)):
            yield Sizes(m, n, depths[(6 * i + j) % len(depths)])
    for k in depths:
        yield Sizes(bm + 1, bn + 1, k)
    # PROCESSORS and one more tile: 132 = 12 · 11, 133 = 19 · 7.
    for rows, columns in ((12, 11), (19, 7)):
        yield Sizes(rows * bm, columns * bn, bk)


def _edges(size: int) -> tuple[int, ...]:
    return (1, size - 1, size, size + 1, 2 * size - 1, prime_from(size + 2))


def prime_from(size: int) -> int:
    """The smallest prime that is at least `size` (and 2)."""
    found = max(size, 2)
    while any(found % divisor == 0 for divisor in range(2, int(found**0.5) + 1)):
        found += 1
    return found


def _operation(
    operation: Operation, sizes: Sizes, number: int, multiples: tuple[int, int, int]
) -> Operation | None:
    pairs = zip(sizes, multiples, strict=True)
    m, n, k = (-(-max(size, 1) // multiple) * multiple for size, multiple in pairs)
    slices = operation.signature.split_k_slices
    k = -(-k // slices) * slices
    shape: Shape
    if isinstance(operation.shape, Conv2dShape):
        shape = _conv_shape(operation.shape, m, n, k, images=1 + number % 2)
    else:
        is_batched = operation.kind is OperationKind.BATCH_MATMUL
        shape = MatmulShape(m, n, k, batch=(3, 2, 1)[number % 3] if is_batched else 1)
    try:
        check_shape(operation.signature, shape)
    except RequestError:
        return None
    return Operation(operation.signature, shape)


def _conv_shape(like: Conv2dShape, m: int, n: int, k: int, *, images: int) -> Conv2dShape:
    """A convolution with the filter, strides and padding of `like` whose implicit GEMM has about
    `m` rows, `n` columns and `k` products."""
    width = 7 if m >= 14 else 1
    height = -(-m // (width * images))
    return like._replace(
        n=images,
        h=_extent(height, like.r, like.stride_h, like.pad_h),
        w=_extent(width, like.s, like.stride_w, like.pad_w),
        c=-(-k // (like.r * like.s)),
        f=n,
    )


def _extent(outputs: int, taps: int, stride: int, padding: int) -> int:
    """Input pixels along an axis that give at least `outputs` output pixels, at least one."""
    return max(1, (outputs - 1) * stride + taps - 2 * padding)
