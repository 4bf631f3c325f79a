from __future__ import annotations

import numpy as np
import pytest

from gemmetry.formats import events as module
from gemmetry.formats.events import CallRows, GpuRows, OperatorRows, Spool, host_rows


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


def test_all_rows_of_a_file_of_usual_size():
    found_calls, found_operators, left_out = host_rows(
        gpu([1], [5]), calls(CALLS), operators(OPERATORS)
    )
    assert len(found_calls.start_ns) == 4
    assert len(found_operators.start_ns) == 8
    assert left_out == 0


def test_of_too_many_those_that_led_to_work_on_a_gpu(monkeypatch):
    monkeypatch.setattr(module, "KEPT_BYTES", 0)
    found_calls, found_operators, left_out = host_rows(
        gpu([1, -1], [5, 11]), calls(CALLS), operators(OPERATORS)
    )
    assert found_calls.correlation.tolist() == [1]
    assert found_operators.external_id.tolist() == [4, 5, 8, 9, 11]
    assert left_out == 3 + 3


@pytest.mark.parametrize("kept", [0, 1 << 30])
def test_without_work_on_gpus_everything_stays(monkeypatch, kept):
    monkeypatch.setattr(module, "KEPT_BYTES", kept)
    found_calls, found_operators, left_out = host_rows(
        gpu([], []), calls(CALLS), operators(OPERATORS)
    )
    assert (len(found_calls.start_ns), len(found_operators.start_ns), left_out) == (4, 8, 0)
