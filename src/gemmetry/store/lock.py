"""One writer per experiment folder, across processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from gemmetry.domain.errors import RequestError

LOCK_NAME = "lock"

_ASKING_S = 0.02
"""Far longer than :func:`is_locked` holds a lock to find out whether it is free."""


class FolderLock:
    """An exclusive ``flock`` on ``<folder>/lock``; the kernel drops it when the process ends,
    however it ends, so no stale lock is possible."""

    def __init__(self, folder: Path, *, option: str = "--experiment") -> None:
        """Take the lock of the folder that `option` names.

        Raises:
            RequestError: another process is using the folder.
            OSError: the folder is not writable.
        """
        path = folder / LOCK_NAME
        # Not through a link: the file is emptied.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        self._descriptor = os.open(path, flags, 0o644)
        try:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_ASKING_S)
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_same(self._descriptor, path):
                raise BlockingIOError  # Its holder has removed it meanwhile.
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise RequestError(
                f"the {option.removeprefix('--')} {folder} is in use by process "
                f"{holder or 'unknown'}",
                hint=f"Wait for it, end it, or give another {option} folder.",
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock; calling it twice is harmless."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1


def is_locked(folder: Path) -> bool:
    """Whether a process holds the lock of `folder`."""
    try:
        descriptor = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _is_same(descriptor: int, path: Path) -> bool:
    """Whether `path` is still the opened file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False
