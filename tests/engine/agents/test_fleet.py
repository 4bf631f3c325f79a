from __future__ import annotations

import json

from gemmetry.domain.events import Message
from gemmetry.domain.outcome import Outcome
from gemmetry.engine.agents import fleet


def test_a_run_over_two_agents_is_the_run_of_one_machine(
    make_plan, run_plan, thread_starter, tmp_path, monkeypatch
):
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
