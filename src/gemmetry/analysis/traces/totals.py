"""Sums over the traces of a report, and how the window of a trace is divided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gemmetry.traces.collectives.jobs import JobCollectives
from gemmetry.traces.gemms.summary import GemmRow
from gemmetry.traces.operators.host import HostOperator
from gemmetry.traces.summary import Summary


class GpuTotals(NamedTuple):
    """Sums of the fields of that name of several summaries; times in ns."""

    traces: int
    window_ns: int
    busy_ns: int
    compute_union_ns: int
    exposed_comm_ns: int
    idle_ns: int
    gemm_kernel_ns: int
    gemm_kernels: int


def gpu_totals(summaries: Sequence[Summary]) -> GpuTotals:
    """Sums over those of `summaries` that have a window."""
    counted = [one for one in summaries if one.window_ns] or summaries
    sums = (sum(getattr(one, name) for one in counted) for name in GpuTotals._fields[1:])
    return GpuTotals(len(counted), *sums)


class HostTotals(NamedTuple):
    """Sums over operators on the host and over the matrix products among them; times in ns."""

    self_ns: int
    calls: int
    product_ns: int
    product_calls: int
    fastest: GemmRow | None
    """The product with the most TFLOP/s by its median call."""


def host_totals(operators: Sequence[HostOperator], products: Sequence[GemmRow]) -> HostTotals:
    """Sums over `operators` and over the `products` among them."""
    return HostTotals(
        self_ns=sum(row.self_ns for row in operators),
        calls=sum(row.count for row in operators),
        product_ns=sum(row.sum_ns for row in products),
        product_calls=sum(row.count for row in products),
        fastest=max(
            (row for row in products if row.tflops is not None),
            key=lambda row: row.tflops or 0.0,
            default=None,
        ),
    )


def job_times(jobs: Sequence[JobCollectives]) -> list[tuple[JobCollectives, int]]:
    """The jobs that have work on a GPU, each with its time in ns: from the first work of any rank
    to the last of any; where recordings do not overlap, the longest window of a rank."""
    found = []
    for job in jobs:
        windows = [one.span[1] - one.span[0] for one in job.job.ranks]
        if any(windows):
            found.append((job, max(windows) if job.span_ns is None else job.span_ns))
    return found


def window_parts(summary: Summary) -> dict[str, int]:
    """The window of a trace in ns by what fills it: GEMM, other computing, exposed communication,
    exposed copies, nothing. The part of GEMMs is at most the time of all computing, because
    kernels that run at the same time count once there, and several times in their sum."""
    gemm = min(summary.gemm_kernel_ns, summary.compute_union_ns)
    copies = summary.busy_ns - summary.compute_union_ns - summary.exposed_comm_ns
    return {
        "gemm": gemm,
        "other": summary.compute_union_ns - gemm,
        "communication": summary.exposed_comm_ns,
        "copy": max(0, copies),
        "idle": summary.idle_ns,
    }
