from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.domain.rows import Rows
from gemmetry.traces.api import Traces, load
from gemmetry.traces.gemms import GemmRow, workload
from gemmetry.traces.report import gemms_table, shapes_table, step_table

DATA = Path(__file__).parents[1] / "data" / "traces"
MATMUL = DATA / "h200_matmul.pt.trace.json.gz"
RANK0 = DATA / "h200_fsdp_rank0of4_part.pt.trace.json.gz"


def test_traces_are_a_sequence_with_tables():
    traces = load(MATMUL, str(RANK0), use_cache=False)
    assert len(traces) == 2
    assert [trace.file for trace in traces] == [MATMUL, RANK0]
    assert traces[1].rows.rank == 0
    assert len(traces[:1]) == 1
    assert repr(traces) == "<Traces: 2 files>"
    summary = traces.summary()
    assert summary["file"].to_list() == [str(MATMUL), str(RANK0)]
    assert summary["window_us"][0] == 144.032
    gemms = traces.gemms()
    assert gemms["sum_us"].sum() == pytest.approx(summary["gemm_kernel_us"].sum())
    assert {"m", "n", "k", "tflops", "peak_fraction"} <= set(gemms.columns)


def test_shapes_steps_and_spec():
    traces = load(MATMUL, use_cache=False)
    assert traces.shapes()["operation"].to_list() == ["matmul_2048x2048x2048_bf16t_bf16t_bf16t"]
    assert traces.steps()["step"].to_list() == [2, 3]
    assert "matmul_2048x2048x2048_bf16t_bf16t_bf16t" in traces.spec(top=1)


def test_what_cannot_be_read_is_reported(tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text("<script>")
    traces = load(MATMUL, bad, use_cache=False)
    assert list(traces.errors) == [str(bad)]
    assert repr(traces) == "<Traces: 1 file, 1 unreadable>"
    with pytest.raises(RequestError, match="bad"):
        load(bad)


def test_a_notebook_shows_a_table_without_scripts(tmp_path):
    bad = tmp_path / "<script>.json"
    bad.write_text("x")
    html = load(MATMUL, bad, use_cache=False)._repr_html_()
    assert "h200_matmul.pt.trace.json.gz, NVIDIA H200" in html
    assert "33.0%" in html
    assert "&lt;script&gt;.json" in html
    assert "<script" not in html


def test_tables_without_rows_have_their_columns(tmp_path):
    (tmp_path / "a.json").write_text('{"traceEvents": []}')
    nothing = load(tmp_path / "a.json", use_cache=False)
    for frame, table in (
        (nothing.gemms(), gemms_table(())),
        (nothing.shapes(), shapes_table(workload(()))),
        (nothing.steps(), step_table(())),
    ):
        assert (tuple(frame.columns), len(frame)) == (table.names, 0)


def test_without_keep_files_are_read_one_by_one(tmp_path):
    (tmp_path / "a.json").write_text('{"traceEvents": []}')
    kept = load(MATMUL, tmp_path / "a.json", use_cache=False)
    passing = Traces([MATMUL, tmp_path / "a.json"], use_cache=False)
    assert gemms_table(passing.gemm_rows()) == gemms_table(kept.gemm_rows())
    assert len(passing) == 0
    assert passing.names == [str(MATMUL), str(tmp_path / "a.json")]
    assert passing.without_gpu == kept.without_gpu == [tmp_path / "a.json"]
    assert "a.json has no work on a GPU" in passing.without_gpu_note()
    assert passing.result({"gemms": Rows(GemmRow)}).document()["gemms"] == []
    with pytest.raises(RequestError, match="no trace"):
        Traces([]).summaries()
