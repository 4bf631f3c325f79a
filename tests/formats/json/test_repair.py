from __future__ import annotations

import msgspec
import pytest

from gemmetry.formats.json import repaired


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (rb'{"a": "x\ud800y"}', {"a": "x\ufffdy"}),
        (b'"a\xffb"', "a\ufffdb"),
        (rb'{"a": ["\udc00", {"\ud83d": 1}]}', {"a": ["\ufffd", {"\ufffd": 1}]}),
        # A pair is one character, an escaped backslash begins no escape.
        (rb'{"a": "\ud83d\ude00 \\ud800"}', {"a": "\N{GRINNING FACE} \\ud800"}),
        (b'{"a": NaN, "b": -Infinity}', {"a": "NaN", "b": "-Infinity"}),
    ],
)
def test_what_has_no_place_is_replaced(text, expected):
    assert repaired(text, msgspec.json.decode) == expected


def test_digits_stay_as_they_are_and_what_is_not_json_has_a_reason():
    raw = repaired(
        rb'{"n": "\ud800", "ts": 1661938466265087.123}',
        msgspec.json.Decoder(dict[str, msgspec.Raw]).decode,
    )
    assert bytes(raw["ts"]) == b"1661938466265087.123"
    assert "line 1" in repaired(b"{", msgspec.json.decode)
    assert repaired(b"[" * 100_000, msgspec.json.decode)
