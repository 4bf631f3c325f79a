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


def gpu_rows(begin: int, count: int) -> GpuRows:
    values = np.arange(begin, begin + count)
    columns = {
        one.name: values.astype(str(one.type).lower()) for one in dataclasses.fields(GpuRows)
    }
    for name in ("grid", "block"):
        columns[name] = np.stack([columns[name] + axis for axis in range(3)], axis=1)
    return GpuRows(**columns)


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
    small = (numbers % 7).astype(np.int32)
    spool = Spool(CallRows, most_bytes=0)
    spool.add(CallRows(start_ns=numbers, duration_ns=numbers * 2, name=small, thread=small,
                       correlation=numbers, external_id=numbers))  # fmt: skip
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


def column(values, dtype=np.int64):
    return np.array(values, dtype)


def gpu(correlations, external_ids) -> GpuRows:
    n = len(correlations)
    return GpuRows(
        start_ns=column(range(n)), duration_ns=column([1] * n), name=column([0] * n, np.int32),
        kind=column([0] * n, np.int8), device=column([0] * n, np.int32), stream=column([7] * n),
        correlation=column(correlations), external_id=column(external_ids),
        grid=np.ones((n, 3), np.int32), block=np.ones((n, 3), np.int32), bytes=column([-1] * n),
        collective=column([-1] * n, np.int32), part=column([0] * n, np.int16),
    )  # fmt: skip


def calls(rows) -> Spool[CallRows]:
    spool = Spool(CallRows)
    for start, thread, correlation, external_id in rows:
        spool.add(
            CallRows(
                column([start]), column([1]), column([0], np.int32), column([thread], np.int32),
                column([correlation]), column([external_id]),
            )
        )  # fmt: skip
    return spool


def operators(rows) -> Spool[OperatorRows]:
    spool = Spool(OperatorRows)
    for start, end, thread, external_id, sequence, collective in rows:
        spool.add(
            OperatorRows(
                start_ns=column([start]), duration_ns=column([end - start]),
                name=column([0], np.int32), thread=column([thread], np.int32),
                external_id=column([external_id]), sequence=column([sequence]),
                forward_thread=column([-1]), arguments=column([0], np.int32),
                collective=column([collective], np.int32),
            )
        )  # fmt: skip
    return spool


CALLS = [(10, 0, 1, 5), (20, 0, 2, -1), (30, 1, 3, -1), (40, 0, -1, -1)]
OPERATORS = [
    (0, 100, 0, 4, -1, -1),  # encloses the launch
    (8, 12, 0, 5, 7, -1),  # launched it
    (18, 22, 0, 6, -1, -1),  # around a call that launched nothing
    (200, 210, 0, 8, 7, -1),  # the forward operator of the second
    (300, 310, 0, 9, -1, 0),  # a collective
    (0, 100, 1, 10, -1, -1),  # on another thread
    (400, 410, 0, 11, -1, -1),  # launched a kernel whose call is missing
    (500, 510, 0, 12, 3, -1),  # nothing
]


def test_of_too_many_those_that_led_to_work_on_a_gpu(monkeypatch):
    monkeypatch.setattr(module, "KEPT_BYTES", 0)
    found_calls, found_operators, left_out = host_rows(
        gpu([1, -1], [5, 11]), calls(CALLS), operators(OPERATORS)
    )
    assert found_calls.correlation.tolist() == [1]
    assert found_operators.external_id.tolist() == [4, 5, 8, 9, 11]
    assert left_out == 3 + 3

    # Without work on GPUs everything stays.
    for kept in (0, 1 << 30):
        monkeypatch.setattr(module, "KEPT_BYTES", kept)
        found_calls, found_operators, left_out = host_rows(
            gpu([], []), calls(CALLS), operators(OPERATORS)
        )
        assert (len(found_calls.start_ns), len(found_operators.start_ns), left_out) == (4, 8, 0)
