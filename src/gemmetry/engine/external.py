"""A command as a job: what is run, and how it ended.

The journal of jobs: one JSON line for each start and each end, on the disk before the run
continues, so that a kill at any moment loses at most the job that was running.

Runs jobs one after the other, keeps what succeeded earlier, and journals each start and end.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

import msgspec

from gemmetry.domain.errors import GemmetryError, JournalDamagedError, RequestError, StorageError
from gemmetry.engine.process import POLL_S, LocalProcess, start_guarded
from gemmetry.engine.protocol import left_behind, signal_name
from gemmetry.engine.schema import now, os_failure
from gemmetry.formats.run_log import crash_in, last_line, log_tail

if TYPE_CHECKING:
    from gemmetry.engine.ray_tasks import RayJob


class JobOutcome(StrEnum):
    """How a job ended."""

    OK = "ok"
    FAILED = "failed"
    """It ended by itself, without success."""
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"
    """The run was interrupted while it ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalJob:
    """A command that is run in its own folder."""

    name: str
    """Identifies the job in its journal; it is the same whenever the job is planned again."""
    title: str
    """What is shown of it."""
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    """Variables that are set in addition to those of this process."""
    working_folder: Path
    log: Path
    """The file that receives standard output and standard error. Its folder belongs to the job."""
    deadline_s: float | None
    lacks: Callable[[], str]
    """Why the job has not succeeded although its command ended with status 0; "" if it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """How a job ended."""

    outcome: JobOutcome
    reason: str = ""
    """One line: why it did not succeed, and what it left running."""
    exit_status: int | None = None
    """Negative for a signal; None if the command was ended or never started."""
    seconds: float = 0.0
    log_tail: str = ""
    """The end of the log of a job that did not succeed."""


class JobLine(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line of the journal."""

    event: str
    job: str
    time: str
    """ISO 8601, UTC."""
    end: JobEnd | None = None


class JobJournal:
    """The journal in the file `path`; use it as a context manager. One process writes to it, which
    the lock of its folder ensures."""

    def __init__(self, path: Path) -> None:
        """Read the journal, or begin one.

        Raises:
            JournalDamagedError: a line cannot be read. StorageError: the file cannot be used.
        """
        self._path = path
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            self._descriptor = os.open(path, flags, 0o644)
            try:
                content = _complete_lines(path)
                os.truncate(self._descriptor, len(content))
                self.ends = _ends_in(content, path)
                """Job -> how it ended, of those whose last start has an end."""
            except BaseException:
                os.close(self._descriptor)
                raise
        except OSError as error:
            raise os_failure(path.parent, error, option="--output") from error

    def start(self, job: str, time: str) -> None:
        """A job is about to start; an earlier end of it no longer counts."""
        self._append(JobLine(event="start", job=job, time=time))
        self.ends.pop(job, None)

    def end(self, job: str, time: str, end: JobEnd) -> None:
        """A job has ended."""
        self._append(JobLine(event="end", job=job, time=time, end=end))
        self.ends[job] = end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        os.close(self._descriptor)

    def _append(self, line: JobLine) -> None:
        content = memoryview(msgspec.json.encode(line) + b"\n")
        try:
            while content:
                content = content[os.write(self._descriptor, content) :]
            os.fsync(self._descriptor)
        except OSError as error:
            raise os_failure(self._path.parent, error, option="--output") from error


def read_ends(path: Path) -> Mapping[str, JobEnd]:
    """What :attr:`JobJournal.ends` would be; nothing is written, and another process may be writing
    to the file.

    Raises:
        JournalDamagedError: a line cannot be read. StorageError: the file cannot be read.
    """
    try:
        return _ends_in(_complete_lines(path), path)
    except OSError as error:
        raise os_failure(path.parent, error, option="--output") from error


def _complete_lines(path: Path) -> bytes:
    """A kill or a full disk can leave the beginning of a line at the end, which is left out."""
    content = path.read_bytes()
    return content[: content.rfind(b"\n") + 1]


def _ends_in(content: bytes, path: Path) -> dict[str, JobEnd]:
    ends: dict[str, JobEnd] = {}
    for number, text in enumerate(content.splitlines(), 1):
        try:
            line = msgspec.json.decode(text, type=JobLine)
        except msgspec.MsgspecError as error:
            raise JournalDamagedError(
                f"{path}:{number}: the journal cannot be read: {error}",
                hint="Use --fresh to begin anew; what is there is moved aside.",
            ) from error
        if line.end is not None:
            ends[line.job] = line.end
        else:
            ends.pop(line.job, None)
    return ends


GRACE_S = 10.0
"""How long a command has to end by itself after SIGTERM: torchrun passes the signal to its ranks,
``docker run`` and ``srun`` to theirs elsewhere."""


class JobLostError(GemmetryError):
    """The host of a job is gone, and with it the job; others can run elsewhere."""


JobHandle: TypeAlias = "LocalProcess | RayJob"
StartJob: TypeAlias = "Callable[[ExternalJob], JobHandle]"
"""Starts the command of a job, here or elsewhere. Raises OSError or JobLostError if it cannot be
started, and EnvironmentFailure if none can be started any more."""


def start_here(job: ExternalJob) -> LocalProcess:
    """Start the command of `job` on this machine, in a session of its own and with a guardian, so
    that everything that it started ends with it, and with this process."""
    return start_command(job.argv, job.environment, job.working_folder, job.log)


def start_command(
    argv: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path
) -> LocalProcess:
    """Start a command in `folder`, with variables in addition to those of this process, and with
    its output in `log`.

    Raises:
        RequestError: there is no such program. OSError: the program cannot be started.
    """
    variables = {**os.environ, **environment}
    program, *arguments = argv
    # The guardian requires a descriptor to close; a command has no channel.
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        return start_guarded(
            [resolve_program(program, variables.get("PATH")), *arguments], channel=nothing,
            temporary="", log=log, environment=variables, folder=folder,
        )  # fmt: skip
    finally:
        os.close(nothing)


def run_command(argv: tuple[str, ...], environment: Mapping[str, str], log: Path) -> int:
    """Run a command in the present folder, with its output in `log`, and return its exit status. It
    and everything that it starts end with this process, and with an exception.

    Raises:
        RequestError: there is no such program. OSError: the program cannot be started.
    """
    process = start_command(argv, environment, Path.cwd(), log.absolute())
    try:
        while (status := process.wait(POLL_S)) is None:
            pass
        return status
    finally:
        process.end_gently(GRACE_S)


def resolve_program(program: str, search: str | None = None) -> str:
    """The path of a program, which `search` (default: PATH) finds unless it has a folder.

    Raises:
        RequestError: no program has that name.
    """
    if (found := shutil.which(program, path=search)) is None:
        hint = "Give its path, or add its folder to PATH."
        raise RequestError(f"there is no program {program!r}", hint=hint)
    return str(Path(found).absolute())


MIN_FREE_BYTES = 32 * 2**20
"""With less free space no job is started: traces of a small run take about as much, and a full disk
would make all of the remaining jobs fail."""


@dataclass(frozen=True, slots=True)
class JobsPlanned:
    """`total` jobs are planned, of which `kept` succeeded in an earlier run."""

    total: int
    kept: int


@dataclass(frozen=True, slots=True)
class JobStarted:
    """A job is running; `number` counts from 1, kept jobs included."""

    job: ExternalJob
    number: int


@dataclass(frozen=True, slots=True)
class JobFinished:
    """A job has ended, and the journal states how."""

    job: ExternalJob
    number: int
    end: JobEnd


@dataclass(frozen=True, slots=True)
class JobWarning:
    """Something about the whole run that its user should know."""

    text: str


JobEvent: TypeAlias = JobsPlanned | JobStarted | JobFinished | JobWarning
JobListener: TypeAlias = Callable[[JobEvent], None]


def is_kept(job: ExternalJob, end: JobEnd | None) -> bool:
    """Whether a job that ended so does not run again: it succeeded, and what it produced is still
    there."""
    return end is not None and end.outcome is JobOutcome.OK and not job.lacks()


@dataclass(frozen=True, slots=True)
class JobRun:
    """Runs jobs into one folder."""

    folder: Path
    """The folder below which all jobs write."""
    journal: JobJournal
    start: StartJob
    prepare: Callable[[ExternalJob], None]
    """Makes the folder of a job's log, and removes what an earlier attempt left there."""
    conclude: Callable[[ExternalJob, JobEnd], None]
    """Writes down how a job ended, before the journal does."""
    listener: JobListener

    def work(self, jobs: Sequence[ExternalJob]) -> None:
        """Run those of `jobs` that have not succeeded yet. One that fails does not stop the others.

        Raises:
            StorageError: a file cannot be written, or the disk is almost full.
            KeyboardInterrupt: after the running job has been ended.
        """
        remaining = [job for job in jobs if not is_kept(job, self.journal.ends.get(job.name))]
        kept = len(jobs) - len(remaining)
        self.listener(JobsPlanned(len(jobs), kept))
        for number, job in enumerate(remaining, kept + 1):
            free = shutil.disk_usage(self.folder).free
            if free < MIN_FREE_BYTES:
                raise StorageError(
                    f"only {free / 2**20:.0f} MiB are free for {self.folder}",
                    hint="Free some disk space; the same command then continues.",
                )
            self.listener(JobStarted(job, number))
            try:
                self.prepare(job)
                self.journal.start(job.name, now())
                end = self._ended(job, self._end_of(job, time.monotonic()))
            except OSError as error:
                raise os_failure(self.folder, error, option="--output") from error
            self.listener(JobFinished(job, number, end))

    def _ended(self, job: ExternalJob, end: JobEnd) -> JobEnd:
        self.conclude(job, end)
        self.journal.end(job.name, now(), end)
        return end

    def _end_of(self, job: ExternalJob, started: float) -> JobEnd:
        """Run the command of `job`, and find how it ended.

        Raises:
            KeyboardInterrupt: after the job is ended and this is written down.
        """
        try:
            process = self.start(job)
            try:
                ends = started + (math.inf if job.deadline_s is None else job.deadline_s)
                while (status := process.wait(POLL_S)) is None and time.monotonic() <= ends:
                    pass
            finally:
                process.end_gently(GRACE_S)
        except KeyboardInterrupt:
            reason = "interrupted while it ran"
            self._ended(job, _made(job, started, JobOutcome.INTERRUPTED, reason))
            raise
        except OSError as error:
            return _made(job, started, JobOutcome.FAILED, f"it cannot be started: {error}")
        except JobLostError as lost:
            return _made(job, started, JobOutcome.FAILED, lost.message)
        outcome, reason = _outcome(job, process, status)
        left = left_behind(process.left_running()) if status is not None else ""
        reason = "; ".join(part for part in (reason, left) if part)
        return _made(job, started, outcome, reason, status)


def _made(
    job: ExternalJob, started: float, outcome: JobOutcome, reason: str, status: int | None = None
) -> JobEnd:
    tail = "" if outcome is JobOutcome.OK else log_tail(job.log)
    seconds = round(time.monotonic() - started, 3)
    return JobEnd(
        outcome=outcome, reason=reason, exit_status=status, seconds=seconds, log_tail=tail
    )


def _outcome(job: ExternalJob, process: JobHandle, status: int | None) -> tuple[JobOutcome, str]:
    """The outcome of a command that ended with `status`, and why it is not ok."""
    if status is None:
        return JobOutcome.TIMEOUT, f"it took longer than {job.deadline_s:g} s"
    if status == 0:
        lacks = job.lacks()
        return (JobOutcome.FAILED, lacks) if lacks else (JobOutcome.OK, "")
    how = f"exit status {status}" if status > 0 else f"ended by {signal_name(-status)}"
    if process.was_killed_for_memory():
        how += ", and the system killed a process for lack of memory"
    why = crash_in(job.log) or last_line(job.log)
    return JobOutcome.FAILED, f"{how}: {why}" if why else how
