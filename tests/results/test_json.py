from __future__ import annotations

import json
import math
from decimal import Decimal
from enum import StrEnum

import numpy as np
import pytest

from gemmetry.domain.rows import value as json_value
from gemmetry.results.json_text import encoded
from gemmetry.results.pages import embed_json


def test_names_that_are_not_text_are_written_all_the_same():
    document = {"a\udcff": [Decimal("1.500"), ("\ud800", None, True)], "b": {"c": "é"}}
    assert encoded(document).decode() == '{"a\ufffd":[1.500,["\ufffd",null,true]],"b":{"c":"é"}}'


@pytest.mark.parametrize("indent", [0, 1, 2])
def test_files_and_lines_are_spaced_as_the_standard_library_does(indent):
    document = {"a": [1, {"b": []}, {}], "c": "1, 2: é\u2028", "d": 0.1}
    expected = json.dumps(document, indent=indent or None, ensure_ascii=False)
    assert encoded(document, indent=indent).decode() == expected


def test_values_of_derived_classes_are_those_of_their_base():
    class Name(str):
        """Not an enumeration."""

    class Kind(StrEnum):
        A = "a"

    assert encoded([np.float64(2.5), Name("x"), Kind.A, True]) == b'[2.5,"x","a",true]'
    with pytest.raises(TypeError, match="object is not a value of JSON"):
        encoded([object()])


def test_numbers_that_json_lacks_become_null():
    values = {"a": math.nan, "b": (1, math.inf), "c": np.float64("nan")}
    assert json_value(values) == {"a": None, "b": [1, None], "c": None}
    assert json.loads(encoded(values)) == json_value(values)
    assert embed_json(values) == '{"a":null,"b":[1,null],"c":null}'
