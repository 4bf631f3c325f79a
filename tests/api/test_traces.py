from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.dispatches.profile import prepare, record_traces, recording, with_defaults
from gemmetry.domain.errors import RequestError
from gemmetry.domain.rows import Rows
from gemmetry.domain.settings import TraceSchedule
from gemmetry.domain.specs.loader import make_spec
from gemmetry.traces.api import Traces, load
from gemmetry.traces.gemms import GemmRow
from gemmetry.traces.report import gemms_table

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
    product = "matmul_2048x2048x2048_bf16t_bf16t_bf16t"
    matmul = load(MATMUL, use_cache=False)
    assert matmul.shapes()["operation"].to_list() == [product]
    assert matmul.steps()["step"].to_list() == [2, 3]
    assert product in matmul.spec(top=1)


def test_a_notebook_shows_a_table_without_scripts(tmp_path):
    bad = tmp_path / "<script>.json"
    bad.write_text("x")
    html = load(MATMUL, bad, use_cache=False)._repr_html_()
    assert "h200_matmul.pt.trace.json.gz, NVIDIA H200" in html
    assert "33.0%" in html
    assert "&lt;script&gt;.json" in html
    assert "<script" not in html


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


def prepared(**values):
    return recording(prepare(with_defaults(make_spec({"device": "cpu", **values}))))


def operations(**values):
    return [str(operation) for operation in prepared(**values).plan.operations]


def test_by_default_the_documents_schedule_and_torch():
    plan = prepared().plan
    assert plan.settings.trace == TraceSchedule(
        wait_steps=1, warmup_steps=3, active_steps=1, repeats=5
    )
    assert [request.name for request in plan.providers] == ["torch"]
    assert plan.default_configurations_only
    assert not plan.settings.measure
    assert plan.settings.verification_level == "quick"
    assert "chakra_all_steps" not in plan.document["trace"]
    plan = prepared(WAIT_STEPS=2, WARMUP_ITERATIONS=4, ACTIVE_STEPS=3, REPEAT_COUNT=30,
                    RANDOM_SEED=7, CHAKRA_ALL_STEPS=True).plan  # fmt: skip
    assert plan.settings.trace == TraceSchedule(
        wait_steps=2, warmup_steps=4, active_steps=3, repeats=30, chakra_all_steps=True
    )
    assert plan.settings.seed == 7
    assert plan.document["trace"]["chakra_all_steps"] is True


def test_by_default_the_documents_grid():
    """All sizes, precisions, layouts and batches are searched; no size is rectangular."""
    found = list(prepared().plan.operations)
    shapes = {operation.matmul_shape for operation in found}
    assert all(shape.m == shape.n == shape.k for shape in shapes)
    assert {shape.batch for shape in shapes} == {1, 4, 16}
    assert len({shape.m for shape in shapes}) == 3
    formats = {operation.signature.lhs.name for operation in found}
    assert formats == {"f32", "f16", "bf16", "s8"}
    assert {operation.signature.layout_pair for operation in found} == {"tt", "tn", "nt", "nn"}
    assert len(found) == 3 * 3 * 4 * 4
    gpu = with_defaults(make_spec({"device": "cuda-sm_90"}))
    assert gpu.matrix_sizes == ("512x512x512", "1024x1024x1024", "2048x2048x2048")


def test_naming_one_axis_keeps_the_defaults_of_the_others():
    assert len(operations(precisions="fp32")) == 9
    assert len(operations(matrix_sizes="8x8x8,16x16x16")) == 32
    assert len(operations(enable_batch_search=False, precisions="fp32")) == 3
    assert len(operations(enable_rectangular=True, precisions="fp32")) == 6
    chosen = prepared(dispatches="matmul_512x512x512_f32t_f32t_f32t_default").plan
    assert not chosen.default_configurations_only


def test_recording_from_python(tmp_path):
    pytest.importorskip("torch")
    results = record_traces(
        matrix_sizes="32x16x8", precisions="fp32", device="cpu", repeat_count=2,
        experiment=tmp_path / "e",
    )  # fmt: skip
    (record,) = results.records
    assert record.trace is not None
    assert len(record.trace.files) == 3
    folder = tmp_path / "e" / record.trace.folder
    assert sorted(path.name for path in folder.iterdir()) == sorted(record.trace.files)
