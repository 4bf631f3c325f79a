from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gemmetry.domain.errors import RequestError
from gemmetry.domain.units import (
    column_decimals,
    counted,
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
)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0 ns"), (847.3, "847 ns"), (1000, "1 µs"), (14_700_000, "14.7 ms"),
     (2.5e9, "2.5 s"), (-1500, "-1.5 µs")],
)  # fmt: skip
def test_durations_are_formatted(value, text):
    assert format_ns(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0 B"), (1023, "1023 B"), (2048, "2 KiB"), (512 * 2**20, "512 MiB"),
     (33_711_083_520, "31.4 GiB"), (2**41, "2 TiB")],
)  # fmt: skip
def test_sizes_of_memory_and_messages_are_formatted(value, text):
    assert format_memory(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1000, "1.00 µs"), (62_000, "62.0 µs"), (9_996, "10.0 µs"), (790_000, "790 µs"), (0, "0 ns")],
)
def test_durations_of_a_column_keep_their_zeros(value, text):
    assert format_ns(value, even=True) == text


@pytest.mark.parametrize(
    ("values", "decimals"),
    [
        ([1432.3, 12.65], 1),
        ([340.0, 189.2], 0),
        ([0.031, 1.0], 3),
        ([9.99, 0.0], 2),
        ([131.0, 0.261, 68.0, 153.0], 1),
        ([], 0),
    ],
)
def test_cells_of_a_column_have_as_many_digits_as_the_least_needs(values, decimals):
    assert column_decimals(values) == decimals


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (12, "12 B"), (33_554_432, "33.6 MB"), (2e12, "2 TB")]
)
def test_bytes_are_formatted(value, text):
    assert format_bytes(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (146.2, "146 GFLOP/s"), (670_900, "671 TFLOP/s"), (1.2e6, "1.2 PFLOP/s")],
)
def test_rates_are_formatted(value, text):
    assert format_gflops(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (2.5, "2.5 J"), (0.1184, "118 mJ"), (3.2e-6, "3.2 µJ"), (5e-9, "5 nJ")],
)
def test_energies_are_formatted(value, text):
    assert format_joules(value) == text


@pytest.mark.parametrize(("value", "text"), [(None, "–"), (0.123, "12.3 %"), (1, "100 %")])
def test_shares_are_formatted(value, text):
    assert format_percent(value) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("1.5min", 90), ("200ms", 0.2), (" 2 h ", 7200), ("5us", 5e-6),
     ("5µs", 5e-6), ("10ns", 1e-8)],
)  # fmt: skip
def test_typed_durations_are_parsed(text, seconds):
    assert parse_duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "size"),
    [("4096", 4096), ("4096B", 4096), ("500MB", 500_000_000), ("2GiB", 2**31), ("1.5k", 1500),
     ("3 Ki", 3072), ("1tib", 2**40)],
)  # fmt: skip
def test_typed_sizes_are_parsed(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "share"),
    [("2%", 0.02), ("0.5 %", 0.005), ("0.02", 0.02), ("0", 0), ("500%", 5), ("1e-3", 0.001)],
)
def test_typed_shares_are_parsed(text, share):
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "%", "-1%", "2 percent", "1.2.3", "..", "nan", "inf"])
def test_a_text_that_is_not_a_share_is_refused(text):
    with pytest.raises(RequestError, match="is not a relative difference"):
        parse_share(text)


@pytest.mark.parametrize("text", ["1", "5", "1e400"])
def test_a_share_of_all_or_more_needs_its_unit(text):
    with pytest.raises(RequestError, match="has no unit"):
        parse_share(text)


@pytest.mark.parametrize("text", ["", "s", "-1s", "1 fortnight", "1.2.3s", "..", "1e3s", "1s 2s"])
def test_a_text_that_is_not_a_duration_is_refused(text):
    with pytest.raises(RequestError, match="is not a duration"):
        parse_duration_s(text)


@pytest.mark.parametrize("text", ["", "B", "-1", "1 PB", "1.2.3", "1ib", "nan", "inf"])
def test_a_text_that_is_not_a_size_is_refused(text):
    with pytest.raises(RequestError, match="is not a memory size"):
        parse_bytes(text)


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


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 launches"), (1, "1 launch"), (2, "2 launches"), (1200, "1,200 launches")],
)
def test_counts_are_singular_or_plural(count, text):
    assert counted(count, "launch", "launches") == text
    assert counted(count, "rank").endswith("rank" if count == 1 else "ranks")


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], ""),
        ([3], "3"),
        ([1, 2, 5, 6, 7], "1, 2, 5-7"),
        ([0, 1, 2, 4], "0-2, 4"),
        ([2, 1], "2, 1"),
    ],
)
def test_consecutive_numbers_are_a_range(numbers, text):
    assert format_numbers(numbers) == text
