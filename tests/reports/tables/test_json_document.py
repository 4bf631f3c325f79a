from __future__ import annotations

import json
import math

from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.reports.tables.json_document import json_value, tables_document, to_json_text


def test_each_table_is_a_list_of_objects_under_its_name():
    tables = [
        Table("a", (Column("x", ColumnType.NUMBER), Column("y", ColumnType.TEXTS)),
              [(math.nan, ("p",)), (1, [])]),
        Table("b", (Column("z"),)),
    ]  # fmt: skip
    assert tables_document(tables) == {
        "schema_version": 1,
        "a": [{"x": None, "y": ["p"]}, {"x": 1, "y": []}],
        "b": [],
    }


def test_numbers_that_json_lacks_become_null():
    assert json_value({"a": math.nan, "b": (1, math.inf)}) == {"a": None, "b": [1, None]}


def test_names_that_are_not_text_are_written_all_the_same():
    assert json.loads(to_json_text({"a": "\udcff"}).encode()) == {"a": "\ufffd"}
