from __future__ import annotations

from dataclasses import replace

import pytest

from gemmetry.counters.page import Side, roofline_figure
from gemmetry.counters.roofline import LaunchRoofline, RoofLevel, roofline_of


def _level(name, peak, intensity):
    return RoofLevel(name=name, bytes=1.0, bytes_per_s=1.0, peak_bytes_per_s=peak,
                     intensity=intensity, source="")  # fmt: skip


ONE = LaunchRoofline(
    path="bf16", operations=1e12, operations_per_s=700e12, datasheet_peak=989e12, clock_peak=840e12,
    clock_hz=1.5e9, source="",
    levels=(_level("device memory", 4.8e12, 800.0), _level("L2 cache", 10e12, 160.0),
            _level("shared memory", 26e12, 40.0)),
)  # fmt: skip


def _scaled(factor, **changes):
    levels = tuple(replace(one, peak_bytes_per_s=one.peak_bytes_per_s * factor)
                   for one in ONE.levels)  # fmt: skip
    peaks = {"datasheet_peak": 989e12 * factor, "clock_peak": 840e12 * factor}
    return replace(ONE, levels=levels, **{**peaks, **changes})


class Drawn:
    """What is on a roofline: lines, entries of the legend, and points."""

    def __init__(self, *sides):
        traces = roofline_figure([Side(*one) for one in sides])["traces"]
        self.lines = [one for one in traces if one["mode"] == "lines"]
        self.entries = [one for one in traces if one["x"] == [None]]
        self.points = [one for one in traces if one["mode"] == "markers" and one["x"] != [None]]
        self.names = [one["name"] for one in self.lines]
        self.looks = [(one["ink"] or one["tint"], one["line"]["dash"]) for one in self.lines]


def test_a_launch_has_the_roofs_of_its_gpu_and_points_in_their_colours():
    drawn = Drawn(("", "H200", ONE))
    assert drawn.names == [
        "device memory, 4.8 TB/s", "L2 cache, 10 TB/s", "shared memory, 26 TB/s",
        "bf16 datasheet, 989 TFLOP/s", "bf16 at its clock, 840 TFLOP/s",
    ]  # fmt: skip
    assert len(set(drawn.looks)) == 5
    assert [one["line"]["dash"] for one in drawn.lines] == [
        "solid", "dash", "dashdot", "solid", "dot",
    ]  # fmt: skip
    assert [one["name"] for one in drawn.entries] == ["bf16, 700 TFLOP/s"]
    assert [one["tint"] for one in drawn.points] == [one["tint"] for one in drawn.lines[:3]]
    assert [one["x"] for one in drawn.points] == [[800.0], [160.0], [40.0]]
    assert {one["y"][0] for one in drawn.points} == {700.0}
    assert [one["y"][1] for one in drawn.lines[:3]] == [pytest.approx(989.0)] * 3, "the ceiling"
    assert drawn.lines[3]["x"][1] > 800


@pytest.mark.parametrize("factor", [0.98, 1.0, 1.02])
def test_launches_with_the_same_roofs_share_them(factor):
    drawn = Drawn(("A", "H200", ONE), ("B", "H200", _scaled(factor)))
    assert drawn.names == Drawn(("", "H200", ONE)).names
    a, b = (one["marker"]["symbol"] for one in drawn.entries)
    assert a != b
    looks = [(one["tint"], one["x"]) for one in drawn.points]
    assert looks[:3] == looks[3:]


def test_two_gpus_have_roofs_of_their_own():
    other = _scaled(0.4, operations_per_s=250e12)
    drawn = Drawn(("A", "H200", ONE), ("B", "A100", other))
    assert len(set(drawn.looks)) == len(drawn.lines) == 10
    assert {"A: device memory, 4.8 TB/s", "B: bf16 datasheet, 396 TFLOP/s"} <= set(drawn.names)
    assert drawn.entries[1]["name"] == "B: bf16 on A100, 250 TFLOP/s"
    slope = drawn.lines[drawn.names.index("B: device memory, 1.92 TB/s")]
    assert slope["y"][1] == pytest.approx(0.4 * 989)
    assert drawn.points[3]["tint"] == slope["tint"]


def test_another_format_on_the_same_gpu_has_only_another_ceiling():
    fp8 = replace(ONE, path="fp8", datasheet_peak=1979e12, clock_peak=1680e12)
    drawn = Drawn(("A", "H200", ONE), ("B", "H200", fp8))
    assert drawn.names[:3] == [
        "device memory, 4.8 TB/s", "L2 cache, 10 TB/s", "shared memory, 26 TB/s",
    ]  # fmt: skip
    assert {"A: bf16 datasheet, 989 TFLOP/s", "B: fp8 datasheet, 1.98 PFLOP/s"} <= set(drawn.names)
    assert [one["ink"] for one in drawn.lines if "A: bf16" in one["name"]] == [True, True]


def test_texts_are_no_markup_and_axes_are_logarithmic():
    figure = roofline_figure([Side("<b>", "H200", ONE)])
    assert figure["layout"]["xaxis"]["type"] == figure["layout"]["yaxis"]["type"] == "log"
    assert all("<b>" not in one["name"] for one in figure["traces"])


def test_without_operations_there_is_no_roofline(counter_launches):
    launch = counter_launches.launch(counter_launches.metrics())
    assert roofline_figure([Side("", "", roofline_of(launch))]) is None
