"""Rows of traces that arrive in pieces, and which of them are kept."""

from __future__ import annotations

import dataclasses
import gc
from pathlib import Path

import numpy as np
import pytest

from gemmetry.formats import events as module
from gemmetry.formats.events import (
    AnnotationRows,
    CallRows,
    GpuRows,
    OperatorRows,
    Spool,
    TraceRows,
    concatenate,
    host_rows,
    release_pages,
)

STATUS = Path("/proc/self/status")
_ROWS = 1 << 20


def rows(kind, count, /, **given):
    """Columns of zeros but for those given."""
    columns = {}
    for one in dataclasses.fields(kind):
        shape = (count, 3) if one.name in ("grid", "block") else count
        columns[one.name] = np.zeros(shape, str(one.type).lower())
        columns[one.name][:] = given.get(one.name, 0)
    return kind(**columns)


def gpu_rows(begin: int, count: int) -> GpuRows:
    numbers = np.arange(begin, begin + count)
    axes = numbers[:, None] + np.arange(3)
    given = {one.name: numbers for one in dataclasses.fields(GpuRows)}
    return rows(GpuRows, count, **given | {"grid": axes, "block": axes})


@pytest.mark.parametrize("most_bytes", [1 << 30, 2000, 0])
def test_gives_back_what_was_added_in_memory_or_not(most_bytes):
    parts = [gpu_rows(0, 10), gpu_rows(10, 0), gpu_rows(10, 25), gpu_rows(35, 1), gpu_rows(36, 40)]
    spool = Spool(GpuRows, most_bytes=most_bytes)
    for part in parts:
        spool.add(part)
    expected = concatenate(GpuRows, parts)
    for _ in range(2):
        found = spool.all()
        again = concatenate(GpuRows, list(spool.pieces()))
        for column in dataclasses.fields(GpuRows):
            left = getattr(expected, column.name)
            assert np.array_equal(getattr(found, column.name), left)
            assert getattr(found, column.name).dtype == left.dtype
            assert getattr(found, column.name).flags.writeable == (most_bytes > 2000)
            assert np.array_equal(getattr(again, column.name), left)
    assert spool.rows == 76


def mapped_trace() -> TraceRows:
    """Of many calls, which lie in a file."""
    numbers = np.arange(_ROWS)
    spool = Spool(CallRows, most_bytes=0)
    spool.add(rows(CallRows, _ROWS, start_ns=numbers, duration_ns=numbers * 2))
    return TraceRows(
        format="kineto", events=0, base_ns=0, names=(), arguments=(), collectives=(), threads=(),
        gpu=concatenate(GpuRows, []), calls=spool.all(), operators=concatenate(OperatorRows, []),
        annotations=concatenate(AnnotationRows, []),
    )  # fmt: skip


def resident() -> int:
    """Bytes of this process that lie in memory."""
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))


@pytest.mark.skipif(not STATUS.exists(), reason="only Linux reports what is in memory")
def test_what_was_touched_is_given_back_and_still_there(monkeypatch):
    monkeypatch.setattr(module, "KEPT_MAPPED_BYTES", 0)
    rows = mapped_trace()
    gc.collect()
    release_pages(rows)
    before = resident()
    total = int(rows.calls.start_ns.sum() + rows.calls.duration_ns.sum())
    held = resident() - before
    assert held >= 16 * _ROWS
    release_pages(rows)
    assert resident() - before < held / 4
    assert int(rows.calls.start_ns.sum() + rows.calls.duration_ns.sum()) == total


def spooled(kind, names, values):
    """A row for each of the values of these columns."""
    found = Spool(kind)
    for one in values:
        found.add(rows(kind, 1, **dict(zip(names, one, strict=True))))
    return found


def host(correlations, external_ids):
    """What is kept of calls and operators, for work on a GPU with these numbers."""
    gpu = rows(GpuRows, len(correlations), correlation=correlations, external_id=external_ids)
    calls = spooled(CallRows, ("start_ns", "thread", "correlation", "external_id"), CALLS)
    return host_rows(gpu, calls, spooled(OperatorRows, OPERATOR_COLUMNS, OPERATORS))


CALLS = [(10, 0, 1, 5), (20, 0, 2, -1), (30, 1, 3, -1), (40, 0, -1, -1)]
OPERATOR_COLUMNS = (
    "start_ns", "duration_ns", "thread", "external_id", "sequence", "collective",
)  # fmt: skip
OPERATORS = [
    (0, 100, 0, 4, -1, -1),  # encloses the launch
    (8, 4, 0, 5, 7, -1),  # launched it
    (18, 4, 0, 6, -1, -1),  # around a call that launched nothing
    (200, 10, 0, 8, 7, -1),  # the forward operator of the second
    (300, 10, 0, 9, -1, 0),  # a collective
    (0, 100, 1, 10, -1, -1),  # on another thread
    (400, 10, 0, 11, -1, -1),  # launched a kernel whose call is missing
    (500, 10, 0, 12, 3, -1),  # nothing
]


def test_of_too_many_those_that_led_to_work_on_a_gpu(monkeypatch):
    monkeypatch.setattr(module, "KEPT_BYTES", 0)
    calls, operators, left_out = host([1, -1], [5, 11])
    assert calls.correlation.tolist() == [1]
    assert operators.external_id.tolist() == [4, 5, 8, 9, 11]
    assert left_out == 3 + 3
    # Without work on GPUs everything stays.
    for kept in (0, 1 << 30):
        monkeypatch.setattr(module, "KEPT_BYTES", kept)
        calls, operators, left_out = host([], [])
        assert (len(calls.start_ns), len(operators.start_ns), left_out) == (4, 8, 0)
