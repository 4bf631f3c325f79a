from __future__ import annotations

from dataclasses import replace

import pytest

from gemmetry.counters.page import INK, Side, roofline_drawing, roofline_figure
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


def _looks(drawing):
    return [(one.tint, one.dash) for one in drawing.roofs]


def test_a_launch_has_the_roofs_of_its_gpu_and_points_in_their_colours():
    drawing = roofline_drawing([Side("", "H200", ONE)])
    assert [one.name for one in drawing.roofs] == [
        "device memory, 4.8 TB/s", "L2 cache, 10 TB/s", "shared memory, 26 TB/s",
        "bf16 datasheet, 989 TFLOP/s", "bf16 at its clock, 840 TFLOP/s",
    ]  # fmt: skip
    assert len(set(_looks(drawing))) == 5
    (launch,) = drawing.launches
    assert launch.name == "bf16, 700 TFLOP/s"
    by_name = {one.name.partition(",")[0]: one.tint for one in drawing.roofs}
    assert [(name, tint) for name, tint, _ in launch.levels] == list(by_name.items())[:3]
    assert [place for *_, place in launch.levels] == [800.0, 160.0, 40.0]


def test_slopes_end_at_the_ceiling():
    drawing = roofline_drawing([Side("", "H200", ONE)])
    for one in drawing.roofs[:3]:
        assert one.y[1] == pytest.approx(989e12)
    assert drawing.roofs[3].x[1] > 800


@pytest.mark.parametrize("factor", [0.98, 1.0, 1.02])
def test_launches_with_the_same_roofs_share_them(factor):
    drawing = roofline_drawing([Side("A", "H200", ONE), Side("B", "H200", _scaled(factor))])
    alone = roofline_drawing([Side("", "H200", ONE)])
    assert [one.name for one in drawing.roofs] == [one.name for one in alone.roofs]
    a, b = drawing.launches
    assert a.symbol != b.symbol
    assert a.levels == b.levels


def test_two_gpus_have_roofs_of_their_own():
    other = _scaled(0.4, operations_per_s=250e12)
    drawing = roofline_drawing([Side("A", "H200", ONE), Side("B", "A100", other)])
    assert len(drawing.roofs) == 10
    assert len(set(_looks(drawing))) == 10
    names = [one.name for one in drawing.roofs]
    assert "A: device memory, 4.8 TB/s" in names
    assert "B: device memory, 1.92 TB/s" in names
    assert "B: bf16 datasheet, 396 TFLOP/s" in names
    assert drawing.launches[1].name == "B: bf16 on A100, 250 TFLOP/s"
    slope = drawing.roofs[names.index("B: device memory, 1.92 TB/s")]
    assert slope.y[1] == pytest.approx(0.4 * 989e12)
    assert drawing.launches[1].levels[0][1] == slope.tint


def test_another_format_on_the_same_gpu_has_only_another_ceiling():
    fp8 = replace(ONE, path="fp8", datasheet_peak=1979e12, clock_peak=1680e12)
    drawing = roofline_drawing([Side("A", "H200", ONE), Side("B", "H200", fp8)])
    names = [one.name for one in drawing.roofs]
    assert names[:3] == ["device memory, 4.8 TB/s", "L2 cache, 10 TB/s", "shared memory, 26 TB/s"]
    assert "A: bf16 datasheet, 989 TFLOP/s" in names
    assert "B: fp8 datasheet, 1.98 PFLOP/s" in names
    assert [one.tint for one in drawing.roofs if "A: bf16" in one.name] == [INK, INK]


def test_the_figure_of_a_page():
    figure = roofline_figure([Side("<b>", "H200", ONE)])
    assert figure["layout"]["xaxis"]["type"] == figure["layout"]["yaxis"]["type"] == "log"
    lines = [one for one in figure["traces"] if one["mode"] == "lines"]
    assert [one["line"]["dash"] for one in lines] == ["solid", "dash", "dashdot", "solid", "dot"]
    points = [one for one in figure["traces"] if one["mode"] == "markers" and one["x"] != [None]]
    assert [one["x"] for one in points] == [[800.0], [160.0], [40.0]]
    assert {one["y"][0] for one in points} == {700.0}
    assert all("<b>" not in one["name"] for one in figure["traces"])


def test_without_operations_there_is_no_roofline(counter_launches):
    launch = counter_launches.launch(counter_launches.metrics())
    assert roofline_figure([Side("", "", roofline_of(launch))]) is None
