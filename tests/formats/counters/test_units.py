from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.formats.counters.launches import UnknownUnits, base_unit

SCALES = {"": 0, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
TIMES = {"ns": 0, "us": 3, "ms": 6, "s": 9, "nsecond": 0, "usecond": 3, "msecond": 6, "second": 9}
PLAIN = ("", "%", "inst", "cycle", "sector", "warp", "register", "request", "branches", "SM")
UNITS = {
    **{f"{scale}{name}{rest}": (f"{name}{rest.replace('/second', '/s')}", power)
       for scale, power in SCALES.items() for name in ("byte", "bit")
       for rest in ("", "/block", "/cycle", "/sector", "/s", "/second")},
    **{unit: ("ns", power) for unit, power in TIMES.items()},
    **{f"{over}/{unit}": (f"{base}/s", scale + 9 - power)
       for over, base, scale in (("sector", "sector", 0), ("inst", "inst", 0), ("%", "%", 0),
                                 ("byte", "byte", 0), ("Gbyte", "byte", 9))
       for unit, power in TIMES.items()},
    **{unit: ("hz", power) for unit, power in {
        "hz": 0, "Khz": 3, "Mhz": 6, "Ghz": 9, "GHz": 9, "cycle/second": 0, "cycle/s": 0,
        "cycle/usecond": 6, "cycle/nsecond": 9, "cycle/ns": 9}.items()},
    **{f"{over}{under}": (f"{over}{under}", 0)
       for over in PLAIN for under in ("", *(f"/{name}" for name in PLAIN if name))},
    # derived__pct_occupancy_per_shared_mem_size of the H200 capture: 8190 %/byte in the report,
    # 8.19 %/Kbyte in the CSV of the same launch.
    "%/Kbyte": ("%/byte", 3),
}  # fmt: skip
"""Unit -> its base, and the power of ten of its scale."""


def test_every_unit_has_its_base_and_its_scale():
    found = {unit: base_unit(unit) for unit in UNITS}
    assert found == {
        unit: (base, pytest.approx(10.0**power, rel=1e-12)) for unit, (base, power) in UNITS.items()
    }


@given(st.text(max_size=20))
@settings(max_examples=40)
def test_the_base_unit_of_any_text_is_its_own_base_or_unknown(text):
    found = base_unit(text)
    if found is not None:
        base, factor = found
        assert factor > 0
        assert base_unit(base) == (base, 1.0)


def test_metrics_in_unknown_units_are_named_once_per_unit():
    """As a plain number, a value in one would be off by an unknown factor."""
    units = ("KiB", "Kinst", "hour", "byte/fortnight", "furlong/s", "byte/s/s", "bytes", "x", "0")
    assert set(map(base_unit, units)) == {None}
    unknown = UnknownUnits()
    for metric in ("a", "b", "a"):
        unknown.add(metric, "KiB")
    unknown.add("c", "hour")
    assert unknown.problems() == [
        "the unit 'KiB' is unknown: a and 1 other metric are left out",
        "the unit 'hour' is unknown: c is left out",
    ]
