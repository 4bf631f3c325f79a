"""Runs the command line in this process, and as a separate process."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gemmetry.cli.main import run
from gemmetry.documents import sweep_plots


@dataclass
class Ended:
    status: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Cli:
    """Runs ``gemmetry`` with arguments; where a status is given, it has to end with that one."""

    run: Callable[..., Ended]

    def __call__(self, *arguments: Any, status: int | None = None, **others: Any) -> Ended:
        ended = self.run(*map(str, arguments), **others)
        assert status in (None, ended.status), f"{ended.status}: {ended.stderr}"
        return ended

    def json(self, *arguments: Any, status: int = 0, **others: Any) -> Any:
        """The document that a command prints; each has a version."""
        found = json.loads(self(*arguments, "--json", status=status, **others).stdout)
        assert isinstance(found["schema_version"], int)
        return found


LEVEL_STATED = {"--verification-level", "--quick", "--help", "--dry-run"}


@pytest.fixture
def cli_as_typed(tmp_path, monkeypatch, capsys) -> Cli:
    """Runs `gemmetry` with these arguments in a separate folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["gemmetry", *arguments])
        status = run(list(arguments))
        captured = capsys.readouterr()
        return Ended(status, captured.out, captured.err)

    return Cli(call)


@pytest.fixture
def cli(cli_as_typed) -> Cli:
    """The same, but `profile` verifies at level quick, and measures in one process, where the
    arguments state no level: tests/verification has the tests of the checks."""

    def call(*arguments: str) -> Ended:
        if arguments[:1] == ("profile",) and not LEVEL_STATED & {*arguments}:
            arguments += ("--verification-level", "quick")
            if "--processes" not in arguments:
                arguments += ("--processes", "1")
        return cli_as_typed(*arguments)

    return Cli(call)


@pytest.fixture(scope="session")
def run_in() -> Cli:
    """Runs `gemmetry` in a folder, for what several tests share."""

    def call(folder: str, *arguments: str) -> Ended:
        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.chdir(folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.MonkeyPatch.context() as patched,
        ):
            patched.setenv("COLUMNS", "200")
            patched.setattr(sys, "argv", ["gemmetry", *arguments])
            status = run(list(arguments))
        return Ended(status, out.getvalue(), err.getvalue())

    return Cli(call)


@pytest.fixture
def with_rocprofv3(tmp_path, monkeypatch, rocprofv3) -> Path:
    """The stand-in for rocprofv3, first on the PATH."""
    program = rocprofv3.install(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return program


@pytest.fixture
def with_ncu(tmp_path, monkeypatch, ncu) -> Path:
    """The stand-in for Nsight Compute, first on the PATH."""
    program = ncu.install(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return program


@pytest.fixture
def experiments(cli) -> Cli:
    """`cli` in a folder with the equal experiments a and b."""
    for name in ("a", "b"):
        cli(
            "profile", "--providers", "null", "--shapes", "64x64x64", "--experiment", name, status=0
        )
    return cli


PLOTS = ("by_threads_boxplot", "by_channels_boxplot", "by_ranks_boxplot", "violin_combined",
         "thread_channel_interaction")  # fmt: skip


@pytest.fixture
def quick_plots(monkeypatch) -> None:
    """Files with the names of a sweep's plots, which take seconds; tests/sweeps draws them."""
    made = {f"variance_{name}.png": b"made now" for name in PLOTS}
    monkeypatch.setattr(sweep_plots, "sweep_plots", lambda points: made)


Spawn = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def spawn(tmp_path) -> Spawn:
    """Starts `gemmetry` with these arguments as a process in a separate folder."""

    def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", "from gemmetry.cli.main import main; main()", *arguments],
            cwd=tmp_path,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Shells start background processes, and thus their children, with interrupts ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    return start
