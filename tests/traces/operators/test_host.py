from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmetry.traces.api import Traces
from gemmetry.traces.gemms import Gemms
from gemmetry.traces.operators.host import (
    HostOperators,
    find_nesting,
    innermost_pieces,
    innermost_products,
)

SQUARE = {"shapes": [[64, 64], [64, 64]], "dtypes": ["float", "float"]}
ROWS = {"strides": [[64, 1], [64, 1]]}
COLUMNS = {"strides": [[64, 1], [1, 64]]}


def products(made):
    found = HostOperators()
    found.add(made.trace())
    return found.products()


def _product(made, at, lasts, *, strides=ROWS, **more):
    """aten::matmul with aten::mm in it, which has a view in it."""
    made.operator("aten::matmul", at, lasts, **SQUARE, **strides, **more)
    made.operator("aten::mm", at + 10, lasts - 30, **SQUARE, **strides, **more)
    made.operator("aten::resolve_conj", at + 12, 5, shapes=[[64, 64]], dtypes=["float"], **more)


def test_self_time_is_without_the_operators_nested_in_it(recording):
    made = recording()
    _product(made, 0, 1000)
    _product(made, 2000, 3000)
    rows = {row.name: row for row in HostOperators().add(made.trace())}
    mm, matmul, view = (rows[f"aten::{name}"] for name in ("mm", "matmul", "resolve_conj"))
    assert (matmul.count, matmul.total_ns, matmul.self_ns) == (2, 4000, 60)
    assert (mm.total_ns, mm.self_ns) == (970 + 2970, 970 + 2970 - 10)
    assert (view.total_ns, view.self_ns) == (10, 10)
    assert (mm.median_ns, mm.min_ns, mm.max_ns) == (1970.0, 970, 2970)
    assert mm.input_dims == "[[64, 64], [64, 64]]"
    assert mm.input_types == '["float", "float"]'


def test_a_product_counts_once(recording):
    made = recording()
    _product(made, 0, 1000)
    made.operator("aten::matmul", 5000, 100, **SQUARE, **ROWS)
    shapes, shape_of = innermost_products(made.trace())
    assert [shapes[i][:3] if i >= 0 else None for i in shape_of.tolist()] == [
        None, (64, 64, 64), None, (64, 64, 64)]  # fmt: skip
    found = [(row.name, row.count, row.product is not None) for row in
             HostOperators().add(made.trace())]  # fmt: skip
    assert ("aten::mm", 1, True) in found
    assert ("aten::matmul", 1, False) in found
    assert ("aten::matmul", 1, True) in found


def test_a_scaled_product_stands_for_the_one_that_it_is_computed_with(recording):
    made = recording()
    sizes = {"shapes": [[64, 32], [32, 16], [1], [1]], "strides": [[32, 1], [1, 32], [1], [1]]}
    narrow = {"dtypes": ["c10::Float8_e4m3fn", "c10::Float8_e4m3fn", "float", "float"]}
    wide = {"shapes": [[64, 32], [32, 16]], "dtypes": ["float", "float"]}
    made.operator("aten::matmul", 0, 1000, **wide)
    made.operator("aten::_scaled_mm", 10, 900, **sizes, **narrow)
    made.operator("aten::mm", 100, 500, **wide)
    made.operator("aten::mm", 2000, 500, **wide)
    made.operator("aten::_scaled_mm", 3000, 900)
    made.operator("aten::mm", 3100, 500, **wide)
    rows = {(row.kernel, row.dtype): row for row in products(made)}
    assert set(rows) == {("aten::_scaled_mm", "e4m3"), ("aten::mm", "f32")}
    scaled = rows["aten::_scaled_mm", "e4m3"]
    assert (scaled.count, scaled.sum_ns, scaled.layout) == (1, 900, "tn")
    assert scaled.shape.scaling == "tensor"
    assert rows["aten::mm", "f32"].count == 2


def test_speed_is_that_of_the_median_call(recording):
    made = recording()
    for at, lasts in ((0, 1030), (5000, 2030), (10_000, 9030)):
        _product(made, at, lasts)
    (mm,) = (row for row in HostOperators().add(made.trace()) if row.product)
    assert mm.tflops == pytest.approx(2 * 64**3 / 2000e-9 / 1e12)
    (row,) = products(made)
    assert row.tflops == mm.tflops
    assert (row.kernel, row.count, row.sum_ns, row.layout) == ("aten::mm", 3, 12_000, "tt")


def test_layouts_of_a_product_are_distinguished(recording):
    made = recording()
    _product(made, 0, 100)
    _product(made, 200, 100, strides=COLUMNS)
    rows = HostOperators().add(made.trace())
    assert {row.product.layout for row in rows if row.product} == {"tt", "tn"}
    assert sum(row.name == "aten::matmul" for row in rows) == 1


def test_what_outlasts_the_operator_around_it_counts_up_to_its_end(recording):
    made = recording()
    made.operator("outer", 0, 100)
    made.operator("long", 40, 500)
    rows = {row.name: row for row in HostOperators().add(made.trace())}
    assert (rows["outer"].self_ns, rows["long"].self_ns) == (40, 60)
    assert rows["long"].total_ns == 500


def test_files_together(recording):
    one, other = recording(), recording()
    _product(one, 0, 130)
    _product(other, 0, 330)
    _product(other, 1000, 230)
    found = HostOperators()
    first, second = found.add(one.trace("a.json")), found.add(other.trace("b.json"))
    assert {str(row.file) for row in first} == {"a.json"}
    assert {str(row.file) for row in second} == {"b.json"}
    (mm,) = (row for row in found.rows() if row.product)
    assert (mm.file, mm.files, mm.count, mm.median_ns) == (None, 2, 3, 200.0)
    assert mm.self_ns == sum(row.self_ns for row in (*first, *second) if row.product)
    (product,) = found.products()
    assert (product.count, product.median_ns) == (3, 200.0)


def test_operators_without_arguments(recording):
    made = recording()
    made.operator("aten::mm", 0, 10)
    (row,) = HostOperators().add(made.trace())
    assert (row.input_dims, row.input_types, row.product, row.tflops) == ("", "", None, None)


def test_no_operators_no_rows(recording):
    found = HostOperators()
    assert found.add(recording().trace()) == found.rows() == found.products() == []


def test_kernels_come_before_operators(recording):
    cpu, gpu = recording(), recording()
    _product(cpu, 0, 100)
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
def test_self_times_of_a_thread_are_the_time_of_its_outermost_operators(recording, intervals):
    trace = _trace_of(recording, intervals)
    operators, parent = trace.rows.operators, trace.launches.parent
    nesting = find_nesting(operators, parent)
    assert (nesting.self_ns >= 0).all()
    assert (nesting.self_ns <= operators.duration_ns).all()
    for thread in np.unique(operators.thread):
        here = operators.thread == thread
        outermost = here & (parent < 0)
        assert nesting.self_ns[here].sum() == operators.duration_ns[outermost].sum()


@given(intervals=_ANY)
def test_pieces_are_the_self_times_and_never_overlap(recording, intervals):
    trace = _trace_of(recording, intervals)
    operators = trace.rows.operators
    nesting = find_nesting(operators, trace.launches.parent)
    pieces = innermost_pieces(operators, nesting)
    spent = Counter()
    for operator, duration in zip(
        pieces.operator.tolist(), pieces.duration_ns.tolist(), strict=True
    ):
        spent[operator] += duration
    assert [spent[i] for i in range(len(operators.name))] == nesting.self_ns.tolist()
    for thread in np.unique(operators.thread):
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
