"""Collectives of jobs as JSON documents and plain rows."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gemmetry.traces import TRACE_SCHEMA_VERSION
from gemmetry.traces.collectives.jobs import JobCollectives, JobKind
from gemmetry.traces.collectives.matched import Matched
from gemmetry.traces.collectives.summary import Collective
from gemmetry.traces.jobs import RankTrace

Row = dict[str, Any]

BOUNDS = {"latency_us_median": "≤", "algbw_gbps_median": "≥", "busbw_gbps_median": "≥"}
"""Columns of :func:`kind_row` -> the sign in front of a number of a kind that is not complete."""

ABOUT_BOUNDS = (
    "≤ and ≥: ranks of these groups have no file, or no trace gives the group. The rank that came "
    "last may be one of them."
)
"""What these signs mean, wherever they are shown."""


def bounded(text: str, column: str, *, complete: bool) -> str:
    """A number's text as people see it, with the sign of a bound where it is one."""
    sign = "" if complete or not text else BOUNDS.get(column, "")
    return f"{sign} {text}" if sign else text


def collectives_document(
    jobs: Sequence[JobCollectives], errors: Mapping[str, str] | None = None
) -> Row:
    """One job's document, or ``jobs`` with one each where there are several.

    `errors` are the files that could not be read, with the reason.
    """
    bodies = [_job_body(job) for job in jobs]
    failed = {"errors": [{"file": file, "error": text} for file, text in (errors or {}).items()]}
    if len(bodies) == 1:
        return {"schema_version": TRACE_SCHEMA_VERSION, **bodies[0], **failed}
    return {"schema_version": TRACE_SCHEMA_VERSION, "jobs": bodies, **failed}


def _job_body(found: JobCollectives) -> Row:
    job = found.job
    return {
        "per_rank": [_rank_body(one) for one in job.ranks],
        "matched": [matched_row(one, found.offsets_ns) for one in found.matching.matched],
        "stragglers": straggler_rows(found),
        "unmatched": {str(rank): n for rank, n in sorted(found.matching.unmatched.items())},
        "job": job.name,
        "world_size": job.world_size,
        "missing_ranks": list(job.missing),
        "groups": _groups(found),
        "mismatches": [
            {"group": one.group, "after": one.after, "what": one.what}
            for one in found.matching.mismatches
        ],
        "clocks": clock_rows(found),
        "notes": list(found.notes),
    }


def _rank_body(one: RankTrace) -> Row:
    return {
        "rank": one.rank,
        "collectives": [collective_row(kernel) for kernel in one.collectives],
        "file": str(one.file),
        "rank_source": one.rank_source,
        "base_ns": one.base_ns,
        "partial": one.partial,
        "problems": list(one.problems),
    }


def collective_row(one: Collective) -> Row:
    """One communication kernel."""
    return {
        "op": one.op,
        "elements": one.elements,
        "dtype": one.dtype,
        "bytes": one.bytes,
        "group": one.group.name if one.group else None,
        "start_ns": one.start_ns,
        "duration_ns": one.duration_ns,
        "group_size": one.group.size if one.group else None,
        "group_inferred": one.group_inferred,
        "in_elements": one.in_elements,
        "out_elements": one.out_elements,
        "peer": one.peer,
        "sequence": one.sequence,
        "algorithm": one.algorithm,
        "protocol": one.protocol,
        "source": one.source,
        "kernel": one.name,
        "stream": one.stream,
        "device": one.device,
    }


def matched_row(one: Matched, offsets_ns: Mapping[int, int]) -> Row:
    """One collective of all ranks; `offsets_ns` of clocks correct the values that say so, which are
    None where there are none."""
    start_skew, end_skew = one.skews_ns()
    corrected = one.skews_ns(offsets_ns) if offsets_ns else (None, None)
    corrected_start, corrected_end = (None if ns is None else ns / 1000 for ns in corrected)
    return {
        "op": one.op,
        "elements": one.elements,
        "dtype": one.dtype,
        "start_skew_us": start_skew / 1000,
        "end_skew_us": end_skew / 1000,
        "last_rank": one.last_rank(),
        "algbw_gbps": one.algorithm_bandwidth,
        "busbw_gbps": one.bus_bandwidth,
        "bytes": one.bytes,
        "latency_us": one.latency_ns / 1000,
        "group": one.group.name if one.group else None,
        "group_size": one.group_size,
        "start_ns": one.start_ns,
        "algorithm": next((kernel.algorithm for _, kernel in one.members), None),
        "protocol": next((kernel.protocol for _, kernel in one.members), None),
        "waits_us": {str(rank): wait / 1000 for rank, wait in one.waits_ns().items()},
        "corrected_start_skew_us": corrected_start,
        "corrected_end_skew_us": corrected_end,
        "corrected_last_rank": one.last_rank(offsets_ns) if offsets_ns else None,
        "complete": one.is_complete,
    }


def straggler_rows(found: JobCollectives) -> list[Row]:
    """Every rank: how often it came last, and how long it waited."""
    return [
        {
            "rank": one.rank,
            "last_count": one.last_count,
            "last_share": one.last_share,
            "waited_us": one.waited_ns / 1000,
        }
        for one in found.stragglers()
    ]


def clock_rows(found: JobCollectives) -> list[Row]:
    """Every rank: what to add to its times to get those of the first, and who came last and waited
    then; None where nothing is added to any."""
    corrected = {one.rank: one for one in found.stragglers(corrected=True)}
    is_corrected = bool(found.offsets_ns)
    return [
        {
            "rank": one.rank,
            "node": one.node,
            "offset_us": one.offset_ns / 1000,
            "scatter_us": one.scatter_ns / 1000,
            "lower_us": None if one.lower_ns is None else one.lower_ns / 1000,
            "upper_us": None if one.upper_ns is None else one.upper_ns / 1000,
            "collectives": one.collectives,
            "applied_us": one.applied_ns / 1000,
            "corrected_last_count": corrected[one.rank].last_count if is_corrected else None,
            "corrected_waited_us": corrected[one.rank].waited_ns / 1000 if is_corrected else None,
        }
        for one in found.clocks
    ]


def _groups(found: JobCollectives) -> list[Row]:
    groups = {
        one.group for rank in found.job.ranks for one in rank.collectives if one.group is not None
    }
    ordered = sorted(groups, key=lambda group: (group.name or "", group.ranks))
    return [
        {"name": group.name, "ranks": list(group.ranks), "size": group.size} for group in ordered
    ]


def matched_rows(jobs: Iterable[JobCollectives]) -> list[Row]:
    """Matched collectives of all jobs, flat, for files; of a job without any, as of one rank alone,
    each kernel with what is known of it. Ranks' waits are in :func:`kernel_rows`."""
    rows = []
    for found in jobs:
        for one in found.listed:
            row = matched_row(one, found.offsets_ns)
            del row["waits_us"]
            if one.is_lone:
                row |= dict.fromkeys(_OF_SEVERAL_RANKS)
            rank = one.members[0][0] if one.is_lone else None
            rows.append({"job": found.job.name, **row, "rank": rank,
                         "duration_us": one.latency_ns / 1000})  # fmt: skip
    return rows


_OF_SEVERAL_RANKS = (
    "start_skew_us", "end_skew_us", "last_rank", "latency_us", "corrected_start_skew_us",
    "corrected_end_skew_us", "corrected_last_rank",
)  # fmt: skip
"""What one rank alone does not tell."""


def kernel_rows(jobs: Iterable[JobCollectives]) -> list[Row]:
    """Communication kernels of all ranks, flat, for files: ``collective`` numbers the matched ones
    of a job from 0, in the order of :func:`matched_rows`."""
    rows = []
    for found in jobs:
        places: dict[tuple[int, int], tuple[int, int]] = {}
        for number, one in enumerate(found.matching.matched):
            waits = one.waits_ns()
            places |= {(rank, k.row): (number, waits[rank]) for rank, k in one.members}
        for rank, trace in sorted(found.job.by_rank.items()):
            for kernel in trace.collectives:
                place, wait = places.get((rank, kernel.row), (None, None))
                rows.append({
                    "job": found.job.name, "rank": rank, "collective": place,
                    **collective_row(kernel), "wait_us": None if wait is None else wait / 1000,
                })  # fmt: skip
    return rows


def rank_rows(jobs: Iterable[JobCollectives]) -> list[Row]:
    """Ranks of all jobs: how often last, how long waited, what was not matched, which clock."""
    rows = []
    for found in jobs:
        clocks = clock_rows(found)
        for row, clock in zip(straggler_rows(found), clocks, strict=True):
            names = ("rank", "last_count", "last_share", "waited_us")
            rows.append({
                "job": found.job.name, **{name: row[name] for name in names},
                "unmatched": found.matching.unmatched[row["rank"]],
                **{_clock_heading(k): v for k, v in clock.items() if k != "rank"},
            })  # fmt: skip
    return rows


def _clock_heading(key: str) -> str:
    return key if key == "node" or key.startswith("corrected_") else f"clock_{key}"


def kind_rows(jobs: Iterable[JobCollectives]) -> list[Row]:
    """Collectives of all jobs, as :func:`matched_rows`, by operation, type, size, group size."""
    return [{"job": found.job.name, **kind_row(kind)} for found in jobs for kind in found.kinds]


def kind_row(kind: JobKind) -> Row:
    """Medians over the collectives of one kind; durations are those of all their kernels."""
    ones = kind.ones
    # A kind holds matched collectives or kernels alone, as its job does.
    together = [] if ones[0].is_lone else ones
    latencies = [one.latency_ns for one in together]
    skews = [one.skews_ns() for one in together]
    durations = [kernel.duration_ns for one in ones for _, kernel in one.members]
    return {
        "op": kind.op,
        "dtype": kind.dtype,
        "elements": kind.elements,
        "bytes": ones[0].bytes,
        "group_size": kind.group_size,
        "count": len(ones),
        "latency_us_median": _us(_median(latencies)),
        "latency_us_min": _us(min(latencies, default=None)),
        "latency_us_max": _us(max(latencies, default=None)),
        "start_skew_us_median": _us(_median(start for start, _ in skews)),
        "end_skew_us_median": _us(_median(end for _, end in skews)),
        "algbw_gbps_median": _median(one.algorithm_bandwidth for one in ones),
        "busbw_gbps_median": _median(one.bus_bandwidth for one in ones),
        "complete": all(one.is_complete for one in ones),
        "duration_us_sum": sum(durations) / 1000,
        "duration_us_min": min(durations) / 1000,
        "duration_us_median": statistics.median(durations) / 1000,
    }


def _us(ns: float | None) -> float | None:
    return None if ns is None else ns / 1000


def _median(values: Iterable[float | None]) -> float | None:
    told = [value for value in values if value is not None]
    return statistics.median(told) if told else None
