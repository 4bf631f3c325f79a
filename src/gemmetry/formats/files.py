"""Files that have their name only when they are complete."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

_KEPT = 50
"""Characters of a file's name that its temporary name keeps: what is added must fit, too."""


@contextlib.contextmanager
def completed(path: Path, *, end: str = ".partial", durable: bool = False) -> Iterator[Path]:
    """A name next to `path` to write to. The file becomes `path` when the block ends without an
    error and is removed otherwise, so that a reader finds the new file, the old one, or none.

    Args:
        path: where the file belongs.
        end: the end of the temporary name. The default is that of no format, so that what an
            ended process left is not read in place of a complete file.
        durable: flush the file to the disk first, so that it survives a power failure.

    Raises:
        OSError: it cannot be written; an older file is unchanged.
    """
    writer = f"{os.getpid()}.{threading.get_ident()}"
    temporary = path.with_name(f".{path.name[:_KEPT]}.{writer}{end}")
    try:
        yield temporary
        if durable:
            sync(temporary)
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Write `content` to `path` as :func:`completed` does.

    Raises:
        OSError: it cannot be written; an older file is unchanged.
    """
    with completed(path, durable=durable) as temporary:
        temporary.write_bytes(content)


def user_cache(name: str) -> Path:
    """A folder of the user's caches: ``$XDG_CACHE_HOME/gemmetry/<name>``, or below ``~/.cache``
    where the variable is not set. It may not exist, or not be writable."""
    root = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not root.is_absolute():
        try:
            root = Path.home() / ".cache"
        except RuntimeError:
            # A user without a home folder, as in some containers, has no cache folder either.
            root = Path(os.devnull)
    return root / "gemmetry" / name


def clear_user_cache(name: str) -> tuple[int, int]:
    """Remove the files in a folder of the user's caches; their number and total size in bytes."""
    count = size = 0
    with contextlib.suppress(OSError):
        for file in user_cache(name).iterdir():
            length = file.lstat().st_size
            file.unlink()
            count, size = count + 1, size + length
    return count, size


def sync(path: Path) -> None:
    """Flush a file, or a folder, so that a rename in it survives a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
