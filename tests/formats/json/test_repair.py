from __future__ import annotations

import msgspec
import pytest

from gemmetry.formats.json import repaired


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r'{"a": "x\ud800y"}', {"a": "x\ufffdy"}),
        (r'{"a": ["\udc00", {"\ud83d": 1}]}', {"a": ["\ufffd", {"\ufffd": 1}]}),
        # A pair is one character, an escaped backslash begins no escape.
        (r'{"a": "\ud83d\ude00 \\ud800"}', {"a": "\N{GRINNING FACE} \\ud800"}),
        ('{"a": NaN, "b": -Infinity}', {"a": "NaN", "b": "-Infinity"}),
    ],
)
def test_what_has_no_place_is_replaced(text, expected):
    assert repaired(text.encode(), msgspec.json.decode) == expected


def test_bytes_that_are_not_utf8_are_replaced():
    assert repaired(b'"a\xffb"', msgspec.json.decode) == "a\ufffdb"


def test_digits_stay_as_they_are():
    raw = repaired(
        rb'{"n": "\ud800", "ts": 1661938466265087.123}',
        msgspec.json.Decoder(dict[str, msgspec.Raw]).decode,
    )
    assert bytes(raw["ts"]) == b"1661938466265087.123"


def test_what_is_not_json_has_a_reason():
    assert "line 1" in repaired(b"{", msgspec.json.decode)
    assert repaired(b"[" * 100_000, msgspec.json.decode)
