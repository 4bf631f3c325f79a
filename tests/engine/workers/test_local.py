from __future__ import annotations

import gc
import signal
from pathlib import Path

import pytest

from gemmetry.engine.workers import local
from gemmetry.engine.workers.local import WorkerStart
from gemmetry.engine.workers.protocol import ChannelClosed, Shutdown


@pytest.fixture
def start(tmp_path):
    """Starts a worker that was sent nothing yet; what the executor yields."""
    started = []

    def go():
        found = local.LocalExecutor().start(
            WorkerStart(log=tmp_path / "log", temporary=tmp_path, defaults={}, variables={})
        )
        started.append(found)
        return found

    yield go
    for channel, process in started:
        process.end()
        channel.close()


def test_a_worker_ends_on_request(start):
    channel, process = start()
    assert process.wait(0) is None
    channel.send(Shutdown())
    assert process.wait(60) == 0
    assert process.left_running() == []
    assert not process.was_killed_for_memory()
    with pytest.raises(ChannelClosed):
        channel.receive(1)


def test_a_worker_that_is_ended_reports_the_signal_and_may_be_ended_again(start):
    channel, process = start()
    assert process.pid > 0
    process.end()
    process.end()
    assert process.wait(0) == -signal.SIGKILL
    with pytest.raises(ChannelClosed):
        channel.receive(1)


def test_the_users_own_variables_come_between_defaults_and_what_is_required(tmp_path, monkeypatch):
    monkeypatch.setenv("KINETO_LOG_LEVEL", "1")
    monkeypatch.setenv("TMPDIR", "/elsewhere")
    found = local._environment(
        WorkerStart(
            log=tmp_path, temporary=tmp_path,
            defaults={"KINETO_LOG_LEVEL": "6", "GOMP_SPINCOUNT_": "2"},
            variables={"TMPDIR": str(tmp_path)},
        )
    )  # fmt: skip
    assert found["KINETO_LOG_LEVEL"] == "1"
    assert found["GOMP_SPINCOUNT_"] == "2"
    assert found["TMPDIR"] == str(tmp_path)


@pytest.mark.parametrize(
    ("held", "free", "is_short"),
    [(300, 39, True), (300, 41, False), (249, 1, False)],
)
def test_memory_is_short_within_what_the_control_group_grants(monkeypatch, held, free, is_short):
    monkeypatch.setattr(local, "total_memory_bytes", lambda: 1000)
    monkeypatch.setattr(local, "free_memory_bytes", lambda: free)
    assert local._memory_is_short(held) is is_short


def test_a_worker_that_cannot_be_started_leaves_no_descriptor_open(tmp_path):
    start = WorkerStart(tmp_path / "missing" / "log", tmp_path, {}, {})
    gc.collect()
    before = len(list(Path("/dev/fd").iterdir()))
    with pytest.raises(OSError) as caught:
        local.LocalExecutor().open(start)
    assert len(list(Path("/dev/fd").iterdir())) == before, f"while {caught} keeps its frames"
