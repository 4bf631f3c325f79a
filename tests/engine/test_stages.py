from __future__ import annotations

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import ProviderRequest
from gemmetry.domain.errors import Outcome, Stage
from gemmetry.domain.record import Message, StageProgress
from gemmetry.domain.specs.generated import read_generated
from gemmetry.engine import compile_plan, generate
from gemmetry.engine.experiment import Experiment


def test_compiling_runs_nothing_and_is_another_plan(make_plan, run_plan, tmp_path):
    plan = make_plan(("crash", "compile_error"), options={"seconds_per_compile": 0.0})
    ran = run_plan(compile_plan(plan), command="gemmetry compile")
    assert ran.summary.outcomes == {Outcome.OK: 3, Outcome.COMPILE_ERROR: 1}
    assert ran.summary.exit_status == 0, "another dispatch of the operation is ok"
    assert ran["compile_error"].stage is Stage.COMPILE
    assert all(record.measurement is None for record in ran.records)
    compiled = [event for event in ran.of(StageProgress) if event.stage is Stage.COMPILE]
    assert (compiled[-1].done, compiled[-1].total) == (4, 4)
    with Experiment.open(tmp_path / "experiment") as experiment:
        assert experiment.manifest.plan_hash == compile_plan(plan).hash != plan.hash


def test_generating_writes_each_operations_sources(make_plan, tmp_path):
    events = []
    null = ProviderRequest(name="null", options={"configurations": ["wrong"]})
    plan = make_plan(sizes=(8, 16), providers=(null, ProviderRequest(name="numpy")))
    paths = generate(plan, Workspace(generated=tmp_path), listener=events.append)
    assert [path.stem for path in paths] == [f"matmul_{m}x8x8_f32t_f32t_f32t" for m in (8, 16)]
    assert len(paths[0].read_text().splitlines()) == 3
    listed = read_generated(tmp_path)
    assert [tmp_path / entry.source for entry in listed] == paths
    assert [len(entry.configurations) for entry in listed] == [3, 3]
    assert {(entry.provider, entry.target) for entry in listed} == {("null", "null")}
    warnings = [event for event in events if isinstance(event, Message)]
    assert len(warnings) == 2, "numpy cannot do these on the simulated device"
    progress = [event for event in events if isinstance(event, StageProgress)]
    found = [(event.stage, event.done, event.total) for event in progress]
    assert found == [(Stage.GENERATE, 1, 2), (Stage.GENERATE, 2, 2)]
