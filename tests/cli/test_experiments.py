"""Experiments compared and written, also with results of other benchmarks."""

from __future__ import annotations

import json
import re
from pathlib import Path

from gemmetry.domain.columns import COLUMNS
from gemmetry.domain.operation import DTYPES
from gemmetry.results.emit import FORMATS, Format


def test_a_kernel_that_became_wrong_is_a_regression(cli):
    for name, plus, status in (("a", 0, 0), ("b", 1, 1)):
        Path("mine.py").write_text(f"def mine(a, b):\n    return a @ b + {plus}\n")
        cli("profile", "--kernel", "mine.py:mine", "--providers", "user", "--shapes", "16x16x16",
            "--dtypes", "f32", "--time-budget", "20ms", "--experiment", name,
            status=status)  # fmt: skip
    assert cli.json("compare", "a", "b", status=1)["has_regression"] is True


def test_what_is_undecided_fails_unless_it_may_pass(cli):
    """Three samples per side decide nothing, however similar they are."""
    request = ("profile", "--providers", "null", "--shapes", "64x64x64", "--default-config")
    for name, samples in (("a", "3"), ("b", "3"), ("c", "6")):
        cli(*request, "--benchmark-repetitions", samples, "--experiment", name, status=0)
    document = cli.json("compare", "a", "b", "-o", "c.xml", status=1)
    assert (document["has_regression"], document["has_undecided"]) == (False, True)
    [change] = document["candidates"][0]["changes"]
    assert (change["verdict"], change["ratio_low"], change["adjusted_p_value"]) == (
        "undecided", None, None,
    )  # fmt: skip
    assert 'failures="1"' in Path("c.xml").read_text()
    passed = cli("compare", "a", "b", "--undecided", "pass", "-o", "c.xml", status=0)
    assert "≷ 1 undecided: too little was measured to decide" in passed.stdout
    assert 'failures="0"' in Path("c.xml").read_text()
    cli("compare", "c", "c", status=0)


def test_the_baseline_of_the_run_is_kept(cli):
    request = ("profile", "--providers", "null,numpy", "--device", "cpu", "--shapes", "16x16x16",
               "--dtypes", "f32", "--time-budget", "20ms", "--experiment", "a",
               "--baseline")  # fmt: skip
    assert "×numpy:default" in cli(*request, "numpy:default", status=0).stdout
    assert "×numpy:default" in cli("report", "a").stdout
    assert "×numpy:default" not in cli("report", "a", "--baseline", "numpy").stdout
    assert "baseline provider" in cli(*request, "torch", status=2).stderr


def _tab_separated(tables):
    (table,) = tables
    lines = [table.names, *([str(value) for value in row] for row in table.rows)]
    return "\n".join("\t".join(line) for line in lines).encode()


def test_a_format_of_files_is_added_by_its_entry(experiments, monkeypatch):
    """Lists, reports and comparisons write it, and mistakes list it; nothing else names formats."""
    monkeypatch.setitem(FORMATS, ".tsv", Format(_tab_separated))
    experiments("list", "dtypes", "-o", "l.tsv", status=0)
    assert Path("l.tsv").read_text().startswith("dtype\tbits\t")
    experiments("report", "a", "--columns", "provider,m", "-o", "r.tsv", status=0)
    assert Path("r.tsv").read_text().splitlines() == ["provider\tm", *["null\t64"] * 2]
    assert experiments("compare", "a", "b", "-o", "c.tsv").status in (0, 1)
    assert Path("c.tsv").read_text().count("\n") == 2
    assert ".tsv" in experiments("report", "a", "-o", "r.pdf").stderr
    monkeypatch.setitem(FORMATS, ".tsv", Format(_tab_separated, "no_such_library"))
    assert "no_such_library" in experiments("report", "a", "-o", "later.tsv", status=2).stderr
    assert not Path("later.tsv").exists()


TABLE = "(M, N, K);aten-latency;triton-latency\n(64, 64, 64);0.5;0.7\n(64, 64);1;1\n"
OF_F32 = ("--operation", "f32t_f32t_f32t")


def test_imported_results_stand_next_to_an_experiments(experiments):
    Path("t.csv").write_text(TABLE)
    ended = experiments("import", "t.csv", "--like", "a", "--into", "theirs", *OF_F32, status=0)
    assert ended.stdout == "theirs: 2 records (2 of tritonbench), 2 rows left out\n"
    assert "left out: t.csv:3: aten: '(64, 64)'" in ended.stderr
    assert "imported from t.csv, which states a median" in experiments("show", "theirs").stdout
    assert experiments("merge", "a", "theirs", "--into", "both").status == 0

    assert "were imported, and not verified here" in experiments("report", "both").stdout
    records = experiments.json("report", "both")["records"]
    imported = [one for one in records if one["provider"] == "tritonbench"]
    assert [(one["method"], one["verification"], one["ci_low_ns"]) for one in imported] == [
        ("imported", "not_verified", None)
    ] * 2
    compared = experiments("compare", "both", "--baseline", "null", "-o", "c.json")
    note = r"2 of \d with imported results \(tritonbench\), not verified here"
    assert re.search(note, compared.stdout)
    (candidate,) = json.loads(Path("c.json").read_text())["candidates"]
    changes = [one for one in candidate["changes"] if "tritonbench" in one["provider"]]
    assert len(changes) == 2
    for one in changes:
        assert "tritonbench: not verified here; raw samples are missing" in one["note"]
        assert one["verdict"] == "undecided"


def test_providers_formats_and_columns_are_listed(cli):
    listed = {
        name: {row[name.removesuffix("s")]: row for row in cli.json("list", name)[name]}
        for name in ("providers", "dtypes", "columns")
    }
    providers = listed["providers"]
    assert {"null", "numpy", "torch", "iree", "triton", "user"} <= set(providers)
    assert "mutant" not in providers
    assert providers["null"]["available"] and providers["null"]["devices"] == ["null:0"]
    assert not providers["user"]["available"] and "--kernel" in providers["user"]["reason"]
    assert [*listed["dtypes"]] == list(DTYPES)
    assert [*listed["columns"]] == [column.name for column in COLUMNS]
