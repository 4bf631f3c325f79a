from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gemmetry.engine import guardian
from gemmetry.engine.guardian import Strays

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="processes are found in /proc"
)


@pytest.fixture
def started():
    """Starts a process, in a session of its own on request."""
    running = []

    def go(seconds, *, own):
        process = subprocess.Popen(["sleep", str(seconds)], start_new_session=own)
        running.append(process)
        while not Path(f"/proc/{process.pid}/cmdline").read_bytes().startswith(b"sleep"):
            time.sleep(0.001)  # it is running, but its arguments are not in place yet
        return process

    yield go
    for process in running:
        process.kill()
        process.wait()


def test_each_dispatch_is_blamed_for_the_processes_it_left(started):
    before = started(2000, own=True)
    strays = Strays()
    assert strays.find_new(1) == ()
    first = started(2001, own=True)
    mine = started(2002, own=False)
    assert strays.find_new(1) == (f"sleep 2001 (process {first.pid})",)
    second = started(2003, own=True)
    assert strays.find_new(2) == (f"sleep 2003 (process {second.pid})",)
    strays.end(3)
    strays.end(1)
    assert not is_running(first)
    assert is_running(mine), "what a kill of the group reaches is left alone"
    assert is_running(second)
    strays.end(2)
    assert not is_running(second)
    assert strays.find_new(2) == ()
    assert is_running(before), "it is no dispatch's"


def is_running(process):
    return process.pid in [found.pid for found in guardian.descendants(os.getpid())]


def test_processes_that_have_already_ended_do_no_harm(started):
    strays = Strays()
    process = started(2004, own=True)
    assert len(strays.find_new(1)) == 1
    process.kill()
    process.wait()
    strays.end(1)
    assert strays.find_new(2) == ()
