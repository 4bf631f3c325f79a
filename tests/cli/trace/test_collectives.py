from __future__ import annotations

import csv
import gzip
import json
import re
import shutil
from pathlib import Path

import polars
import pytest

from gemmetry.results.emit import FORMATS
from gemmetry.traces import report as tables

SAMPLES = Path(__file__).parents[2] / "data" / "collectives"
H200 = sorted((SAMPLES / "h200x4").glob("*.json.gz"))


def document(ended):
    assert ended.status == 0, ended.stderr
    return json.loads(ended.stdout)


def test_one_job_as_json(cli):
    found = document(cli("trace", "collectives", *map(str, H200), "--json"))
    assert list(found)[:5] == ["schema_version", "per_rank", "matched", "stragglers", "unmatched"]
    assert [one["rank"] for one in found["per_rank"]] == [0, 1, 2, 3]
    assert [len(one["collectives"]) for one in found["per_rank"]] == [82, 83, 83, 84]
    assert len(found["matched"]) == 82
    assert found["unmatched"] == {"0": 0, "1": 1, "2": 1, "3": 2}
    assert sum(one["last_count"] for one in found["stragglers"]) == 82


def test_a_folder_and_several_jobs(cli):
    found = document(cli("trace", "collectives", str(SAMPLES), "--json"))
    assert [len(job["per_rank"]) for job in found["jobs"]] == [1, 1, 4, 2, 1]
    assert "per_rank" not in found


@pytest.mark.parametrize(
    ("rows", "count"), [("matched", 82), ("kernels", 332), ("kinds", 4), ("ranks", 4)]
)
def test_what_a_row_is(cli, tmp_path, rows, count):
    ended = cli("trace", "collectives", *map(str, H200), "--rows", rows, "-o", "x.csv")
    assert ended.status == 0
    assert len((tmp_path / "x.csv").read_text().splitlines()) == count + 1


def test_one_rank_is_listed_with_what_is_known(cli, tmp_path):
    ended = cli("trace", "collectives", str(H200[0]), "-o", "m.csv")
    assert ended.status == 0
    with (tmp_path / "m.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 82
    assert {row["op"] for row in rows} == {"all_gather", "reduce_scatter"}
    reported = [row for row in rows if row["bytes"]]
    assert len(reported) == 54
    for row in rows:
        assert (row["rank"], row["complete"], row["latency_us"], row["busbw_gbps"]) == (
            "0", "no", "", "")  # fmt: skip
        assert float(row["duration_us"]) > 0
    assert cli("trace", "collectives", str(H200[0]), "--rows", "kinds", "-o", "k.csv").status == 0
    with (tmp_path / "k.csv").open() as file:
        kinds = list(csv.DictReader(file))
    assert [int(row["count"]) for row in kinds] == [36, 18, 12, 16]
    # The same figures as on the terminal.
    assert re.search(r"all_gather +BFloat16 +384 MiB +x36 +60\.702 +1106\.3 +1398\.7", ended.stdout)
    assert float(kinds[0]["duration_us_sum"]) == pytest.approx(60702, abs=0.5)
    assert float(kinds[0]["duration_us_min"]) == pytest.approx(1106.3, abs=0.05)
    assert float(kinds[0]["duration_us_median"]) == pytest.approx(1398.7, abs=0.05)


@pytest.mark.parametrize("rows", ["matched", "kernels", "kinds", "ranks"])
def test_without_collectives_there_is_a_header(cli, tmp_path, rows):
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": []}))
    outputs = [word for suffix in FORMATS for word in ("-o", f"x{suffix}")]
    assert cli("trace", "collectives", "trace.json", "--rows", rows, *outputs).status == 0
    header = (tmp_path / "x.csv").read_text().splitlines()[0].split(",")
    assert header == list(getattr(tables, f"{rows}_table")(()).names)
    assert polars.read_parquet(tmp_path / "x.parquet").columns == header
    assert (tmp_path / "x.md").read_text().startswith("| job | ")
    assert ">job</th>" in (tmp_path / "x.html").read_text()


def test_a_missing_rank_is_named_and_not_fatal(cli):
    found = document(cli("trace", "collectives", *map(str, H200[:3]), "--json"))
    assert found["missing_ranks"] == [3]
    assert any("rank 3 of 4 has no file" in note for note in found["notes"])
    assert len(found["matched"]) > 80


def test_mismatched_metadata_are_named(cli, tmp_path):
    for file in H200[:2]:
        found = json.loads(gzip.decompress(file.read_bytes()))
        if file is H200[1]:
            reported = [
                e for e in found["traceEvents"] if e["cat"] == "kernel" and e["args"].get("dtype")
            ]
            reported[20]["args"]["dtype"] = "Half"
        (tmp_path / file.name.removesuffix(".gz")).write_text(json.dumps(found))
    ended = cli("trace", "collectives", str(tmp_path), "--json")
    mismatches = document(ended)["mismatches"]
    assert [one["group"] for one in mismatches] == ["0"]
    assert "Half" in mismatches[0]["what"]


def test_a_trace_without_collectives(cli, tmp_path):
    (tmp_path / "x.json").write_text(json.dumps({"traceEvents": []}))
    found = document(cli("trace", "collectives", "x.json", "--json"))
    assert (found["matched"], found["per_rank"][0]["collectives"]) == ([], [])
    assert "no communication kernel" in cli("trace", "collectives", "x.json").stdout


def test_a_file_that_ends_early_is_reported(cli, tmp_path):
    text = gzip.decompress(H200[1].read_bytes())
    (tmp_path / "rank1.json").write_bytes(text[: len(text) - 3000])
    shutil.copy(H200[0], tmp_path / "rank0.json.gz")
    found = document(cli("trace", "collectives", str(tmp_path), "--json"))
    assert [one["partial"] for one in found["per_rank"]] == [False, True]
