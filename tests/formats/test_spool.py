from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gemmetry.formats.events import GpuRows, Spool, concatenate


def rows(begin: int, count: int) -> GpuRows:
    values = np.arange(begin, begin + count)
    columns = {}
    for column in dataclasses.fields(GpuRows):
        dtype = {"Int8": np.int8, "Int16": np.int16, "Int32": np.int32, "Int64": np.int64}[
            str(column.type)
        ]
        array = values.astype(dtype)
        if column.name in ("grid", "block"):
            array = np.stack([array, array + 1, array + 2], axis=1)
        columns[column.name] = array
    return GpuRows(**columns)


@pytest.mark.parametrize("most_bytes", [1 << 30, 2000, 0])
def test_gives_back_what_was_added_in_memory_or_not(most_bytes):
    parts = [rows(0, 10), rows(10, 0), rows(10, 25), rows(35, 1), rows(36, 40)]
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
            assert np.array_equal(getattr(again, column.name), left)
    assert spool.rows == 76


def test_no_rows_at_all():
    assert Spool(GpuRows).all().grid.shape == (0, 3)
