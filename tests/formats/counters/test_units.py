from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.formats.counters.launches import UnknownUnits, base_unit

SIZES = {"": 0, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
TIMES = {"ns": -9, "us": -6, "ms": -3, "s": 0}
OLD_TIMES = {"nsecond": -9, "usecond": -6, "msecond": -3, "second": 0}
PLAIN = ("", "%", "inst", "cycle", "sector", "warp", "register", "request", "branches", "SM")

values = st.floats(1e-6, 1e15)


def in_base(value: float, unit: str) -> float:
    return value * base_unit(unit)[1]


@given(values, st.sampled_from(list(SIZES)), st.sampled_from(["byte", "bit"]),
       st.sampled_from(["", "/block", "/cycle", "/sector", "/s", "/second"]))  # fmt: skip
def test_a_size_in_any_scale_is_the_same_in_the_base_unit(value, prefix, name, rest):
    unit = f"{prefix}{name}{rest}"
    assert base_unit(unit)[0] == f"{name}{rest.replace('/second', '/s')}"
    assert in_base(value / 10.0 ** SIZES[prefix], unit) == pytest.approx(value, rel=1e-12)


@given(values, st.sampled_from(list({**TIMES, **OLD_TIMES}.items())))
def test_a_time_is_in_nanoseconds(nanoseconds, time):
    unit, power = time
    assert base_unit(unit)[0] == "ns"
    assert in_base(nanoseconds / 10.0 ** (power + 9), unit) == pytest.approx(nanoseconds, rel=1e-12)


@given(values, st.sampled_from(["sector", "inst", "Gbyte", "byte", "%"]),
       st.sampled_from(list({**TIMES, **OLD_TIMES}.items())))  # fmt: skip
def test_a_rate_is_per_second(rate, over, time):
    unit, power = time
    scale = 10.0 ** (9 if over == "Gbyte" else 0)
    assert base_unit(f"{over}/{unit}")[0] == f"{over.lower().replace('gb', 'b')}/s"
    assert in_base(rate / scale * 10.0**power, f"{over}/{unit}") == pytest.approx(rate, rel=1e-12)


@given(values, st.sampled_from(["hz", "Khz", "Mhz", "Ghz", "GHz", "cycle/second", "cycle/nsecond",
                                "cycle/usecond", "cycle/s", "cycle/ns"]))  # fmt: skip
def test_a_frequency_is_in_hertz_however_it_was_written(value, unit):
    powers = {"K": 3, "M": 6, "G": 9, "c": 0, "h": 0}
    power = {"cycle/nsecond": 9, "cycle/ns": 9, "cycle/usecond": 6}.get(unit, powers[unit[0]])
    assert base_unit(unit)[0] == "hz"
    assert in_base(value, unit) == pytest.approx(value * 10.0**power, rel=1e-12)


@given(st.sampled_from(PLAIN), st.sampled_from(["", *(f"/{name}" for name in PLAIN if name)]))
def test_units_without_a_scale_stay_as_they_are(over, under):
    assert base_unit(f"{over}{under}") == (f"{over}{under}", 1.0)


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


def test_a_scaled_size_below_the_line_is_scaled_as_nsight_compute_does_it():
    # derived__pct_occupancy_per_shared_mem_size of the H200 capture: 8190 %/byte in the report,
    # 8.19 %/Kbyte in the CSV of the same launch.
    assert base_unit("%/Kbyte") == ("%/byte", 1e3)
