from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

DATA = Path(__file__).parents[2] / "data"
MATMUL = str(DATA / "traces" / "h200_matmul.pt.trace.json.gz")
RANK0 = str(DATA / "traces" / "h200_fsdp_rank0of4_part.pt.trace.json.gz")
JOB = str(DATA / "collectives" / "h200x4")
OLD = str(DATA / "traces" / "v100_resnet50_2021_part.json.gz")
AMD = str(DATA / "traces" / "mi350x_908_part_results.json.gz")
CSV = str(DATA / "traces" / "sdk2025_kernel_trace.csv")


@pytest.mark.parametrize("trace", [MATMUL, RANK0, OLD, AMD, CSV], ids=lambda path: Path(path).name)
def test_every_kind_of_trace_gives_every_kind_of_report(cli, tmp_path, trace):
    outputs = [tmp_path / f"r{suffix}" for suffix in (".xlsx", ".html", ".json", ".md", "")]
    options = [word for path in outputs for word in ("-o", str(path))]
    ended = cli("trace", "report", trace, "--no-cache", *options)
    assert ended.status == 0, ended.stderr
    assert ended.stdout == ""
    for path in outputs:
        assert f"wrote {path}" in ended.stderr
        assert path.exists()
    sheets = json.loads((tmp_path / "r.json").read_text())["sheets"]
    summary = sheets["summary"][0]
    total = sum(row["sum_us"] for row in sheets.get("gemms", []))
    assert total == pytest.approx(summary["gemm_kernel_us"], abs=1e-6)
    window = {row["type"]: row["time ms"] for row in sheets["gpu_timeline"]}
    assert window["total_time"] * 1000 == pytest.approx(summary["window_us"])


def test_a_job_of_four_ranks(cli, tmp_path):
    ended = cli("trace", "report", JOB, "-o", str(tmp_path / "job"), "--no-cache", "--timings")
    assert ended.status == 0
    for stage in ("read", "join", "tables", "write"):
        assert stage in ended.stderr
    with (tmp_path / "job" / "straggler_summary.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["rank"] for row in rows) == ["0", "1", "2", "3"]
    assert sum(float(row["pct_arrived_last"]) for row in rows) == pytest.approx(100)


def test_short_kernels_are_those_below_the_threshold(cli, tmp_path):
    counts = []
    for limit in ("1", "1000000"):
        path = tmp_path / f"{limit}.json"
        cli("trace", "report", RANK0, "-o", str(path), "--short-kernel-us", limit, "--no-cache")
        rows = json.loads(path.read_text())["sheets"].get("short_kernels_summary", [])
        counts.append(sum(row["Short Kernel count"] for row in rows))
    assert counts[0] < counts[1]
    kernels = json.loads(path.read_text())["sheets"]["summary"][0]["kernels"]
    assert counts[1] == kernels


def test_steps_and_what_is_in_none_are_the_whole_trace(cli):
    ended = cli("trace", "summary", RANK0, MATMUL, OLD, "--steps", "--json", "--no-cache")
    document = json.loads(ended.stdout)
    for whole, outside in zip(document["files"], document["outside_steps"], strict=True):
        steps = [step for step in document["steps"] if step["file"] == whole["file"]]
        assert outside["file"] == whole["file"]
        for count in ("kernels", "gemm_kernels", "comm_kernels"):
            assert sum(step[count] for step in steps) + outside[count] == whole[count]
    assert [outside["kernels"] for outside in document["outside_steps"]] == [9, 0, 0]
