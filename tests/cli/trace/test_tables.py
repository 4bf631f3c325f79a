from __future__ import annotations

import csv
import gzip
import json
import re
from pathlib import Path

import pytest

from gemmetry.traces.report import gemms_table, step_table, summary_table

DATA = Path(__file__).parents[2] / "data" / "traces"
GRID = str(DATA.parent / "cpu_grid")
MATMUL = str(DATA / "h200_matmul.pt.trace.json.gz")
RANK0 = str(DATA / "h200_fsdp_rank0of4_part.pt.trace.json.gz")
RANK1 = str(DATA / "h200_fsdp_rank1of4_part.pt.trace.json.gz")
OLD = str(DATA / "v100_resnet50_2021_part.json.gz")
MISC = str(DATA / "mi350_aorta_misc.json.gz")


def test_summary_of_one_file(cli):
    ended = cli("trace", "summary", MATMUL, "--no-cache")
    assert ended.status == 0
    assert "NVIDIA H200" in ended.stdout
    assert re.search(r"2 kernels in 0\.144 ms, 79 events", ended.stdout)
    assert re.search(r"compute +0\.048 +33\.0%", ended.stdout)
    assert max(map(len, ended.stdout.splitlines())) <= 80


def test_the_documents_files_are_in_the_order_given_with_exactly_these_keys(cli):
    ended = cli("trace", "summary", RANK1, MATMUL, RANK0, "--json", "--no-cache")
    document = json.loads(ended.stdout)
    assert [entry["file"] for entry in document["files"]] == [RANK1, MATMUL, RANK0]
    assert all({*entry} == {*summary_table(()).names, "top_gemms"} for entry in document["files"])
    matmul = document["files"][1]
    assert matmul["window_us"] == 144.032
    assert matmul["top_gemms"] == [
        {
            "name": "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
            "count": 2,
            "sum_us": 47.553,
            "min_us": 23.776,
            "max_us": 23.777,
        }
    ]


def test_several_files_are_a_line_each(cli, monkeypatch):
    wide = cli("trace", "summary", RANK0, RANK1, OLD, "--no-cache").stdout
    assert f"{Path(RANK0).name} " in wide
    monkeypatch.setenv("COLUMNS", "80")
    ended = cli("trace", "summary", RANK0, RANK1, OLD, "--no-cache")
    lines = ended.stdout.splitlines()
    assert len(lines) == 5
    assert max(map(len, lines)) <= 80


def test_gemms_of_several_devices_name_their_device(cli):
    both = cli("trace", "gemms", RANK0, OLD, "--no-cache", "--top", "0").stdout
    assert "  on NVIDIA H200" in both
    assert "  on Tesla V100" in both
    alone = cli("trace", "gemms", RANK0, "--no-cache").stdout
    assert "  on " not in alone
    few = cli("trace", "gemms", MATMUL, "--no-cache").stdout
    assert "in 2 GEMM kernels; " in few


@pytest.fixture
def broken(tmp_path):
    """Files that cannot be read, and one that ends early."""
    (tmp_path / "empty.json").write_text("")
    (tmp_path / "text.json").write_text("no trace")
    whole = gzip.decompress(Path(MATMUL).read_bytes())
    events = whole.index(b'"cat": "kernel"')
    (tmp_path / "cut.json").write_bytes(whole[: whole.index(b"}", events + 2000)])
    return tmp_path


def test_a_bad_file_does_not_stop_the_others(cli, broken):
    ended = cli("trace", "summary", "text.json", MATMUL, "missing.json", "--json", "--no-cache")
    assert ended.status == 1
    document = json.loads(ended.stdout)
    assert [entry["file"] for entry in document["files"]] == [MATMUL]
    assert [entry["file"] for entry in document["errors"]] == ["text.json", "missing.json"]
    assert "error: text.json" in ended.stderr
    assert "error: missing.json" in ended.stderr


def test_nothing_readable_is_a_wrong_request(cli, broken):
    for command in ("summary", "gemms", "shapes"):
        ended = cli("trace", command, "text.json", "empty.json", "--no-cache")
        assert ended.status == 2
        assert "none of 2 traces can be read" in ended.stderr
        assert "text.json" in ended.stderr
        assert ended.stdout == ""


def test_partial_files_are_marked(cli, broken):
    ended = cli("trace", "summary", "cut.json", "--no-cache")
    assert ended.status == 0
    assert "partial" in ended.stdout
    assert re.search(r"warning: cut\.json: byte \d+", ended.stderr)
    document = json.loads(cli("trace", "summary", "cut.json", "--json", "--no-cache").stdout)
    assert document["partial"] == ["cut.json"]
    assert document["problems"][0]["file"] == "cut.json"


def test_steps(cli):
    ended = cli("trace", "summary", MATMUL, "--steps", "--json", "--no-cache")
    steps = json.loads(ended.stdout)["steps"]
    assert [(step["step"], step["gemm_kernels"]) for step in steps] == [(2, 1), (3, 1)]
    ended = cli("trace", "summary", MATMUL, "--steps", "--no-cache", "-o", "steps.csv")
    assert ended.status == 0
    assert re.search(r"^2 +0\.212 +0\.024 +1 +100\.0", ended.stdout, re.MULTILINE)
    with Path("steps.csv").open() as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["2", "3"]


def test_steps_and_what_is_in_none_are_the_whole_trace(cli):
    ended = cli("trace", "summary", RANK0, MATMUL, OLD, "--steps", "--json", "--no-cache")
    document = json.loads(ended.stdout)
    for whole, outside in zip(document["files"], document["outside_steps"], strict=True):
        steps = [step for step in document["steps"] if step["file"] == whole["file"]]
        assert outside["file"] == whole["file"]
        for count in ("kernels", "gemm_kernels", "comm_kernels"):
            assert sum(step[count] for step in steps) + outside[count] == whole[count]
    assert [outside["kernels"] for outside in document["outside_steps"]] == [9, 0, 0]
    reported = cli("trace", "summary", RANK0, "--steps", "--no-cache").stdout
    assert "9 kernels in no step" in reported


def test_gemms_on_the_terminal(cli):
    ended = cli("trace", "gemms", MATMUL, "--no-cache")
    assert ended.status == 0
    assert "2048x2048x2048 bf16 tt  aten::mm" in ended.stdout
    assert "shapes are known for 100.0% of it" in ended.stdout
    assert max(map(len, ended.stdout.splitlines())) <= 80


def test_gemms_as_json_account_for_all_gemm_time(cli):
    files = (RANK0, RANK1, OLD)
    gemms = json.loads(cli("trace", "gemms", *files, "--json", "--no-cache", "--top", "1").stdout)
    whole = json.loads(cli("trace", "summary", *files, "--json", "--no-cache").stdout)
    assert len(gemms["gemms"]) > 1
    assert sum(row["sum_us"] for row in gemms["gemms"]) == pytest.approx(
        sum(entry["gemm_kernel_us"] for entry in whole["files"])
    )
    assert {"median_us", "p5_us", "p95_us", "mad_us", "tflops", "peak_fraction", "linked",
            "inferred", "overlapped_share", "tile"} <= set(gemms["gemms"][0])  # fmt: skip


def test_top_limits_the_terminal_and_reports_what_is_left(cli):
    ended = cli("trace", "gemms", RANK0, "--top", "1", "--no-cache")
    assert re.search(r"more in \d+ rows \(--top 0 shows all\)", ended.stdout)
    assert "more in" not in cli("trace", "gemms", OLD, "--top", "0", "--no-cache").stdout


@pytest.mark.parametrize("command", ["summary", "gemms", "shapes"])
@pytest.mark.parametrize("suffix", ["csv", "json", "parquet", "xlsx", "md", "html"])
def test_tables_as_files(cli, command, suffix):
    ended = cli("trace", command, MATMUL, "--no-cache", "-o", f"out.{suffix}")
    assert ended.status == 0
    assert Path(f"out.{suffix}").stat().st_size > 0
    assert f"wrote out.{suffix}" in ended.stderr


def test_from_a_trace_to_a_plan(cli):
    ended = cli("trace", "shapes", MATMUL, "--no-cache", "-o", "shapes.yaml")
    assert "gemmetry profile --spec shapes.yaml" in ended.stderr
    planned = cli("profile", "--spec", "shapes.yaml", "--providers", "numpy", "--dry-run")
    assert planned.status == 0
    assert "numpy:matmul_2048x2048x2048_bf16t_bf16t_bf16t_default" in planned.stdout
    printed = cli("trace", "shapes", MATMUL, "--no-cache", "--spec")
    assert printed.stdout == Path("shapes.yaml").read_text()


def test_shapes_on_the_terminal_and_as_json(cli):
    ended = cli("trace", "shapes", MATMUL, "--no-cache")
    assert "2048x2048x2048 bf16 tt" in ended.stdout
    (row,) = json.loads(cli("trace", "shapes", MATMUL, "--no-cache", "--json").stdout)["shapes"]
    assert row["operation"] == "matmul_2048x2048x2048_bf16t_bf16t_bf16t"
    assert (row["count"], row["share"]) == (2, 1.0)
    ended = cli("trace", "shapes", OLD, MISC, MATMUL, "--no-cache", "--top", "1")
    assert re.search(r"1  the others\n", ended.stdout)
    assert "of unknown shape" in ended.stdout


@pytest.mark.parametrize("name", ["s.yaml", "s.csv", "s.parquet", "s.xlsx", "s.md", "s.html"])
def test_files_of_shapes_end_alike_without_any(cli, tmp_path, name):
    event = {"ph": "X", "cat": "kernel", "name": "my_gemm_kernel", "pid": 0, "tid": 7, "ts": 1}
    bad = {**event, "dur": "x"}
    events = [{**event, "dur": 5, "args": {"device": 0, "stream": 7}}, bad]
    (tmp_path / "a.json").write_text(json.dumps({"traceEvents": events}))
    ended = cli("trace", "shapes", "a.json", "-o", name)
    assert ended.status == 2
    assert "no GEMM of a.json has a known shape" in ended.stderr
    # What could be found, and what could not be used, is still there.
    assert "of unknown shape" in ended.stdout
    assert "warning: a.json" in ended.stderr
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("command", ["summary --steps", "gemms"])
def test_an_empty_table_has_its_header(cli, tmp_path, command):
    (tmp_path / "a.json").write_text('{"traceEvents": []}')
    words = command.split()
    ended = cli("trace", *words[:1], "a.json", *words[1:], "-o", "x.csv", "-o", "x.md")
    assert ended.status == 0
    names = (gemms_table if command == "gemms" else step_table)(()).names
    assert (tmp_path / "x.csv").read_text() == ",".join(names) + "\n"
    head, line = (tmp_path / "x.md").read_text().splitlines()
    assert head.count("|") == line.count("|") == len(names) + 1


def test_timings_show_every_stage(cli):
    ended = cli("trace", "gemms", MATMUL, "--no-cache", "--timings")
    assert re.search(r"read +\d\.\d{3} s", ended.stderr)
    assert re.search(r"gemms +\d\.\d{3} s", ended.stderr)


def test_a_trace_of_a_cpu_is_reported_to_have_no_work_on_a_gpu(cli):
    for command, reported in (("summary", "no work on a GPU"), ("gemms", "no GEMM kernels")):
        ended = cli("trace", command, GRID)
        assert ended.status == 0
        assert reported in ended.stdout
        assert "note: none of 3 traces has work on a GPU" in ended.stderr
        assert "gemmetry trace report" in ended.stderr
    document = json.loads(cli("trace", "gemms", GRID, "--json").stdout)
    assert document["gemms"] == []


def test_from_a_trace_of_a_cpu_to_a_plan(cli):
    ended = cli("trace", "shapes", GRID, "-o", "shapes.yaml")
    assert ended.status == 0
    assert "products that the operators recorded, with times on the host" in ended.stderr
    assert "256x256x256 f32 tn" in ended.stdout
    planned = cli("profile", "--spec", "shapes.yaml", "--providers", "numpy", "--dry-run")
    assert planned.status == 0
    assert "numpy:matmul_256x256x256_f32t_f32n_f32t_default" in planned.stdout


def test_kernels_are_the_workload_where_there_are_some(cli):
    ended = cli("trace", "shapes", MATMUL, GRID, "--no-cache", "--json")
    (row,) = json.loads(ended.stdout)["shapes"]
    assert row["m"] == 2048
    assert "note: 3 of 4 traces have no work on a GPU" in ended.stderr


def test_kernels_of_convolutions_are_reported_and_left_out(cli):
    ended = cli("trace", "gemms", OLD, "--no-cache", "--json")
    assert ended.status == 0
    rows = json.loads(ended.stdout)["gemms"]
    assert {row["operators"] for row in rows} == {"aten::addmm"}
    assert re.search(
        r"note: 4 kernels with the name of a GEMM, 0\.827 ms, ran in conv", ended.stderr
    )
    assert "ran in conv" not in cli("trace", "gemms", MATMUL, "--no-cache").stderr
