"""report, show, merge and compare: commands on experiments that exist."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

NULL = ("profile", "--providers", "null", "--shapes", "64x64x64")


@pytest.fixture
def experiments(cli):
    assert cli(*NULL, "--experiment", "a").status == 0
    assert cli(*NULL, "--experiment", "b").status == 0
    return cli


def test_report_renders_again(experiments):
    before = sorted(Path("a").rglob("*"))
    assert "2 dispatches: 2 ok" in experiments("report", "a").stdout
    assert experiments("report", "a", "--format", "csv").stdout.count("\n") == 3
    columns = experiments("report", "a", "--format=csv", "--columns", "provider,gflops").stdout
    assert columns.splitlines()[0] == "provider,gflops"
    assert len(json.loads(experiments("report", "a", "--json").stdout)["records"]) == 2
    assert experiments("report", "a", "-o", "x.md", "--html", "x.html").status == 0
    assert Path("x.md").exists()
    assert Path("x.html").exists()
    assert sorted(Path("a").rglob("*")) == before


def test_report_refuses_what_is_not_there(experiments):
    assert experiments("report", "missing").status == 2
    assert "Did you mean" in experiments("report", "a", "--format", "tabel").stderr
    assert experiments("report", "a", "--columns", "nope").status == 2


def test_show_tells_about_one_dispatch(experiments):
    shown = experiments("show", "a", "fast")
    assert shown.status == 0
    assert "matmul_64x64x64_f32t_f32t_f32t_fast" in shown.stdout
    document = json.loads(experiments("show", "a", "*fast", "--json").stdout)
    assert [record["configuration"] for record in document["records"]] == ["fast"]
    missing = experiments("show", "a", "fasst")
    assert missing.status == 2
    assert missing.stdout == ""


def test_merge_makes_a_new_experiment(experiments):
    merged = experiments("merge", "a", "b", "--into", "ab")
    assert merged.status == 0
    assert merged.stdout.startswith("ab: 2 records")
    assert experiments("report", "ab").status == 0
    assert experiments("merge", "a", "b", "--into", "ab").status == 2
    assert experiments("merge", "a", "--into", "c").status == 2


def test_compare_of_equals_finds_no_regression(experiments):
    ended = experiments("compare", "a", "b", "--json", "-o", "c.md")
    assert ended.status == 0
    document = json.loads(ended.stdout)
    assert document["has_regression"] is False
    assert Path("c.md").exists()
    assert experiments("compare", "a", "b").stdout
    assert experiments("compare", "a").status == 2


def test_other_inputs_are_compared_only_when_asked(cli):
    name = "matmul_64x64x64_f32t_f32t_f32t_default"
    assert (
        cli("profile", "--providers", "null", "--dispatches", name, "--experiment", "a").status == 0
    )
    assert cli(*NULL, "--experiment", "b", "--distribution", "normal").status == 0
    refused = cli("compare", "a", "b")
    assert refused.status == 2
    assert "distribution" in refused.stderr
    assert cli("compare", "a", "b", "--across-distributions").status == 0
