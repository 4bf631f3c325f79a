"""Detects GPU work whose times have different origins: merged recordings, and tools that write some
times since 1970 and others since boot. Windows and idle times of such a file are meaningless."""

from __future__ import annotations

import numpy as np

from gemmetry.domain.units import format_ns
from gemmetry.formats.events import Int64, TraceProblem, TraceRows
from gemmetry.formats.naming import short_name
from gemmetry.traces.gemms.joins import NONE, calls_of

APART_NS = 3600 * 10**9
"""Gap between pieces of work, and time between a launch and its work, above which they are assumed
to have different time bases. This is a judgement: in the public traces gaps are up to 10 s and
delays up to 3 s."""

BEFORE_NS = 10**9
"""Work cannot begin before its launch; clocks of host and GPU differ by far less than this."""

_MOST_GROUPS = 5
"""Number of problems that are reported."""


def time_base_problems(rows: TraceRows) -> list[TraceProblem]:
    """Work of a file that appears to have another time base than most of it; [] if there is
    none."""
    return _by_gaps(rows) or _by_launches(rows)


def _by_gaps(rows: TraceRows) -> list[TraceProblem]:
    gpu = rows.gpu
    if len(gpu.start_ns) < 2:
        return []
    order = np.argsort(gpu.start_ns, kind="stable")
    start = gpu.start_ns[order]
    reached = np.maximum.accumulate((gpu.start_ns + gpu.duration_ns)[order])
    gap = np.flatnonzero(start[1:] - reached[:-1] > APART_NS) + 1
    if not len(gap):
        return []
    groups = np.split(order, gap)
    most = max(groups, key=len)
    at = int(gpu.start_ns[most[0]])
    found: list[TraceProblem] = []
    for group in groups:
        if group is not most and len(found) < _MOST_GROUPS:
            away = int(gpu.start_ns[group[0]]) - at
            side = "after" if away > 0 else "before"
            what = (f"begins {_length(abs(away))} {side} the rest: another time base, or nothing "
                "ran in between; window and idle time include the gap")  # fmt: skip
            found.append(TraceProblem(_named(rows, group), what))
    return found


def _by_launches(rows: TraceRows) -> list[TraceProblem]:
    call = calls_of(rows.gpu, rows.calls)
    linked = np.flatnonzero(call != NONE)
    delay = rows.gpu.start_ns[linked] - rows.calls.start_ns[call[linked]]
    strange = (delay < -BEFORE_NS) | (delay > APART_NS)
    # If all are, it is the host's clock that differs.
    if not strange.any() or strange.all():
        return []
    away = int(delay[strange][0])
    side = "after" if away > 0 else "before"
    what = (f"begins {_length(abs(away))} {side} its launch, other work does not: another "
            "time base; do not rely on window and idle time")  # fmt: skip
    return [TraceProblem(_named(rows, linked[strange]), what)]


def _length(ns: int) -> str:
    for unit, factor in (("days", 24 * 3600e9), ("hours", 3600e9)):
        if ns >= factor:
            return f"{ns / factor:,.1f} {unit}"
    return format_ns(ns)


def _named(rows: TraceRows, work: Int64) -> str:
    name = short_name(rows.names[int(rows.gpu.name[int(work[0])])], 60)
    more = f" (and {len(work) - 1:,} more)" if len(work) > 1 else ""
    return f"work on a GPU {name!r}{more}"
