"""Executors decide where a job's command runs. The one here starts it on this machine; that of
``remote.py`` has an agent start it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from gemmetry.domain.errors import GemmetryError, RequestError
from gemmetry.engine.opaque.job import OpaqueJob
from gemmetry.engine.workers.executor import ProcessHandle
from gemmetry.engine.workers.local import LocalProcess, start_guarded

GRACE_S = 10.0
"""How long a command has to end by itself after SIGTERM: torchrun passes the signal to its ranks,
``docker run`` and ``srun`` to theirs elsewhere."""

_POLL_S = 0.5


class JobLostError(GemmetryError):
    """The host of a job is gone, and with it the job; others can run elsewhere."""


class JobHandle(ProcessHandle, Protocol):
    """A running command."""

    def end_gently(self, grace_s: float) -> None:
        """Request that it ends, and after `grace_s` end it and everything that it started."""


class JobExecutor(Protocol):
    """Starts commands, here or elsewhere."""

    def start(self, job: OpaqueJob) -> JobHandle:
        """Start the command of `job`.

        Raises:
            OSError, JobLostError: it cannot be started.
            EnvironmentFailure: none can be started any more.
        """


class LocalJobExecutor:
    """Starts commands on this machine, each in a session of its own and with a guardian, so that
    everything that it started ends with it, and with this process."""

    def start(self, job: OpaqueJob) -> LocalJob:
        """See :class:`JobExecutor`."""
        return start_command(job.argv, job.environment, job.working_folder, job.log)


def start_command(
    argv: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path
) -> LocalJob:
    """Start a command in `folder`, with variables in addition to those of this process, and with
    its output in `log`.

    Raises:
        RequestError: there is no such program. OSError: it cannot be started.
    """
    variables = {**os.environ, **environment}
    program, *arguments = argv
    # The guardian requires a descriptor to close; a command has no channel.
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        process = start_guarded(
            [resolve_program(program, variables.get("PATH")), *arguments],
            channel=nothing,
            temporary="",
            log=log,
            environment=variables,
            folder=folder,
        )
    finally:
        os.close(nothing)
    return LocalJob(process)


class LocalJob:
    """A command of this machine; see :class:`JobHandle`."""

    def __init__(self, process: LocalProcess) -> None:
        self._process = process
        self.wait = process.wait
        self.end = process.end
        self.left_running = process.left_running
        self.memory_shortage = process.memory_shortage
        self.was_killed_for_memory = process.was_killed_for_memory

    @property
    def pid(self) -> int:
        """The number of the command's process, which leads its group; waits until it is known."""
        return self._process.pid

    def end_gently(self, grace_s: float) -> None:
        """SIGTERM to its process group, then SIGKILL to all."""
        try:
            if self._process.wait(0) is None:
                self._process.terminate()
                self._process.wait(grace_s)
        finally:
            self._process.end()


def run_command(argv: tuple[str, ...], environment: Mapping[str, str], log: Path) -> int:
    """Run a command in the present folder, with its output in `log`, and return its exit status. It
    and everything that it starts end with this process, and with an exception.

    Raises:
        RequestError: there is no such program. OSError: it cannot be started.
    """
    process = start_command(argv, environment, Path.cwd(), log.absolute())
    try:
        while (status := process.wait(_POLL_S)) is None:
            pass
        return status
    finally:
        process.end_gently(GRACE_S)


def resolve_program(program: str, search: str | None = None) -> str:
    """The path of a program, which `search` (default: PATH) finds unless it has a folder.

    Raises:
        RequestError: there is none of that name.
    """
    found = shutil.which(program, path=search)
    if found is None:
        raise RequestError(
            f"there is no program {program!r}",
            hint="Give its path, or add its folder to PATH.",
        )
    return str(Path(found).absolute())
