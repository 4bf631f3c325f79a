from __future__ import annotations

from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gemmetry.domain.errors import RequestError
from gemmetry.domain.units import (
    column_decimals,
    format_bytes,
    format_gflops,
    format_joules,
    format_memory,
    format_ns,
    format_numbers,
    format_percent,
    parse_bytes,
    parse_duration_s,
    parse_share,
    plural,
)

FORMATTED = {
    format_ns: [(None, "–"), (0, "0 ns"), (847.3, "847 ns"), (1000, "1 µs"),
                (14_700_000, "14.7 ms"), (2.5e9, "2.5 s"), (-1500, "-1.5 µs")],
    partial(format_ns, even=True): [(1000, "1.00 µs"), (62_000, "62.0 µs"), (9_996, "10.0 µs"),
                                    (790_000, "790 µs"), (0, "0 ns")],
    format_memory: [(None, "–"), (0, "0 B"), (1023, "1023 B"), (2048, "2 KiB"),
                    (512 * 2**20, "512 MiB"), (33_711_083_520, "31.4 GiB"), (2**41, "2 TiB")],
    format_bytes: [(None, "–"), (12, "12 B"), (33_554_432, "33.6 MB"), (2e12, "2 TB")],
    format_gflops: [(None, "–"), (146.2, "146 GFLOP/s"), (670_900, "671 TFLOP/s"),
                    (1.2e6, "1.2 PFLOP/s")],
    format_joules: [(None, "–"), (2.5, "2.5 J"), (0.1184, "118 mJ"), (3.2e-6, "3.2 µJ"),
                    (5e-9, "5 nJ")],
    format_percent: [(None, "–"), (0.123, "12.3 %"), (1, "100 %")],
    format_numbers: [([], ""), ([3], "3"), ([1, 2, 5, 6, 7], "1, 2, 5-7"),
                     ([0, 1, 2, 4], "0-2, 4"), ([2, 1], "2, 1")],
}  # fmt: skip


@pytest.mark.parametrize(
    ("form", "value", "text"), [(form, *one) for form, found in FORMATTED.items() for one in found]
)
def test_values_are_formatted(form, value, text):
    assert form(value) == text


@pytest.mark.parametrize(("values", "decimals"), [
    ([1432.3, 12.65], 1),
    ([340.0, 189.2], 0),
    ([0.031, 1.0], 3),
    ([9.99, 0.0], 2),
    ([131.0, 0.261, 68.0, 153.0], 1),
    ([], 0),
])  # fmt: skip
def test_cells_of_a_column_have_as_many_digits_as_the_least_needs(values, decimals):
    assert column_decimals(values) == decimals


PARSED = {
    parse_duration_s: [("90", 90), ("90s", 90), ("1.5min", 90), ("200ms", 0.2), (" 2 h ", 7200),
                       ("5us", 5e-6), ("5µs", 5e-6), ("10ns", 1e-8)],
    parse_bytes: [("4096", 4096), ("4096B", 4096), ("500MB", 500_000_000), ("2GiB", 2**31),
                  ("1.5k", 1500), ("3 Ki", 3072), ("1tib", 2**40)],
    parse_share: [("2%", 0.02), ("0.5 %", 0.005), ("0.02", 0.02), ("0", 0), ("500%", 5),
                  ("1e-3", 0.001)],
}  # fmt: skip
REFUSED = {
    (parse_share, "is not a relative difference"):
        ["", "%", "-1%", "2 percent", "1.2.3", "..", "nan", "inf"],
    (parse_share, "has no unit"): ["1", "5", "1e400"],
    (parse_duration_s, "is not a duration"):
        ["", "s", "-1s", "1 fortnight", "1.2.3s", "..", "1e3s", "1s 2s"],
    (parse_bytes, "is not a memory size"): ["", "B", "-1", "1 PB", "1.2.3", "1ib", "nan", "inf"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("parse", "text", "value"), [(parse, *one) for parse, found in PARSED.items() for one in found]
)
def test_typed_texts_are_parsed(parse, text, value):
    assert parse(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("parse", "message", "text"), [(*key, text) for key, texts in REFUSED.items() for text in texts]
)
def test_other_texts_are_refused(parse, message, text):
    with pytest.raises(RequestError, match=message):
        parse(text)


@given(st.text(max_size=20) | st.from_regex(r"[0-9.]{0,400} ?[a-zµ]{0,4}", fullmatch=True))
@example("9" * 400)
@example("9" * 5000 + "h")
@settings(deadline=None)
def test_any_text_is_a_value_or_a_request_error(text):
    for parse in (parse_bytes, parse_duration_s, parse_share):
        try:
            assert parse(text) >= 0
        except RequestError:
            pass


@pytest.mark.parametrize(("count", "text"), [
    (0, "0 launches"), (1, "1 launch"), (2, "2 launches"), (1200, "1,200 launches"),
])  # fmt: skip
def test_counts_are_singular_or_plural(count, text):
    assert plural(count, "launch", "launches") == text
    assert plural(count, "rank").endswith("rank" if count == 1 else "ranks")
