"""Tiles moved by tensor descriptors: where the hardware has them, and in which pieces.

The kernel is that of :mod:`gemmetry.providers.kernels.triton_descriptors`. The names of its
configurations begin with the method: ``descriptors_tile_…`` starts one program a tile,
``persistent_tile_…`` as many as the GPU runs at once. ``_parts2`` at the end stores a tile in two
parts.

Tuning configurations of the Triton kernel: names, candidates and validity.

A configuration is called ``tile_<BLOCK_M>x<BLOCK_N>x<BLOCK_K>_warps<W>_stages<S>_group<G>``, after
the method and ``_`` where blocks have scale factors
(:mod:`gemmetry.providers.triton_provider.block_scaled`) or tiles are moved by tensor descriptors
(:mod:`gemmetry.providers.triton_provider.tiles`, which may end in ``_parts2``); ``default``
leaves the choice to :func:`choose`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace

from gemmetry.domain.dispatch import DEFAULT_CONFIGURATION, Configuration, Parameter
from gemmetry.domain.operation import BF16, F16, F32, TF32, Layout, Operation, OperationKind
from gemmetry.providers.triton_provider import block_scaled
from gemmetry.providers.triton_provider.block_scaled import Architecture

DESCRIPTORS, PERSISTENT = METHODS = ("descriptors", "persistent")

_FIRST = 90
"""The first architecture with bulk copies of tensors (PTX ISA, cp.async.bulk.tensor: sm_90)."""
_ROW_BYTES = 16
"""Rows must be multiples of it (cuTensorMapEncodeTiled, globalStrides)."""
_LARGEST_BOX = 256
"""Elements of a tile that is copied, along each axis (cuTensorMapEncodeTiled, boxDim)."""
_DEEPEST_STEP = 128
"""fp8 products that are summed before the sum is promoted: the interval that the error bounds
assume."""
_FEWEST_ROWS = 64
"""Rows of the matrix instruction of four warps (PTX ISA, wgmma)."""


def reason_against(
    operation: Operation, tile: TritonTile, architecture: Architecture | None
) -> str | None:
    """Why `tile` does not compute `operation` through descriptors, or None; architecture None: the
    interpreter."""
    s = operation.signature
    if architecture is not None and (architecture.is_amd or architecture.number < _FIRST):
        return f"tensor descriptors need sm_{_FIRST} or newer, not {architecture.name}"
    if s.kind is not OperationKind.MATMUL:
        return f"the kernel with tensor descriptors does matmul, not {s.kind}"
    if s.lhs not in (BF16, F16) and not s.lhs.is_fp8:
        return f"the kernel with tensor descriptors multiplies bf16, f16 and fp8, not {s.lhs}"
    if s.accumulator is not F32:
        return f"the kernel with tensor descriptors accumulates in f32, not {s.accumulator}"
    if s.lhs.is_fp8 and (s.lhs_layout is not Layout.ROW or s.rhs_layout is not Layout.COLUMN):
        return "fp8 tiles are copied along K: A row-major and B column-major (layouts t, n)"
    for spec in (*operation.inputs[:2], operation.output):
        size = spec.storage_shape[-1] * spec.dtype.itemsize
        if size % _ROW_BYTES:
            return (
                f"tensor descriptors need rows of a multiple of {_ROW_BYTES} bytes; "
                f"{spec.role}: {size}"
            )
    if max(tile.block_m, tile.block_n, tile.block_k) > _LARGEST_BOX:
        return f"{tile.name}: tensor descriptors have at most {_LARGEST_BOX} elements along an axis"
    if s.lhs.is_fp8 and tile.block_k > _DEEPEST_STEP:
        return f"{tile.name}: fp8 products are summed in steps of at most {_DEEPEST_STEP}"
    if s.lhs.is_fp8 and tile.block_m // tile.parts < _FEWEST_ROWS:
        return f"{tile.name}: the parts of an fp8 tile have at least {_FEWEST_ROWS} rows"
    return None


def boxes(operation: Operation, tile: TritonTile) -> dict[str, tuple[int, int]]:
    """Rows and columns, as they are stored, of what one copy of A, B and C moves."""
    s = operation.signature
    # fp8 tiles have two halves with sums of their own; the others are divided when stored.
    rows = tile.block_m // tile.parts if s.lhs.is_fp8 else tile.block_m
    columns = tile.block_n if s.lhs.is_fp8 else tile.block_n // tile.parts
    return {
        "a": _stored(rows, tile.block_k, s.lhs_layout),
        "b": _stored(tile.block_k, tile.block_n, s.rhs_layout),
        "c": _stored(rows, columns, s.result_layout),
    }


def _stored(rows: int, columns: int, layout: Layout) -> tuple[int, int]:
    return (rows, columns) if layout is Layout.ROW else (columns, rows)


_NAME = re.compile(
    rf"(?:({'|'.join((*block_scaled.METHODS, *METHODS))})_)?"
    r"tile_([1-9]\d*)x([1-9]\d*)x([1-9]\d*)_warps([1-9]\d*)_stages([1-9]\d*)_group([1-9]\d*)"
    r"(_parts2)?"
)
_LARGEST_BLOCK = 1024
_FEWEST_TILES = 90
"""`choose` uses smaller tiles until there are at least this many programs: about one per
multiprocessor of a large GPU (H200: 132). On an H200 64x128x128 with 96 programs took 0.79 of the
time of 64x64x64 with 192 (tests/data/tuning/h200_triton.json, 128x6144x4096)."""
_PROPOSED = 1
"""Tiles that take part next to ``default`` where none are requested."""
_WHOLE = 16
"""Triton knows of an extent only whether it is a multiple of 16 (its specialisation of arguments);
of rows that are not, plain tiles load one element at a time."""
_SLIVER = 64
"""Tiles with fewer rows or columns are only for matrices that are not larger."""
_ACCUMULATOR_SHARE = 0.55
"""Maximum share of a thread's registers for the accumulator: on an H200, tiles with 128 of 255
registers ran without spills and those with 256 spilled."""

_PROMOTED_SHARE = 0.8
"""Maximum share with promoted sums: compiled by Triton 3.9 for sm_90, 192 of 255 registers did not
spill, and 256 did."""


@dataclass(frozen=True, slots=True)
class TritonTile:
    """The parameters of one configuration."""

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int
    group: int = 8
    method: str = field(default="", kw_only=True)
    """Method for blocks with scale factors, or for tensor descriptors; "" where there are
    neither."""
    parts: int = field(default=1, kw_only=True)
    """Number of parts in which a tile is stored (tensor descriptors only): 1 or 2."""

    @property
    def name(self) -> str:
        lead = f"{self.method}_tile" if self.method else "tile"
        return (
            f"{lead}_{self.block_m}x{self.block_n}x{self.block_k}"
            f"_warps{self.warps}_stages{self.stages}_group{self.group}"
            f"{'_parts2' if self.parts == 2 else ''}"
        )

    @property
    def describes(self) -> bool:
        """Whether its tiles are moved by tensor descriptors."""
        return self.method in METHODS

    @property
    def configuration(self) -> Configuration:
        return Configuration(self.name, self.parameters)

    @property
    def parameters(self) -> dict[str, Parameter]:
        values: dict[str, Parameter] = {"method": self.method, **asdict(self)}
        unusual = {"method": self.method != "", "parts": self.parts > 1}
        return {name: value for name, value in values.items() if unusual.get(name, True)}

    def tiles(self, operation: Operation) -> int:
        """Number of programs that one launch starts."""
        m, n, _, batch = operation.matmul_shape
        return -(-m // self.block_m) * -(-n // self.block_n) * batch


def parse_tile(name: str) -> TritonTile | None:
    """The inverse of ``Tile.name``; None for other names and for sizes Triton cannot have
    (blocks and warps are powers of two)."""
    if (match := _NAME.fullmatch(name)) is None:
        return None
    method, *sizes, parts = match.groups()
    tile = TritonTile(*map(int, sizes), method=method or "", parts=2 if parts else 1)
    if parts and not tile.describes:
        return None
    powers = (tile.block_m, tile.block_n, tile.block_k, tile.warps)
    if any(size & (size - 1) for size in powers) or max(powers[:3]) > _LARGEST_BLOCK:
        return None
    return tile


def shared_memory_bytes(tile: TritonTile, operation: Operation, architecture: Architecture) -> int:
    """Shared memory that the software pipeline needs: one A and one B tile per buffer.

    The number of buffers was read off Triton's metadata (3.6 and 3.9): one for each stage where
    the matrix instruction reads shared memory itself (wgmma and tcgen05, from 64 rows up) and on
    gfx950, one fewer elsewhere, because there a stage stays in registers.
    """
    s = operation.signature
    a_tile = tile.block_m * tile.block_k
    b_tile = tile.block_k * tile.block_n
    if s.blocks is None:
        step = a_tile * s.lhs.itemsize + b_tile * s.rhs.itemsize
    else:
        step = block_scaled.bytes_of_step(s.lhs, a_tile, tile.method)
        step += block_scaled.bytes_of_step(s.rhs, b_tile, tile.method)
    if tile.describes:
        # Read off Triton's metadata (3.6 and 3.9): persistent programs load while they store.
        ring = tile.stages * step
        elements = tile.block_m * tile.block_n
        stored = elements * s.result.itemsize // tile.parts
        if tile.method != PERSISTENT:
            return max(ring, stored)
        roles = {spec.role for spec in operation.inputs}
        if "bias" in roles:
            stored += tile.block_n * F32.itemsize
        if roles & {"addend", "residual"}:  # they change hands between threads, in pieces
            stored += elements * (s.result.itemsize if s.result.itemsize > 2 else 1)
        return ring + stored
    from_shared = architecture.has_wgmma and tile.block_m >= 64 and s.lhs is not F32
    if from_shared or architecture.name == "gfx950":
        return tile.stages * step
    return max(tile.stages - 1, 1) * step


def why_invalid(tile: TritonTile, operation: Operation, architecture: Architecture) -> str | None:
    """Why `tile` cannot work for `operation` on `architecture`, or None."""
    if reason := wrong_method(tile, operation, architecture):
        return reason
    needed = shared_memory_bytes(tile, operation, architecture)
    if needed > architecture.shared_memory_bytes:
        return (
            f"{tile.name} needs {needed} bytes of shared memory, "
            f"{architecture.name} has {architecture.shared_memory_bytes} per block"
        )
    threads = tile.warps * architecture.warp_size
    if threads > 1024:
        return f"{tile.name} has {threads} threads per block; the limit is 1024"
    accumulator = tile.block_m * tile.block_n / threads
    if accumulator > _ACCUMULATOR_SHARE * architecture.registers_per_thread:
        return f"{tile.name} keeps {accumulator:.0f} accumulators in each thread's registers"
    if tile.describes and operation.signature.lhs.is_fp8:
        # The sums in f32 and the products of a step, of the whole tile or half of it.
        accumulator *= 1 + 1 / tile.parts
        if accumulator > _PROMOTED_SHARE * architecture.registers_per_thread:
            return (
                f"{tile.name} keeps {accumulator:.0f} sums and products in each thread's registers"
            )
    smallest = 32 if operation.signature.lhs.itemsize == 1 else 16
    if min(tile.block_m, tile.block_n) < 16 or tile.block_k < smallest:
        return f"{tile.name} is smaller than the matrix instructions (16x16x{smallest})"
    return None


def wrong_method(
    tile: TritonTile, operation: Operation, architecture: Architecture | None
) -> str | None:
    """Why the method of `tile` does not compute `operation`, or None; architecture None: the
    interpreter."""
    blocks = operation.signature.blocks
    if blocks is None:
        if tile.describes:
            return reason_against(operation, tile, architecture)
        return f"{tile.method} is for blocks with scale factors" if tile.method else None
    known = block_scaled.methods(operation.signature, architecture)
    if not known:
        return block_scaled.no_method(operation.signature, architecture)
    if tile.method not in known:
        names = " or ".join(replace(tile, method=name).name for name in known)
        why = block_scaled.why_no_dot_scaled(operation.signature, architecture)
        if tile.method == block_scaled.DOT_SCALED and why:
            return f"{why}; {names} widens them"
        return f"{tile.method or 'a tile without a method'} is not for {blocks}; write {names}"
    if block_scaled.step(blocks, tile.method, tile.block_k) != tile.block_k:
        return f"steps of {tile.block_k} along K do not fit blocks of {blocks.depth}"
    return None


def _make(*rows: tuple[int, ...]) -> tuple[TritonTile, ...]:
    return tuple(TritonTile(*row) for row in rows)


# Best first for large products, as measured on an H200 at 4096³; the last ones are for few rows.
_SIXTEEN_BIT = _make(
    (128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (256, 128, 64, 8, 4), (256, 128, 64, 8, 3),
    (128, 128, 64, 4, 3), (128, 128, 64, 4, 4), (128, 128, 64, 8, 3), (64, 256, 64, 4, 4),
    (128, 256, 64, 8, 3, 4), (128, 256, 64, 8, 3, 16), (128, 128, 32, 4, 4), (64, 128, 64, 4, 4),
    (128, 64, 64, 4, 4), (64, 64, 64, 4, 4), (64, 64, 128, 4, 4), (32, 64, 128, 4, 4),
    (16, 64, 256, 4, 3), (16, 64, 128, 4, 4), (16, 32, 256, 4, 3), (64, 128, 128, 4, 4),
)  # fmt: skip
_FP8 = _make(
    (256, 128, 128, 8, 3), (64, 128, 128, 4, 4), (128, 128, 128, 8, 4), (128, 128, 128, 8, 3, 16),
    (128, 128, 128, 8, 3), (128, 128, 64, 4, 4), (128, 256, 64, 8, 4), (128, 64, 128, 4, 4),
    (64, 64, 128, 4, 4), (32, 64, 256, 4, 3), (16, 64, 256, 4, 3), (16, 64, 128, 4, 4),
    (16, 32, 256, 4, 3),
)  # fmt: skip
_INT8 = _make(
    (128, 128, 128, 8, 3), (128, 128, 128, 8, 3, 16), (128, 128, 64, 4, 4), (128, 256, 128, 8, 3),
    (256, 128, 128, 8, 3), (128, 128, 128, 4, 4), (128, 256, 64, 8, 4), (64, 128, 128, 4, 4),
    (128, 64, 128, 4, 4), (64, 64, 128, 4, 4), (32, 64, 256, 4, 3), (16, 64, 256, 4, 3),
    (16, 64, 128, 4, 4), (16, 32, 256, 4, 3),
)  # fmt: skip
_TENSOR_F32 = _make(
    (128, 256, 32, 8, 4), (128, 256, 32, 8, 3), (128, 128, 32, 4, 4), (128, 128, 32, 8, 3),
    (256, 128, 32, 8, 3), (128, 64, 32, 4, 4), (64, 128, 32, 4, 4), (64, 64, 32, 4, 4),
    (64, 64, 64, 4, 3), (32, 64, 64, 4, 4), (16, 64, 64, 4, 4), (16, 32, 128, 4, 3),
)  # fmt: skip
_PLAIN_F32 = _make(
    (64, 64, 32, 4, 3), (64, 64, 16, 4, 4), (64, 128, 16, 4, 4), (128, 64, 16, 4, 3),
    (128, 128, 16, 8, 3), (128, 128, 32, 8, 2), (32, 64, 32, 4, 3), (32, 32, 32, 4, 3),
    (16, 64, 64, 4, 3), (16, 32, 64, 4, 3),
)  # fmt: skip
# AMD: two stages, as in Triton's own tuning for CDNA; not measured by this project.
_AMD = _make(
    (256, 128, 64, 8, 2), (256, 256, 32, 8, 2), (128, 128, 64, 4, 2), (128, 128, 32, 4, 2),
    (128, 64, 64, 4, 2), (64, 128, 64, 4, 2), (64, 64, 64, 4, 2), (64, 64, 128, 4, 2),
    (32, 64, 128, 4, 2), (16, 64, 128, 4, 2),
)  # fmt: skip
_SMALLEST = TritonTile(16, 16, 32, 4, 1)
# Not measured yet: the tiles of fp8 and those of bf16 with the steps that blocks allow.
_BLOCKS = _make(
    (128, 128, 128, 8, 3), (128, 128, 128, 4, 3), (128, 256, 128, 8, 3), (256, 128, 128, 8, 3),
    (64, 128, 128, 4, 4), (128, 64, 128, 4, 4), (64, 64, 128, 4, 4), (128, 128, 64, 4, 4),
    (128, 256, 64, 8, 3), (256, 128, 64, 8, 3), (64, 256, 128, 4, 3),
    (32, 64, 128, 4, 4), (16, 64, 128, 4, 4),
)  # fmt: skip
_DESCRIBED_SIXTEEN_BIT = tuple(
    replace(tile, method=method, parts=parts)
    for method in METHODS
    for tile, parts in (
        (TritonTile(128, 256, 64, 8, 3), 1), (TritonTile(128, 256, 64, 8, 4), 2),
        (TritonTile(256, 128, 64, 8, 4), 2), (TritonTile(128, 128, 64, 4, 3), 2),
        (TritonTile(64, 128, 128, 4, 4), 1),
    )
)  # fmt: skip
# One program a tile with halves of 128x128 spills: 255 registers (Triton 3.9, sm_90).
_DESCRIBED_FP8 = (
    TritonTile(256, 128, 128, 8, 3, method=PERSISTENT, parts=2),
    TritonTile(256, 128, 128, 8, 4, method=PERSISTENT, parts=2),
    TritonTile(128, 128, 128, 4, 3, method=PERSISTENT, parts=2),
    TritonTile(128, 128, 128, 8, 4, method=PERSISTENT),
    TritonTile(128, 128, 128, 8, 4, method=DESCRIPTORS),
)
_PERSISTENT = {
    2: TritonTile(128, 256, 64, 8, 4, method=PERSISTENT, parts=2),
    1: TritonTile(128, 128, 128, 4, 3, method=PERSISTENT, parts=2),
}
"""Bytes of an element -> the fastest persistent tile of bf16 and f16, and of fp8, where both
operands are contiguous along K, on an H200 (docs/benchmarks.md): 1.05 to 1.14 times as fast as the
best plain tile at each product from 2048³ on, and 0.5 to 0.7 times at 1024³."""
_PERSISTENT_FROM = 2048
"""Minimum M and N of these products."""
_INTERPRETED_BLOCKS = _make((32, 32, 128, 4, 1), (16, 32, 64, 4, 1))
_INTERPRETED = (
    *_make((32, 32, 32, 4, 1), (16, 32, 64, 4, 1)),
    TritonTile(32, 32, 32, 4, 1, method=PERSISTENT, parts=2),
)


def _candidates(operation: Operation, architecture: Architecture | None) -> tuple[TritonTile, ...]:
    s, lhs = operation.signature, operation.signature.lhs
    if s.blocks is not None:
        found = (
            replace(tile, block_k=block_scaled.step(s.blocks, name, tile.block_k), method=name)
            for name in block_scaled.methods(s, architecture)
            for tile in (_INTERPRETED_BLOCKS if architecture is None else _BLOCKS)
        )
        return tuple(dict.fromkeys(found))
    if architecture is None:
        return _INTERPRETED
    if architecture.is_amd:
        return _AMD
    if lhs.itemsize == 1:
        return (*_FP8, *_DESCRIBED_FP8) if lhs.is_fp8 else _INT8
    if lhs is TF32:
        return _TENSOR_F32
    return _PLAIN_F32 if lhs is F32 else (*_SIXTEEN_BIT, *_DESCRIBED_SIXTEEN_BIT)


def valid_tiles(operation: Operation, architecture: Architecture | None) -> list[TritonTile]:
    """The tiles worth trying that pass the filter; architecture None: the interpreter."""
    candidates = _candidates(operation, architecture)
    if architecture is None:
        return [tile for tile in candidates if wrong_method(tile, operation, None) is None]
    return [tile for tile in candidates if why_invalid(tile, operation, architecture) is None]


def choose(operation: Operation, architecture: Architecture | None) -> TritonTile:
    """The tile of ``default``."""
    return next(iter(ranked(operation, architecture)), _SMALLEST)


def ranked(operation: Operation, architecture: Architecture | None) -> list[TritonTile]:
    """The valid tiles by predicted speed.

    A persistent one comes first where it is known to be faster. Then follow those that are not much
    larger than C and result in about one program per multiprocessor, then those with the most."""
    tiles = valid_tiles(operation, architecture)
    s = operation.signature
    sizes = [(tile.method, tile.block_m, tile.block_n) for tile in tiles]
    # Of two depths of a tile the larger: fewer waits for the next step.
    tiles.sort(key=lambda t: (sizes.index((t.method, t.block_m, t.block_n)), -t.block_k))
    if any(spec.storage_shape[-1] % _WHOLE for spec in operation.inputs[:2]):
        # The copies of tensor descriptors need rows of a multiple of 16 bytes only: 10 µs against
        # 39 µs at 1000³ on an H100. Without them 64x64x64 took 2.1 ms of bf16 at 4095x4097x4093,
        # 128x128x64 with 8 warps 3.2 ms, and all others more.
        usual = (64, 64, 64)
        tiles.sort(key=lambda t: (not t.describes, (t.block_m, t.block_n, t.block_k) != usual))
    if s.rhs_layout is Layout.COLUMN and s.lhs.itemsize == 2:
        # A column-major B: on an H200 256x128x64 ran at 764 TFLOP/s in bf16, 128x256x64 at 569.
        tiles.sort(key=lambda tile: tile.block_n > 128)
    elif s.rhs_layout is Layout.ROW and s.lhs is TF32:
        # B is transposed in registers, and taller tiles do it less often: 140 against 87 TFLOP/s.
        tiles.sort(key=lambda tile: tile.block_m < 256)
    m, n, _, _ = operation.matmul_shape
    persistent = _PERSISTENT.get(s.lhs.itemsize)
    is_hopper = architecture is not None and architecture.has_wgmma and architecture.number < 100
    is_along_k = (s.lhs_layout, s.rhs_layout) == (Layout.ROW, Layout.COLUMN)
    is_large = is_hopper and is_along_k and min(m, n) >= _PERSISTENT_FROM

    def place(tile: TritonTile) -> tuple[bool, bool, bool, int]:
        fits = _fits(tile.block_m, m)
        return (
            not (is_large and tile == persistent),
            not (fits and _fits(tile.block_n, n)),
            not fits,
            -min(tile.tiles(operation), _FEWEST_TILES),
        )

    return sorted(tiles, key=place)


def _fits(block: int, size: int) -> bool:
    """Whether the tile is neither much larger than the matrix nor, for a large matrix, a sliver of
    it."""
    return block < 2 * max(size, 16) and block >= min(size, _SLIVER)


def configurations(
    operation: Operation, architecture: Architecture | None
) -> Iterator[Configuration]:
    """``default`` (with its actual parameters), then every valid tile; the next best ones are
    proposed."""
    best, *others = ranked(operation, architecture) or [_SMALLEST]
    proposed = others if architecture is None else others[:_PROPOSED]
    yield Configuration(DEFAULT_CONFIGURATION, best.parameters)
    for tile in valid_tiles(operation, architecture):
        yield replace(tile.configuration, is_proposed=tile in proposed)


def tile_of(
    configuration: Configuration, operation: Operation, architecture: Architecture | None
) -> TritonTile:
    """The tile of a configuration of this provider."""
    if configuration.name == DEFAULT_CONFIGURATION:
        return choose(operation, architecture)
    tile = parse_tile(configuration.name)
    assert tile is not None, configuration.name
    return tile
