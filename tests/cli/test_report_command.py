from __future__ import annotations

import json
from pathlib import Path

from gemmetry.results.emit import FORMATS, Format


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


def test_the_baseline_of_the_run_is_kept(cli):
    request = ("profile", "--providers", "null,numpy", "--device", "cpu", "--shapes", "16x16x16",
               "--time-budget", "50ms", "--experiment", "a",
               "--baseline", "numpy:default")  # fmt: skip
    ended = cli(*request)
    assert ended.status == 0
    assert "×numpy:default" in ended.stdout
    assert "×numpy:default" in cli("report", "a").stdout
    assert "×numpy:default" not in cli("report", "a", "--baseline", "numpy").stdout
    refused = cli(*request[:-1], "torch")
    assert refused.status == 2
    assert "baseline provider" in refused.stderr


def _tab_separated(tables):
    (table,) = tables
    lines = [table.names, *([str(value) for value in row] for row in table.rows)]
    return "\n".join("\t".join(line) for line in lines).encode()


def test_a_format_of_files_is_added_by_its_entry(experiments, monkeypatch):
    """Lists, reports and comparisons write it, and mistakes list it; nothing else names formats."""
    monkeypatch.setitem(FORMATS, ".tsv", Format(_tab_separated))
    assert experiments("list", "dtypes", "-o", "l.tsv").status == 0
    assert Path("l.tsv").read_text().startswith("dtype\tbits\t")
    columns = ("--columns", "provider,m")
    assert experiments("report", "a", *columns, "-o", "r.tsv").status == 0
    assert Path("r.tsv").read_text().splitlines() == ["provider\tm", *["null\t64"] * 2]
    assert experiments("compare", "a", "b", "-o", "c.tsv").status in (0, 1)
    assert Path("c.tsv").read_text().count("\n") == 2
    assert ".tsv" in experiments("report", "a", "-o", "r.pdf").stderr
    monkeypatch.setitem(FORMATS, ".tsv", Format(_tab_separated, "no_such_library"))
    refused = experiments("report", "a", "-o", "later.tsv")
    assert (refused.status, Path("later.tsv").exists()) == (2, False)
    assert "no_such_library" in refused.stderr


def test_show_describes_one_dispatch(experiments):
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
    assert experiments("merge", "a", "b", "-o", "other").stdout.startswith("other: ")
