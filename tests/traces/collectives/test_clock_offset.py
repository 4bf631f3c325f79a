from __future__ import annotations

import pytest

from gemmetry.traces.collectives.alignment import clock_offsets, node_numbers
from gemmetry.traces.collectives.matching import match
from gemmetry.traces.jobs import group_jobs


@pytest.fixture
def job(ranks):
    """A job of four ranks; `shifts` are what their clocks are ahead, in ns."""

    def make(shifts=(0,) * 4, devices=range(4), op="all_reduce", hosts=(None,) * 4):
        _, _, traces = ranks(
            11, 40, 4, shifts=shifts, begins=(0,) * 4,
            of=lambda i, r: {"op": op, "device": devices[r]}, more=lambda r: {"host": hosts[r]},
        )  # fmt: skip
        (made,) = group_jobs(traces)
        return made

    return make


def offsets(job):
    return clock_offsets(job, match(job).matched)


def test_one_clock_on_one_node(job):
    found = offsets(job())
    assert [(one.rank, one.node, one.applied_ns) for one in found] == [(r, 0, 0) for r in range(4)]
    for one in found[1:]:
        assert abs(one.offset_ns) <= 2000
        assert one.scatter_ns <= 2000
        assert one.collectives == 40
        assert one.lower_ns <= 0 <= one.upper_ns


def test_the_clock_of_a_second_node(job):
    # 3 ms ahead: to get the first node's times, 3 ms go off.
    found = offsets(job(shifts=(0, 0, 3_000_000, 3_000_000), devices=(0, 1, 0, 1)))
    off = found[2].applied_ns
    assert off == pytest.approx(-3_000_000, abs=2000)
    assert [(one.node, one.applied_ns) for one in found] == [(0, 0), (0, 0), (1, off), (1, off)]
    assert found[2].lower_ns <= -3_000_000 <= found[2].upper_ns


def test_an_offset_within_a_node_only_where_it_must_be(job):
    # 5 us could be stragglers; with 20 ms a rank would have ended before others began.
    assert [one.applied_ns for one in offsets(job(shifts=(0, 5_000, 0, 0)))] == [0, 0, 0, 0]
    found = offsets(job(shifts=(0, 20_000_000, 0, 0)))
    assert found[1].applied_ns == pytest.approx(-20_000_000, abs=2000)
    assert [found[rank].applied_ns for rank in (0, 2, 3)] == [0, 0, 0]


def test_operations_that_do_not_synchronise_are_ignored(job):
    found = offsets(job(op="broadcast", shifts=(0, 0, 9_000, 0)))
    assert [(one.collectives, one.offset_ns, one.lower_ns) for one in found[1:]] == [
        (0, 0, None)
    ] * 3


def test_nodes_by_host_or_by_device(job):
    assert node_numbers(job(devices=(0, 1, 0, 1))) == {0: 0, 1: 0, 2: 1, 3: 1}
    assert node_numbers(job(devices=(0, 0, 0, 0))) == {0: 0, 1: 1, 2: 2, 3: 3}
    assert node_numbers(job(hosts=("b", "a", "b", "a"))) == {0: 0, 1: 1, 2: 0, 3: 1}
    # Hosts that only some ranks record do not count.
    assert node_numbers(job(hosts=("b", None, "b", "a"))) == {0: 0, 1: 0, 2: 0, 3: 0}
