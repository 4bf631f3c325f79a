"""Builds the same configuration for other operations, and lists shapes worth trying with it.

Tiled kernels fail at the edges. The last tile may be partial, or the number of tiles odd. A
reduction may be shorter than one step, or have one more step than the pipeline has stages. Others
branch by what only sizes have in common: remainders, multiples, equality, or what they keep from an
earlier shape. A set drawn from the seed covers these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, cycle
from typing import NamedTuple

import numpy as np

from gemmetry.domain.contracts import Executable
from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import RequestError
from gemmetry.domain.operation import (
    Conv2dShape,
    MatmulShape,
    Operation,
    OperationKind,
    Shape,
    check_shape,
)
from gemmetry.verification.checks import CheckResult

DEFAULT_TILE = (128, 128, 64)
"""Tile assumed where a configuration does not specify one: the most common on current GPUs (the
default of CUTLASS 3 for Hopper is 128 × 128 × 64)."""

DEFAULT_STAGES = 4
"""Assumed depth of a software pipeline: Triton's tuning lists and CUTLASS use 3 to 5."""

ALIGNMENT = 16
"""Multiple to which a size is rounded up where the exact tail is rejected: libraries require an
alignment of 16 bytes, which is 16 elements of the narrowest format (cuBLASLt, fp8)."""

_ROUNDINGS = ((1, 1, 1), (1, 1, ALIGNMENT), (ALIGNMENT, ALIGNMENT, ALIGNMENT))
"""Multiples of M, N and K, tried until one is accepted. Kernels that fetch rows along K need
alignment there, but not of the number of rows and columns."""

PROCESSORS = 132
"""Streaming multiprocessors of an H100 SXM and an H200 (NVIDIA H100 white paper): a persistent
kernel has a full last wave with this number of tiles, and a single tile in its last wave with one
more."""

COLUMN_THREADS = 512
"""A kernel with one thread per column, or a loop that ends there, drops columns from here on;
blocks of more than 1024 threads are impossible (CUDA C++ Programming Guide, compute
capabilities)."""

_BATCHES = (3, 2, 1, 5, 4)
"""Numbers of matrices in a batch, in turn."""

_ALONE = 2
"""Index of a shape, which makes it a batch of one."""

REMAINDERS = 32
"""Remainders that sizes of the covering set leave: the widest vector load of the narrowest format
has 16 elements, and a warp 32 threads."""

THIN = 8
"""Sizes up to this have paths of their own: products with a vector, and narrow fragments."""

LARGE_RESULT = 2**19
"""Minimum number of elements of the covering set's largest result."""

SHAPES_ON_GPU = 4, 32
"""Fewest and most shapes of the covering set that are drawn for a configuration at level standard
on a GPU, where each is compiled, or takes milliseconds: the configurations of a provider share the
set."""

_COVERING = 140
"""Approximate number of shapes in the covering set."""

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
    most_shapes: int | None = None
    """Number of shapes of the covering set that are drawn; None: all."""
    known: MutableMapping[str, CheckResult] = field(default_factory=dict, compare=False)
    """Results that are valid for every shape of the operation; the caller keeps them for the next
    one."""

    @contextmanager
    def built(self, operation: Operation) -> Iterator[Executable | None]:
        """What :attr:`build` returns, closed at the end of the block."""
        executable = self.build(operation)
        try:
            yield executable
        finally:
            if executable is not None:
                executable.close()


def most_shapes(target: Target, level: str, configurations: int) -> int | None:
    """Number of shapes of the covering set tried on `target` at `level`; None: all.

    Args:
        configurations: number that the provider has for the operation.
    """
    if target.kind is TargetKind.CPU or level != "standard":
        return None
    fewest, most = SHAPES_ON_GPU
    return min(most, max(fewest, -(-_COVERING // max(1, configurations))))


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
            handful that covers each of these once.
    """
    tile = Sizes(*(companions.tile or DEFAULT_TILE))
    stages = companions.stages or DEFAULT_STAGES
    listed = _thorough(tile, stages) if thorough else _few(tile, stages)
    seen: set[Operation] = set()
    for number, sizes in enumerate(listed):
        options = _options(operation, sizes, number)
        if not seen.issuperset(options[:1]):
            seen.add(options[0])
            yield options


def covering_operations(
    operation: Operation, companions: Companions, seed: int
) -> Iterator[tuple[Operation, ...]]:
    """Operations with the signature of `operation` in the order in which to launch each of them
    once, with alternatives as those of :func:`tail_operations`; some occur several times. For a
    convolution each has another filter, stride and padding. Of more than `companions.most_shapes`
    so many are drawn, others for another tile or depth of the pipeline. The first has more tiles
    than the device has multiprocessors, if it reports their number and `operation` has fewer."""
    tile = Sizes(*(companions.tile or DEFAULT_TILE))
    rng = np.random.default_rng([seed % 2**64, *tile, companions.stages or 0])
    covering = list(covering_sizes(tile, rng))
    if companions.most_shapes is not None and len(covering) > companions.most_shapes:
        drawn = rng.choice(len(covering), companions.most_shapes, replace=False)
        covering = [covering[number] for number in sorted(drawn)]
    known: dict[Sizes, tuple[Operation, ...]] = {}
    for sizes in chain(_more_than_a_wave(operation, tile, companions.processors), covering):
        if sizes not in known:
            like = operation
            if isinstance(operation.shape, Conv2dShape):
                like = replace(operation, shape=_other_filter(operation.shape, rng))
            known[sizes] = _options(like, sizes, int(rng.integers(len(_BATCHES))))
        if known[sizes]:
            yield known[sizes]


def covering_sizes(tile: Sizes, rng: np.random.Generator) -> Iterator[Sizes]:
    """M, N and K with every remainder modulo :data:`REMAINDERS`; pairs modulo eight, all three
    modulo four. Tails along two axes at once follow, and K of multiples of 256 and 512. One or two
    sizes up to :data:`THIN` have large others. Equal sizes and a large result come last, with
    shapes that have a part in common with the one before."""

    def size(low: int, high: int) -> int:
        return int(np.exp(rng.uniform(np.log(low), np.log(high + 1))))

    yield from _remainders(rng)
    for axis in range(3):
        edges = [step * int(rng.integers(1, 3)) for step in tile]
        tails = [int(rng.integers(1, max(2, step))) for step in tile]
        tails[axis] = 0
        yield Sizes(*(edge + tail for edge, tail in zip(edges, tails, strict=True)))
    for unit in (256, 512):
        for factor in (1, 2 * int(rng.integers(1, 4)), 1 + 2 * int(rng.integers(1, 3))):
            yield Sizes(size(5, 40), size(5, 40), unit * factor)
    odd = int(rng.integers(2))
    for thin in map(int, 1 + rng.permutation(THIN)):
        pairs = ((0, 1), (0, 2), (1, 2)) if thin % 2 == odd else ()
        for axes in ((0,), (1,), (2,), *pairs):
            for low in (40, 200) if thin == 1 else (40,):
                large = [size(low, 300), size(low, 300), size(low, 600)]
                yield Sizes(*(thin if at in axes else one for at, one in enumerate(large)))
    for equal in ((0, 1), (1, 2), (0, 2), (0, 1, 2)):
        for same in (size(17, 100), 16 * int(rng.integers(2, 7))):
            others = [size(17, 100) for _ in range(3)]
            yield Sizes(*(same if at in equal else one for at, one in enumerate(others)))
    rows = size(300, 900)
    yield Sizes(rows, LARGE_RESULT // rows + size(1, 64), size(3, 9))
    yield from _related(2 * size(9, 40), 2 * size(9, 40) + 1, 2 * size(9, 40), rng)


def _remainders(rng: np.random.Generator) -> Iterator[Sizes]:
    """64 shapes, in random order: the remainders of M and N modulo eight are all pairs, that of K
    is a Latin square over them which also has every three remainders modulo four."""
    shifts = rng.integers(0, 8, 3)
    eighths = [cycle(rng.permutation(4)) for _ in range(3 * 8)]
    for number in map(int, rng.permutation(64)):
        i, j = divmod(number, 8)
        k = (i + j + 2 * (i // 4) + j // 4) % 4 + 4 * ((i // 4 + j // 4) % 2)
        sizes = []
        for axis, remainder in enumerate((i, j, k)):
            part = int(next(eighths[8 * axis + remainder]))
            shifted = (remainder + int(shifts[axis])) % 8
            sizes.append(1 + shifted + 8 * part + REMAINDERS * int(rng.integers(3)))
        yield Sizes(*sizes)


def _related(m: int, n: int, k: int, rng: np.random.Generator) -> Iterator[Sizes]:
    """Shapes that share two sizes, a product of sizes or the set of sizes with (m, n, k), which is
    launched again after each of them: what is kept for a shape must be kept by all of it."""
    others = [
        Sizes(m, n, k + 6), Sizes(m, n + 5, k), Sizes(m + 7, n, k), Sizes(n, m, k), Sizes(m, k, n),
        Sizes(k, n, m), Sizes(2 * m, n, k // 2), Sizes(m // 2, n, 2 * k), Sizes(m + 1, n - 1, k),
    ]  # fmt: skip
    yield Sizes(m, n, k)
    for at in rng.permutation(len(others)):
        yield others[at]
        yield Sizes(m, n, k)


def _other_filter(like: Conv2dShape, rng: np.random.Generator) -> Conv2dShape:
    """`like` with a filter of 1 to 4 taps along each axis, and strides and paddings that mostly
    differ between the axes."""
    r, s, stride_h, stride_w = (int(one) for one in 1 + rng.integers(0, (4, 4, 3, 3)))
    pad_h, pad_w = (int(one) for one in rng.integers(0, (r, s), endpoint=True))
    return like._replace(r=r, s=s, stride_h=stride_h, stride_w=stride_w, pad_h=pad_h, pad_w=pad_w)


def whole_tile(operation: Operation, companions: Companions, tiles: int = 1) -> Operation | None:
    """The operation with the signature of `operation` that consists of one tile and one step, or of
    so many along each axis; None where its kind has no such shape."""
    sizes = Sizes(*(tiles * size for size in companions.tile or DEFAULT_TILE))
    return _operation(operation, sizes, _ALONE, _ROUNDINGS[0])


def rounded_options(
    operation: Operation, sizes: Sizes, *, as_batch: bool = False
) -> tuple[Operation, ...]:
    """The operation of `sizes` with the signature of `operation`, and its alternatives as those of
    :func:`tail_operations`. Empty where its kind has no such shape.

    Args:
        as_batch: a batch has three matrices, not one.
    """
    return _options(operation, sizes, 0 if as_batch else _ALONE)


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
    tiles; half of them are hardly filled, so that the result is small."""
    m, n, _, batch = operation.matmul_shape
    if processors is not None and batch * -(-m // tile.m) * -(-n // tile.n) <= processors:
        yield Sizes(-(-(processors + 1) // 2) * tile.m, tile.n + 1, tile.k)


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
    is_batched = operation.kind is OperationKind.BATCH_MATMUL
    batch = _BATCHES[number % len(_BATCHES)] if is_batched else 1
    shape: Shape = MatmulShape(m, n, k, batch)
    if isinstance(operation.shape, Conv2dShape):
        shape = _conv_shape(operation.shape, m, n, k, images=1 + number % 2)
    try:
        check_shape(operation.signature, shape)
    except RequestError:
        return None
    return Operation(operation.signature, shape)


def _conv_shape(like: Conv2dShape, m: int, n: int, k: int, *, images: int) -> Conv2dShape:
    """A convolution with the filter, strides and padding of `like` whose implicit GEMM has about
    `m` rows, `n` columns and `k` products."""
    width = 7 if m >= 14 else 1
    h = _extent(-(-m // (width * images)), like.r, like.stride_h, like.pad_h)
    w = _extent(width, like.s, like.stride_w, like.pad_w)
    return like._replace(n=images, h=h, w=w, c=-(-k // (like.r * like.s)), f=n)


def _extent(outputs: int, taps: int, stride: int, padding: int) -> int:
    """Input pixels along an axis that give at least `outputs` output pixels, at least one."""
    return max(1, (outputs - 1) * stride + taps - 2 * padding)
