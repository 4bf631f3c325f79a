"""Marks that most rows share are a state of the run. A line ``rows`` of ``marks.txt`` has
their number, the relative half-width of the first, and how much wider each next one is."""

from __future__ import annotations

from gemmetry.dispatches.analysis import find_run_marks, mark_kind

NAME = "matmul_8x8x8_f32t_f32t_f32t"


def test_marks(case, make_record):
    records = []
    for _, (count, width, more), given in case.calls():
        marks = tuple(given.pop("marks", ["noisy: wide"]))
        for number in range(count):
            half = width + number * more
            wide = {"median_ns": 1e6, "ci_low_ns": 1e6 * (1 - half), "ci_high_ns": 1e6 * (1 + half)}
            records.append(
                make_record(NAME, f"c{len(records)}", marks=marks, measured=wide, **given)
            )
    found = find_run_marks(records)
    lines = [(f"{device}:", {"common": one.common, "measured": one.measured, "fences": one.fences,
                             "usual": one.usual_half_width})
             for (_, device), one in found.states.items()]  # fmt: skip
    lines += [f"{one.device} {one.configuration}: {', '.join(found.of(one))}"
              for one in records if found.of(one)]  # fmt: skip
    case.check([*lines, ("all", {"counts": found.counts(records), "common": found.has_common})])


def test_kinds():
    assert mark_kind("two modes: 1 ms and 2 ms") == "two modes"
    assert mark_kind("load average 3.1 per core while measuring; stop them") == "load average"
