from __future__ import annotations

from decimal import Decimal

from gemmetry.reports.tables.json_encoding import encoded


def test_decimals_are_numbers_with_all_of_their_places():
    assert encoded({"a": Decimal("1.500"), "b": [None, True]}) == b'{"a":1.500,"b":[null,true]}'


def test_names_that_are_not_text_are_written_all_the_same():
    document = {"a\udcff": [Decimal("1.500"), ("\ud800", None, True)], "b": {"c": "é"}}
    assert encoded(document).decode() == '{"a\ufffd":[1.500,["\ufffd",null,true]],"b":{"c":"é"}}'
