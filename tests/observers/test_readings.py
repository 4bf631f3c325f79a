from __future__ import annotations

from gemmetry.hardware.monitors import Readings


def test_medians_and_reasons() -> None:
    readings = Readings()
    for value in (1.0, 9.0, 2.0):
        readings.add("power_w", value)
    readings.add("temperature_c", None)
    readings.add_reasons(["b", "a"])
    readings.add_reasons(["a"])
    assert readings.medians() == {"power_w": 2.0, "throttle_reasons": ("a", "b")}
    readings.clear()
    assert readings.medians() == {}
