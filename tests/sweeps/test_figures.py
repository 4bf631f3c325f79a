"""The figures of pages about sweeps."""

from __future__ import annotations

import pytest

from gemmetry.sweeps.comparison import LabelledSweep
from gemmetry.sweeps.page import collective_figure, dose_figure, slowdown_forest, split_figure


def sweep(label="", **document):
    return LabelledSweep(
        label=label,
        document={"sweep": "made", "points": [], "pooled_gemms": [], "collectives": []} | document,
    )


def gemm(shares, cost):
    return {"threads": 256, "channels": 8, "axes": {}, "repeat": 1, "kernel": "nvjet", "m": 64,
            "n": 32, "k": 16, "batch": 1, "alone_count": 5, "cost_ms_per_step": cost,
            "by_share": [{"low": low, "high": low + 0.25, "count": 4, "slowdown": slow}
                         for low, slow in shares]}  # fmt: skip


def test_the_response_to_the_dose_begins_at_1_with_instances_alone():
    found = dose_figure([sweep(pooled_gemms=[gemm([(0.25, 1.1), (0.75, 1.4)], 2.0),
                                             gemm([(0.75, 1.4)], 9.0)])])  # fmt: skip
    (line,) = found["traces"]
    assert line["x"] == [0, 0.375, 0.875]
    assert line["y"] == [1, 1.1, 1.4]


@pytest.mark.parametrize(("other", "right"), [("undecided", 1.5), ("slower", 400.0)])
def test_an_undecided_interval_does_not_hide_the_others(other, right):
    ends = {"slower": (1.2, 1.5), other: (0.5, 400.0)}
    found = slowdown_forest([sweep(pooled_gemms=[
        gemm([], 1.0) | {"slowdown": 1.3, "slowdown_ci_low": low, "slowdown_ci_high": high,
                         "verdict": verdict, "alone_median_us": 1.0, "overlapped_median_us": 1.3,
                         "overlapped_count": 5}
        for verdict, (low, high) in ends.items()
    ])])  # fmt: skip
    assert found["layout"]["xaxis"]["range"][1] == pytest.approx(right, rel=0.05)
    assert ("beyond the chart" in found["note"]) == (other == "undecided")


@pytest.mark.parametrize("figure", [collective_figure, dose_figure, split_figure])
def test_nothing_to_draw_is_no_figure(figure):
    assert figure([sweep()]) is None
