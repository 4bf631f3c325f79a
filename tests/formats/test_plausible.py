from __future__ import annotations

import dataclasses
import io
import json
from typing import Any

import numpy as np
import pytest

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
    empty = rows_of()
    assert plausible(empty) is empty


@pytest.mark.parametrize(
    ("category", "table"),
    [("cuda_runtime", "call"), ("cpu_op", "operator"), ("user_annotation", "annotation")],
)
def test_an_event_with_impossible_times_is_left_out_and_reported(category, table):
    event = kernel("bad", ts=0, dur=LONGEST_NS // 1000 + 1000, cat=category)
    good = kernel("good", ts=5, dur=1, cat=category)
    found = plausible(rows_of(good, event, event, good))
    (problem,) = found.problems
    assert (problem.where, problem.count) == (f"{table} 'bad'", 2)
    columns = [getattr(found, name) for name in ("gpu", "calls", "operators", "annotations")]
    assert [found.names[name] for one in columns for name in one.name] == ["good", "good"]


@pytest.mark.parametrize("bad", [{"dur": LONGEST_NS}, {"ts": -(2**61)}])
def test_work_with_impossible_times_begins_at_0_and_takes_none(bad):
    """So that it is left out and counted with other work without a usable time."""
    event = {**kernel("bad"), **bad}
    found = plausible(rows_of(kernel("good", ts=5), event))
    assert (found.gpu.start_ns[1], found.gpu.duration_ns[1]) == (0, 0)
    assert (found.gpu.start_ns[0], found.problems) == (5000, ())


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


@pytest.mark.parametrize("base", [2**62 + 1, 2**63 - 1])
def test_a_base_of_times_in_another_century(base):
    found = plausible(rows_of(kernel(), baseTimeNanoseconds=base))
    assert found.base_ns == 0
    assert str(base) in found.problems[0].what
    near = rows_of(kernel(ts=10**12), baseTimeNanoseconds=2**62 - 10**6)
    assert plausible(near).gpu.duration_ns.tolist() == [0]


def test_impossible_ranks_are_dropped():
    info = {"rank": MOST_RANKS + 1, "world_size": 10**15}
    found = plausible(rows_of(kernel(), distributedInfo=info))
    assert (found.rank, found.world_size) == (None, None)
    assert [problem.what.split()[0] for problem in found.problems] == ["rank", "world_size"]
    largest = rows_of(kernel(), distributedInfo={"rank": 5, "world_size": MOST_RANKS})
    assert plausible(largest) is largest


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
