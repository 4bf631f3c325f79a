from __future__ import annotations

import atexit
import gc
import importlib
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

# A library's threads that have nothing to do would spin, on processors that other tests need; the
# libraries read it when they are loaded, here and in every process of a test.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import hypothesis  # before trio, whose plugin of it warns otherwise
import numpy as np
import pytest
from tests.cases import pytest_generate_tests  # noqa: F401
from tests.fork_server import ForkServers
from tests.pages import (  # noqa: F401
    browser,
    console_text_fixture,
    dumped_fixture,
    elements,
    loads_nothing,
    page_data_fixture,
    page_text_fixture,
    scripts,
)

from gemmetry.domain.contracts import StressDevice
from gemmetry.engine import process as local
from gemmetry.engine import session
from gemmetry.hardware.host_device import set_blas_threads
from gemmetry.judge import remote as _judged
from gemmetry.providers.user_provider import kernel as _user_probe

# A busy machine may take any time for an example.
hypothesis.settings.register_profile("suite", deadline=None)
hypothesis.settings.load_profile("suite")

FORKING = (local, _judged, _user_probe)
"""Modules that start processes which tests fork."""

# The suite's products are small. OpenBLAS wakes all its threads for most of them, and each thread
# then spins for 2²⁶ cycles (driver/others/blas_server.c), which is most of what a test of
# verification computes.
set_blas_threads(1)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Garbage is never looked for, now or later, among the million objects that collecting creates
    and that live to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


# What libraries created while tests were collected ends with the interpreter, after pytest's last
# searches for garbage.
atexit.register(gc.unfreeze)


SERVERS = ForkServers()


@pytest.fixture(scope="session")
def forked() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a Python program in a separate process that need not import everything again."""
    return SERVERS.run


@pytest.fixture(scope="session", autouse=True)
def forked_workers() -> Iterator[None]:
    """Workers of the engine are forked from a process that has imported torch, see
    ``fork_server.py``."""
    forking = SimpleNamespace(**vars(subprocess) | {"Popen": SERVERS.popen})
    for module in FORKING:
        module.subprocess = forking
    # The variables that a server is for would include the name of the test.
    fork_server = session.fork_server
    session.fork_server = lambda variables: (
        None if variables is None else SimpleNamespace(start_worker=local.start_worker)
    )
    awaits = _user_probe._await_end
    _user_probe._await_end = SERVERS.awaiting(awaits)
    yield
    _user_probe._await_end = awaits
    session.fork_server = fork_server
    for module in FORKING:
        module.subprocess = subprocess
    SERVERS.end()


@pytest.fixture
def fresh_workers(monkeypatch) -> None:
    """Workers are started as new processes, as they are everywhere else."""
    for module in FORKING:
        monkeypatch.setattr(module, "subprocess", subprocess)


@pytest.fixture
def stress_host():
    """Puts a device that computes on the host under stress, and returns what did not happen."""

    def stress(device):
        before = threading.active_count()
        with device.spoiled_scratch(100_000), device.load():
            spoiled = bool((np.empty(100_000, np.uint8) == 0xFF).all())
            is_busy = threading.active_count() > before
        happened = {
            "it can be put under stress": isinstance(device, StressDevice),
            "it has no limits": device.stress_limits() == "", "new memory is spoiled": spoiled,
            "processors are busy": is_busy, "it lets go": threading.active_count() == before,
        }  # fmt: skip
        return [what for what, is_so in happened.items() if not is_so]

    return stress


def _helper(name: str, file: str = "") -> Callable[[], ModuleType]:
    """A fixture: the module of this folder that has its name, unless it states another one."""

    @pytest.fixture(scope="session", name=name)
    def module() -> ModuleType:
        return importlib.import_module(f"tests.{file or name}")

    return module


# Stand-ins for profilers and libraries, and what makes synthetic sweeps, histories and launches.
rocprofv3, ncu = _helper("rocprofv3"), _helper("ncu")
ncu_report = _helper("ncu_report", "ncu_report_stand_in")
cublaslt_stand_in = _helper("cublaslt_stand_in")
sweeps = _helper("sweeps", "synthetic_sweeps")
histories, counter_launches = _helper("histories"), _helper("counter_launches")


@pytest.fixture(scope="session")
def golden() -> Callable[[str, str], None]:
    """Compares a text with ``data/outputs/NAME.txt``; GEMMETRY_GOLDEN=1 stores it anew."""

    def check(name: str, text: str) -> None:
        target = Path(__file__).parent / "data" / "outputs" / f"{name}.txt"
        if os.environ.get("GEMMETRY_GOLDEN"):
            target.write_text(text, "utf-8")
        assert text == target.read_text("utf-8")

    return check
