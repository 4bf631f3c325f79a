from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gemmetry.traces.api import Traces
from gemmetry.traces.gemms import Gemms
from gemmetry.traces.operators.host import (
    HostOperators,
    find_nesting,
    innermost_pieces,
)


def test_kernels_come_before_operators(recording):
    cpu, gpu = recording(), recording()
    for name, start, lasts in (("aten::matmul", 0, 100), ("aten::mm", 10, 70)):
        cpu.operator(name, start, lasts, shapes=[[64, 64], [64, 64]], dtypes=["float", "float"])
    gpu.launch("nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NTT", 1, at=100, lasts=50)

    def rows(*traces):
        found = Traces([])
        found.traces, found.names = traces, ["made up"]
        return found.gemm_rows(or_products=True)

    assert [row.kernel for row in rows(cpu.trace())] == ["aten::mm"]
    assert rows(gpu.trace(), cpu.trace()) == Gemms([gpu.trace()]).rows()
    assert rows(cpu.trace(), gpu.trace()) == Gemms([gpu.trace()]).rows()


def test_deep_nesting(recording):
    made = recording()
    depth = 3000
    for level in range(depth):
        made.operator("deep", level, 2 * (depth - level))
    trace = made.trace()
    nesting = find_nesting(trace.rows.operators, trace.launches.parent)
    assert sorted(nesting.depth.tolist()) == list(range(depth))
    assert nesting.self_ns.tolist() == [2] * depth
    (row,) = HostOperators().add(trace)
    assert (row.count, row.self_ns) == (depth, 2 * depth)


def _trace_of(recording, intervals):
    made = recording()
    for number, (thread, start, duration) in enumerate(intervals):
        made.operator(f"op{number}", start, duration, thread=thread, external=number + 1)
    return made.trace()


_ANY = st.lists(
    st.tuples(st.integers(1, 2), st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=12
)


@given(intervals=_ANY)
def test_pieces_are_the_self_times_and_add_up_to_the_outermost_operators(recording, intervals):
    trace = _trace_of(recording, intervals)
    operators, parent = trace.rows.operators, trace.launches.parent
    nesting = find_nesting(operators, parent)
    assert (nesting.self_ns >= 0).all()
    assert (nesting.self_ns <= operators.duration_ns).all()
    pieces = innermost_pieces(operators, nesting)
    spent = np.zeros_like(nesting.self_ns)
    np.add.at(spent, pieces.operator, pieces.duration_ns)
    assert spent.tolist() == nesting.self_ns.tolist()
    for thread in np.unique(operators.thread):
        here = operators.thread == thread
        outermost = here & (parent < 0)
        assert nesting.self_ns[here].sum() == operators.duration_ns[outermost].sum()
        mine = np.flatnonzero(operators.thread[pieces.operator] == thread)
        ends = pieces.start_ns[mine] + pieces.duration_ns[mine]
        assert (pieces.start_ns[mine][1:] >= ends[:-1]).all()


@st.composite
def _proper(draw):
    """Intervals that lie in each other as calls do, and the nanoseconds in which each of them is
    the innermost one, counted one by one."""
    intervals: list[tuple[int, int, int]] = []

    def inside(start: int, end: int, depth: int) -> None:
        at = start
        for _ in range(draw(st.integers(0, 3))):
            if at >= end:
                return
            begin = draw(st.integers(at, end - 1))
            stop = draw(st.integers(begin + 1, end))
            intervals.append((1, begin, stop - begin))
            if depth < 4:
                inside(begin, stop, depth + 1)
            at = stop

    inside(0, 60, 0)
    owner: dict[int, int] = {}
    for number, (_, begin, length) in enumerate(intervals):
        # Those around come first, so that the innermost one is written last.
        owner.update(dict.fromkeys(range(begin, begin + length), number))
    return intervals, Counter(owner.values())


@given(made=_proper())
def test_self_times_are_those_that_counting_gives(recording, made):
    intervals, counted = made
    if not intervals:
        return
    trace = _trace_of(recording, intervals)
    nesting = find_nesting(trace.rows.operators, trace.launches.parent)
    assert nesting.self_ns.tolist() == [counted[i] for i in range(len(intervals))]
