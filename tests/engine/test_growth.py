"""Experiments that grow, with the null provider, and what a kill leaves of one that was growing."""

from __future__ import annotations

import dataclasses
import json
import shutil
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest
from tests.engine import memory_workers

from gemmetry.domain.dispatch import ProviderRequest, Target, TargetKind
from gemmetry.domain.errors import Outcome, PlanMismatchError
from gemmetry.domain.record import DispatchFinished, PlanReady
from gemmetry.domain.settings import RunSettings, TraceSchedule
from gemmetry.engine import experiment as growth
from gemmetry.engine import run, schema, session, trace_plan
from gemmetry.engine.candidates import job_of
from gemmetry.engine.experiment import Experiment
from gemmetry.engine.planning import obstacles
from gemmetry.engine.protocol import Hello, Opened
from gemmetry.engine.recording import trace_names

SETTINGS = {"seed": 42, "repetitions": None, "max_seconds_per_launch": 10.0}


def options_of(*configurations, provider="null"):
    options = {"configurations": list(configurations)} if provider == "null" else {}
    return {"name": provider, "options": options}


DOCUMENT = {
    "name": "a", "operations": {"shapes": [8]}, "targets": [], "selection": {},
    "providers": [options_of("slow_1")], "default_configurations_only": False, "settings": SETTINGS,
}  # fmt: skip


def documented(plan, sizes, *providers, **settings):
    """A plan, the document of which is as a spec makes it."""
    made = {"operations": {"shapes": list(sizes)}, "providers": list(providers)}
    document = {**DOCUMENT, **made, "settings": {**SETTINGS, **settings}}
    return dataclasses.replace(plan, document=document)


@pytest.fixture
def grown(make_plan, run_plan, tmp_path):
    """Runs a plan; summary, events, records by name, and all samples by name."""

    def go(configurations=(), *, sizes=(8,), fresh=False, **settings):
        plan = make_plan(configurations, sizes=sizes, **settings)
        plan = documented(plan, sizes, options_of(*configurations), **settings)
        ran = run_plan(plan, folder=tmp_path / "e", fresh=fresh)
        with Experiment.open(tmp_path / "e") as opened:
            samples = {record.dispatch: opened.samples(record) for record in ran.records}
        return ran.summary, ran.events, {r.dispatch: r for r in ran.records}, samples

    return go


def name(size, configuration="default"):
    return f"matmul_{size}x8x8_f32t_f32t_f32t_{configuration}"


@pytest.mark.parametrize(("change", "words"), [
    ({"name": "b", "operations": {"shapes": [8, 16]}, "targets": [{"name": "cpu"}],
      "selection": {"include": ["x"]}, "default_configurations_only": True}, ""),
    ({"providers": [options_of(provider="numpy")]}, ""),
    ({"providers": [options_of("slow_1"), options_of(provider="numpy")]}, ""),
    ({"providers": [options_of("fast")]}, ""),
    ({"settings": {**SETTINGS, "repetitions": 9, "max_seconds_per_launch": 20.0}}, ""),
    ({"settings": {**SETTINGS, "seed": 1}}, "settings.seed (42, now 1)"),
    ({"stages": ["compile"]}, "stages"),
    ({"providers": [{"name": "null", "options": {"devices": 2}}]}, "devices (null, now 2)"),
    ({"providers": [{**options_of("slow_1"), "kernel_sha256": {"a.py": "f"}}]},
     "kernel_sha256"),
])  # fmt: skip
def test_what_may_change_and_what_may_not(change, words):
    found = obstacles(job_of(RunSettings()), DOCUMENT, {**DOCUMENT, **change})
    assert words in found and "operations" not in found
    assert (found == "") is (words == "")


def test_more_shapes_and_configurations_keep_what_is_measured(grown):
    _, _, first, samples = grown()
    summary, events, records, after = grown(["factor_2"], sizes=(16, 8))
    assert (summary.total, summary.kept, summary.exit_status) == (6, 2, 0)
    assert events[0] == PlanReady(6, 2, sum(map(len, samples.values())), str(summary.experiment))
    reported = [event.record.dispatch for event in events if isinstance(event, DispatchFinished)]
    expected = {name(16), name(16, "fast"), name(16, "factor_2"), name(8, "factor_2")}
    assert (len(reported), set(reported)) == (4, expected)
    assert list(records)[:2] == list(first), "what was there comes first"
    assert {key: records[key] for key in first} == first
    assert {key: after[key] for key in samples} == samples
    for configurations, sizes in (([], (8,)), (["factor_2"], (16,))):
        summary, events, *_ = grown(configurations, sizes=sizes)
        assert (summary.total, summary.kept) == (6, 6), "every command continues with all"
        assert not [event for event in events if isinstance(event, DispatchFinished)]


def test_another_provider_keeps_what_is_measured(make_plan, run_plan, grown, tmp_path):
    _, _, first, samples = grown()
    plan = make_plan(
        providers=(ProviderRequest(name="null"), ProviderRequest(name="numpy")),
        targets=(Target(TargetKind.NULL), Target(TargetKind.CPU)), repetitions=5,
    )  # fmt: skip
    plan = documented(plan, (8,), options_of(), options_of(provider="numpy"))
    ran = run_plan(plan, folder=tmp_path / "e")
    # Each computes what the other's device does not support, which is a row that is finished at
    # once.
    assert ran.summary.outcomes == {Outcome.OK: 3, Outcome.UNSUPPORTED: 2}
    assert ran.summary.kept == 2
    reported = [event.record for event in ran.of(DispatchFinished)]
    pairs = sorted((r.provider, r.target) for r in reported)
    assert pairs == [("null", "cpu"), ("numpy", "cpu"), ("numpy", "null")]
    mine = [r for r in ran.records if (r.provider, r.target) == ("null", "null")]
    assert {r.dispatch: r for r in mine} == first
    with Experiment.open(tmp_path / "e") as opened:
        assert {r.dispatch: opened.samples(r) for r in mine} == samples


def test_more_repeats_are_added_to_those_that_are_there(grown):
    _, _, first, samples = grown(repetitions=5)
    summary, _, records, after = grown(repetitions=12)
    assert summary.kept == 0, "all of them continue"
    assert summary.samples_kept == 10
    for key in first:
        assert records[key].measurement.sample_count == 12
        assert after[key][:5] == samples[key], "no sample is taken twice or lost"
        assert records[key].verdict.status is first[key].verdict.status
    summary, _, again, _ = grown(repetitions=6)
    assert (summary.kept, again) == (2, records), "fewer are no reason to take any away"


def test_what_other_limits_gave_up_is_tried_again(grown, monkeypatch):
    monkeypatch.setattr("gemmetry.engine.candidates.LEAST_TRIAL_S", 0.0)
    _, _, records, _ = grown(["slow_300"], max_seconds_per_launch=0.1)
    assert records[name(8, "slow_300")].outcome is Outcome.SKIPPED
    summary, _, records, _ = grown(["slow_300"], max_seconds_per_launch=20.0, repetitions=1)
    assert summary.kept == 2
    assert records[name(8, "slow_300")].outcome is Outcome.OK


def test_what_changes_results_is_refused_with_what_to_do(grown):
    _, _, first, _ = grown()
    with pytest.raises(PlanMismatchError) as refused:
        grown(sizes=(8, 16), seed=7)
    assert "settings.seed (42, now 7)" in refused.value.message
    assert "--experiment" in refused.value.hint and "--fresh" in refused.value.hint
    _, _, records, _ = grown()
    assert records == first


def test_samples_of_unfinished_ones_survive_growth(grown, monkeypatch, tmp_path, stored_rounds):
    """The first run is broken off with a round of each stored."""
    add = session.Journal.add_rounds

    def break_off(self, rounds, verdicts):
        add(self, rounds, verdicts)
        if rounds:
            raise KeyboardInterrupt

    enough = {"interval_width": 1e-9, "min_samples": 5, "max_samples": 20}
    with monkeypatch.context() as m, pytest.raises(KeyboardInterrupt):
        m.setattr(session.Journal, "add_rounds", break_off)
        grown(**enough)
    before = stored_rounds(tmp_path / "e")
    assert len(before) == 2
    summary, _, records, _ = grown(["factor_2"], **enough)
    assert (summary.total, summary.kept, summary.samples_kept) == (3, 0, 10)
    assert before.items() <= stored_rounds(tmp_path / "e").items()
    assert {r.measurement.sample_count for r in records.values()} == {20}


class Killed(BaseException):
    """Replaces ``kill -9``: nothing that comes after it happens."""


@contextmanager
def killed_at(monkeypatch, place, function):
    """Within the context `function` of `place` is not reached alive."""
    with monkeypatch.context() as m, pytest.raises(Killed):
        m.setattr(place, function, Mock(side_effect=Killed))
        yield


def test_a_kill_while_growing_leaves_the_old_plan(grown, monkeypatch, tmp_path):
    _, _, first, samples = grown(["factor_2"])
    with killed_at(monkeypatch, growth._Names, "take"):
        grown(["factor_2"], sizes=(8, 16))
    summary, _, records, after = grown(["factor_2"])
    assert (summary.total, summary.kept, records, after) == (3, 3, first, samples)
    assert not (tmp_path / "e" / "previous").exists()
    summary, *_ = grown(["factor_2"], sizes=(8, 16))
    assert (summary.total, summary.kept) == (6, 3)


def test_a_kill_between_journal_and_manifest_leaves_the_new_plan(grown, monkeypatch, tmp_path):
    _, _, first, _ = grown()
    with killed_at(monkeypatch, schema, "write_manifest"):
        grown(sizes=(8, 16))
    summary, *_ = grown()
    assert (summary.total, summary.kept) == (4, 2), "the first command continues with all"
    summary, _, records, _ = grown(sizes=(8, 16))
    assert (summary.total, summary.kept) == (4, 4)
    manifest = json.loads((tmp_path / "e" / "manifest.json").read_text())
    assert manifest["document"]["operations"] == {"shapes": [8, 16]}
    assert {key: records[key] for key in first} == first


@pytest.fixture
def grid(make_plan, tmp_path, use_executor):
    """Records sizes with a provider; the summary and the records by name. The traces are empty."""
    schedules = []

    def answer(request):
        if isinstance(request, Hello):
            schedules.append(request.settings.trace)
        for reply in memory_workers.healthy_answers(request):
            if isinstance(reply, Opened):
                files = tuple(trace_names(schedules[-1].repeats))
                Path(reply.trace.folder).mkdir(parents=True, exist_ok=True)
                for name in files:
                    Path(reply.trace.folder, name).touch()
                trace = dataclasses.replace(reply.trace, files=files)
                reply = msgspec.structs.replace(reply, trace=trace)
            yield reply

    use_executor(memory_workers.MemoryExecutor(lambda: memory_workers.MemoryChannel(answer)))

    def go(*sizes, repeats=1, seed=42, provider="numpy"):
        plan = make_plan(
            sizes=sizes, providers=(ProviderRequest(name=provider),),
            targets=(Target(TargetKind.CPU),), verify=False, seed=seed,
        )  # fmt: skip
        plan = documented(plan, sizes, options_of(provider=provider), seed=seed)
        plan = trace_plan(plan, TraceSchedule(repeats=repeats))
        summary = run(plan, tmp_path / "e")
        with Experiment.open(tmp_path / "e") as opened:
            return summary, {record.dispatch: record for record in opened.records()}

    return go


def entries(folder):
    text = (folder / "e" / "traces_matmul" / "manifest.json").read_text()
    found = json.loads(text)["configurations"]
    return [(one["dispatch"], one["number"], one["outcome"]) for one in found]


def test_a_grid_of_traces_grows_in_its_journal(grid, tmp_path, monkeypatch):
    _, first = grid(16)
    inode = (tmp_path / "e" / "journal.sqlite").stat().st_ino
    with killed_at(monkeypatch, schema, "write_manifest"):
        grid(8, 16)
    summary, records = grid(8, 16)
    assert (summary.total, summary.kept) == (2, 1)
    assert records[name(16)] == first[name(16)]
    assert entries(tmp_path) == [(name(16), 1, "ok"), (name(8), 2, "ok")]
    assert (tmp_path / "e" / "journal.sqlite").stat().st_ino == inode
    assert not (tmp_path / "e" / "previous").exists()
    summary, _ = grid(16)
    assert (summary.total, summary.kept) == (2, 2), "every command continues with all"


def test_another_provider_of_traces_keeps_what_is_recorded(grid):
    grid(8)
    summary, _ = grid(8, provider="null")
    assert (summary.total, summary.kept) == (2, 1)


def test_traces_may_get_more_repeats_and_no_other_schedule():
    recording = job_of(RunSettings(trace=TraceSchedule()))
    for before, now, words in (
        ({"repeats": 2}, {"repeats": 3}, ""),
        ({"repeats": 3}, {"repeats": 2}, "trace.repeats (3, now 2)"),
        ({"repeats": 2, "warmup": 1}, {"repeats": 3, "warmup": 2}, "trace.warmup (1, now 2)"),
    ):
        first, second = ({**DOCUMENT, "trace": trace} for trace in (before, now))
        assert obstacles(recording, first, second) == words


def test_fewer_repeats_are_refused_although_an_earlier_command_requested_them(grid):
    grid(8, repeats=1)
    grid(8, repeats=2)
    with pytest.raises(PlanMismatchError, match=r"trace\.repeats \(2, now 1\)"):
        grid(8, repeats=1)
    with pytest.raises(PlanMismatchError, match="seed"):
        grid(8, repeats=2, seed=7)


def test_traces_that_are_gone_or_lack_repeats_are_recorded_again(grid, tmp_path):
    _, first = grid(8)
    folder = tmp_path / "e" / first[name(8)].trace.folder
    shutil.rmtree(folder)
    summary, records = grid(8, 16)
    assert (summary.total, summary.kept) == (2, 0)
    assert folder.is_dir()
    assert records[name(8)].trace.repeats == 1
    summary, records = grid(8, 16, repeats=2)
    assert (summary.total, summary.kept) == (2, 0)
    assert [record.trace.repeats for record in records.values()] == [2, 2]
