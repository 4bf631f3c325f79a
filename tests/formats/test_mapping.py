from __future__ import annotations

import dataclasses
import gc
import tempfile
from pathlib import Path

import numpy as np
import pytest

from gemmetry.formats import events as mapping
from gemmetry.formats.events import (
    AnnotationRows,
    CallRows,
    GpuRows,
    OperatorRows,
    Spool,
    TraceRows,
    concatenate,
    let_go,
)

STATUS = Path("/proc/self/status")
_ROWS = 1 << 20


def calls(begin: int, count: int) -> CallRows:
    numbers = np.arange(begin, begin + count)
    return CallRows(
        start_ns=numbers,
        duration_ns=numbers * 2,
        name=(numbers % 7).astype(np.int32),
        thread=(numbers % 3).astype(np.int32),
        correlation=numbers + 1,
        external_id=-numbers,
    )


def trace(rows: CallRows) -> TraceRows:
    return TraceRows(
        format="kineto", events=0, base_ns=0, names=(), arguments=(), collectives=(), threads=(),
        gpu=concatenate(GpuRows, []), calls=rows, operators=concatenate(OperatorRows, []),
        annotations=concatenate(AnnotationRows, []),
    )  # fmt: skip


def resident() -> int:
    """Bytes of this process that lie in memory."""
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))


def mapped(*pieces: CallRows) -> CallRows:
    spool = Spool(CallRows, most_bytes=0)
    for piece in pieces:
        spool.add(piece)
    return spool.all()


def test_columns_are_those_of_all_pieces():
    found = mapped(calls(0, 13), calls(13, 0), calls(13, 17))
    expected = calls(0, 30)
    for column in dataclasses.fields(CallRows):
        left, right = getattr(found, column.name), getattr(expected, column.name)
        assert left.dtype == right.dtype
        assert left.tolist() == right.tolist()
        assert not left.flags.writeable


@pytest.mark.skipif(not STATUS.exists(), reason="only Linux reports what is in memory")
def test_what_was_touched_is_given_back_and_still_there(monkeypatch):
    monkeypatch.setattr(mapping, "KEPT_MAPPED_BYTES", 0)
    rows = trace(mapped(calls(0, _ROWS)))
    gc.collect()
    let_go(rows)
    before = resident()
    total = int(rows.calls.start_ns.sum() + rows.calls.duration_ns.sum())
    held = resident() - before
    assert held >= 16 * _ROWS
    let_go(rows)
    assert resident() - before < held / 4
    assert int(rows.calls.start_ns.sum() + rows.calls.duration_ns.sum()) == total


def test_columns_in_memory_stay_there():
    rows, expected = trace(calls(0, 10)), calls(0, 10)
    let_go(rows)
    assert rows.calls.start_ns.tolist() == expected.start_ns.tolist()
    assert rows.calls.start_ns.flags.writeable, "they are no map of a file"


def test_a_full_disk_is_reported(monkeypatch):
    def refuse(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(OSError, match="No space left"):
        mapped(calls(0, 3))
