"""Runs jobs one after the other, keeps what succeeded earlier, and journals each start and end."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from gemmetry.domain.errors import StorageError
from gemmetry.engine.failures import left_behind, signal_name
from gemmetry.engine.opaque.executor import GRACE_S, JobExecutor, JobHandle, JobLostError
from gemmetry.engine.opaque.job import JobEnd, JobOutcome, OpaqueJob
from gemmetry.engine.opaque.journal import JobJournal
from gemmetry.formats.run_log import crash_in, last_line, log_tail
from gemmetry.store.manifest import now
from gemmetry.store.schema import os_failure

MIN_FREE_BYTES = 32 * 2**20
"""With less free space no job is started: traces of a small run take about as much, and a full disk
would make all of the remaining jobs fail."""

POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class JobsPlanned:
    """`total` jobs are planned, of which `kept` succeeded in an earlier run."""

    total: int
    kept: int


@dataclass(frozen=True, slots=True)
class JobStarted:
    """A job is running; `number` counts from 1, kept jobs included."""

    job: OpaqueJob
    number: int


@dataclass(frozen=True, slots=True)
class JobFinished:
    """A job has ended, and the journal states how."""

    job: OpaqueJob
    number: int
    end: JobEnd


@dataclass(frozen=True, slots=True)
class JobWarning:
    """Something about the whole run that its user should know."""

    text: str


@dataclass(frozen=True, slots=True)
class JobNote:
    """What happens around the jobs, such as where they run."""

    text: str


JobEvent: TypeAlias = JobsPlanned | JobStarted | JobFinished | JobWarning | JobNote
JobListener: TypeAlias = Callable[[JobEvent], None]


def is_kept(job: OpaqueJob, end: JobEnd | None) -> bool:
    """Whether a job that ended so does not run again: it succeeded, and what it produced is still
    there."""
    return end is not None and end.outcome is JobOutcome.OK and not job.lacks()


@dataclass(frozen=True, slots=True)
class JobRun:
    """Runs jobs into one folder."""

    folder: Path
    """The folder below which all jobs write."""
    journal: JobJournal
    executor: JobExecutor
    prepare: Callable[[OpaqueJob], None]
    """Makes the folder of a job's log, and removes what an earlier attempt left there."""
    conclude: Callable[[OpaqueJob, JobEnd], None]
    """Writes down how a job ended, before the journal does."""
    listener: JobListener

    def work(self, jobs: Sequence[OpaqueJob]) -> None:
        """Run those of `jobs` that have not succeeded yet. One that fails does not stop the others.

        Raises:
            StorageError: a file cannot be written, or the disk is almost full.
            KeyboardInterrupt: after the running job has been ended.
        """
        remaining = [job for job in jobs if not is_kept(job, self.journal.ends.get(job.name))]
        kept = len(jobs) - len(remaining)
        self.listener(JobsPlanned(len(jobs), kept))
        for number, job in enumerate(remaining, kept + 1):
            self._check_space()
            self.listener(JobStarted(job, number))
            end = self._run(job)
            self.listener(JobFinished(job, number, end))

    def _check_space(self) -> None:
        free = shutil.disk_usage(self.folder).free
        if free < MIN_FREE_BYTES:
            raise StorageError(
                f"only {free / 2**20:.0f} MiB are free for {self.folder}",
                hint="Free some disk space; the same command then continues.",
            )

    def _run(self, job: OpaqueJob) -> JobEnd:
        try:
            self.prepare(job)
            self.journal.start(job.name, now())
            return self._ended(job, self._end_of(job, time.monotonic()))
        except OSError as error:
            raise os_failure(self.folder, error, option="--output") from error

    def _ended(self, job: OpaqueJob, end: JobEnd) -> JobEnd:
        self.conclude(job, end)
        self.journal.end(job.name, now(), end)
        return end

    def _end_of(self, job: OpaqueJob, started: float) -> JobEnd:
        """Run the command of `job`, and find how it ended.

        Raises:
            KeyboardInterrupt: after the job is ended and this is written down.
        """
        process: JobHandle | None = None
        try:
            try:
                process = self.executor.start(job)
                status = _wait(process, job, started)
            finally:
                if process is not None:
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


def _wait(process: JobHandle, job: OpaqueJob, started: float) -> int | None:
    """The exit status; None once the deadline has passed."""
    while True:
        status = process.wait(POLL_S)
        if status is not None:
            return status
        if job.deadline_s is not None and time.monotonic() - started > job.deadline_s:
            return None


def _made(
    job: OpaqueJob, started: float, outcome: JobOutcome, reason: str, status: int | None = None
) -> JobEnd:
    return JobEnd(
        outcome=outcome,
        reason=reason,
        exit_status=status,
        seconds=round(time.monotonic() - started, 3),
        log_tail="" if outcome is JobOutcome.OK else log_tail(job.log),
    )


def _outcome(job: OpaqueJob, process: JobHandle, status: int | None) -> tuple[JobOutcome, str]:
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
