from __future__ import annotations

import pytest

from gemmetry.api.profile import prepare
from gemmetry.api.trace_record import record_traces, recording, with_defaults
from gemmetry.domain.settings import TraceSchedule
from gemmetry.specs.loader import make_spec


def prepared(**values):
    return recording(prepare(with_defaults(make_spec({"device": "cpu", **values}))))


def operations(**values):
    return [str(operation) for operation in prepared(**values).plan.operations]


def test_silence_means_the_documents_schedule_and_torch():
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
