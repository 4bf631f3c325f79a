from __future__ import annotations

import json

import pytest

import traces
from gemmetry.traces.model import Trace
from gemmetry.traces.reading import read_trace
from gemmetry.traces.summary import summarize

EVENTS = [
    {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 10.001, "dur": 50.5, "pid": 1, "tid": 1,
     "args": {"External id": 7, "Input Dims": [[8, 4], [4, 2]]}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 20.25, "dur": 5, "pid": 1,
     "tid": 1, "args": {"correlation": 3, "External id": 7}},
    {"ph": "X", "cat": "kernel", "name": "volta_sgemm_64x64_tn", "ts": 100.125, "dur": 9.875,
     "pid": 0, "tid": 7, "args": {"correlation": 3, "External id": 7, "device": 0, "stream": 7}},
]  # fmt: skip


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"traceEvents": EVENTS, "baseTimeNanoseconds": 5}))
    return path


def test_a_repeated_trace_has_everything_as_often_and_apart(trace, tmp_path):
    path = tmp_path / "large.json"
    traces.repeat(trace, 50e-6, path)
    assert path.stat().st_size == pytest.approx(50_000, rel=0.05)
    large = Trace(path, read_trace(path, use_cache=False))
    summary, copies = summarize(large), len(large.rows.operators.name)
    assert copies > 50
    assert (summary.events, summary.kernels, large.rows.base_ns) == (3 * copies + 1, copies, 5)
    assert summary.gemm_kernel_ns == summary.busy_ns == 9875 * copies
    # Each kernel is linked to the operator of its own copy.
    assert sorted(large.launches.operator.tolist()) == list(range(copies))


def test_the_tables_and_factors_of_a_run(trace, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["traces.py", "--trace", str(trace), "--runs", "1"])
    traces.main()
    out = capsys.readouterr().out
    assert "exit status" not in out
    for name in ("xlsx", "html", "summary", "summary, cached"):
        assert f"\n| gemmetry, {name} |" in out
    ours, theirs = traces.Row("gemmetry, xlsx", []), traces.Row("TraceLens, xlsx", [])
    ours.seconds, theirs.seconds = [0.5, 0.6, 0.7], [6.0, 6.0, 6.0]
    traces.print_factors([ours, theirs])
    assert "TraceLens, xlsx takes 10.0 times as long" in capsys.readouterr().out
