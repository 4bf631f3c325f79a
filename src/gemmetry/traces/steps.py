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
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import numpy as np

from gemmetry.formats.events import MISSING, AnnotationRows, Bools, Int64, OperatorRows
from gemmetry.traces.gemms.joins import NONE
from gemmetry.traces.model import Trace

_KINDS = (
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
)  # fmt: skip
"""Kinds of marks, in order of precedence."""


@cache
def _kinds() -> tuple[re.Pattern[str], ...]:
    """The patterns, compiled when steps are looked for."""
    return tuple(map(re.compile, _KINDS))


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
    """Its work: rows of ``TraceRows.gpu``, ascending."""


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


def steps_without_work(trace: Trace) -> int:
    """Number of marks of steps none of whose launches has work in the file, although there are
    launches in them."""
    return _found(trace)[1]


def _found(trace: Trace) -> tuple[list[Step], int]:
    marks = _on_host(trace)
    of_row = _by_launches(trace, marks)
    source = "launches"
    if of_row is None:
        marks, source = _on_gpu(trace), "gpu"
        of_row = _by_starts(trace, marks)
    spans = {mark.number: mark for mark in _spans(marks)}
    lost = trace.rows.calls.start_ns[trace.lost_launches]
    lost_in = _containing(marks, lost) if source == "launches" else lost[:0]
    numbers, counts = np.unique(lost_in[lost_in != NONE], return_counts=True)
    lost_of = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    steps = [
        _step(trace, rows, source, spans[number], lost_of.pop(number, 0))
        for number, rows in _grouped(of_row)
    ]
    return steps, len(lost_of)


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


def _matches(names: Sequence[str]) -> list[tuple[int, re.Match[str]] | None]:
    """The kind of mark that each name is, and its parts."""
    return [
        next(((kind, m) for kind, one in enumerate(_kinds()) if (m := one.fullmatch(name))), None)
        for name in names
    ]


def _on_host(trace: Trace) -> list[_Mark]:
    """Marks on the host, which PyTorch 1.8 writes as operators."""
    operators, marks = trace.rows.operators, trace.rows.annotations
    everywhere = np.ones(len(operators.name), bool)
    return _marks(trace, ((operators, everywhere), (marks, marks.on_gpu == 0)))


def _on_gpu(trace: Trace) -> list[_Mark]:
    """Marks on streams of a GPU."""
    marks = trace.rows.annotations
    return _marks(trace, ((marks, marks.on_gpu == 1),), on_gpu=True)


def _marks(
    trace: Trace,
    tables: Sequence[tuple[OperatorRows | AnnotationRows, Bools]],
    *,
    on_gpu: bool = False,
) -> list[_Mark]:
    """The marks among the chosen rows of `tables`, of the first kind that occurs."""
    matches = _matches(trace.rows.names)
    none = len(_KINDS)
    kinds = np.array([none if one is None else one[0] for one in matches], np.int64)
    rows = [
        (table, row)
        for table, chosen in tables
        if len(table.name)
        for row in np.flatnonzero(chosen & (kinds[table.name] != none)).tolist()
    ]
    first = min((int(kinds[table.name[row]]) for table, row in rows), default=none)
    found = []
    for table, row in rows:
        match = matches[table.name[row]]
        if match is None or match[0] != first:
            continue
        parts = match[1].groupdict()
        start = int(table.start_ns[row])
        thread = trace.rows.threads[int(table.thread[row])] if on_gpu else ""
        number = int(parts["number"]) if parts.get("number") else NONE
        found.append(
            _Mark(number, start, start + int(table.duration_ns[row]), thread, _phase(parts))
        )
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
    ordered = sorted(marks, key=lambda mark: (mark.start_ns, -mark.end_ns))
    groups: list[list[_Mark]] = []
    reached: dict[tuple[int, str], tuple[int, list[_Mark]]] = {}
    for mark in ordered:
        key = (mark.number, mark.phase)
        end, group = reached.get(key, (mark.start_ns, []))
        if not group or end <= mark.start_ns:
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


def _spans(marks: Sequence[_Mark]) -> list[_Mark]:
    """One mark per number, from the first start to the last end of its marks."""
    spans: dict[int, _Mark] = {}
    for mark in marks:
        known = spans.get(mark.number, mark)
        spans[mark.number] = mark._replace(
            start_ns=min(known.start_ns, mark.start_ns),
            end_ns=max(known.end_ns, mark.end_ns),
            thread="",
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
