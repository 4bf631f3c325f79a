"""Faults that users reported of tools that read traces, each as a small file: what every command
shows of it, and that all of them name what is missing."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

REPORTS = Path(__file__).parents[2] / "data" / "reports"
NAMED = {
    # File -> what every command that reads it states about it.
    "01/even_400.pt.trace.json.gz": r"partial.*400 events cannot be read",
    "01/odd_60_spread.pt.trace.json.gz": r"partial.*60 events cannot be read",
    "03/zeros_far.pt.trace.json": r"and 5 more.*no usable time",
    "05/graph_underrecorded.pt.trace.json.gz": r"cudaGraphLaunch.*60 of 64",
    "05/dropped_start.pt.trace.json.gz": r"cudaLaunchKernelExC.*38 of 50",
    "07/two_documents.pt.trace.json.gz": r"partial.*byte 6473: a second trace begins",
    "07/plain_two_documents.pt.trace.json": r"partial.*byte 6473: a second trace begins",
}
COMMANDS = ("summary", "gemms", "shapes", "collectives")


@pytest.fixture
def found(cli):
    """The document of a command about files of the reports."""

    def read(command, *files, words=()):
        paths = [str(REPORTS / file) for file in files]
        ended = cli("trace", command, *paths, "--json", "--no-cache", *words)
        assert ended.status == 0, ended.stderr
        return json.loads(ended.stdout)

    return read


@pytest.mark.parametrize("file", NAMED)
def test_every_command_and_page_names_what_is_missing(cli, found, file):
    expected = re.compile(NAMED[file], re.DOTALL)
    for command in COMMANDS:
        assert expected.search(cli("trace", command, str(REPORTS / file), "--no-cache").stderr)
    places = {suffix: Path(f"r.{suffix}") for suffix in ("html", "md", "json")}
    words = [word for place in places.values() for word in ("-o", str(place))]
    ended = cli("trace", "report", str(REPORTS / file), *words, "--no-cache")
    assert expected.search(ended.stderr)
    for place in places.values():
        assert expected.search(re.sub(r"<[^>]*>", "", place.read_text("utf-8"))), place
    document = found("summary", file)
    assert len(document["partial"]) == ("partial" in NAMED[file])
    assert {"kind", "count"} <= set(document["problems"][0])
    summary = cli("trace", "summary", str(REPORTS / file), "--no-cache").stdout
    assert "≥" in summary
    assert "≤" in summary


@pytest.mark.parametrize("name", ["far", "near", "most"])
def test_kernels_without_a_time_are_in_no_rate_and_no_window(found, name):
    file = f"03/zeros_{name}.pt.trace.json"
    measured = 4 if name == "most" else 6
    [row] = found("gemms", file)["gemms"]
    assert (row["count"], row["median_us"], row["above_peak"]) == (measured, 250.0, False)
    assert row["tflops"] == pytest.approx(549.8, abs=0.05)
    [entry] = found("summary", file)["files"]
    assert entry["window_us"] == 300 * (measured - 1) + 250
    [problem] = found("summary", file)["problems"]
    assert (problem["kind"], problem["count"]) == ("no_time", 12 - measured)


def test_graphs_whose_kernels_were_not_recorded(cli, found):
    file = "05/graph_underrecorded.pt.trace.json.gz"
    document = found("summary", file, words=("--steps",))
    assert document["files"][0]["launches_without_work"] == 60
    assert document["outside_steps"][0]["steps_without_work"] == 60
    assert [step["launches_without_work"] for step in document["steps"]] == [0] * 4
    whole = found("summary", "05/graph_complete.pt.trace.json.gz")
    assert whole["problems"] == []
    assert whole["files"][0]["launches_without_work"] == 0
    shown = cli("trace", "summary", str(REPORTS / "05/graph_complete.pt.trace.json.gz"))
    assert "≥" not in shown.stdout


@pytest.mark.parametrize("name", ["two_devices", "same_device"])
def test_ranks_in_one_file_are_distinguished(cli, found, name):
    file = f"06/merged_{name}.trace.json.gz"
    rows = found("gemms", file)["gemms"]
    assert [(row["m"], row["count"], round(row["tflops"], 1)) for row in rows] == [
        (8192, 10, 687.2), (512, 10, 171.8),
    ]  # fmt: skip
    entries = found("summary", file)["files"]
    assert [entry["file"][-6:] for entry in entries] == [": TP00", ": TP01"]
    assert [entry["gemm_kernel_us"] for entry in entries] == [1000.0, 4000.0]
    job = found("collectives", file)
    assert [rank["rank"] for rank in job["per_rank"]] == [0, 1]
    assert len(job["matched"]) == 10
    assert job["job"].endswith(file)
    ended = cli("trace", "report", str(REPORTS / file), "-o", "r.html", "-o", "r.md", "--no-cache")
    assert ended.status == 0
    assert "8,192" in Path("r.md").read_text("utf-8")


def test_a_file_that_two_processes_wrote_at_once_is_damaged(cli):
    path = str(REPORTS / "07/interleaved.pt.trace.json.gz")
    ended = cli("trace", "gemms", path, "--no-cache")
    assert ended.status == 2
    assert re.search(r"interleaved\S+ is not a trace: byte \d+: the compressed data", ended.stderr)


def test_members_and_other_bytes_after_the_trace(found):
    assert found("gemms", "07/two_members.pt.trace.json.gz")["problems"] == []
    rest = found("gemms", "07/trailing_garbage.pt.trace.json.gz")
    assert rest["partial"] == []
    assert [problem["where"] for problem in rest["problems"]] == ["byte 6473"]


def test_a_file_of_nccls_example_profiler(cli):
    for path in (REPORTS / "10", REPORTS / "10/nccl_profiler.json"):
        ended = cli("trace", "collectives", str(path))
        assert ended.status == 2
        assert "nccl_profiler.json" in ended.stderr
        assert "NCCL's example profiler plugin" in ended.stderr


def test_a_bandwidth_above_the_links_is_marked(cli, found):
    job = found("collectives", "20")
    assert {one["above_link"] for one in job["matched"]} == {True}
    assert any("450 GB/s" in note for note in job["notes"])
    assert "480.6!" in cli("trace", "collectives", str(REPORTS / "20")).stdout
    ended = cli("trace", "report", str(REPORTS / "20"), "-o", "r.md", "-o", "r.html", "--no-cache")
    assert "450 GB/s" in ended.stderr
    for name in ("r.md", "r.html"):
        assert "!" in Path(name).read_text("utf-8").split("Collectives")[-1]


@pytest.mark.parametrize(
    ("name", "sizes", "tflops"),
    [
        ("scaled_mm_fp4", (2048, 7168, 8192), 4008.6),
        ("scaled_mm_v2", (4096, 4096, 8192), 4581.3),
        ("vllm_fp4", (2048, 7168, 8192), 4008.6),
    ],
)
def test_packed_fp4_is_unpacked(cli, found, name, sizes, tflops):
    file = f"27/{name}.pt.trace.json"
    [row] = found("gemms", file)["gemms"]
    assert (row["m"], row["n"], row["k"], row["dtype"]) == (*sizes, "e2m1")
    assert row["tflops"] == pytest.approx(tflops, abs=0.05)
    [shape] = found("shapes", file)["shapes"]
    assert (shape["k"], shape["scaling"], shape["operation"]) == (8192, "block", None)
    ended = cli("trace", "shapes", str(REPORTS / file), "-o", "s.yaml", "--no-cache")
    assert ended.status == 2
    assert "record_shapes" not in ended.stderr


@pytest.mark.parametrize(("name", "first"), [("sglang", "extend"), ("vllm", "prefill")])
def test_marks_of_inference_engines_are_steps(found, name, first):
    steps = found("summary", f"33/{name}_steps.pt.trace.json", words=("--steps",))["steps"]
    assert [step["step"] for step in steps] == list(range(8))
    assert [step["phase"] for step in steps] == [
        first, *["decode"] * 3, first, *["decode"] * 3
    ]  # fmt: skip
    assert {(step["phase"], step["window_us"]) for step in steps} == {
        (first, 550.0), ("decode", 110.0),
    }  # fmt: skip
    assert all(step["kernels"] == 2 for step in steps)


def test_a_trace_without_steps_states_so(cli):
    path = str(REPORTS / "06/merged_two_devices.trace.json.gz")
    ended = cli("trace", "summary", "--steps", path, "--no-cache")
    assert "no steps" in ended.stderr


def test_a_rate_above_the_peak_is_marked_everywhere(cli, found):
    """The times of a trace, ten times too short."""
    text = (REPORTS / "03/zeros_far.pt.trace.json").read_text("utf-8")
    Path("fast.json.gz").write_bytes(
        gzip.compress(text.replace('"dur": 250.0', '"dur": 25.0').encode())
    )
    [row] = json.loads(cli("trace", "gemms", "fast.json.gz", "--json").stdout)["gemms"]
    assert row["above_peak"]
    ended = cli("trace", "gemms", "fast.json.gz")
    assert re.search(r"555\.\d%!", ended.stdout)
    assert "faster than the peak" in ended.stderr
    ended = cli("trace", "report", "fast.json.gz", "-o", "r.md", "-o", "r.html")
    assert "faster than the peak" in ended.stderr
    assert re.search(r"555\.\d%!", Path("r.md").read_text("utf-8"))
    assert re.search(r"555\.\d%!", Path("r.html").read_text("utf-8"))
