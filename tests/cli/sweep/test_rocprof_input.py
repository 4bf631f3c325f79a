"""``gemmetry sweep rocprof-input``, and ``sweep run`` with such a file."""

from __future__ import annotations

import csv
import json
import shlex

import pytest

TRACE = '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1}]}'
TRAINING = shlex.join(["sh", "-c", f"echo '{TRACE}' > $GEMMETRY_TRACE_DIR/rank0.pt.trace.json"])
RUN = ("sweep", "run", "--threads", "256", "--channels", "8", "--library", "rccl", "--command",
       TRAINING, "-o", "sweep", "--rocprof-input", "x.yaml")  # fmt: skip


def test_from_the_table_to_the_counters_of_a_sweep(cli, with_rocprofv3, rocprofv3, tmp_path):
    (tmp_path / "top.csv").write_text(f"kernel_name\n{rocprofv3.GEMM}\n")
    cli("sweep", "rocprof-input", "--from", "top.csv", "-o", "x.yaml", "--preset", "gemm",
        "--chip", "gfx942")  # fmt: skip
    ran = cli(*RUN, status=0)
    assert "x.yaml has 2 jobs: each point trains 2 times" in ran.stderr
    folder = tmp_path / "sweep" / "256thread" / "nccl_8channels" / "rocprof_traces"
    assert sorted(path.name for path in folder.iterdir()) == ["pass_1", "pass_2"]
    ended = cli("sweep", "analyze", "sweep", status=0)
    for shown in ("hipblaslt 256x256x64 nn bf16", "80.0 %", "60.0 %", "not those of"):
        assert shown in ended.stdout
    assert "are not those of the training" in ended.stderr
    assert "Kernels under rocprofv3" in (tmp_path / "sweep/analysis/report.html").read_text()
    document = json.loads((tmp_path / "sweep/analysis/analysis.json").read_text())
    assert [(one["rank"], one["rank_source"], one["kernel"]) for one in document["rocprof"]] == [
        (rank, "file name", rocprofv3.GEMM) for rank in (0, 1)
    ]
    first = document["rocprof"][0]
    assert (first["threads"], first["channels"], first["passes"]) == (256, 8, 2)
    assert first["cu_busy_percent"] == pytest.approx(80)
    assert (first["is_serialised"], first["matrix_gflop"]) == (True, 1.024)
    with (tmp_path / "sweep/analysis/rocprof_kernels.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["rank"] for row in rows] == ["0", "1"]
    assert float(rows[0]["occupancy_percent"]) == pytest.approx(25)


def test_a_run_that_collected_no_counters_is_not_a_success(cli, with_rocprofv3, tmp_path):
    jobs = "jobs: [{pmc: [SQ_WAVES], output_format: [csv]}, {pmc: [TCC_HIT_sum]}]"
    (tmp_path / "x.yaml").write_text(jobs)
    ran = cli(*RUN, status=1)
    assert "rocprofv3 collected no counters in job 2" in ran.stderr


def test_a_trace_of_torchs_profiler_names_the_rank_and_without_one_it_is_unknown(
    cli, rocprofv3, sweeps, tmp_path
):
    point = sweeps.MadePoint(channels=8, steps=1, layers=1, ranks=1)
    folder = sweeps.write_sweep(tmp_path / "sweep", [point])
    # All threads on the host of these traces are of process 1.
    for threads in (256, 512):
        traces = folder / f"{threads}thread" / "nccl_8channels" / "rocprof_traces"
        rocprofv3.write_csv(traces, "1", 1, list(rocprofv3.VALUES))
    document = cli.json("sweep", "analyze", "sweep", status=1)
    found = {(one["threads"], one["rank"], one["rank_source"]) for one in document["rocprof"]}
    assert found == {(256, 0, "trace"), (512, None, None)}
