from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

import pytest

from gemmetry.engine import process as local
from gemmetry.engine.protocol import ChannelClosed, Shutdown


@pytest.fixture
def start(tmp_path):
    """Starts a worker that was sent nothing yet; what the executor yields."""
    started = []

    def go():
        found = local.start_worker(tmp_path / "log", tmp_path, os.environ)
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


@pytest.mark.parametrize(
    ("held", "free", "is_short"),
    [(300, 39, True), (300, 41, False), (249, 1, False)],
)
def test_memory_is_short_within_what_the_control_group_grants(
    monkeypatch, start, held, free, is_short
):
    monkeypatch.setattr(local, "resident_bytes", lambda pid: held)
    monkeypatch.setattr(local, "total_memory_bytes", lambda: 1000)
    monkeypatch.setattr(local, "free_memory_bytes", lambda: free)
    assert bool(start()[1].memory_shortage()) is is_short


def test_a_worker_that_cannot_be_started_leaves_no_descriptor_open(tmp_path):
    gc.collect()
    before = len(list(Path("/dev/fd").iterdir()))
    with pytest.raises(OSError) as caught:
        local.start_worker(tmp_path / "missing" / "log", tmp_path, {})
    assert len(list(Path("/dev/fd").iterdir())) == before, f"while {caught} keeps its frames"
