"""The figures at the top of a page of traces."""

from __future__ import annotations

from gemmetry.analysis.traces.report import TraceReport
from gemmetry.analysis.traces.totals import gpu_totals, host_totals, job_times
from gemmetry.domain.units import counted, format_gflops, format_ns
from gemmetry.reports.traces.tables import shape_text
from gemmetry.traces.summary import bound_of

Tile = dict[str, str]


def gpu_tiles(report: TraceReport) -> list[Tile]:
    """The time of the job (of several jobs the shortest and the longest), and shares of the windows
    of all its ranks; the times given with the shares are means over the ranks."""
    totals = gpu_totals(report.summaries)
    window, count = totals.window_ns, totals.traces
    in_jobs = any(len(job.job.ranks) > 1 for job in report.jobs)
    each = f" per {'rank' if in_jobs else 'trace'}" if count > 1 else ""

    def detail(ns: int) -> str:
        return f"{format_ns(ns / max(count, 1))}{each}"

    def share(ns: int) -> str:
        return f"{ns / window:.1%}" if window else "–"

    tiles = [_time_tile(report, in_jobs)]
    for label, name, what in (
        ("busy", "busy_ns", "with any work"),
        ("computing", "compute_union_ns", "with fills or kernels that do not communicate"),
        ("exposed communication", "exposed_comm_ns", "without computing at the same time"),
        ("idle", "idle_ns", "without any work"),
    ):
        ns = getattr(totals, name)
        signs = {bound_of(one, name) for one in report.summaries if one.window_ns}
        value = " ".join(filter(None, (max(signs, default=""), share(ns))))
        tiles.append({"label": label, "value": value, "detail": f"{detail(ns)} {what}"})
    ns, kernels = totals.gemm_kernel_ns, totals.gemm_kernels
    what = f"sum of {kernels:,}" if count < 2 else f"{counted(kernels, 'kernel')} in all"
    tiles.append({"label": "GEMM kernels", "value": share(ns), "detail": f"{detail(ns)}, {what}"})
    return tiles


def _time_tile(report: TraceReport, in_jobs: bool) -> Tile:
    kernels = counted(sum(one.kernels for one in report.summaries), "kernel")
    found = job_times(report.jobs)
    times = [time for _, time in found]
    value = format_ns(min(times, default=0))
    if len(times) > 1:
        value = f"{value} – {format_ns(max(times))}"
        name = f"times of {len(times)} jobs" if in_jobs else f"windows of {len(times)} traces"
        return {"label": name, "value": value, "detail": kernels}
    if not in_jobs or not found:
        return {"label": "window", "value": value, "detail": kernels}
    ((job, _),) = found
    ranks, size = len(job.job.ranks), job.job.world_size or 0
    of = f"{ranks} of {size} ranks" if size > ranks else counted(ranks, "rank")
    if job.span_ns is None:
        what = "their recordings do not overlap"
        return {"label": "longest rank", "value": value, "detail": f"{of}, {kernels}; {what}"}
    return {"label": "time of the job", "value": value, "detail": f"{of}, {kernels}"}


def host_tiles(report: TraceReport) -> list[Tile]:
    """Sums over all traces; shares are those of the time in operators."""
    totals = host_totals(report.host_operators, report.host_products)
    spent, files = totals.self_ns, len(report.summaries)
    tiles = [
        {"label": "work on a GPU", "value": "none",
         "detail": "in this trace" if files == 1 else f"in {files:,} traces"},
        {"label": "time in operators", "value": format_ns(spent),
         "detail": f"{counted(totals.calls, 'call')}, on all threads"},
    ]  # fmt: skip
    if report.host_products:
        tiles.append({
            "label": "matrix products",
            "value": f"{totals.product_ns / spent:.1%}" if spent else "–",
            "detail": f"{format_ns(totals.product_ns)}, {counted(totals.product_calls, 'call')}",
        })  # fmt: skip
    row = totals.fastest
    if row is not None and row.tflops is not None:
        shape = shape_text(row.shape, row.dtype, row.layout)
        tiles.append({"label": "fastest product, by its median",
                      "value": format_gflops(row.tflops * 1000), "detail": shape})  # fmt: skip
    return tiles
