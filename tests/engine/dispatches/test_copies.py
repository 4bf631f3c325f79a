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
from unittest.mock import Mock

import pytest

from gemmetry.domain.errors import LaunchError
from gemmetry.engine import bench as copies
from gemmetry.engine import guardian
from gemmetry.engine.bench import Copies, ReturnsOnce

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")

_libc = ctypes.CDLL(None)
_CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine())


def clone(flags):
    """As a kernel without the C library's ``fork`` would; no hook of Python or C runs."""
    if _CLONE is None:
        pytest.skip("the number of the system call is not known")
    _libc.syscall(_CLONE, flags, 0, 0, 0, 0)


def in_a_fork(does):
    """A kernel whose copy does what is given."""
    return lambda: does() if os.fork() == 0 else None


def forks_in_a_chain(length):
    """Each copy but the last ends when it has made the next one."""
    for _ in range(length):
        if os.fork() > 0:
            os._exit(0)


def forks_twice():
    forks_in_a_chain(1)
    os.setsid()


def computes():
    while True:
        pass


def a_dozen_ends():
    for _ in range(12):
        in_a_fork(lambda: os._exit(0))()


RETURNING = {
    "fork": os.fork,
    "fork in C": _libc.fork,
    "clone": lambda: clone(signal.SIGCHLD),
    "clone without a signal": lambda: clone(0),
    "double fork": in_a_fork(forks_twice),
    "chain": in_a_fork(lambda: forks_in_a_chain(4)),
    "late": in_a_fork(lambda: time.sleep(0.1)),
    "raises": in_a_fork(lambda: sys.exit(3)),
    "a dozen": lambda: any(os.fork() == 0 for _ in range(12)),
}
STAYING = {
    "sleeps": in_a_fork(lambda: time.sleep(1000)),
    "stops": in_a_fork(lambda: os.kill(os.getpid(), signal.SIGSTOP)),
    "computes": in_a_fork(computes),
}
ENDING = [
    a_dozen_ends, in_a_fork(lambda: os.execvp("sleep", ["sleep", "1005"])),
    lambda: subprocess.run(["true"]), int,
]  # fmt: skip


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


def test_the_copy_of_a_copy_that_ends_during_a_check_is_found(monkeypatch):
    image = guardian.own_image()
    first, ended, second = (
        guardian.Process(pid, 0, "copy", state, 0.0, image)
        for pid, state in ((1, "R"), (1, "Z"), (2, "R"))
    )
    found = Copies()
    looks = iter([[first], [ended], [ended, second]])
    monkeypatch.setattr(copies, "has_children", lambda: True)
    monkeypatch.setattr(copies, "descendants", lambda *_, **__: next(looks))
    assert [found._running(), found._running()] == [[first], [second]]


def test_a_slow_copy_is_waited_for(look, monkeypatch):
    """Looks that find it waiting for a processor do not count, however many there are."""
    real, looks = copies.descendants, []
    go_on, gone_on = os.pipe()

    def waiting_for_a_processor(*arguments, **options):
        found = real(*arguments, **options)
        looks.append(len(found))
        if len(looks) == 5:
            os.write(gone_on, b"x")
        return [replace(one, state="R") if one.is_alive else one for one in found]

    monkeypatch.setattr(copies, "MOST_IDLE_CHECKS", 1)
    monkeypatch.setattr(copies, "descendants", waiting_for_a_processor)
    with pytest.raises(LaunchError, match="returns twice"):
        look(in_a_fork(lambda: os.read(go_on, 1)))
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


@pytest.mark.parametrize("does", ENDING)
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
    launches = iter([int, os.fork])
    kernel = ReturnsOnce(executable_that(lambda: next(launches)()), found)
    kernel.run((), None)
    with pytest.raises(LaunchError, match="the kernel forks and"):
        kernel.run((), None)
        found.wait_and_check()


def test_a_look_costs_little_where_nothing_was_started(monkeypatch):
    found, scan = Copies(), Mock()
    monkeypatch.setattr(copies, "has_children", lambda: False)
    monkeypatch.setattr(copies, "descendants", scan)
    found.wait_and_check()
    assert not scan.called
