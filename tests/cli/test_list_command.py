from __future__ import annotations

import json
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("noun", ["operations", "configurations"])
def test_lists_of_a_request_as_files(cli, noun):
    ended = cli("list", noun, "--providers", "null", "--shapes", "64x64x64", "-o", "a.csv,b.json")
    assert (ended.status, ended.stderr) == (0, "wrote a.csv\nwrote b.json\n")
    assert "matmul_64x64x64" in Path("a.csv").read_text()
    assert "matmul_64x64x64" in Path("b.json").read_text()


def test_operations_and_configurations_of_a_request(cli):
    request = ("--providers", "null", "--shapes", "2x3x4,5x6x7")
    operations = rows(cli, "operations", *request)
    assert operations[0] == {
        "operation": "matmul_2x3x4_f32t_f32t_f32t",
        "kind": "matmul",
        "flops": 48,
        "bytes": 104,
    }
    assert len(rows(cli, "configurations", *request)) == 4
    assert len(rows(cli, "configurations", *request, "--limit", "3")) == 3
