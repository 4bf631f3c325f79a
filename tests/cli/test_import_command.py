"""Results of other benchmarks, imported and compared with an experiment."""

from __future__ import annotations

import json
import re
from pathlib import Path

TABLE = "(M, N, K);aten-latency;triton-latency\n(64, 64, 64);0.5;0.7\n(64, 64);1;1\n"
FORMATS = ("--operation", "f32t_f32t_f32t")


def test_imported_results_stand_next_to_an_experiments(experiments):
    Path("t.csv").write_text(TABLE)
    ended = experiments("import", "t.csv", "--like", "a", "--into", "theirs", *FORMATS)
    assert ended.status == 0, ended.stderr
    assert ended.stdout == "theirs: 2 records (2 of tritonbench), 2 rows left out\n"
    assert "left out: t.csv:3: aten: '(64, 64)' is not a shape (M, N, K)" in ended.stderr
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


def test_everything_about_an_imported_result_states_where_it_comes_from(cli):
    Path("t.csv").write_text(TABLE)
    assert cli("import", "t.csv", "--into", "theirs", *FORMATS).status == 0
    shown = cli("show", "theirs", "aten").stdout
    assert "imported from t.csv, not verified here" in shown
    assert "imported from t.csv, which states a median" in shown
