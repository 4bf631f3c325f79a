"""Training or inference steps, as the profiler marks them (``ProfilerStep#3``).

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
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from gemmetry.formats.events import MISSING, Bools, Int64
from gemmetry.traces.gemms.joins import NONE
from gemmetry.traces.model import Trace

_STEP = re.compile(r"ProfilerStep#(\d{1,18})")


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
    rows: Int64 = field(default_factory=lambda: np.zeros(0, np.int64), compare=False, repr=False)
    """Its work: rows of ``TraceRows.gpu``, ascending."""


class _Mark(NamedTuple):
    number: int
    start_ns: int
    end_ns: int
    thread: str
    """``device/stream`` on a GPU; "": any stream."""


def find_steps(trace: Trace) -> list[Step]:
    """The steps of `trace` that have work on a GPU, by number."""
    marks = _on_host(trace)
    of_row = _by_launches(trace, marks)
    source = "launches"
    if of_row is None:
        marks, source = _on_gpu(trace), "gpu"
        of_row = _by_starts(trace, marks)
    spans = {mark.number: (mark.start_ns, mark.end_ns) for mark in _spans(marks)}
    return [_step(trace, number, rows, source, spans[number]) for number, rows in _grouped(of_row)]


def host_marks(trace: Trace) -> list[tuple[int, int, int]]:
    """Number, start and end in ns of the profiler's marks on the host, by number: the steps of a
    trace without work on a GPU."""
    marks = sorted(_spans(_on_host(trace)), key=lambda mark: mark.number)
    return [(mark.number, mark.start_ns, mark.end_ns) for mark in marks]


def _grouped(of_row: Int64) -> list[tuple[int, Int64]]:
    """The numbers in ascending order, each with its indices; the number -1 is left out."""
    order = np.argsort(of_row, kind="stable")
    numbers, first = np.unique(of_row[order], return_index=True)
    parts = np.split(order, first[1:])
    return [
        (number, rows)
        for number, rows in zip(numbers.tolist(), parts, strict=False)
        if number != NONE
    ]


def _step(trace: Trace, number: int, rows: Int64, source: str, mark: tuple[int, int]) -> Step:
    gpu = trace.rows.gpu
    return Step(
        number=number,
        start_ns=int(gpu.start_ns[rows].min()),
        end_ns=int((gpu.start_ns[rows] + gpu.duration_ns[rows]).max()),
        source=source,
        mark_ns=mark[1] - mark[0],
        inferred=int((trace.launches.call[rows] == NONE).sum()) if source == "launches" else 0,
        rows=rows,
    )


def _numbers(names: tuple[str, ...]) -> Int64:
    """Number of the step that each name marks; -1: none."""
    found = (_STEP.fullmatch(name) for name in names)
    return np.array([int(match[1]) if match else NONE for match in found], np.int64)


def _on_host(trace: Trace) -> list[_Mark]:
    """Marks on the host, which PyTorch 1.8 writes as operators."""
    operators, marks = trace.rows.operators, trace.rows.annotations
    everywhere = np.ones(len(operators.name), bool)
    numbers = _numbers(trace.rows.names)
    found = []
    for rows, on_host in ((operators, everywhere), (marks, marks.on_gpu == 0)):
        chosen = on_host & (numbers[rows.name] != NONE) if len(rows.name) else on_host
        for row in np.flatnonzero(chosen).tolist():
            start = int(rows.start_ns[row])
            end = start + int(rows.duration_ns[row])
            found.append(_Mark(int(numbers[rows.name[row]]), start, end, ""))
    return found


def _on_gpu(trace: Trace) -> list[_Mark]:
    """Marks on streams of a GPU."""
    marks = trace.rows.annotations
    if not len(marks.name):
        return []
    numbers = _numbers(trace.rows.names)[marks.name]
    found = []
    for row in np.flatnonzero((numbers != NONE) & (marks.on_gpu == 1)).tolist():
        start = int(marks.start_ns[row])
        end = start + int(marks.duration_ns[row])
        thread = trace.rows.threads[int(marks.thread[row])]
        found.append(_Mark(int(numbers[row]), start, end, thread))
    return found


def _spans(marks: Sequence[_Mark]) -> list[_Mark]:
    """One mark per number, from the first start to the last end of its marks."""
    spans: dict[int, _Mark] = {}
    for mark in marks:
        known = spans.get(mark.number, mark)
        spans[mark.number] = _Mark(
            mark.number, min(known.start_ns, mark.start_ns), max(known.end_ns, mark.end_ns), ""
        )
    return list(spans.values())


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
    of_row = _containing(_spans(marks), gpu.start_ns)
    for thread in {mark.thread for mark in marks}:
        device, _, stream = thread.partition("/")
        own = np.flatnonzero((gpu.device == _number(device)) & (gpu.stream == _number(stream)))
        found = _containing([mark for mark in marks if mark.thread == thread], gpu.start_ns[own])
        of_row[own[found != NONE]] = found[found != NONE]
    return of_row


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 18 else MISSING


def _containing(marks: Sequence[_Mark], moments: Int64) -> Int64:
    """Number of the mark [start, end) that contains each of `moments`, of several the one that
    began last; -1: none."""
    result = np.full(len(moments), NONE, np.int64)
    order = np.argsort(moments, kind="stable")
    ascending = moments[order]
    for mark in sorted(marks, key=lambda mark: (mark.start_ns, -mark.end_ns)):
        first, last = np.searchsorted(ascending, [mark.start_ns, mark.end_ns])
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
