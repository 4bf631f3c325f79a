"""Training or inference steps, as the profiler or an inference engine marks them
(``ProfilerStep#3``, ``step[DECODE bs=64]``).

The mark on the host spans the time in which a step's work was submitted, which may have ended long
before the GPU begins with it. The mark on the GPU spans the work launched by the marked thread, and
so omits the backward pass, which has its own thread: on H200s (PyTorch 2.11, FSDP), marks of 65 ms
contained 24 of the 72 GEMMs of a step. Here a step is therefore the work that any thread launched
within the host's mark, and lasts from the first start to the last end of that work.

Each piece of work belongs to one step at most:

- its launch lies in the host's mark; of several marks (nested, or of several threads) the one that
  began last counts;
- where its launch is not in the file, the pieces before and after it on its stream, which run in
  launch order, decide: if both belong to the same step, so does it;
- where no launches are recorded, or no marks of the host, its start lies in the step's mark on its
  own stream of the GPU, else in the span of the step's marks on all streams.

All other work is outside the steps.

Marks of one kind are read: those of PyTorch's profiler or, in a trace without them, those of the
first kind in :data:`_KINDS` that it has. Engines do not number their marks: these steps are
numbered from 0, in the order of their marks. Many engines write the phase of a step, such as
decode, into its mark.

Summarises GPU activity in a trace: time spent computing, communicating, copying and idle.

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

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gemmetry.domain.rows import Row, derived, fact
from gemmetry.formats.events import (
    INCOMPLETE,
    MISSING,
    AnnotationRows,
    Bools,
    Int32,
    Int64,
    OperatorRows,
    ProblemKind,
    TraceProblem,
)
from gemmetry.traces.joins import NONE, Intervals, covered, within
from gemmetry.traces.model import Trace
from gemmetry.traces.names.words import pattern

_KINDS = tuple(map(pattern, (
    r"ProfilerStep#(?P<number>\d{1,18})",
    # SGLang: step[DECODE bs=64], step[EXTEND bs=2 toks=2048].
    r"step\[(?P<phase>[A-Za-z_]+)[^\]]*\]",
    # vLLM: execute_context_1(2048)_generation_0(0), and execute_new_1_cached_63 before.
    r"execute_(?:\d+_)?(?:context|new)_(?P<context>\d+)(?:\([^)]*\))?"
    r"_(?:generation|cached)_(?P<generation>\d+)(?:\([^)]*\))?",
    # TensorRT-LLM: [Executor] _forward_step 12: 0 ctx reqs, 64 gen reqs.
    r"\[Executor\] _forward_step (?P<number>\d{1,18}): "
    r"(?P<context>\d+) ctx reqs, (?P<generation>\d+) gen reqs",
    # Ranges of users: train_step_3, iteration 12, prefill step: 0.
    r"(?i:(?:(?P<phase>[a-z]{4,12})[ _./-])?(?:step|iter|iteration|batch)[ _#:=-]{0,2}\[?"
    r"(?P<number>\d{1,18})\]?)",
)))  # fmt: skip
"""Kinds of marks, in order of precedence."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step."""

    number: int
    start_ns: int
    """Start of its first GPU work."""
    end_ns: int
    """End of its last GPU work."""
    source: str
    """``launches``: work launched within the mark on the host; ``gpu``: work that began within the
    mark on the GPU, where no launches are recorded."""
    mark_ns: int
    """Duration of the mark, on the host or the GPU depending on `source`."""
    inferred: int = 0
    """Number of its pieces of work whose launch is not in the file."""
    phase: str = ""
    """``decode``, ``prefill``, ``extend``, ``mixed`` ..., where its mark states it."""
    lost_launches: int = 0
    """Number of the launches within its mark whose work is not in the file."""
    rows: Int64 = field(default_factory=lambda: np.zeros(0, np.int64), compare=False, repr=False)
    """Work: rows of ``TraceRows.gpu``, ascending."""


class _Mark(NamedTuple):
    number: int
    start_ns: int
    end_ns: int
    thread: str
    """``device/stream`` on a GPU; "": any stream."""
    phase: str = ""


def find_steps(trace: Trace) -> list[Step]:
    """The steps of `trace` that have work on a GPU, by number."""
    return _found(trace)[0]


def _found(trace: Trace) -> tuple[list[Step], int]:
    """The steps, and the number of step marks with launches, but without GPU work of these."""
    marks = _marks(trace)
    of_row = _by_launches(trace, marks)
    source = "launches"
    if of_row is None:
        marks, source = _marks(trace, on_gpu=True), "gpu"
        of_row = _by_starts(trace, marks)
    lost = trace.rows.calls.start_ns[trace.lost_launches]
    lost_of = Counter(_containing(marks, lost).tolist() if source == "launches" else ())
    del lost_of[NONE]
    spans = _spans(marks)
    steps = [
        _step(trace, rows, source, spans[number], lost_of.pop(number, 0))
        for number, rows in _grouped(of_row)
    ]
    return steps, len(lost_of)


def host_marks(trace: Trace) -> list[tuple[int, int, int]]:
    """Number, start and end in ns of the profiler's marks on the host, by number: the steps of a
    trace without work on a GPU."""
    return sorted(mark[:3] for mark in _spans(_marks(trace)).values())


def _grouped(of_row: Int64 | Int32) -> list[tuple[int, Int64]]:
    """The numbers in ascending order, each with its indices; the number -1 is left out."""
    order = np.argsort(of_row, kind="stable")
    numbers, first = np.unique(of_row[order], return_index=True)
    found = zip(numbers.tolist(), np.split(order, first[1:]), strict=False)
    return [(number, rows) for number, rows in found if number != NONE]


def _step(trace: Trace, rows: Int64, source: str, mark: _Mark, lost: int) -> Step:
    gpu = trace.rows.gpu
    return Step(
        number=mark.number,
        start_ns=int(gpu.start_ns[rows].min()),
        end_ns=int((gpu.start_ns[rows] + gpu.duration_ns[rows]).max()),
        source=source,
        mark_ns=mark.end_ns - mark.start_ns,
        inferred=int((trace.launches.call[rows] == NONE).sum()) if source == "launches" else 0,
        phase=mark.phase,
        lost_launches=lost,
        rows=rows,
    )


def _marks(trace: Trace, *, on_gpu: bool = False) -> list[_Mark]:
    """The marks of the first kind that occurs, on streams of a GPU or on the host, where PyTorch
    1.8 writes them as operators."""
    matches: dict[int, tuple[int, re.Match[str]]] = {}
    for index, name in enumerate(trace.rows.names):
        for kind, mark in enumerate(_KINDS):
            if match := mark.fullmatch(name):
                matches.setdefault(index, (kind, match))
    is_mark = np.zeros(len(trace.rows.names), bool)
    is_mark[list(matches)] = True
    operators, marks = trace.rows.operators, trace.rows.annotations
    tables: list[tuple[OperatorRows | AnnotationRows, Bools]] = [(marks, marks.on_gpu == on_gpu)]
    if not on_gpu:
        tables.insert(0, (operators, np.ones(len(operators.name), bool)))
    rows = [
        (table, row, *matches[table.name[row]])
        for table, chosen in tables
        for row in np.flatnonzero(chosen & is_mark[table.name]).tolist()
    ]
    first = min((kind for *_, kind, _ in rows), default=0)
    found = []
    for table, row, kind, match in rows:
        if kind == first:
            parts = match.groupdict()
            start = int(table.start_ns[row])
            thread = trace.rows.threads[int(table.thread[row])] if on_gpu else ""
            number = int(parts["number"]) if parts.get("number") else NONE
            end = start + int(table.duration_ns[row])
            found.append(_Mark(number, start, end, thread, _phase(parts)))
    return found if first == 0 else _numbered(found)


def _phase(parts: Mapping[str, str | None]) -> str:
    """The phase of a step: the word in its mark, or what kinds of requests it has."""
    if parts.get("context") is None:
        return (parts.get("phase") or "").lower()
    has = int(parts["context"] or 0) > 0, int(parts.get("generation") or 0) > 0
    return {(True, True): "mixed", (True, False): "prefill", (False, True): "decode"}.get(has, "")


def _numbered(marks: Sequence[_Mark]) -> list[_Mark]:
    """`marks` with the numbers in them, or numbered by time where numbers are missing or occur
    again. Marks that are alike and overlap, as on several streams, have one number."""
    groups: list[list[_Mark]] = []
    reached: dict[tuple[int, str], tuple[int, list[_Mark]]] = {}
    for mark in sorted(marks, key=lambda mark: (mark.start_ns, -mark.end_ns)):
        key = (mark.number, mark.phase)
        end, group = reached.get(key, (mark.start_ns, []))
        if end <= mark.start_ns:
            group = []
            groups.append(group)
        group.append(mark)
        reached[key] = (max(end, mark.end_ns), group)
    written = [group[0].number for group in groups]
    if NONE in written or len(set(written)) < len(written):
        written = list(range(len(groups)))
    return [
        mark._replace(number=number)
        for number, group in zip(written, groups, strict=True)
        for mark in group
    ]


def _spans(marks: Sequence[_Mark]) -> dict[int, _Mark]:
    """One mark per number, from the first start to the last end of its marks."""
    spans: dict[int, _Mark] = {}
    for mark in marks:
        known = spans.get(mark.number, mark)
        spans[mark.number] = mark._replace(
            start_ns=min(known.start_ns, mark.start_ns),
            end_ns=max(known.end_ns, mark.end_ns),
            thread="",
        )
    return spans


def _by_launches(trace: Trace, marks: Sequence[_Mark]) -> Int64 | None:
    """Number of the step that launched each row; None if no launch lies in any of the `marks`."""
    call = trace.launches.call
    launched = np.flatnonzero(call != NONE)
    of_launched = _containing(marks, trace.rows.calls.start_ns[call[launched]])
    if not (of_launched != NONE).any():
        return None
    of_row = np.full(len(call), NONE, np.int64)
    of_row[launched] = of_launched
    return _with_neighbours(trace, of_row, call != NONE)


def _by_starts(trace: Trace, marks: Sequence[_Mark]) -> Int64:
    """Number of the step in whose marks on the GPU each row starts."""
    gpu = trace.rows.gpu
    of_row = _containing(_spans(marks).values(), gpu.start_ns)
    for thread in {mark.thread for mark in marks}:
        device, _, stream = thread.partition("/")
        own = np.flatnonzero((gpu.device == _number(device)) & (gpu.stream == _number(stream)))
        found = _containing([mark for mark in marks if mark.thread == thread], gpu.start_ns[own])
        of_row[own[found != NONE]] = found[found != NONE]
    return of_row


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 18 else MISSING


def _containing(marks: Iterable[_Mark], moments: Int64) -> Int64:
    """Number of the mark [start, end) that contains each of `moments`, of several the one that
    began last; -1: none."""
    result = np.full(len(moments), NONE, np.int64)
    order = np.argsort(moments, kind="stable")
    for mark in sorted(marks, key=lambda mark: (mark.start_ns, -mark.end_ns)):
        first, last = np.searchsorted(moments, [mark.start_ns, mark.end_ns], sorter=order)
        result[order[first:last]] = mark.number
    return result


def _with_neighbours(trace: Trace, of_row: Int64, known: Bools) -> Int64:
    """`of_row`, completed for rows that are not `known` with the step of the known rows before and
    after them on their stream, if these agree."""
    gpu = trace.rows.gpu
    order = np.lexsort((gpu.start_ns, gpu.stream, gpu.device))
    is_known = known[order]
    places = np.arange(len(order))
    before = np.maximum.accumulate(np.where(is_known, places, NONE))
    after = np.minimum.accumulate(np.where(is_known, places, len(order))[::-1])[::-1]
    lost = np.flatnonzero(~is_known & (before != NONE) & (after < len(order)))
    row, left, right = order[lost], order[before[lost]], order[after[lost]]
    agree = (of_row[left] == of_row[right]) & (gpu.stream[row] != MISSING)
    for column in (gpu.device, gpu.stream):
        agree &= (column[left] == column[row]) & (column[right] == column[row])
    result = of_row.copy()
    result[row[agree]] = of_row[left[agree]]
    return result


TOP_GEMMS = 10


class TopGemm(Row):
    """All GEMM kernels of one name."""

    name: str = fact("name of the kernel")
    count: int = fact("instances")
    sum_ns: int = fact("total time", "µs")
    min_ns: int = fact("shortest time", "µs")
    max_ns: int = fact("longest time", "µs")


class _Place(Row):
    """Subject of a row."""

    file: Path
    part: str = ""
    """The trace that it belongs to, where the file is a workbook of several."""

    @derived("the trace", key="file")
    def source(self) -> str:
        """The file, and the trace in it."""
        return f"{self.file}: {self.part}" if self.part else str(self.file)


class Activity(Row):
    """Work on GPUs in a trace or a step; times are exact."""

    label: str
    """The trace's file, rank and device, for display."""
    kernels: int = fact("kernels on GPUs")
    gemm_kernels: int = fact("GEMM kernels")
    comm_kernels: int = fact("kernels that communicate")
    gemm_kernel_ns: int = fact("sum of the durations of GEMM kernels", "µs")
    comm_kernel_ns: int = fact("sum of the durations of kernels that communicate", "µs")
    window_ns: int = fact("from the first start to the last end of work on GPUs", "µs")
    busy_ns: int = fact("time in which anything ran", "µs")
    compute_union_ns: int = fact("time in which anything was computed", "µs")
    comm_union_ns: int = fact("time in which a kernel that communicates ran", "µs")
    memcpy_union_ns: int = fact("time in which a copy ran", "µs")
    comm_compute_overlap_ns: int = fact("time with both communication and computing", "µs")
    exposed_comm_ns: int = fact("time with communication and no computing", "µs")
    gemm_comm_overlap_ns: int = fact("time with both communication and a GEMM", "µs")
    idle_ns: int = fact("time in which nothing ran", "µs")
    launches_without_work: int = fact(
        "launches whose work is not in the file: it was busy for longer, idle for less"
    )
    partial: bool = False
    """Events of the file are missing."""
    problems: tuple[TraceProblem, ...] = ()
    """Parts of the file that could not be used, and what is missing from it."""

    @property
    def is_incomplete(self) -> bool:
        """Whether work is missing, so that the GPU was busy for at least the time shown, and idle
        for at most the time shown."""
        # Launches without work are known by step.
        kinds = {problem.kind for problem in self.problems} - {ProblemKind.NO_WORK}
        return bool(self.partial or self.launches_without_work or kinds.intersection(INCOMPLETE))


class _OfTrace(_Place):
    events: int = fact("entries of the file")


class Summary(Activity, _OfTrace):
    """Summary of one trace."""

    top_gemms: tuple[TopGemm, ...] = fact("the GEMM kernels with the most time", default=())
    partial: bool = fact("whether events of the file are missing", default=False)
    unknown: frozenset[str] = frozenset()
    """Keys of what the file, such as a workbook, does not contain; it is 0 here."""

    def record(self) -> dict[str, Any]:
        """The facts; what is not known is None."""
        return super().record() | dict.fromkeys(self.unknown)


class _OfStep(_Place):
    step: Step
    number = derived("number of the step", key="step", type=int)(attrgetter("step.number"))
    phase = derived("phase in the step's mark", type=str | None)(attrgetter("step.phase"))
    window_from = derived("source of the step's window", type=str)(attrgetter("step.source"))


class StepSummary(Activity, _OfStep):
    """Summary of one step of a trace."""

    others_ns: int = fact("part of the window with only work of other steps, or of no step", "µs")
    mark_ns = derived("length of the step's mark on the host", "µs", type=int)(
        attrgetter("step.mark_ns")
    )
    inferred = derived("kernels that were assigned without a recorded launch", type=int)(
        attrgetter("step.inferred")
    )


def summarize(trace: Trace) -> Summary:
    """The summary of the whole `trace`."""
    start, gpu = trace.rows.gpu.start_ns, trace.rows.gpu
    window = (int(start.min()), int((start + gpu.duration_ns).max())) if len(start) else (0, 0)
    everything = np.arange(len(start))
    times = _times(trace, everything)
    found = Summary(
        **_activity(trace, everything, window, times, times),
        events=trace.rows.events,
        top_gemms=_top_gemms(trace, everything[trace.is_gemm]),
        launches_without_work=len(trace.lost_launches),
    )
    trace.release_pages()
    return found


def summarize_steps(trace: Trace) -> list[StepSummary]:
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
        found.append(StepSummary(
            **_activity(trace, step.rows, window, own, on_device),
            step=step,
            others_ns=on_device.any.length - own.any.length,
            launches_without_work=step.lost_launches,
        ))  # fmt: skip
    trace.release_pages()
    return found


class Outside(_Place):
    """Kernels of a trace that no step launched."""

    kernels: int = fact("kernels in no step")
    gemm_kernels: int = fact("GEMM kernels among them")
    comm_kernels: int = fact("kernels among them that communicate")
    unlinked: int = fact(
        "kernels among them whose launch is not in the file, because it preceded the recording or "
        "no launches are recorded", key="launch_not_in_file",
    )  # fmt: skip
    empty_steps: int = fact(
        "steps with launches of which none has work in the file", key="steps_without_work",
        default=0,
    )  # fmt: skip


def outside_steps(trace: Trace) -> Outside:
    """The kernels that belong to no step of `trace`; together with those in steps, these are all
    kernels."""
    outside = trace.is_kernel.copy()
    steps, empty = _found(trace)
    for step in steps:
        outside[step.rows] = False
    return Outside(
        file=trace.file,
        kernels=int(outside.sum()),
        gemm_kernels=int((outside & trace.is_gemm).sum()),
        comm_kernels=int((outside & trace.is_communication).sum()),
        unlinked=int((outside & (trace.launches.call == NONE)).sum()),
        empty_steps=empty,
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


def _activity(
    trace: Trace,
    counted: Int64,
    window: tuple[int, int],
    own: _KernelTimes,
    on_device: _KernelTimes,
) -> dict[str, Any]:
    """The fields of :class:`Activity` of the rows `counted`, whose times are `own`; `on_device` has
    the times of all work in the `window`."""
    gpu = trace.rows.gpu
    length, comm = window[1] - window[0], own.comm
    overlaps = [int(covered(comm.start, comm.end - comm.start, by).sum())
                for by in (on_device.compute, on_device.gemms)]  # fmt: skip
    gemms, comms = counted[trace.is_gemm[counted]], counted[trace.is_communication[counted]]
    return {
        "label": trace.label,
        "file": trace.file,
        "kernels": int(trace.is_kernel[counted].sum()),
        "gemm_kernels": len(gemms),
        "gemm_kernel_ns": int(gpu.duration_ns[gemms].sum()),
        "comm_kernels": len(comms),
        "comm_kernel_ns": int(gpu.duration_ns[comms].sum()),
        "window_ns": length,
        "busy_ns": own.any.length,
        "compute_union_ns": own.compute.length,
        "comm_union_ns": comm.length,
        "memcpy_union_ns": own.copies.length,
        "comm_compute_overlap_ns": overlaps[0],
        "exposed_comm_ns": comm.length - overlaps[0],
        "gemm_comm_overlap_ns": overlaps[1],
        "idle_ns": length - on_device.any.length,
        "partial": trace.rows.partial,
        "problems": trace.rows.problems,
    }


def _top_gemms(trace: Trace, gemms: Int64) -> tuple[TopGemm, ...]:
    duration = trace.rows.gpu.duration_ns[gemms]
    groups = ((name, duration[rows]) for name, rows in _grouped(trace.rows.gpu.name[gemms]))
    found = [
        TopGemm(name=trace.rows.names[name], count=len(part), sum_ns=int(part.sum()),
                min_ns=int(part.min()), max_ns=int(part.max()))
        for name, part in groups
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda gemm: (-gemm.sum_ns, gemm.name))[:TOP_GEMMS])


def bound_of(summary: Activity, time: str) -> str:
    """``≥`` or ``≤`` where the field `time` of an incomplete summary is only a bound, else ""."""
    return {"busy_ns": "≥", "idle_ns": "≤"}.get(time, "") if summary.is_incomplete else ""


ABOUT_INCOMPLETE = (
    "≥ and ≤ mark bounds: work of the GPU is missing from the file, so it was busy for longer than "
    "shown, and idle for less."
)
"""Meaning of these signs, wherever they are shown."""


class Problem(Row):
    """Unusable or missing part of a file, and why."""

    file: str = fact("the trace")
    where: str = fact("byte, event or row")
    what: str = fact("what could not be used or is missing, and why")
    kind: str = fact("what kind of problem it is")
    count: int = fact("events, work or places that have it")


def problem_rows(file: Path, problems: Iterable[TraceProblem]) -> list[Problem]:
    """The problems of a file."""
    return [
        Problem(file=str(file), where=one.where, what=one.what, kind=str(one.kind), count=one.count)
        for one in problems
    ]


def spanned_ns(steps: Iterable[StepSummary]) -> int:
    """Time in ns that steps of one file cover together."""
    spanned, reached = 0, 0
    for start, end in sorted((s.step.start_ns, s.step.end_ns) for s in steps):
        spanned += max(0, end - max(start, reached))
        reached = max(reached, end)
    return spanned


def steps_overlap(steps: Sequence[StepSummary], least_share: float) -> bool:
    """Whether work of other steps, or of none, fills at least `least_share` of any step's window,
    or the windows of a file's steps overlap."""
    if any(s.others_ns >= least_share * s.window_ns > 0 for s in steps):
        return True
    windows = sorted((s.file, s.step.start_ns, s.step.end_ns) for s in steps)
    return any(
        file == after and start < end for (file, _, end), (after, start, _) in pairwise(windows)
    )
