"""Rows that stay as they are, and what no small document has; see ``test_golden`` as well."""

from __future__ import annotations

import dataclasses
import io
import json
from typing import Any

import numpy as np

from gemmetry.formats.events import LARGEST_SUM_NS, LONGEST_NS, MOST_RANKS, TraceRows, plausible
from gemmetry.formats.kineto import read_kineto


def kernel(name: str = "k", ts: Any = 1, dur: Any = 2, cat: str = "kernel") -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur}


def rows_of(*events: Any, **head: Any) -> TraceRows:
    text = json.dumps({**head, "traceEvents": list(events)}).encode()
    rows = read_kineto(io.BytesIO(text))
    assert rows is not None
    return rows


def test_rows_of_usual_traces_are_returned_as_they_are():
    rows = rows_of(
        kernel(), kernel("é"), distributedInfo={"rank": 7, "world_size": 8},
        baseTimeNanoseconds=1_700_000_000_000_000_000, deviceProperties=[{"id": 0, "name": "H200"}],
        host_name="node",
    )  # fmt: skip
    assert plausible(rows) is rows
    for usual in (
        rows_of(),
        rows_of(kernel(), distributedInfo={"rank": 5, "world_size": MOST_RANKS}),
    ):
        assert plausible(usual) is usual


def test_sums_of_durations_fit_64_bits():
    """No kernel is too long by itself; all of them are together."""
    count = 3 * LARGEST_SUM_NS // LONGEST_NS
    rows = rows_of(*[kernel("long", dur=LONGEST_NS // 1000) for _ in range(count)], kernel("short"))
    assert rows.gpu.duration_ns.sum() < 0  # It went round.
    found = plausible(rows)
    assert found.gpu.duration_ns.tolist() == [0] * count + [2000]
    # A few of them are no reason to leave any out.
    few = rows_of(*[kernel("long", dur=LONGEST_NS // 1000) for _ in range(100)])
    assert plausible(few) is few


def test_halves_of_surrogate_pairs_are_replaced_everywhere():
    rows = rows_of(kernel())
    bad = dataclasses.replace(
        rows, names=("a\ud800", "𝕏"), threads=("\udfff",), host="\ud800", job="x\udc00",
        devices={0: "\ud800", -1: "none", 2**40: "none"}, versions={"v": "\ud800"},
    )  # fmt: skip
    found = plausible(bad)
    assert found.names == ("a\ufffd", "𝕏")
    assert (found.threads, found.host, found.job) == (("\ufffd",), "\ufffd", "x\ufffd")
    assert found.devices == {0: "\ufffd"}
    assert found.versions == {"v": "\ufffd"}
    assert np.array_equal(found.gpu.start_ns, rows.gpu.start_ns)
