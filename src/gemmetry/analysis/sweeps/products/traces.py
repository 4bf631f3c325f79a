"""The points of a sweep that was read from traces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gemmetry.analysis.sweeps.analysis import PointAnalysis, SweepAnalysis
from gemmetry.analysis.sweeps.model import GemmKind, Point, RankFacts
from gemmetry.analysis.sweeps.products.model import (
    ProductPoint,
    ProductSweep,
    RankGemm,
    Timeline,
    TracedGemm,
)
from gemmetry.analysis.sweeps.ranks.gemms import members_of
from gemmetry.analysis.sweeps.ranks.sheets import gemm_rows
from gemmetry.analysis.sweeps.ranks.worker import RankAnalysis
from gemmetry.domain.tables import Table
from gemmetry.traces.tracelens.collectives import CommunicationNames, job_sheets


def product_sweep(analysis: SweepAnalysis) -> ProductSweep:
    """The points of a sweep, those without traces included."""
    has_repeats = analysis.sweep.repeats > 1
    points = [
        bare_point(
            one.point,
            has_repeats=has_repeats,
            gemms=tuple(gemm for rank in one.ranks for gemm in _gemms(rank)),
            timelines={
                rank.facts.rank: _timeline(rank.facts) for rank in one.ranks if rank.facts.on_gpu
            },
        )
        for one in analysis.points
    ]
    analysed = {one.full_config: of for one, of in zip(points, analysis.points, strict=True)}
    return ProductSweep(
        points=points,
        collectives=lambda point: collective_sheets(analysed[point.full_config]),
        is_traced=True,
    )


def bare_point(
    point: Point,
    *,
    has_repeats: bool,
    gemms: tuple[RankGemm, ...] = (),
    timelines: Mapping[int | None, Timeline] | None = None,
) -> ProductPoint:
    """A point with these contents; without any, it names files."""
    return ProductPoint(
        configuration=point.configuration,
        repeat=point.repeat if has_repeats else None,
        outcome=point.outcome,
        reason=point.reason,
        gemms=gemms,
        timelines=timelines or {},
    )


def _gemms(rank: RankAnalysis) -> Iterator[RankGemm]:
    facts = rank.facts
    members = members_of(facts)
    sheet = gemm_rows(rank.gemm_sheet)
    for found in rank.gemms:
        yield RankGemm(
            rank=facts.rank,
            kind=found.kind,
            count=found.count,
            min_us=found.min_us,
            median_us=found.median_us,
            max_us=found.max_us,
            durations_us=facts.gemms.duration_ns[members[found.index]] / 1000,
            row=_row_of(found.kind, sheet),
            traced=TracedGemm(facts, found),
        )


def _row_of(kind: GemmKind, sheet: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The row of an operator with the sizes of `kind` that launched its kernel; of several the one
    with the most time, which the sheet has first."""
    sizes = (kind.m, kind.n, kind.k, kind.batch)
    name = repr(kind.kernel)
    for row in sheet:
        same_sizes = tuple(row.get(f"param: {letter}") for letter in "MNKB") == sizes
        if same_sizes and name in str(row.get("kernel_details__summarize_kernel_stats")):
            return row
    return {}


def _timeline(facts: RankFacts) -> Timeline:
    """The rows of TraceLens' ``gpu_timeline``."""
    times = facts.times
    of_rows = {
        "computation_time": times.compute_ns,
        "exposed_comm_time": times.exposed_comm_ns,
        "exposed_memcpy_time": times.exposed_copy_ns,
        "busy_time": times.busy_ns,
        "idle_time": times.idle_ns,
        "total_time": times.window_ns,
        "total_comm_time": times.comm_ns,
        "total_memcpy_time": times.copy_ns,
    }
    return {name: (ns / 1e6, 100 * ns / times.window_ns) for name, ns in of_rows.items()}


def collective_sheets(point: PointAnalysis) -> list[Table]:
    """The sheets of TraceLens' report on the collectives of all ranks; [] without collectives."""
    if not any(one.collectives for one in point.job.job.ranks):
        return []
    names = {Path(one.facts.file): _names(one.facts) for one in point.ranks}
    return job_sheets(point.job, names)


def _names(facts: RankFacts) -> CommunicationNames:
    written = {one.collective.row: one.written for one in facts.communication}
    return CommunicationNames(written, facts.gpus_of_node)
