"""Tiles of Hopper's kernels: their names, what they need, and which suit a shape."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from gemmetry.domain.dispatch import Configuration

SHARED_BYTES = 227 * 1024
"""Shared memory of a block on Hopper (CUDA C++ Programming Guide, technical specifications)."""
_RESERVED_BYTES = 1024 + 512
"""What aligning the stages to 1,024 bytes, the barriers and static variables take."""
_MOST_STAGES = 12
STEP_BYTES = 128
"""One step of the ring along K: a row of the swizzle."""
_TEXT = re.compile(
    r"(?P<m>\d+)x(?P<n>\d+)_c(?P<cm>\d)x(?P<cn>\d)_b(?P<band>\d+)(?:_k(?P<splits>\d+))?(?P<swap>_swap)?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a product is divided among blocks."""

    tile_m: int
    tile_n: int
    cluster_m: int = 1
    """Blocks below each other that share tiles of B."""
    cluster_n: int = 1
    """Blocks next to each other that share tiles of A."""
    band: int = 8
    """Rows of tiles (of clusters) that are walked together, column by column."""
    splits: int = 1
    """Slices of K, each summed by a block of its own."""
    is_swapped: bool = False
    """Whether the kernel computes the transpose Bᵀ @ Aᵀ: the side of a tile of which the matrix
    instructions need a multiple of 64 then lies along N, and the one of multiples of 16 along M."""

    def __str__(self) -> str:
        """``128x256_c2x1_b8``, with ``_k4`` for four slices, and ``_swap`` if swapped."""
        text = f"{self.tile_m}x{self.tile_n}_c{self.cluster_m}x{self.cluster_n}_b{self.band}"
        splits = f"_k{self.splits}" if self.splits > 1 else ""
        return text + splits + ("_swap" if self.is_swapped else "")

    def configuration(self, key: str, depth: int) -> Configuration:
        """Of the kernel called `key`, whose ring has steps of `depth` along K."""
        values = asdict(self)
        return Configuration(f"{key}_{self}", {**values, "tile_k": depth})

    @property
    def in_kernel(self) -> Tiling:
        """The tiling of the product that the kernel computes."""
        if not self.is_swapped:
            return self
        tile, cluster = (self.tile_n, self.tile_m), (self.cluster_n, self.cluster_m)
        return Tiling(*tile, *cluster, self.band, self.splits)

    @property
    def consumers(self) -> int:
        """Warpgroups that multiply, each 64 rows or, of 256, 128."""
        return {64: 1, 128: 2, 192: 3, 256: 2}[self.in_kernel.tile_m]

    @property
    def threads(self) -> int:
        """Of a block: the consumers, and one warpgroup that fetches."""
        return 128 * (self.consumers + 1)

    @property
    def cluster(self) -> int:
        """Blocks of a cluster."""
        return self.cluster_m * self.cluster_n

    def clusters(self, m: int, n: int) -> int:
        """Tiles of clusters in an (m, n) result."""
        rows = -(-m // (self.tile_m * self.cluster_m))
        return rows * -(-n // (self.tile_n * self.cluster_n))


def parse_tiling(text: str) -> Tiling | None:
    """The inverse of ``str``; None for other texts."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    names = ("m", "n", "cm", "cn", "band", "splits")
    m, n, cm, cn, band, splits = (int(match[name] or 1) for name in names)
    tiling = Tiling(m, n, cm, cn, band, splits, match["swap"] is not None)
    return tiling if str(tiling) == text else None


def staged_columns(tile_n: int) -> int:
    """Columns of the result that leave together: 64 fill the widest swizzle."""
    return next(columns for columns in (64, 32, 16) if tile_n % columns == 0)


def staging_bytes(tiling: Tiling) -> int:
    """Shared memory through which results leave: two buffers of 16 rows for every warp."""
    return tiling.consumers * 4 * 2 * 16 * staged_columns(tiling.tile_n) * 2


def stages_that_fit(stage_bytes: int, other_bytes: int) -> int:
    """How many stages of the ring fit next to so many other bytes."""
    return min((SHARED_BYTES - _RESERVED_BYTES - other_bytes) // stage_bytes, _MOST_STAGES)


def ring_bytes(stages: int, stage_bytes: int, other_bytes: int) -> int:
    """Dynamic shared memory of a kernel: the ring, other bytes, two barriers for each stage, and
    what aligning to 1,024 bytes takes."""
    return 1024 + stages * stage_bytes + other_bytes + 2 * 8 * stages


_RATES = {
    (64, 64): 0.43, (64, 96): 0.58, (64, 128): 0.64, (64, 160): 0.67, (64, 176): 0.69,
    (128, 32): 0.35, (128, 64): 0.55, (128, 96): 0.75, (128, 128): 0.80, (128, 160): 0.81,
    (128, 192): 0.82, (128, 208): 0.84, (128, 256): 0.88, (192, 128): 0.85, (192, 160): 0.87,
    (192, 176): 0.89, (192, 192): 0.74, (256, 128): 0.86, (256, 160): 0.74,
}  # fmt: skip
"""Tile -> part of the peak that its loop reaches next to the constants below, fitted to 262 times
of 18 shapes on an H200; the fit is within 11 % of a time, and its first choice 1 % slower on
average than the best. They rank tilings; nothing else rests on them."""
_USUAL_RATE = 0.6
_UNSHARED = 0.85
"""What is left of the rate of a 64-row tile that fetches all of B by itself."""
_MADS_PER_CYCLE = 2048
"""Multiply-adds of 16-bit numbers of a multiprocessor per cycle (H100 white paper: 989.4 TFLOP/s
with 132 of them at 1,830 MHz)."""
_SUSTAINED_RATE = 0.72
"""What the power limit leaves of the peak in long products, on an H200 with normal data: the order
in which tilings are listed decides among those that reach it."""
_UNIT_CYCLES = 2200
"""Filling the ring and storing the results of one tile."""
_SPLIT_CYCLES = 11700
"""Leaving and adding up the slices of a tile."""


def predicted_cycles(tiling: Tiling, m: int, n: int, k: int, processors: int) -> float:
    """A rough prediction, in cycles, that ranks tilings before they are measured: waves of units,
    each with its loop and a constant, and no faster than the power limit allows."""
    units = tiling.clusters(m, n) * tiling.splits
    waves = -(-units // max(processors // tiling.cluster, 1))
    oriented = tiling.in_kernel
    rate = _RATES.get((oriented.tile_m, oriented.tile_n), _USUAL_RATE)
    if oriented.tile_m == 64 and oriented.cluster_m == 1:
        rate *= _UNSHARED
    loop = tiling.tile_m * tiling.tile_n * -(-k // tiling.splits) / (_MADS_PER_CYCLE * rate)
    total = waves * (loop + _UNIT_CYCLES) + _SPLIT_CYCLES * (tiling.splits > 1)
    return max(total, m * n * k / (processors * _MADS_PER_CYCLE * _SUSTAINED_RATE))


def ranked(
    tilings: Sequence[Tiling], m: int, n: int, k: int, processors: int = 132
) -> list[Tiling]:
    """`tilings` by their predicted time."""
    return sorted(tilings, key=lambda one: predicted_cycles(one, m, n, k, processors))
