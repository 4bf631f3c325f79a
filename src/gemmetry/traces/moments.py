"""Moments of traces that are worth a look, each as a small trace of its own.

The format is the trace-event format, which ui.perfetto.dev and ``gemmetry trace`` read.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gemmetry.domain.units import counted, format_ns
from gemmetry.formats.events import MISSING, GpuKind, Int64
from gemmetry.results.json_text import encoded
from gemmetry.traces.joins import Intervals, subtract
from gemmetry.traces.model import Trace
from gemmetry.traces.summary import StepSummary

MOST_EVENTS = 20_000
"""Events of a moment; of more, work on GPUs and then the longest of the host are kept."""

MARGIN = 4
"""A moment shows this part of its length before and after it."""

_CATEGORIES = {
    GpuKind.KERNEL: "kernel", GpuKind.MEMCPY: "gpu_memcpy", GpuKind.MEMSET: "gpu_memset",
}  # fmt: skip

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Moment:
    """An interval of a trace."""

    what: str
    """``longest step``, ``longest exposed communication`` or ``longest idle time``."""
    detail: str
    file: Path
    start_ns: int
    """In the trace's own time."""
    length_ns: int
    content: bytes = field(repr=False)
    """The events around it: JSON, compressed by gzip."""

    @property
    def name(self) -> str:
        """Name of a file for the content."""
        return f"{self.what.replace(' ', '_')}.trace.json.gz"

    def record(self) -> dict[str, Any]:
        """What it is, and where; times in µs."""
        return {
            "what": self.what, "detail": self.detail, "file": str(self.file),
            "start_us": self.start_ns / 1000, "length_us": self.length_ns / 1000,
        }  # fmt: skip


@dataclass(slots=True)
class Moments:
    """The longest moments of each kind among traces, which are added one by one and not kept."""

    _longest: dict[str, Moment] = field(default_factory=dict)

    def add(self, trace: Trace, steps: Sequence[StepSummary]) -> None:
        """Look for moments in a trace that has `steps`."""
        for what, about, start, end in _candidates(trace, steps):
            known = self._longest.get(what)
            if known is None or end - start > known.length_ns:
                margin = 0 if about else (end - start) // MARGIN
                events, total = _events(trace, start - margin, end + margin)
                left_out = f", {counted(total - len(events), 'event')} left out"
                detail = f"{about}{format_ns(end - start)}"
                detail += left_out if total > len(events) else ""
                self._longest[what] = Moment(
                    what, detail, trace.file, start, end - start,
                    _content(trace, [_mark(what, detail, start, end), *events]),
                )  # fmt: skip

    def found(self) -> list[Moment]:
        """Steps first, then the longest."""
        order = sorted(self._longest.values(), key=lambda one: -one.length_ns)
        return sorted(order, key=lambda one: "step" not in one.what)


def _candidates(trace: Trace, steps: Sequence[StepSummary]) -> Iterator[tuple[str, str, int, int]]:
    """What, about what, start and end of the longest moment of each kind."""
    if steps:
        step = max(steps, key=lambda one: one.window_ns).step
        yield "longest step", f"step {step.number}, ", step.start_ns, step.end_ns
    busy = trace.time_of(np.arange(len(trace.rows.gpu.start_ns)))
    computing = trace.time_of(~trace.is_copy & ~trace.is_communication)
    for what, times in (
        ("longest exposed communication", subtract(trace.communication, computing)),
        ("longest idle time", Intervals(busy.end[:-1], busy.start[1:])),
    ):
        if len(times):
            place = int(np.argmax(times.end - times.start))
            yield what, "", int(times.start[place]), int(times.end[place])


def _events(trace: Trace, start: int, end: int) -> tuple[list[Event], int]:
    """Events that overlap with an interval, and how many there are."""
    rows = trace.rows
    found, total = list[Event](), 0
    tables: list[tuple[Any, Any]] = [
        (rows.gpu, _gpu_event), (rows.operators, _operator_event), (rows.calls, _call_event),
        (rows.annotations, _annotation_event),
    ]  # fmt: skip
    for table, event in tables:
        reaches = (table.start_ns < end) & (table.start_ns + table.duration_ns > start)
        places: Int64 = np.flatnonzero(reaches)
        total += len(places)
        longest = places[np.argsort(-table.duration_ns[places], kind="stable")]
        for place in np.sort(longest[: MOST_EVENTS - len(found)]).tolist():
            about = event(trace, table, place)
            found.append(_event(about, rows.names[table.name[place]],
                                table.start_ns[place], table.duration_ns[place]))  # fmt: skip
    return found, total


def _event(about: Event, name: str, start: Any, duration: Any) -> Event:
    times = {"ts": Decimal(int(start)).scaleb(-3), "dur": Decimal(int(duration)).scaleb(-3)}
    return {"ph": "X", "name": name, **about, **times}


def _mark(what: str, detail: str, start: int, end: int) -> Event:
    about = {"cat": "gemmetry", "pid": "gemmetry", "tid": what}
    return _event(about, f"{what}: {detail}", start, end - start)


def _known(**values: int) -> Event:
    return {name.replace("__", " "): value for name, value in values.items() if value != MISSING}


def _gpu_event(trace: Trace, gpu: Any, place: int) -> Event:
    device, stream = int(gpu.device[place]), int(gpu.stream[place])
    args = _known(device=device, stream=stream, correlation=int(gpu.correlation[place]))
    args |= _known(External__id=int(gpu.external_id[place]), bytes=int(gpu.bytes[place]))
    for name in ("grid", "block"):
        sizes = getattr(gpu, name)[place].tolist()
        args |= {name: sizes} if any(sizes) else {}
    kind = _CATEGORIES[GpuKind(int(gpu.kind[place]))]
    return {"cat": kind, "pid": device, "tid": stream, "args": args}


def _operator_event(trace: Trace, operators: Any, place: int) -> Event:
    args = _known(External__id=int(operators.external_id[place]))
    recorded = int(operators.arguments[place])
    if recorded != MISSING:
        arguments = trace.rows.arguments[recorded]
        for name, text in (("Input Dims", arguments.shapes), ("Input type", arguments.dtypes)):
            args |= {name: msgspec.Raw(text.encode())} if text else {}
    return {"cat": "cpu_op", **_thread(trace, operators.thread[place]), "args": args}


def _call_event(trace: Trace, calls: Any, place: int) -> Event:
    args = _known(correlation=int(calls.correlation[place]),
                  External__id=int(calls.external_id[place]))  # fmt: skip
    return {"cat": "cuda_runtime", **_thread(trace, calls.thread[place]), "args": args}


def _annotation_event(trace: Trace, annotations: Any, place: int) -> Event:
    cat = "gpu_user_annotation" if annotations.on_gpu[place] else "user_annotation"
    return {"cat": cat, **_thread(trace, annotations.thread[place])}


def _thread(trace: Trace, thread: int) -> Event:
    pid, _, tid = (trace.rows.threads[thread] if thread != MISSING else "host/0").rpartition("/")
    numbers = {"pid": pid, "tid": tid}
    return {name: int(one) if one.isdecimal() else one for name, one in numbers.items()}


def _content(trace: Trace, events: Sequence[Event]) -> bytes:
    rows = trace.rows
    used = sorted({event["pid"] for event in events if event["cat"] == "kernel"})
    labels = [
        {"ph": "M", "name": "process_name", "pid": device, "tid": 0,
         "args": {"name": f"GPU {device} {trace.device_name(device)}".rstrip()}}
        for device in used
    ]  # fmt: skip
    document = {
        "baseTimeNanoseconds": rows.base_ns,
        "deviceProperties": [{"id": number, "name": one} for number, one in rows.devices.items()],
        **({} if rows.rank is None else {
            "distributedInfo": {"rank": rows.rank, "world_size": rows.world_size}
        }),
        "traceEvents": [*labels, *events],
    }  # fmt: skip
    return gzip.compress(encoded(document), mtime=0)
