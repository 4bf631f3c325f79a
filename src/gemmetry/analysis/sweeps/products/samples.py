"""The durations of all GEMMs of a sweep on one scale, so that long and short ones can be shown in
one picture: as multiples of the time that the same GEMM takes alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gemmetry.analysis.sweeps.model import GemmKind
from gemmetry.analysis.sweeps.products.model import ProductPoint, RankGemm, comparable_gemms
from gemmetry.analysis.sweeps.ranks.cause import Floats
from gemmetry.formats.events import Bools
from gemmetry.statistics.quantiles import median


@dataclass(frozen=True, slots=True)
class RelativeDurations:
    """The instances of all GEMMs of one rank of a point, as multiples."""

    point: ProductPoint
    rank: int | None
    alone: Floats
    """Instances without communication; of workbooks, which do not show it, all."""
    overlapped: Floats
    """Instances next to communication."""


@dataclass(frozen=True, slots=True)
class SweepSamples:
    """The instances of a sweep."""

    ranks: list[RelativeDurations]
    """One entry per rank and point with GEMMs."""
    kinds: int
    """Number of GEMMs, each a kernel with a shape."""
    left_out: int
    """GEMMs that are not in it because they never ran alone, although others did."""
    is_of_alone: bool
    """Whether a multiple of 1 is the sweep's median of the GEMM alone; otherwise no instance is
    known to have run alone, and it is the median of all instances."""

    @property
    def count(self) -> int:
        """Number of instances."""
        return sum(len(one.alone) + len(one.overlapped) for one in self.ranks)


class _Instances(NamedTuple):
    """One GEMM of one rank of a point."""

    gemm: RankGemm
    is_overlapped: Bools


def sweep_samples(points: Sequence[ProductPoint]) -> SweepSamples:
    """Of all points; it has no ranks where no GEMM was recorded."""
    of_points = [
        (point, [_Instances(gemm, _overlapped(gemm)) for gemm in comparable_gemms(point)])
        for point in points
    ]
    everything = [one for _, found in of_points for one in found]
    is_of_alone = any(
        one.gemm.traced is not None and not one.is_overlapped.all() for one in everything
    )
    units = _units(everything, only_alone=is_of_alone)
    ranks = []
    for point, found in of_points:
        by_rank: dict[int | None, list[_Instances]] = {}
        for one in found:
            if one.gemm.kind in units:
                by_rank.setdefault(one.gemm.rank, []).append(one)
        ranks += [_of_rank(point, rank, ones, units) for rank, ones in by_rank.items()]
    kinds = {one.gemm.kind for one in everything}
    return SweepSamples(ranks, len(units), len(kinds - set(units)), is_of_alone)


def _overlapped(gemm: RankGemm) -> Bools:
    if gemm.traced is None:
        return np.zeros(len(gemm.durations_us), bool)
    instances = gemm.traced.facts.gemms
    result: Bools = instances.overlap_ns[instances.kind == gemm.traced.statistics.index] > 0
    return result


def _units(found: Sequence[_Instances], *, only_alone: bool) -> dict[GemmKind, float]:
    """The time that counts as 1, by GEMM, in µs."""
    pooled: dict[GemmKind, list[Floats]] = {}
    for one in found:
        durations = one.gemm.durations_us
        chosen = durations[~one.is_overlapped] if only_alone else durations
        pooled.setdefault(one.gemm.kind, []).append(chosen)
    joined = {kind: np.concatenate(parts) for kind, parts in pooled.items()}
    medians = {kind: median(one) for kind, one in joined.items() if len(one)}
    # Only damaged traces have durations of 0.
    return {kind: middle for kind, middle in medians.items() if middle > 0}


def _of_rank(
    point: ProductPoint,
    rank: int | None,
    found: Sequence[_Instances],
    units: Mapping[GemmKind, float],
) -> RelativeDurations:
    multiples = np.concatenate([one.gemm.durations_us / units[one.gemm.kind] for one in found])
    is_overlapped = np.concatenate([one.is_overlapped for one in found])
    return RelativeDurations(point, rank, multiples[~is_overlapped], multiples[is_overlapped])
