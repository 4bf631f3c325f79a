from __future__ import annotations

import ctypes
import multiprocessing
import os
import platform
import signal
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gemmetry.domain.errors import LaunchError
from gemmetry.engine import bench as copies
from gemmetry.engine import guardian
from gemmetry.engine.bench import Copies, ReturnsOnce

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="processes are found in /proc"
)

_libc = ctypes.CDLL(None)
_CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine())


def clone(flags):
    """As a kernel without the C library's ``fork`` would; no hook of Python or C runs."""
    if _CLONE is None:
        pytest.skip("the number of the system call is not known")
    _libc.syscall(_CLONE, flags, 0, 0, 0, 0)


def forks_twice():
    if os.fork() == 0:
        if os.fork() > 0:
            os._exit(0)
        os.setsid()


def forks_in_a_chain():
    if os.fork() == 0:
        for _ in range(4):
            if os.fork() > 0:
                os._exit(0)


def forks_and_comes_back_late():
    if os.fork() == 0:
        time.sleep(0.1)


def forks_and_raises():
    if os.fork() == 0:
        raise SystemExit(3)


def forks_a_dozen():
    any(os.fork() == 0 for _ in range(12))


def sleeps():
    if os.fork() == 0:
        while True:
            time.sleep(1000)


def stops():
    if os.fork() == 0:
        os.kill(os.getpid(), signal.SIGSTOP)


def computes():
    if os.fork() == 0:
        while True:
            pass


def a_dozen_ends():
    for _ in range(12):
        if os.fork() == 0:
            os._exit(0)


def executes():
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "1005"])


RETURNING = {
    "fork": os.fork,
    "fork in C": _libc.fork,
    "clone": lambda: clone(signal.SIGCHLD),
    "clone without a signal": lambda: clone(0),
    "double fork": forks_twice,
    "chain": forks_in_a_chain,
    "late": forks_and_comes_back_late,
    "raises": forks_and_raises,
    "a dozen": forks_a_dozen,
}
STAYING = {"sleeps": sleeps, "stops": stops, "computes": computes}


def executable_that(does):
    return SimpleNamespace(
        device=None, facts=None, writes_output=False, run=lambda inputs, output: does() and None
    )


@pytest.fixture
def look():
    """Has a launch looked at whose kernel does what is given; nothing of it is left afterwards."""
    guardian.become_subreaper()
    before = {process.pid for process in guardian.descendants(os.getpid())}
    found = Copies()

    def launch(does):
        found.forget()
        ReturnsOnce(executable_that(does), found).run((), None)

    yield launch
    left = [p for p in guardian.descendants(os.getpid()) if p.pid not in before]
    for process in left:
        guardian.kill(process.pid)
        guardian.collect(process.pid)
    assert [p.name for p in left if p.image == guardian.own_image()] == []


@pytest.mark.parametrize("how", RETURNING)
def test_a_copy_that_returns_is_always_found(look, how):
    with pytest.raises(LaunchError, match="the kernel forks and"):
        look(RETURNING[how])
    look(int)  # the next kernel is not to blame


def test_a_slow_copy_is_waited_for(look, monkeypatch):
    """Looks that find it waiting for a processor do not count, however many there are."""
    real, looks = copies.descendants, []
    go_on, gone_on = os.pipe()

    def forks_and_comes_back_when_let():
        if os.fork() == 0:
            os.read(go_on, 1)

    def waiting_for_a_processor(*arguments, **options):
        found = real(*arguments, **options)
        looks.append(len(found))
        if len(looks) == 5:
            os.write(gone_on, b"x")
        return [replace(one, state="R") if one.is_alive else one for one in found]

    monkeypatch.setattr(copies, "MOST_IDLE_CHECKS", 1)
    monkeypatch.setattr(copies, "descendants", waiting_for_a_processor)
    with pytest.raises(LaunchError, match="returns twice"):
        look(forks_and_comes_back_when_let)
    assert len(looks) >= 5
    os.close(go_on)
    os.close(gone_on)


@pytest.mark.parametrize("how", STAYING)
def test_a_copy_that_stays_is_refused_and_ended(look, monkeypatch, how):
    monkeypatch.setattr(copies, "MOST_IDLE_CHECKS", 5)
    monkeypatch.setattr(copies, "MOST_CPU_S", 0.05)
    with pytest.raises(LaunchError, match="leaves a copy of the process"):
        look(STAYING[how])
    look(int)


@pytest.mark.parametrize(
    "does", [a_dozen_ends, executes, lambda: subprocess.run(["true"]) and None, int]
)
def test_a_process_that_ends_in_the_kernel_or_executes_a_program_is_not_a_copy(look, does):
    look(does)


def test_processes_of_multiprocessing_may_stay(look, monkeypatch):
    monkeypatch.setattr(copies, "MOST_IDLE_CHECKS", 1)
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,))
    look(process.start)
    assert process.is_alive()
    process.kill()
    process.join()


def test_a_copy_of_a_later_launch_is_found_at_the_next_look(look):
    found = Copies()
    launches = []

    def forks_later():
        launches.append(1)
        if len(launches) == 2:
            os.fork()

    kernel = ReturnsOnce(executable_that(forks_later), found)
    kernel.run((), None)
    with pytest.raises(LaunchError, match="the kernel forks and"):
        kernel.run((), None)
        found.wait_and_check()


def test_a_look_costs_little_where_nothing_was_started(monkeypatch):
    found = Copies()
    scans = []
    monkeypatch.setattr(copies, "has_children", lambda: False)
    monkeypatch.setattr(copies, "descendants", lambda *args: scans.append(args) or [])
    found.wait_and_check()
    assert scans == []
