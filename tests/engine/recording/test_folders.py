from __future__ import annotations

import json

import pytest

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import Outcome
from gemmetry.domain.record import DispatchFinished, Message
from gemmetry.domain.settings import RunSettings, TraceSchedule
from gemmetry.engine import run
from gemmetry.engine.candidates import job_of
from gemmetry.engine.experiment import Experiment
from gemmetry.engine.planning import Resolver, make_lanes
from gemmetry.providers.registry import load_provider


@pytest.fixture
def store(make_plan, tmp_path):
    plan = make_plan(("wrong",), sizes=(8, 16), verify=False, measure=False)
    run(plan, tmp_path)
    with Experiment.open(tmp_path) as experiment:
        yield plan, experiment


def entries(path):
    return json.loads((path / "traces_matmul" / "manifest.json").read_text())["configurations"]


def test_folders_are_numbered_in_plan_order(store):
    plan, experiment = store
    job = job_of(RunSettings(trace=TraceSchedule()))
    folders = job.outputs(experiment, "here", fresh=False)
    (lane,) = make_lanes(plan, load_provider)
    candidates = list(Resolver({1: lane}).candidates(experiment.planned()))
    for candidate in candidates:
        folders.assign(candidate)
    found = [candidate.trace_folder for candidate in candidates]
    assert {candidate.trace_kept for candidate in candidates} == {0}
    root = experiment.path.resolve() / "traces_matmul"
    assert found == [str(root / f"config_000{number}") for number in range(1, len(found) + 1)]
    reported = [(one["dispatch"], one["device"]) for one in entries(experiment.path)]
    assert reported == [(candidate.name, "null:0") for candidate in candidates]
    assert candidates[0].lane.target == Target(TargetKind.NULL)


def test_the_manifest_follows_what_the_listener_hears(store):
    _, experiment = store
    job = job_of(RunSettings(trace=TraceSchedule()))
    folders = job.outputs(experiment, "here", fresh=False)
    heard = []
    listen = folders.noting(heard.append)
    records = list(experiment.records())
    events = [Message("x"), *map(DispatchFinished, records)]
    for event in events:
        listen(event)
    assert heard == events
    folders.close()
    assert [one["outcome"] for one in entries(experiment.path)] == [
        str(record.outcome) for record in records
    ]
    assert records[0].outcome is Outcome.OK
