from __future__ import annotations

import csv
import json
from pathlib import Path

DATA = Path(__file__).parents[2] / "data" / "counters"
RAW = str(DATA / "h200_cublas_bf16_4096_raw.csv.gz")
DETAILS = str(DATA / "h200_cublas_bf16_4096_details.csv.gz")


def test_json_has_both_rooflines_and_further_metrics(cli):
    name = "lts__t_sectors.sum"
    ended = cli("counters", "compare", RAW, RAW, "--metrics", f"sm_active_percent,{name}", "--json")
    document = json.loads(ended.stdout)
    assert document["schema_version"] == 1
    (kernel,) = document["kernels"]
    assert kernel["matched_by"] == "the same name and grid"
    assert [one["path"] for one in kernel["rooflines"]] == ["bf16", "bf16"]
    assert {"sm_active_percent", name} <= {one["metric"] for one in kernel["metrics"]}
    assert all(one["difference"] == 0 for one in kernel["metrics"])


def test_a_table(cli, tmp_path):
    place = tmp_path / "changes.csv"
    assert cli("counters", "compare", RAW, RAW, "-o", str(place)).status == 0
    rows = list(csv.DictReader(place.read_text().splitlines()))
    assert {row["first_verdict"] for row in rows} == {"tensor_roof"}
    assert next(row for row in rows if row["metric"] == "duration")["first"].startswith("180992")


def test_what_cannot_be_compared(cli):
    ended = cli("counters", "compare", RAW)
    assert ended.status == 2
    assert "Give a second report." in ended.stderr
    ended = cli("counters", "compare", RAW, RAW, "--label", "A")
    assert ended.status == 2
    assert "1 labels (A) for 2 reports" in ended.stderr
    ended = cli("counters", "compare", RAW, RAW, "--metrics", "no_such_concept")
    assert ended.status == 2
    assert "no_such_concept" in ended.stderr
