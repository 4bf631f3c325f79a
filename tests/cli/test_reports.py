"""Results of other benchmarks, imported and compared with an experiment."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gemmetry.domain.columns import COLUMNS
from gemmetry.domain.operation import DTYPES
from gemmetry.results.emit import FORMATS, Format


def test_dispatches_of_one_experiment_are_compared_with_a_baseline(cli):
    names = ",".join(f"matmul_64x64x64_f32t_f32t_f32t_{one}" for one in ("default", "factor_2"))
    request = ("profile", "--providers", "null", "--dispatches", names, "--experiment", "a")
    assert cli(*request).status == 0
    [change] = cli.json("compare", "a", "--baseline", "null:default")["candidates"][0]["changes"]
    assert change["verdict"] == "slower"
    assert change["ratio"] == pytest.approx(2.0, rel=0.02)
    assert change["family"] == 1


def test_a_kernel_that_became_wrong_is_a_regression(cli):
    kernel = Path("mine.py")
    request = ("profile", "--kernel", "mine.py:mine", "--providers", "user", "--shapes", "16x16x16")
    kernel.write_text("import numpy as np\n\ndef mine(a, b):\n    return np.matmul(a, b)\n")
    assert cli(*request, "--experiment", "a", "--time-budget", "100ms").status == 0
    kernel.write_text("import numpy as np\n\ndef mine(a, b):\n    return np.matmul(a, b) + 1\n")
    assert cli(*request, "--experiment", "b", "--time-budget", "100ms").status == 1
    ended = cli("compare", "a", "b", "--json", status=1)
    assert json.loads(ended.stdout)["has_regression"] is True


def test_what_is_undecided_fails_unless_it_may_pass(cli):
    """Three samples per side decide nothing, however similar they are."""
    request = ("profile", "--providers", "null", "--shapes", "64x64x64", "--default-config")
    few = ("--benchmark-repetitions", "3")
    assert cli(*request, *few, "--experiment", "a").status == 0
    assert cli(*request, *few, "--experiment", "b").status == 0
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
    cli(*request, "--benchmark-repetitions", "6", "--experiment", "c", status=0)
    assert cli("compare", "c", "c").status == 0


def test_the_baseline_of_the_run_is_kept(cli):
    request = ("profile", "--providers", "null,numpy", "--device", "cpu", "--shapes", "16x16x16",
               "--time-budget", "50ms", "--experiment", "a",
               "--baseline", "numpy:default")  # fmt: skip
    ended = cli(*request, status=0)
    assert "×numpy:default" in ended.stdout
    assert "×numpy:default" in cli("report", "a").stdout
    assert "×numpy:default" not in cli("report", "a", "--baseline", "numpy").stdout
    refused = cli(*request[:-1], "torch", status=2)
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


TABLE = "(M, N, K);aten-latency;triton-latency\n(64, 64, 64);0.5;0.7\n(64, 64);1;1\n"
OF_F32 = ("--operation", "f32t_f32t_f32t")


def test_imported_results_stand_next_to_an_experiments(experiments):
    Path("t.csv").write_text(TABLE)
    ended = experiments("import", "t.csv", "--like", "a", "--into", "theirs", *OF_F32, status=0)
    assert ended.stdout == "theirs: 2 records (2 of tritonbench), 2 rows left out\n"
    assert "left out: t.csv:3: aten: '(64, 64)'" in ended.stderr
    assert "imported from t.csv, which states a median" in experiments("show", "theirs").stdout
    assert experiments("merge", "a", "theirs", "--into", "both").status == 0

    shown = experiments("report", "both").stdout
    assert "the best alternatives were imported, and not verified here" in shown
    records = json.loads(experiments("report", "both", "--json").stdout)["records"]
    imported = [one for one in records if one["provider"] == "tritonbench"]
    assert [(one["method"], one["verification"], one["ci_low_ns"]) for one in imported] == [
        ("imported", "not_verified", None)
    ] * 2

    compared = experiments("compare", "both", "--baseline", "null")
    assert re.search(
        r"2 of \d with imported results \(tritonbench\), not verified here", compared.stdout
    )
    changes = json.loads(experiments("compare", "both", "--baseline", "null", "--json").stdout)
    (candidate,) = changes["candidates"]
    notes = [one["note"] for one in candidate["changes"] if "tritonbench" in one["provider"]]
    assert len(notes) == 2
    assert all("tritonbench: not verified here; raw samples are missing" in one for one in notes)
    verdicts = {one["verdict"] for one in candidate["changes"] if "tritonbench" in one["provider"]}
    assert verdicts == {"undecided"}


def test_providers_formats_and_columns_are_listed(cli):
    listed = {}
    for what in ("providers", "dtypes", "columns"):
        listed[what] = {row[what.removesuffix("s")]: row for row in cli.json("list", what)[what]}
    providers = listed["providers"]
    assert {"null", "numpy", "torch", "iree", "triton", "user"} <= set(providers)
    assert "mutant" not in providers
    assert providers["null"]["available"] and providers["null"]["devices"] == ["null:0"]
    assert not providers["user"]["available"] and "--kernel" in providers["user"]["reason"]
    assert [*listed["dtypes"]] == list(DTYPES)
    assert [*listed["columns"]] == [column.name for column in COLUMNS]


ACCUMULATES_IN_BF16 = """
import ml_dtypes
import numpy as np


def product(a, b, out_dtype):
    total = np.zeros((a.shape[0], b.shape[1]), ml_dtypes.bfloat16)
    for k in range(0, a.shape[1], 8):
        part = a[:, k : k + 8].astype(np.float32) @ b[k : k + 8].astype(np.float32)
        total = (total.astype(np.float32) + part).astype(ml_dtypes.bfloat16)
    return total.astype(out_dtype)
"""


def test_a_kernel_that_accumulates_in_bf16_passes_with_the_suggested_option(cli, tmp_path):
    (tmp_path / "narrow.py").write_text(ACCUMULATES_IN_BF16)
    request = ("verify", "run", "--kernel", "narrow.py:product", "--providers", "user",
               "--shapes", "33x47x96", "--dtypes", "bf16", "--device", "cpu", "--json")  # fmt: skip
    ended = cli(*request)
    (record,) = json.loads(ended.stdout)["records"]
    assert (ended.status, record["outcome"]) == (1, "wrong")
    reported = record["reason"].rpartition("accumulates in bf16: ")[2].split()
    assert reported == ["--accumulator", "bf16"]
    again = cli(*request, *reported)
    (record,) = json.loads(again.stdout)["records"]
    assert (again.status, record["verification"]) == (0, "passed")
