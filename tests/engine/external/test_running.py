"""Jobs are run one after the other; whatever happens, what succeeded is kept and nothing that was
started stays."""

from __future__ import annotations

import errno
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from gemmetry.domain.errors import RequestError, StorageError
from gemmetry.engine import external as running
from gemmetry.engine.external import (
    ExternalJob,
    JobFinished,
    JobJournal,
    JobRun,
    JobsPlanned,
    JobStarted,
    resolve_program,
    start_here,
)

linux = pytest.mark.skipif(sys.platform != "linux", reason="subreapers and /proc are Linux's")


@pytest.fixture
def make(tmp_path):
    """Makes a job of a shell script, which must write the file ``done`` into its folder."""

    def job(name, script, deadline_s=None, **environment):
        folder = tmp_path / name
        return ExternalJob(
            name=name, title=f"job {name}", argv=("sh", "-c", script), environment=environment,
            working_folder=tmp_path, log=folder / "log", deadline_s=deadline_s,
            lacks=lambda: "" if (folder / "done").exists() else "it wrote no file",
        )  # fmt: skip

    return job


@pytest.fixture
def run(tmp_path):
    """Runs jobs; the events of the run, and the ends that were written down."""

    def go(*jobs, listener=lambda event: None):
        events, concluded = [], []

        def prepare(job):
            shutil.rmtree(job.log.parent, ignore_errors=True)
            job.log.parent.mkdir()

        def conclude(job, end):
            concluded.append((job.name, str(end.outcome)))

        def listen(event):
            events.append(event)
            listener(event)

        with JobJournal(tmp_path / "journal.jsonl") as journal:
            JobRun(tmp_path, journal, start_here, prepare, conclude, listen).work(jobs)
        ends = {e.job.name: e.end for e in events if isinstance(e, JobFinished)}
        return SimpleNamespace(events=events, concluded=concluded, ends=ends)

    return go


@pytest.fixture
def late(tmp_path, monkeypatch):
    """The clock of runs is an hour ahead once the file ``pid`` exists, so that a deadline passes
    when a job has got so far, however busy the machine is."""

    def monotonic():
        pid = tmp_path / "pid"
        return time.monotonic() + (3600 if pid.exists() and pid.read_text() else 0)

    monkeypatch.setattr(running, "time", SimpleNamespace(monotonic=monotonic))
    return 1800.0


def outcomes(ends):
    return {name: str(end.outcome) for name, end in ends.items()}


def stored_outcomes(folder):
    with JobJournal(folder / "journal.jsonl") as journal:
        return outcomes(journal.ends)


@pytest.fixture
def process(tmp_path, wait_until):
    """The process that a job named in the file ``pid``, once it has."""
    path = tmp_path / "pid"

    def wait():
        wait_until(lambda: path.exists() and path.read_text().strip())
        return int(path.read_text())

    return wait


def test_a_job_that_fails_is_marked_and_the_others_run(make, run, tmp_path):
    found = run(
        make("a", "echo $COLOUR $PWD > a/done", COLOUR="blue"),
        make("b", "echo begin; echo 'ValueError: no such layer' >&2; exit 3"),
        make("c", "kill -SEGV $$"),
        make("d", "echo all is well"),
        make("e", "touch e/done"),
    )
    assert (tmp_path / "a" / "done").read_text() == f"blue {tmp_path}\n"
    _, b, c, d, _ = found.ends.values()
    assert outcomes(found.ends) == {**dict.fromkeys("abcde", "failed"), "a": "ok", "e": "ok"}
    assert (b.reason, b.exit_status) == ("exit status 3: ValueError: no such layer", 3)
    assert b.log_tail == "begin\nValueError: no such layer\n"
    assert (c.reason, c.exit_status) == ("ended by SIGSEGV", -signal.SIGSEGV)
    assert (d.reason, d.exit_status) == ("it wrote no file", 0)
    assert found.concluded == [*outcomes(found.ends).items()]
    assert isinstance(found.events[0], JobsPlanned)
    started = [event.number for event in found.events if isinstance(event, JobStarted)]
    assert started == [1, 2, 3, 4, 5]


def test_what_succeeded_is_kept_only_while_it_is_there(make, run, tmp_path):
    jobs = [make("a", "touch a/done"), make("b", "test -e again && touch b/done")]
    assert outcomes(run(*jobs).ends) == {"a": "ok", "b": "failed"}
    (tmp_path / "again").touch()
    again = run(*jobs)
    assert again.events[0] == JobsPlanned(total=2, kept=1)
    assert outcomes(again.ends) == {"b": "ok"}
    assert run(*jobs).events == [JobsPlanned(total=2, kept=2)]
    (tmp_path / "a" / "done").unlink()
    assert list(run(*jobs).ends) == ["a"]


@linux
@pytest.mark.parametrize("script", [
    "setsid sleep 1001 & echo $! > pid; sleep 1002",
    "trap '' TERM; echo $$ > pid; while :; do sleep 0.01; done",
])  # fmt: skip
def test_a_late_job_is_ended_with_all_it_started(
    make, run, late, monkeypatch, process, is_running, script
):
    """Also where it ignores the request to end."""
    monkeypatch.setattr(running, "GRACE_S", 0.2)
    found = run(make("a", script, deadline_s=late), make("b", "touch b/done"))
    assert outcomes(found.ends) == {"a": "timeout", "b": "ok"}
    assert found.ends["a"].reason == "it took longer than 1800 s"
    assert found.ends["a"].exit_status is None
    assert not is_running(process())


@linux
def test_what_a_job_leaves_running_is_ended_and_named(make, run, process, is_running):
    script = (
        "setsid sleep 1003 & echo $! > pid; "
        "until grep -q '^sleep' /proc/$!/cmdline; do sleep 0.01; done; touch a/done"
    )
    end = run(make("a", script)).ends["a"]
    assert str(end.outcome) == "ok"
    assert "sleep 1003" in end.reason
    assert not is_running(process())


@linux
def test_an_interrupt_ends_the_command_and_spares_others(
    make, run, tmp_path, process, is_running, interrupted
):
    script = "trap 'touch gentle; exit 1' TERM; echo $$ > pid; while :; do sleep 0.01; done"
    bystander = subprocess.Popen(["sleep", "1004"], start_new_session=True)
    try:
        with interrupted(process):
            run(make("a", script), make("b", "touch b/done"))
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
    assert (tmp_path / "gentle").exists()
    assert not is_running(process())
    assert not (tmp_path / "b").exists()
    assert stored_outcomes(tmp_path) == {"a": "interrupted"}


KILLED = """
import sys
from pathlib import Path
from gemmetry.engine.external import JobJournal, JobRun, ExternalJob, start_here
folder = Path(sys.argv[1])
scripts = {"a": "touch done-a", "b": "setsid sleep 1005 & echo $! > pid; sleep 1006"}
jobs = [
    ExternalJob(name=name, title=name, argv=("sh", "-c", script), environment={},
              working_folder=folder, log=folder / f"{name}.log", deadline_s=None,
              lacks=lambda: "")
    for name, script in scripts.items()
]
with JobJournal(folder / "journal.jsonl") as journal:
    JobRun(folder, journal, start_here, lambda job: None, lambda job, end: None,
           lambda event: None).work(jobs)
"""


@linux
def test_after_a_kill_only_the_running_job_is_lost(tmp_path, process, is_running, wait_until):
    killed = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)])
    stray = process()
    assert is_running(stray)
    killed.kill()
    killed.wait()
    wait_until(lambda: not is_running(stray))
    assert stored_outcomes(tmp_path) == {"a": "ok"}


def test_a_full_disk_ends_the_run_and_keeps_what_is_there(make, run, tmp_path, monkeypatch):
    jobs = [make("a", "touch a/done"), make("b", "touch b/done")]

    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))

    def fill(event):
        if isinstance(event, JobFinished):
            monkeypatch.setattr(running.os, "fsync", full)

    with pytest.raises(StorageError, match="no space left"):
        run(*jobs, listener=fill)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert run(*jobs).events[0] == JobsPlanned(total=2, kept=1)


def test_no_job_starts_on_an_almost_full_disk(make, run, tmp_path, monkeypatch):
    monkeypatch.setattr(running.shutil, "disk_usage", lambda path: SimpleNamespace(free=2**20))
    with pytest.raises(StorageError, match="only 1 MiB are free"):
        run(make("a", "touch a/done"))
    assert not (tmp_path / "a").exists()


def test_a_program_that_does_not_exist():
    with pytest.raises(RequestError, match="'torchrunn'"):
        resolve_program("torchrunn")
    assert Path(resolve_program("sh")).is_absolute()
