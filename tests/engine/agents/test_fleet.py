from __future__ import annotations

import json
import tempfile
from types import SimpleNamespace

import pytest

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import Outcome, RequestError, UnknownNameError
from gemmetry.domain.record import Message
from gemmetry.domain.settings import RunSettings
from gemmetry.engine.agents import fleet
from gemmetry.engine.agents.messages import Welcome
from gemmetry.engine.agents.starters import agents as by_hand
from gemmetry.engine.device import RoundRobin


def test_a_run_over_two_agents_is_the_run_of_one_machine(
    make_plan, run_plan, thread_starter, tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "of agents"))
    (tmp_path / "of agents").mkdir()
    starter = thread_starter(["null:0", "null:1"])
    configurations = ("wrong", "chatty", "crash", "slow_1")
    plan = make_plan(
        configurations, sizes=(8, 16), options={"devices": 2}, executor="agents", agents=2
    )
    ran = run_plan(plan)
    assert ran.summary.outcomes == {Outcome.OK: 8, Outcome.WRONG: 2, Outcome.CRASH: 2}
    assert starter.errors == []
    assert [text for text in starter.reports if "the run is complete" in text]
    (where,) = {record.device_ids[0].partition("/")[0] for record in ran.records}
    assert {record.device_ids for record in ran.records} <= {
        (f"{where}/null:0",), (f"{where}/null:1",),
    }  # fmt: skip
    wrong = next(record for record in ran.records if record.outcome is Outcome.WRONG)
    evidence = tmp_path / "experiment" / wrong.verdict.evidence_path
    assert (evidence / "arrays.npz").stat().st_size > 0
    assert "gemmetry" in (evidence / "failure.txt").read_text(), "completed by the driver"
    assert not (tmp_path / "experiment" / "agents" / fleet.TOKEN_NAME).exists()
    assert list((tmp_path / "of agents").glob("gemmetry-agent-*")) == []


def test_compiled_files_come_to_the_driver(make_plan, run_plan, thread_starter):
    thread_starter()
    ran = run_plan(
        make_plan(options={"seconds_per_compile": 0.01}, sizes=(8, 16), executor="agents")
    )
    assert ran.summary.outcomes == {Outcome.OK: 4}


def test_the_command_for_an_agent_is_shown(make_plan, run_plan, thread_starter):
    thread_starter()
    ran = run_plan(make_plan(executor="agents"))
    texts = [event.text for event in ran.of(Message)]
    assert any(text.startswith("listening for agents: gemmetry agent --connect") for text in texts)
    assert json.dumps(texts).count("1 agent connected") == 1


def test_the_group_of_a_lost_agent_is_taken_again_whole_by_another(
    make_plan, run_plan, thread_starter, monkeypatch
):
    starter = thread_starter(["null:0"])
    original = RoundRobin._take_sampled
    lost = []

    def take_sampled(self, worker, number, candidate, *rest):
        original(self, worker, number, candidate, *rest)
        if not lost:
            self._results.store()
            lost.append(candidate.name)
            worker._channel._agent._link.close()  # as when its process is killed
            starter.add("second", "null:1")

    monkeypatch.setattr(RoundRobin, "_take_sampled", take_sampled)
    options = {"devices": 2}
    ran = run_plan(make_plan(repetitions=30, options=options, executor="agents"))
    assert lost
    assert ran.summary.outcomes == {Outcome.OK: 2}
    assert {record.device for record in ran.records} == {"null:1"}
    assert {record.measurement.sample_count for record in ran.records} == {30}
    texts = [event.text for event in ran.of(Message)]
    assert any("agent-0 is lost" in text and "waits for another agent" in text for text in texts)
    assert any("come from another device" in text for text in texts)


def test_a_run_without_agents_ends_and_is_resumed(make_plan, run_plan, use_starter, thread_starter):
    use_starter(by_hand.STARTER)
    ran = run_plan(make_plan(executor="agents", agent_wait_s=0.1))
    assert "no agent was connected for 0.1 s" in ran.summary.failure
    assert ran.summary.exit_status == 3
    thread_starter()
    assert run_plan(make_plan(executor="agents")).summary.outcomes == {Outcome.OK: 2}


def test_what_agents_cannot_do_is_refused_at_once(make_plan, run_plan):
    with pytest.raises(RequestError, match="serves one target"):
        run_plan(
            make_plan(executor="agents", targets=[Target(TargetKind.NULL, "", i) for i in (0, 1)])
        )
    with pytest.raises(UnknownNameError, match="executor 'slrm'"):
        run_plan(make_plan(executor="slrm"))


def test_the_time_in_a_queue_does_not_count(make_plan, run_plan, thread_starter, monkeypatch):
    monkeypatch.setattr(fleet, "FIRST_NOTE_S", 0.01)
    starter = thread_starter([])
    questions = []

    def queued():
        questions.append(1)
        if len(questions) == 4:
            starter.add("agent-0", "null:0")
        return int(len(questions) < 4)

    monkeypatch.setattr(starter, "queued", queued)
    monkeypatch.setattr(starter, "running", lambda: 1)
    ran = run_plan(make_plan(executor="agents"))
    assert ran.summary.outcomes == {Outcome.OK: 2}
    waits = [event.text for event in ran.of(Message) if "in its queue" in event.text]
    assert waits and "1 agent of the executor agents waits in its queue, for " in waits[0]


def test_the_wait_begins_when_the_queue_is_empty(tmp_path, thread_starter, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(fleet, "time", SimpleNamespace(monotonic=lambda: now[0]))
    starter = thread_starter([])
    queued, notes = [2], []
    monkeypatch.setattr(starter, "running", lambda: 2)
    monkeypatch.setattr(starter, "queued", lambda: queued[0])
    settings = RunSettings(executor="agents", agent_wait_s=300.0)
    with fleet.AgentPool(
        Welcome(b"", ""), Target(TargetKind.NULL), settings, tmp_path, print, notes.append
    ) as pool:
        assert pool.given_up(0) == "" and len(notes) == 1, "of the command for agents"
        now[0] += 4000.0
        assert pool.given_up(0) == "", "it is longer than the run waits for an agent"
        assert "2 agents of the executor agents wait in its queue, for 67 min so far" in notes[1]
        assert pool.given_up(0) == "" and len(notes) == 2, "each time that it has doubled"
        queued[0] = 0
        now[0] += 299.0
        assert pool.given_up(0) == ""
        now[0] += 2.0
        assert pool.given_up(0) == "no agent was connected for 300 s"
