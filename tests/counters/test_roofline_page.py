from __future__ import annotations

from dataclasses import replace

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


A100 = Side("B", "A100", _scaled(0.4, operations_per_s=250e12))
FP8 = Side("B", "H200", replace(ONE, path="fp8", datasheet_peak=1979e12, clock_peak=1680e12))


def test_figures(golden, dumped):
    """Of a launch, of launches with the same roofs, of two GPUs, and of another format."""
    sides = ([Side("", "H200", ONE)], [Side("A", "H200", ONE), Side("B", "H200", _scaled(1.02))],
             [Side("A", "H200", ONE), A100], [Side("A", "H200", ONE), FP8],
             [Side("<b>", "H200", ONE)])  # fmt: skip
    figures = [roofline_figure(one) for one in sides]
    golden("rooflines", "".join(dumped(figure["layout"], *figure["traces"]) for figure in figures))


def test_without_operations_there_is_no_roofline(counter_launches):
    launch = counter_launches.launch(counter_launches.metrics())
    assert roofline_figure([Side("", "", roofline_of(launch))]) is None
