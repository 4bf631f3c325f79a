from __future__ import annotations

import json
from pathlib import Path

from gemmetry.results.emit import FORMATS, Format


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


