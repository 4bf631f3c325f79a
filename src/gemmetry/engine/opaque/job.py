"""A command as a job: what is run, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class JobOutcome(StrEnum):
    """How a job ended."""

    OK = "ok"
    FAILED = "failed"
    """It ended by itself, without success."""
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"
    """The run was interrupted while it ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpaqueJob:
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
