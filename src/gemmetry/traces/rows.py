"""Tables of traces from the rows that declare their columns, and the document that ``gemmetry trace
collectives --json`` prints.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gemmetry.domain.rows import SCHEMA_VERSION, Row, fact, inline, table
from gemmetry.domain.tables import Table
from gemmetry.traces.collectives.alignment import ClockOffset, Matched
from gemmetry.traces.collectives.matching import JobCollectives, JobKind, Straggler
from gemmetry.traces.collectives.summary import Collective
from gemmetry.traces.gemms import GemmRow, Workload, WorkloadGemm, with_shares
from gemmetry.traces.operators.host import HostOperator
from gemmetry.traces.summary import StepSummary, Summary


def summary_table(summaries: Iterable[Summary]) -> Table:
    """``trace_summary``: one row per file. Values that a workbook does not record are None."""
    return table("trace_summary", Summary, summaries)


def step_table(steps: Iterable[StepSummary]) -> Table:
    """``trace_steps``: one row per file and step."""
    return table("trace_steps", StepSummary, steps)


def gemms_table(rows: Sequence[GemmRow]) -> Table:
    """``gemms``: one row per kernel and shape."""
    return table("gemms", GemmRow, with_shares(rows))


def shapes_table(load: Workload) -> Table:
    """``shapes``: one row per distinct GEMM."""
    return table("shapes", WorkloadGemm, load.gemms)


def host_operators_table(rows: Sequence[HostOperator]) -> Table:
    """``host_operators``: one row per file and operator with the same input sizes and types; shares
    refer to the file's self time."""
    return table("host_operators", HostOperator, rows)


class _OfJob(Row):
    job: str = fact("the job, as its traces or its folder name it")


class _MatchedRow(_OfJob):
    one: Matched = inline()


class _KindRow(_OfJob):
    one: JobKind = inline()


class _KernelRow(_OfJob):
    rank: int = fact("rank of the trace")
    collective: int | None = fact("number of the matched collective")
    one: Collective = inline()
    wait_ns: int | None = fact("time that the rank waited for the last", "µs")


class _RankRow(_OfJob):
    straggler: Straggler = inline()
    unmatched: int = fact("kernels that were not matched")
    clock: ClockOffset = inline()


def matched_table(jobs: Iterable[JobCollectives]) -> Table:
    """``collectives_matched``: matched collectives of all jobs; for a job without any, such as one
    of a single rank, each kernel with its known properties. Waits are in :func:`kernels_table`."""
    rows = (_MatchedRow(job=found.job.name, one=one) for found in jobs for one in found.listed)
    return table("collectives_matched", _MatchedRow, rows)


def kinds_table(jobs: Iterable[JobCollectives]) -> Table:
    """``collectives_kinds``: the same by operation, type, size and size of the group."""
    rows = (_KindRow(job=found.job.name, one=one) for found in jobs for one in found.kinds)
    return table("collectives_kinds", _KindRow, rows)


def kernels_table(jobs: Iterable[JobCollectives]) -> Table:
    """``collectives_kernels``: communication kernels of all ranks; ``collective`` numbers the
    matched ones of a job from 0, in the order of :func:`matched_table`."""
    rows = []
    for found in jobs:
        places: dict[tuple[int, int], tuple[int, int]] = {}
        for number, one in enumerate(found.matching.matched):
            waits = one.waits_ns()
            places |= {(rank, k.row): (number, waits[rank]) for rank, k in one.members}
        for rank, trace in sorted(found.job.by_rank.items()):
            for kernel in trace.collectives:
                place, wait = places.get((rank, kernel.row), (None, None))
                rows.append(_KernelRow(
                    job=found.job.name, rank=rank, collective=place, one=kernel, wait_ns=wait
                ))  # fmt: skip
    return table("collectives_kernels", _KernelRow, rows)


def ranks_table(jobs: Iterable[JobCollectives]) -> Table:
    """``collectives_ranks``: ranks of all jobs: how often they came last, how long they waited,
    how many kernels were not matched, and their clocks."""
    rows = (
        _RankRow(
            job=found.job.name, straggler=one, unmatched=found.matching.unmatched[one.rank],
            clock=clock,
        )
        for found in jobs
        for one, clock in zip(found.stragglers(), found.clocks, strict=True)
    )  # fmt: skip
    return table("collectives_ranks", _RankRow, rows)


@dataclass(frozen=True, slots=True)
class KernelDurations:
    """Communication kernels of one operation, type and size; None where it is not recorded."""

    op: str | None
    dtype: str | None
    bytes: int | None
    count: int
    sum_ns: int
    min_ns: int
    median_ns: float


def kernel_durations(kernels: Iterable[Collective]) -> list[KernelDurations]:
    """Durations of `kernels` by kind, those with the most time first."""
    groups: dict[tuple[str | None, str | None, int | None], list[int]] = {}
    for one in kernels:
        groups.setdefault((one.op, one.dtype, one.bytes), []).append(one.duration_ns)
    kinds = [
        KernelDurations(*key, len(times), sum(times), min(times), statistics.median(times))
        for key, times in groups.items()
    ]
    return sorted(kinds, key=lambda kind: -kind.sum_ns)


def collectives_document(
    jobs: Sequence[JobCollectives], errors: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """One job's document, or ``jobs`` with one each where there are several.

    `errors` are the files that could not be read, with the reason.
    """
    bodies = [_job_body(job) for job in jobs]
    failed = {"errors": [{"file": file, "error": text} for file, text in (errors or {}).items()]}
    body = bodies[0] if len(bodies) == 1 else {"jobs": bodies}
    return {"schema_version": SCHEMA_VERSION, **body, **failed}


def _job_body(found: JobCollectives) -> dict[str, Any]:
    job, matching = found.job, found.matching
    groups = {one.group for rank in job.ranks for one in rank.collectives if one.group is not None}
    return {
        "per_rank": [one.record() for one in job.ranks],
        "matched": [one.record() for one in matching.matched],
        "stragglers": [one.record() for one in found.stragglers()],
        "unmatched": {str(rank): n for rank, n in sorted(matching.unmatched.items())},
        "job": job.name,
        "world_size": job.world_size,
        "missing_ranks": list(job.missing),
        "groups": [
            {"name": group.name, "ranks": list(group.ranks), "size": group.size}
            for group in sorted(groups, key=lambda group: (group.name or "", group.ranks))
        ],
        "mismatches": [
            {"group": one.group, "after": one.after, "what": one.what}
            for one in matching.mismatches
        ],
        "clocks": [one.record() for one in found.clocks],
        "notes": list(found.notes),
    }
