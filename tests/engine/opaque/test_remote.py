"""Jobs that an agent runs on its host."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import EnvironmentFailure
from gemmetry.domain.settings import RunSettings
from gemmetry.engine.agents import fleet
from gemmetry.engine.opaque import JobLostError, OpaqueJob
from gemmetry.engine.opaque_remote import AgentJobExecutor

PATIENCE_S = 60.0


@pytest.fixture
def executor(tmp_path, monkeypatch):
    """Jobs run by agents of this machine; `notes` has what it reported."""
    monkeypatch.setattr(fleet, "ENDED_S", 0.1)
    notes = []
    settings = RunSettings(executor="loopback", agents=1)
    with AgentJobExecutor(
        settings, Target(TargetKind.CPU), tmp_path, notes.append, notes.append
    ) as found:
        found.notes = notes
        yield found


@pytest.fixture
def make(tmp_path):
    """Makes a job of a shell script."""

    def job(script, program="sh", **environment):
        return OpaqueJob(
            name="a", title="a", argv=(program, "-c", script), environment=environment,
            working_folder=tmp_path, log=tmp_path / "log", deadline_s=None, lacks=lambda: "",
        )  # fmt: skip

    return job


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_for(condition):
    ends = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < ends, "it does not happen"
        time.sleep(0.01)
    return found


def test_jobs_run_on_the_agents_host_until_it_is_lost(executor, make, tmp_path):
    job = executor.start(make('echo "$COLOUR $PWD"; exit 3', COLOUR="blue"))
    assert job.wait(PATIENCE_S) == 3
    job.end_gently(1.0)
    assert (tmp_path / "log").read_text() == f"blue {tmp_path}\n"

    with pytest.raises(OSError, match="no-such-program"):
        executor.start(make("true", program="no-such-program"))

    job = executor.start(make("trap 'touch gentle; exit 1' TERM; touch up; sleep 1000 & wait"))
    wait_for((tmp_path / "up").exists)
    assert job.wait(0) is None
    job.end_gently(PATIENCE_S)
    assert (tmp_path / "gentle").exists()
    assert not is_running(job.pid)

    (tmp_path / "log").unlink()
    job = executor.start(make("echo $PPID > pids; ps -o ppid= -p $PPID >> pids; sleep 1000"))
    (tmp_path / "pids").touch()
    wait_for(lambda: len((tmp_path / "pids").read_text().split()) == 2)
    guardian, agent = map(int, (tmp_path / "pids").read_text().split())
    os.kill(agent, signal.SIGKILL)
    with pytest.raises(JobLostError, match="is lost"):
        job.wait(PATIENCE_S)
    job.end_gently(1.0)
    wait_for(lambda: not is_running(guardian))
    with pytest.raises(EnvironmentFailure, match="all agents"):
        executor.start(make("true"))
    assert any("ended with status" in text for text in executor.notes)


def test_nothing_is_started_before_the_first_job(executor, tmp_path):
    assert not (tmp_path / "agents").exists()
    assert executor.notes == []
