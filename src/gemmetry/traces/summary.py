"""Summarises GPU activity in a trace: time spent computing, communicating, copying and idle.

All sums and unions are exact, in whole nanoseconds. The definitions agree with those of TraceLens'
``gpu_timeline``, and so do the figures:

- *window*: from the first start to the last end of work on GPUs (kernels, copies, fills);
- *compute*: time in which a kernel that does not communicate, or a fill, runs;
- *comm*: time in which a kernel that communicates runs; *exposed* is the part of it without
  compute;
- *busy*: time in which anything runs; *idle*: window without busy.

A step's times are those of its own work; only the overlap with its communication, and whether its
window is idle, refer to any work on the device. Therefore the times of steps that overlap on the
device add up to at most those of the trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gemmetry.formats.events import INCOMPLETE, Int64, ProblemKind, TraceProblem
from gemmetry.traces import TRACE_SCHEMA_VERSION
from gemmetry.traces.gemms.joins import NONE
from gemmetry.traces.intervals import Intervals, intersect, subtract, within
from gemmetry.traces.model import Trace
from gemmetry.traces.steps import Step, find_steps, steps_without_work

TOP_GEMMS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TopGemm:
    """All GEMM kernels of one name."""

    name: str
    count: int
    sum_ns: int
    min_ns: int
    max_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Summary of one trace, or of one step of it."""

    label: str
    """The trace's file, rank and device, for display."""
    file: Path
    events: int
    """Number of entries in the file; 0 for a step."""
    kernels: int
    gemm_kernels: int
    gemm_kernel_ns: int
    comm_kernels: int
    comm_kernel_ns: int
    window_ns: int
    busy_ns: int
    compute_union_ns: int
    comm_union_ns: int
    memcpy_union_ns: int
    comm_compute_overlap_ns: int
    exposed_comm_ns: int
    gemm_comm_overlap_ns: int
    idle_ns: int
    top_gemms: tuple[TopGemm, ...]
    launches_without_work: int
    """Number of launches whose work is not in the file, or has no usable time."""
    partial: bool
    """Events of the file are missing."""
    problems: tuple[TraceProblem, ...]
    """Parts of the file that could not be used, and what is missing from it."""
    step: Step | None = None
    others_ns: int = 0
    """Time of a step's window in which work runs, but none of the step's own."""
    unknown: frozenset[str] = frozenset()
    """The :data:`KEYS` that the file, such as a workbook, does not contain; they are 0 here."""
    of: str = ""
    """The trace that it belongs to, where the file is a workbook of several."""

    @property
    def is_incomplete(self) -> bool:
        """Whether work is missing, so that the GPU was busy for at least the time shown, and idle
        for at most the time shown."""
        if self.partial or self.launches_without_work:
            return True
        # Launches without work are known by step.
        kinds = {problem.kind for problem in self.problems} - {ProblemKind.NO_WORK}
        return not kinds.isdisjoint(INCOMPLETE)

    @property
    def source(self) -> str:
        """The subject of the summary, for tables."""
        return f"{self.file}: {self.of}" if self.of else str(self.file)


TIMES = (
    "gemm_kernel", "comm_kernel", "window", "busy", "compute_union", "comm_union",
    "memcpy_union", "comm_compute_overlap", "exposed_comm", "gemm_comm_overlap", "idle",
)  # fmt: skip
"""Fields that are times, without their unit."""

KEYS = (
    "file", "events", "kernels", "gemm_kernels", "gemm_kernel_us", "comm_kernels",
    "comm_kernel_us", *(f"{name}_us" for name in TIMES[2:]), "launches_without_work", "top_gemms",
)  # fmt: skip
"""Keys of a file in the JSON document, in order."""


def summarize(trace: Trace) -> Summary:
    """The summary of the whole `trace`."""
    start = trace.rows.gpu.start_ns
    window = (0, 0)
    if len(start):
        window = (int(start.min()), int((start + trace.rows.gpu.duration_ns).max()))
    everything = np.arange(len(start))
    times = _times(trace, everything)
    found = _summary(trace, everything, window, times, times)
    trace.let_go()
    return found


def summarize_steps(trace: Trace) -> list[Summary]:
    """The summary of each step of `trace` (:func:`find_steps`)."""
    steps = find_steps(trace)
    if not steps:
        return []
    whole = _times(trace, np.arange(len(trace.rows.gpu.start_ns)))
    found = []
    for step in steps:
        window = (step.start_ns, step.end_ns)
        on_device = _KernelTimes._make(within(time, *window) for time in whole)
        own = _times(trace, step.rows)
        found.append(_summary(trace, step.rows, window, own, on_device, step))
    trace.let_go()
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """Kernels of a trace that no step launched."""

    file: Path
    kernels: int
    gemm_kernels: int
    comm_kernels: int
    unlinked: int
    """Number of the kernels whose launch is not in the file, because it preceded the recording or
    no launches are recorded."""
    empty_steps: int = 0
    """Number of steps with launches of which none has work in the file."""


def outside_steps(trace: Trace) -> Outside:
    """The kernels that belong to no step of `trace`; together with those in steps, these are all
    kernels."""
    outside = trace.is_kernel.copy()
    for step in find_steps(trace):
        outside[step.rows] = False
    return Outside(
        file=trace.file,
        kernels=int(outside.sum()),
        gemm_kernels=int((outside & trace.is_gemm).sum()),
        comm_kernels=int((outside & trace.is_communication).sum()),
        unlinked=int((outside & (trace.launches.call == NONE)).sum()),
        empty_steps=steps_without_work(trace),
    )


class _KernelTimes(NamedTuple):
    """The times at which each kind of work runs."""

    any: Intervals
    compute: Intervals
    comm: Intervals
    copies: Intervals
    gemms: Intervals


def _times(trace: Trace, rows: Int64) -> _KernelTimes:
    """Sets of time of `rows`, indices into ``TraceRows.gpu``."""
    is_copy, is_comm, is_gemm = (
        chosen[rows] for chosen in (trace.is_copy, trace.is_communication, trace.is_gemm)
    )
    comm = trace.time_of(rows[is_comm])
    return _KernelTimes(
        any=trace.time_of(rows),
        compute=trace.time_of(rows[~is_copy & ~is_comm]),
        comm=comm,
        copies=trace.time_of(rows[is_copy]),
        # Needed only together with communication.
        gemms=trace.time_of(rows[is_gemm]) if len(comm) else comm,
    )


def _summary(
    trace: Trace,
    counted: Int64,
    window: tuple[int, int],
    own: _KernelTimes,
    on_device: _KernelTimes,
    step: Step | None = None,
) -> Summary:
    """The summary of the rows `counted`, whose times are `own`; `on_device` has the times of all
    work in the `window`."""
    gpu = trace.rows.gpu
    length, comm = window[1] - window[0], own.comm
    exposed = subtract(comm, on_device.compute).length if len(comm) else 0
    gemms, comms = counted[trace.is_gemm[counted]], counted[trace.is_communication[counted]]
    return Summary(
        label=trace.label,
        file=trace.file,
        events=0 if step else trace.rows.events,
        kernels=int(trace.is_kernel[counted].sum()),
        gemm_kernels=len(gemms),
        gemm_kernel_ns=int(gpu.duration_ns[gemms].sum()),
        comm_kernels=len(comms),
        comm_kernel_ns=int(gpu.duration_ns[comms].sum()),
        window_ns=length,
        busy_ns=own.any.length,
        compute_union_ns=own.compute.length,
        comm_union_ns=comm.length,
        memcpy_union_ns=own.copies.length,
        comm_compute_overlap_ns=comm.length - exposed,
        exposed_comm_ns=exposed,
        gemm_comm_overlap_ns=intersect(on_device.gemms, comm).length if len(comm) else 0,
        idle_ns=length - on_device.any.length,
        others_ns=on_device.any.length - own.any.length,
        top_gemms=_top_gemms(trace, gemms),
        launches_without_work=step.lost_launches if step else len(trace.lost_launches),
        partial=trace.rows.partial,
        problems=trace.rows.problems,
        step=step,
    )


def _top_gemms(trace: Trace, gemms: Int64) -> tuple[TopGemm, ...]:
    gpu = trace.rows.gpu
    names, durations = gpu.name[gemms], gpu.duration_ns[gemms]
    order = np.argsort(names, kind="stable")
    distinct, first = np.unique(names[order], return_index=True)
    found = [
        TopGemm(
            name=trace.rows.names[name],
            count=len(part),
            sum_ns=int(part.sum()),
            min_ns=int(part.min()),
            max_ns=int(part.max()),
        )
        for name, part in zip(
            distinct.tolist(), np.split(durations[order], first[1:]), strict=False
        )
    ]
    return tuple(sorted(found, key=lambda gemm: (-gemm.sum_ns, gemm.name))[:TOP_GEMMS])


def bound_of(summary: Summary, time: str) -> str:
    """``≥`` or ``≤`` where the field `time` of an incomplete summary is only a bound, else ""."""
    if not summary.is_incomplete:
        return ""
    return {"busy_ns": "≥", "idle_ns": "≤"}.get(time, "")


ABOUT_INCOMPLETE = (
    "≥ and ≤ mark bounds: work of the GPU is missing from the file, so it was busy for longer than "
    "shown, and idle for less."
)
"""What these signs mean, wherever they are shown."""


def microseconds(ns: int) -> Decimal:
    """`ns` in µs, with exactly three decimals."""
    return Decimal(ns).scaleb(-3)


def summary_entry(summary: Summary) -> dict[str, Any]:
    """The JSON document's entry for one file: :data:`KEYS`; times are Decimals, in µs."""
    values: dict[str, Any] = {
        "file": summary.source,
        "events": summary.events,
        "kernels": summary.kernels,
        "gemm_kernels": summary.gemm_kernels,
        "comm_kernels": summary.comm_kernels,
        "launches_without_work": summary.launches_without_work,
        "top_gemms": [
            {
                "name": gemm.name,
                "count": gemm.count,
                "sum_us": microseconds(gemm.sum_ns),
                "min_us": microseconds(gemm.min_ns),
                "max_us": microseconds(gemm.max_ns),
            }
            for gemm in summary.top_gemms
        ],
    }
    values |= {f"{name}_us": microseconds(getattr(summary, f"{name}_ns")) for name in TIMES}
    return {key: None if key in summary.unknown else values[key] for key in KEYS}


def step_entry(summary: Summary) -> dict[str, Any]:
    """The JSON document's entry for one step: like that of a file, with the step instead of the
    events."""
    entry = summary_entry(summary)
    del entry["events"], entry["top_gemms"]
    step = summary.step
    place: dict[str, Any] = {}
    if step:
        place = {"step": step.number, "phase": step.phase or None, "window_from": step.source}
    more: dict[str, Any] = {"others_us": microseconds(summary.others_ns)}
    if step:
        more |= {"mark_us": microseconds(step.mark_ns), "inferred": step.inferred}
    return {"file": entry.pop("file"), **place, **entry, **more}


def problem_entry(file: Path, problem: TraceProblem) -> dict[str, Any]:
    """A problem of a file in a JSON document."""
    return {
        "file": str(file),
        "where": problem.where,
        "what": problem.what,
        "kind": str(problem.kind),
        "count": problem.count,
    }


def summary_document(
    summaries: Sequence[Summary],
    *,
    errors: Mapping[str, str] | None = None,
    steps: Iterable[Summary] | None = None,
    outside: Iterable[Outside] = (),
) -> dict[str, Any]:
    """The document of ``gemmetry trace summary --json``.

    ``files`` has an entry for each trace; ``partial``, ``problems`` and ``errors`` list files that
    end early, have damaged events, or could not be read at all. With `steps`, ``outside_steps`` has
    an entry for each of `outside`.
    """
    document: dict[str, Any] = {
        "schema_version": TRACE_SCHEMA_VERSION,
        "files": [summary_entry(summary) for summary in summaries],
        "partial": [str(summary.file) for summary in summaries if summary.partial],
        "problems": [
            problem_entry(summary.file, problem)
            for summary in summaries
            for problem in summary.problems
        ],
        "errors": [{"file": file, "error": text} for file, text in (errors or {}).items()],
    }
    if steps is not None:
        document["steps"] = [step_entry(step) for step in steps]
        document["outside_steps"] = [
            {
                "file": str(one.file),
                "kernels": one.kernels,
                "gemm_kernels": one.gemm_kernels,
                "comm_kernels": one.comm_kernels,
                "launch_not_in_file": one.unlinked,
                "steps_without_work": one.empty_steps,
            }
            for one in outside
        ]
    return document
