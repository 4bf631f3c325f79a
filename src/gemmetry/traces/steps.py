"""Training or inference steps, as the profiler marks them (``ProfilerStep#3``).

The mark on the host spans the time in which a step's work was handed over, which may be long over
when the GPU begins with it. The mark on the GPU spans what the marked thread launched and so
leaves the backward pass out, which has a thread of its own: seen on H200s (PyTorch 2.11, FSDP):
marks of 65 ms with 24 of the 72 GEMMs of a step. Therefore a step is here from the first start to
the last end of the work that any thread launched within the host's mark.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemmetry.formats.events import Int64
from gemmetry.traces.joins import NONE
from gemmetry.traces.model import Trace

_STEP = re.compile(r"ProfilerStep#(\d{1,18})")


@dataclass(frozen=True, slots=True)
class Step:
    """One step."""

    number: int
    start_ns: int
    end_ns: int
    source: str
    """``launches``: of the work launched within the mark on the host; ``gpu``: the mark on the
    GPU, where no launches are recorded."""


def find_steps(trace: Trace) -> list[Step]:
    """The steps of `trace` that have work on a GPU, by number."""
    steps = _of_launches(trace, _on_host(trace)) or _on_gpu(trace)
    return [steps[number] for number in sorted(steps)]


def _on_gpu(trace: Trace) -> dict[int, Step]:
    marks = trace.rows.annotations
    numbers = _numbers(trace.rows.names)[marks.name] if len(marks.name) else marks.name
    steps: dict[int, Step] = {}
    for row in np.flatnonzero((numbers != NONE) & (marks.on_gpu == 1)).tolist():
        # A step has a mark on each stream: together they span it.
        start, end = int(marks.start_ns[row]), int(marks.start_ns[row] + marks.duration_ns[row])
        number = int(numbers[row])
        known = steps.get(number, Step(number, start, end, "gpu"))
        steps[number] = Step(number, min(known.start_ns, start), max(known.end_ns, end), "gpu")
    return steps


def _numbers(names: tuple[str, ...]) -> Int64:
    """Number of the step that each name marks; -1: none."""
    found = (_STEP.fullmatch(name) for name in names)
    return np.array([int(match[1]) if match else NONE for match in found], np.int64)


def _on_host(trace: Trace) -> list[tuple[int, int, int]]:
    """Number, start and end of each mark on the host; PyTorch 1.8 wrote them as operators."""
    found: dict[int, tuple[int, int, int]] = {}
    numbers = _numbers(trace.rows.names)
    marks = trace.rows.annotations
    for rows, on_host in (
        (trace.rows.operators, np.ones(len(trace.rows.operators.name), bool)),
        (marks, marks.on_gpu == 0),
    ):
        chosen = on_host & (numbers[rows.name] != NONE) if len(rows.name) else on_host
        for row in np.flatnonzero(chosen).tolist():
            start, number = int(rows.start_ns[row]), int(numbers[rows.name[row]])
            found[number] = (number, start, start + int(rows.duration_ns[row]))
    return list(found.values())


def _of_launches(trace: Trace, marks: Sequence[tuple[int, int, int]]) -> dict[int, Step]:
    steps: dict[int, Step] = {}
    if not marks:
        return steps
    gpu, calls, call = trace.rows.gpu, trace.rows.calls, trace.launches.call
    launched = np.flatnonzero(call != NONE)
    moment = calls.start_ns[call[launched]]
    order = np.argsort(moment, kind="stable")
    launched, moment = launched[order], moment[order]
    for number, start, end in marks:
        first, last = np.searchsorted(moment, [start, end])
        chosen = launched[first:last]
        if len(chosen):
            begin = int(gpu.start_ns[chosen].min())
            finish = int((gpu.start_ns[chosen] + gpu.duration_ns[chosen]).max())
            steps[number] = Step(number, begin, finish, "launches")
    return steps
