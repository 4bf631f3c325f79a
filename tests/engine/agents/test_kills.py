"""Agents that are processes, of which one, its worker or its driver is killed or stopped while it
measures: the rest continues, nothing that was stored is lost, and nothing is left running."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from gemmetry.domain.errors import Outcome
from gemmetry.domain.record import DispatchFinished, Message
from gemmetry.engine import run
from gemmetry.engine.agents import fleet
from gemmetry.engine.agents.messages import Welcome
from gemmetry.engine.agents.starters.loopback import LoopbackStarter
from gemmetry.engine.store.experiment import Experiment

PATIENCE_S = 120.0
SIZES = tuple(range(8, 20))

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="finds processes in /proc"
)


@pytest.fixture
def processes(monkeypatch, tmp_path):
    """The processes of agents and workers that this test has started, by what they are."""
    monkeypatch.setenv("AGENTS_TEST", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(fleet.__file__).parents[3]))
    mine = f"AGENTS_TEST={tmp_path}".encode() + b"\0"

    def found(kind: bytes) -> list[int]:
        pids = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if (
                    kind in (folder / "cmdline").read_bytes()
                    and mine in (folder / "environ").read_bytes()
                ):
                    pids.append(int(folder.name))
            except OSError:
                continue
        return pids

    return SimpleNamespace(
        agents=partial(found, b"gemmetry\0agent\0"),
        workers=partial(found, b"gemmetry.engine.workers.main"),
    )


@pytest.fixture
def agents(monkeypatch):
    """The agents that runs have started on this machine."""
    started = []

    class Starter(LoopbackStarter):
        def start(self, request):
            started.append(super().start(request))
            return started[-1]

    monkeypatch.setattr(fleet, "load_starter", lambda _name: Starter())
    return lambda: started[-1]._started


@pytest.fixture
def run_and_hurt(make_plan, tmp_path, processes, agents):
    """Runs a plan over two agents, and calls `hurt` when both are connected and some dispatches
    have their results; the summary, the records and the messages of the run."""

    def go(hurt):
        plan = make_plan(
            ("slow_5",), sizes=SIZES, executor="loopback", agents=2, options={"devices": 2},
            memory_budget_bytes=1,  # No operation shares a group with another.
        )  # fmt: skip
        messages, finished, hurts = [], [], []

        def listener(event):
            if isinstance(event, Message):
                messages.append(event.text)
            if isinstance(event, DispatchFinished):
                finished.append(event.record)
            both = any("2 agents connected" in text for text in messages)
            if both and len(finished) >= 2 and not hurts:
                hurts.append(stored_rounds(tmp_path / "experiment"))
                hurt()

        summary = run(plan, tmp_path / "experiment", listener=listener)
        assert hurts, "the run ended before anything happened to it"
        assert hurts[0].items() <= stored_rounds(tmp_path / "experiment").items()
        wait_for(lambda: not processes.agents() and not processes.workers())
        with Experiment.open(tmp_path / "experiment") as experiment:
            return summary, list(experiment.records()), messages

    return go


def stored_rounds(folder):
    """(dispatch, round) -> samples, as the journal has them."""
    connection = sqlite3.connect(f"file:{folder / 'journal.sqlite'}?mode=ro", uri=True)
    try:
        rows = connection.execute("SELECT dispatch, round, samples FROM rounds").fetchall()
    finally:
        connection.close()
    return {(dispatch, number): samples for dispatch, number, samples in rows}


def wait_for(condition):
    ends = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < ends, "it does not happen"
        time.sleep(0.02)
    return found


def test_an_agent_that_is_killed_loses_only_what_it_was_measuring(run_and_hurt, agents):
    def kill():
        os.kill(agents()[1].process.pid, signal.SIGKILL)

    summary, records, messages = run_and_hurt(kill)
    assert summary.failure == ""
    assert [record.outcome for record in records] == [Outcome.OK] * 3 * len(SIZES)
    assert any("loopback-1 is lost" in text for text in messages)


def test_an_agent_that_is_silent_is_given_up(run_and_hurt, agents, monkeypatch):
    monkeypatch.setattr(fleet, "Welcome", partial(Welcome, beat_s=0.1, lost_s=3.0))
    monkeypatch.setattr("gemmetry.engine.agents.starters.loopback.END_S", 0.1)
    stopped = []

    def stop():
        stopped.append(agents()[1].process.pid)
        os.kill(stopped[0], signal.SIGSTOP)

    summary, records, messages = run_and_hurt(stop)
    assert summary.failure == ""
    assert {record.outcome for record in records} == {Outcome.OK}
    assert any("it has been silent for 3 s" in text for text in messages)


def test_a_worker_that_is_killed_is_replaced_by_its_agent(run_and_hurt, processes):
    def kill():
        os.kill(wait_for(processes.workers)[0], signal.SIGKILL)

    summary, records, messages = run_and_hurt(kill)
    assert summary.failure == ""
    outcomes = [record.outcome for record in records]
    assert len(outcomes) == 3 * len(SIZES)
    assert outcomes.count(Outcome.OK) >= len(outcomes) - 1, "at most what it was measuring"
    assert not any("is lost" in text for text in messages), "its agent continues"


def test_a_run_whose_driver_is_killed_is_resumed(processes, tmp_path):
    command = [
        sys.executable, "-m", "gemmetry", "profile", "--providers", "null", "--device", "null",
        "--shapes", ",".join(f"{size}x8x8" for size in SIZES), "--executor", "loopback",
        "--agents", "2", "--experiment", str(tmp_path / "e"), "--memory-budget", "1", "--json",
        "--interval-width", "1e-9", "--min-samples", "5", "--max-samples", "100",
    ]  # fmt: skip
    with (tmp_path / "log").open("w") as log:
        driver = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    journal = tmp_path / "e" / "journal.sqlite"
    wait_for(lambda: journal.exists() and stored_rounds(tmp_path / "e"))
    driver.kill()
    assert driver.wait(PATIENCE_S) == -signal.SIGKILL, (tmp_path / "log").read_text()
    wait_for(lambda: not processes.agents() and not processes.workers())
    before = stored_rounds(tmp_path / "e")

    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == 0, ended.stderr
    assert before.items() <= stored_rounds(tmp_path / "e").items()
    records = json.loads(ended.stdout)["records"]
    assert {record["outcome"] for record in records} == {"ok"}
    assert not processes.agents()
