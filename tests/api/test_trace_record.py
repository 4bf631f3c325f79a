from __future__ import annotations

import pytest

from gemmetry.dispatches.profile import prepare, record_traces, recording, with_defaults
from gemmetry.domain.settings import TraceSchedule
from gemmetry.domain.specs.loader import make_spec


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


def test_the_documents_settings_make_the_schedule():
    plan = prepared(WAIT_STEPS=2, WARMUP_ITERATIONS=4, ACTIVE_STEPS=3, REPEAT_COUNT=30,
                    RANDOM_SEED=7).plan  # fmt: skip
    assert plan.settings.trace == TraceSchedule(
        wait_steps=2, warmup_steps=4, active_steps=3, repeats=30
    )
    assert plan.settings.seed == 7


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


def test_the_chakra_trace_of_all_launches_is_another_plan():
    silent, whole = prepared(), prepared(CHAKRA_ALL_STEPS=True)
    assert "chakra_all_steps" not in silent.plan.document["trace"]
    assert whole.plan.document["trace"]["chakra_all_steps"] is True
    assert whole.plan.settings.trace.chakra_all_steps


def test_all_precisions_and_layouts_unless_some_are_named():
    silent = operations(matrix_sizes="64x64x64")
    assert len(silent) == 16
    assert len({name.split("_")[2][:-1] for name in silent}) == 4
    assert operations(matrix_sizes="64x64x64", precisions="fp16") == [
        "matmul_64x64x64_f16t_f16t_f16t"
    ]
    one = operations(dispatches="matmul_8x8x8_f32t_f32t_f32t_default")
    assert one == [] or one == ["matmul_8x8x8_f32t_f32t_f32t"]


def test_another_schedule_is_another_plan():
    same, more = prepared(), prepared(repeat_count=6)
    assert same.plan.hash == prepared().plan.hash
    assert same.plan.hash != more.plan.hash
    assert str(same.experiment).endswith(f"traces-{same.plan.hash}")
    assert str(prepared(experiment="here").experiment) == "here"


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
