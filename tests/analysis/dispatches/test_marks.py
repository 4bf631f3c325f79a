from __future__ import annotations

import pytest

from gemmetry.dispatches.analysis import find_run_marks, mark_kind

NAME = "matmul_8x8x8_f32t_f32t_f32t"


@pytest.fixture
def noisy(make_record):
    """noisy(width, ...) -> a record with that relative half-width, with the mark for noise."""

    def make(width, *more, marked=True, number=0, **fields):
        marks = (*(["noisy: wide"] if marked else []), *more)
        wide = {"median_ns": 1e6, "ci_low_ns": 1e6 * (1 - width), "ci_high_ns": 1e6 * (1 + width)}
        return make_record(NAME, f"c{number}", marks=marks, measured=wide, **fields)

    return make


def test_a_mark_of_most_rows_is_a_state_of_the_run(noisy):
    records = [noisy(0.05 + 0.001 * i, number=i) for i in range(9)] + [noisy(0.01, marked=False)]
    marks = find_run_marks(records)
    assert marks.has_common
    (state,) = marks.states.values()
    assert (state.common, state.measured) == ({"noisy": 9}, 10)
    assert state.usual_half_width == pytest.approx(0.0535, rel=0.02)
    assert not any(marks.of(record) for record in records)
    assert marks.counts(records) == {}


def test_a_row_that_stands_out_from_its_neighbours_keeps_its_mark(noisy):
    records = [noisy(0.05 + 0.001 * i, number=i) for i in range(9)]
    worse = noisy(0.5)
    drifts = noisy(0.05, "drift: the last third")
    marks = find_run_marks([*records, worse, drifts])
    assert marks.of(worse) == ("noisy: wide",)
    assert marks.of(drifts) == ("drift: the last third",)
    assert marks.counts([*records, worse, drifts]) == {"drift": 1, "noisy": 1}


def test_a_very_wide_interval_is_a_mark_of_its_row(noisy):
    """Where a third of the rows have wide intervals, no row lies beyond the fence."""
    usual = [noisy(0.1 + 0.01 * i, number=i) for i in range(8)]
    wide = [noisy(width, number=9 + i) for i, width in enumerate((3.0, 8.0, 9.0, 13.18))]
    marks = find_run_marks([*usual, *wide])
    (state,) = marks.states.values()
    assert state.common == {"noisy": 12}
    assert state.fences["noisy"] > 8.0
    assert all(marks.of(record) == ("noisy: wide",) for record in wide)
    assert not any(map(marks.of, usual))


def test_small_differences_of_a_steady_run_do_not_stand_out(noisy):
    records = [noisy(0.05, number=i) for i in range(9)] + [noisy(0.06)]
    assert not any(map(find_run_marks(records).of, records))


def test_marks_of_half_of_the_rows_or_of_few_rows_stay_in_their_rows(noisy):
    half = [noisy(0.05, marked=i < 4, number=i) for i in range(8)]
    marks = find_run_marks(half)
    assert not marks.has_common
    assert sum(bool(marks.of(record)) for record in half) == 4
    few = [noisy(0.05, number=i) for i in range(3)]
    assert all(map(find_run_marks(few).of, few))


def test_forms_of_one_disturbance_are_counted_together(make_record):
    """On a shared processor some rows are busy, others are noisy, and hardly any row is neither."""
    marks = [("busy: others",)] * 4 + [("noisy: wide",)] * 3 + [()] * 4 + [("stalled: once",)]
    records = [make_record(NAME, f"c{i}", marks=found) for i, found in enumerate(marks)]
    found = find_run_marks(records)
    (state,) = found.states.values()
    assert state.common == {"busy": 4, "noisy": 3}
    assert [found.of(record) for record in records if found.of(record)] == [("stalled: once",)]
    others = [("boost: fell",)] * 4 + [("drift: slower",)] * 4 + [()] * 3
    records = [make_record(NAME, f"c{i}", marks=found) for i, found in enumerate(others)]
    assert not find_run_marks(records).has_common, "two causes, neither common"


def test_what_is_wrong_with_a_kernel_is_never_a_state_of_the_run(noisy):
    records = [noisy(0.05, "remembers: a result", number=i) for i in range(8)]
    marks = find_run_marks(records)
    assert all(marks.of(record) == ("remembers: a result",) for record in records)


def test_each_device_is_its_own_run(noisy):
    loud = [noisy(0.05, number=i) for i in range(8)]
    other = {"target": "cuda-sm_90", "device": "cuda:0"}
    calm = [noisy(0.01, marked=i == 0, number=i, **other) for i in range(8)]
    marks = find_run_marks([*loud, *calm])
    assert not any(map(marks.of, loud))
    assert [bool(marks.of(record)) for record in calm] == [True] + [False] * 7


def test_kinds():
    assert mark_kind("two modes: 1 ms and 2 ms") == "two modes"
    assert mark_kind("load average 3.1 per core while measuring; stop them") == "load average"
