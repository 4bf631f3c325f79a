from __future__ import annotations

import json

from gemmetry.domain.columns import COLUMNS
from gemmetry.domain.operation import DTYPES


def rows(cli, *arguments):
    ended = cli("list", *arguments, "--json")
    assert ended.status == 0, ended.stderr
    return json.loads(ended.stdout)[arguments[0]]


def test_providers_show_where_they_work_or_why_not(cli):
    by_name = {row["provider"]: row for row in rows(cli, "providers")}
    assert {"null", "numpy", "torch", "iree", "triton", "user"} <= set(by_name)
    assert by_name["null"]["available"]
    assert by_name["null"]["devices"] == ["null:0"]
    assert not by_name["user"]["available"]
    assert "--kernel" in by_name["user"]["reason"]


def test_all_dtypes_and_columns_are_listed(cli):
    assert [row["dtype"] for row in rows(cli, "dtypes")] == list(DTYPES)
    assert [row["column"] for row in rows(cli, "columns")] == [column.name for column in COLUMNS]
