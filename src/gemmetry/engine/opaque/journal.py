"""The journal of jobs: one JSON line for each start and each end, on the disk before the run
continues, so that a kill at any moment loses at most the job that was running."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from gemmetry.domain.errors import JournalDamagedError
from gemmetry.engine.opaque.job import JobEnd
from gemmetry.store.schema import os_failure


class JobLine(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line of the journal."""

    event: str
    """start or end."""
    job: str
    time: str
    """ISO 8601, UTC."""
    end: JobEnd | None = None
    """How it ended, for the event end."""


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
                self._ends = _ends_in(content, path)
            except BaseException:
                os.close(self._descriptor)
                raise
        except OSError as error:
            raise os_failure(path.parent, error, option="--output") from error

    @property
    def ends(self) -> Mapping[str, JobEnd]:
        """Job -> how it ended, of those whose last start has an end."""
        return self._ends

    def start(self, job: str, time: str) -> None:
        """A job is about to start; an earlier end of it no longer counts."""
        self._append(JobLine(event="start", job=job, time=time))
        self._ends.pop(job, None)

    def end(self, job: str, time: str, end: JobEnd) -> None:
        """A job has ended."""
        self._append(JobLine(event="end", job=job, time=time, end=end))
        self._ends[job] = end

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
