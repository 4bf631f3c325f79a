"""Faults that users reported of tools that read traces, each as a small file: what every command
shows of it, and that all of them name what is missing."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

DATA = Path(__file__).parents[2] / "data"
MATMUL = str(DATA / "traces" / "h200_matmul.pt.trace.json.gz")
RANK0 = str(DATA / "traces" / "h200_fsdp_rank0of4_part.pt.trace.json.gz")
OLD = str(DATA / "traces" / "v100_resnet50_2021_part.json.gz")
AMD = str(DATA / "traces" / "mi350x_908_part_results.json.gz")
CSV = str(DATA / "traces" / "sdk2025_kernel_trace.csv")


@pytest.mark.parametrize("trace", [MATMUL, RANK0, OLD, AMD, CSV], ids=lambda path: Path(path).name)
def test_every_kind_of_trace_gives_every_kind_of_report(cli, tmp_path, trace):
    outputs = [tmp_path / f"r{suffix}" for suffix in (".xlsx", ".html", ".json", ".md", "")]
    options = [word for path in outputs for word in ("-o", str(path))]
    ended = cli("trace", "report", trace, "--no-cache", *options, status=0)
    assert ended.stdout == ""
    assert all(path.exists() for path in outputs)
    sheets = json.loads((tmp_path / "r.json").read_text())["sheets"]
    summary = sheets["summary"][0]
    total = sum(row["sum_us"] for row in sheets.get("gemms", []))
    assert total == pytest.approx(summary["gemm_kernel_us"], abs=1e-6)
    window = {row["type"]: row["time ms"] for row in sheets["gpu_timeline"]}
    assert window["total_time"] * 1000 == pytest.approx(summary["window_us"])


def test_the_times_of_the_stages_are_shown_on_request(cli):
    ended = cli("trace", "report", MATMUL, "-o", "m.md", "--no-cache", "--timings", status=0)
    for stage in ("read", "join", "tables", "write"):
        assert stage in ended.stderr


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


REPORTS = Path(__file__).parents[2] / "data" / "reports"
NAMED = {
    # File -> what every command that reads it states about it.
    "01/even_400.pt.trace.json.gz": r"partial.*400 events cannot be read",
    "03/zeros_far.pt.trace.json": r"and 5 more.*no usable time",
    "05/graph_underrecorded.pt.trace.json.gz": r"cudaGraphLaunch.*60 of 64",
    "05/dropped_start.pt.trace.json.gz": r"cudaLaunchKernelExC.*38 of 50",
    "07/two_documents.pt.trace.json.gz": r"partial.*byte 6473: a second trace begins",
    "07/plain_two_documents.pt.trace.json": r"partial.*byte 6473: a second trace begins",
}
COMMANDS = ("gemms", "shapes", "collectives")


@pytest.fixture
def found(cli):
    """The document of a command about a file of the reports."""

    def read(command, file, *words):
        return cli.json("trace", command, str(REPORTS / file), "--no-cache", *words)

    return read


@pytest.mark.parametrize(("number", "file"), [*enumerate(NAMED)])
def test_every_command_and_page_names_what_is_missing(cli, found, number, file):
    """A summary, a report, and one of the other commands, in turn."""
    expected = re.compile(NAMED[file], re.DOTALL)
    summary = cli("trace", "summary", str(REPORTS / file), "--no-cache")
    places = {suffix: Path(f"r.{suffix}") for suffix in ("html", "md", "json")}
    words = [word for place in places.values() for word in ("-o", str(place))]
    report = cli("trace", "report", str(REPORTS / file), *words, "--no-cache")
    other = cli("trace", COMMANDS[number % 3], str(REPORTS / file), "--no-cache")
    assert all(expected.search(ended.stderr) for ended in (summary, report, other))
    for place in places.values():
        assert expected.search(re.sub(r"<[^>]*>", "", place.read_text("utf-8"))), place
    assert "≥" in summary.stdout and "≤" in summary.stdout
    document = found("summary", file)
    assert len(document["partial"]) == ("partial" in NAMED[file])
    assert {"kind", "count"} <= set(document["problems"][0])


FP4 = "m n k dtype tflops"
FACTS = [
    # Command and file, which rows of the document, their columns and values.
    *(case
      for name in ("far", "near")
      for case in (
          (f"gemms 03/zeros_{name}", "gemms", "count median_us above_peak tflops",
           [(6, 250.0, False, 549.8)]),
          (f"summary 03/zeros_{name}", "files", "window_us", [(300 * 5 + 250,)]),
          (f"summary 03/zeros_{name}", "problems", "kind count", [("no_time", 6)]),
      )),
    *(case
      for name in ("two_devices", "same_device")
      for case in (
          (f"gemms 06/merged_{name}", "gemms", "m count tflops",
           [(8192, 10, 687.2), (512, 10, 171.8)]),
          (f"summary 06/merged_{name}", "files", "gemm_kernel_us", [(1000.0,), (4000.0,)]),
          (f"collectives 06/merged_{name}", "per_rank", "rank", [(0,), (1,)]),
      )),
    ("gemms 27/scaled_mm_fp4", "gemms", FP4, [(2048, 7168, 8192, "e2m1", 4008.6)]),
    ("gemms 27/scaled_mm_v2", "gemms", FP4, [(4096, 4096, 8192, "e2m1", 4581.3)]),
    ("gemms 27/vllm_fp4", "gemms", FP4, [(2048, 7168, 8192, "e2m1", 4008.6)]),
    ("shapes 27/vllm_fp4", "shapes", "k scaling operation", [(8192, "block", None)]),
    *((f"summary 33/{name}_steps", "steps", "step phase window_us kernels",
       [(n, "decode", 110.0, 2) if n % 4 else (n, first, 550.0, 2) for n in range(8)])
      for name, first in (("sglang", "extend"), ("vllm", "prefill"))),
]  # fmt: skip


@pytest.mark.parametrize(("words", "rows", "columns", "expected"), FACTS)
def test_figures_derived_by_hand(found, words, rows, columns, expected):
    command, name = words.split()
    (path,) = REPORTS.glob(f"{name}.*")
    more = ["--steps"] if command == "summary" else []
    shown = found(command, path.relative_to(REPORTS), *more)[rows]
    assert [tuple(row[one] for one in columns.split()) for row in shown] == [
        tuple(pytest.approx(v, abs=0.05) if isinstance(v, float) else v for v in row)
        for row in expected
    ]


def test_a_rate_above_the_peak_is_marked_everywhere(cli):
    """The times of a trace, ten times too short."""
    text = (REPORTS / "03/zeros_far.pt.trace.json").read_text("utf-8")
    Path("fast.json.gz").write_bytes(
        gzip.compress(text.replace('"dur": 250.0', '"dur": 25.0').encode())
    )
    ended = cli("trace", "gemms", "fast.json.gz", "-o", "g.json")
    [row] = json.loads(Path("g.json").read_text())["gemms"]
    assert row["above_peak"]
    assert re.search(r"555\.\d%!", ended.stdout)
    assert "faster than the peak" in ended.stderr
    ended = cli("trace", "report", "fast.json.gz", "-o", "r.md", "-o", "r.html")
    assert "faster than the peak" in ended.stderr
    assert all(re.search(r"555\.\d%!", Path(f"r.{s}").read_text("utf-8")) for s in ("md", "html"))
