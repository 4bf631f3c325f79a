"""Files that get their name only when complete, removal of files, and paths in stored files.

Assigns numbers to repeated texts, and limits the length of names.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from gemmetry.domain.errors import RequestError

_KEPT = 50
"""Characters of a file's name that its temporary name keeps: the addition must fit, too."""


@contextlib.contextmanager
def completed(path: Path, *, end: str = ".partial", durable: bool = False) -> Iterator[Path]:
    """A name next to `path` to write to. The file becomes `path` when the block ends without an
    error and is removed otherwise, so that a reader finds the new file, the old one, or none.

    Args:
        path: where the file belongs.
        end: the end of the temporary name. The default belongs to no format: what an
            ended process left is never read as a complete file.
        durable: flush the file to the disk first, so that it survives a power failure.

    Raises:
        OSError: the file cannot be written; an older file is unchanged.
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
            remove(temporary, inside=path.parent)


def write_whole(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Write `content` to `path` as :func:`completed` does.

    Raises:
        OSError: the file cannot be written; an older file is unchanged.
    """
    with completed(path, durable=durable) as temporary:
        temporary.write_bytes(content)


def remove(path: Path, *, inside: Path) -> None:
    """Remove a file, a link or a folder with its content; nothing happens where there is none.

    Folders from `inside` to `path` are opened without following links, and what is removed is
    found from the opened folder: neither a link nor another process that exchanges a folder for one
    leads out of `inside`. A link is removed itself, not what it refers to.

    Raises:
        OSError: something remains, `path` is not below `inside`, or a folder between them is a
            link.
    """
    *folders, name = path.relative_to(inside).parts if path.is_relative_to(inside) else ("..",)
    if ".." in (*folders, name):
        raise OSError(errno.EXDEV, f"not below {inside}", str(path))
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as stack:
        place = os.open(inside, flags)
        stack.callback(os.close, place)
        for folder in folders:
            place = os.open(folder, flags | os.O_NOFOLLOW, dir_fd=place)
            stack.callback(os.close, place)
        if not stat.S_ISDIR(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=place)
            return
        # What another process removes or adds meanwhile does not end the first pass.
        shutil.rmtree(name, ignore_errors=True, dir_fd=place)
        shutil.rmtree(name, dir_fd=place)


def within(folder: Path, stored: str) -> Path:
    """The path that `stored` names, relative to `folder`, in a file that others may have written.

    Raises:
        RequestError: it would leave `folder`, also by a link.
    """
    path = folder / stored
    leaves = Path(stored).is_absolute() or ".." in Path(stored).parts or "\0" in stored
    try:
        leaves = leaves or not path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a loop of links, or a folder that may not be entered
        leaves = True
    if leaves:
        raise RequestError(
            f"{stored!r}, which is stored in {folder}, is outside of that folder",
            hint="It is not followed: a damaged or forged file could name any file.",
        )
    return path


COMPILED = "compiled"
"""The user's cache of kernels that experiments compiled."""


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
    """Remove what may be removed in a folder of the user's caches; the number and total size in
    bytes of the files."""
    folder, count, size = user_cache(name), 0, 0
    for place, folders, names in os.walk(folder, topdown=False):
        for one in [Path(place, name) for name in (*names, *folders)]:
            with contextlib.suppress(OSError):
                length = one.lstat().st_size
                remove(one, inside=folder)
                if one.name in names:
                    count, size = count + 1, size + length
    return count, size


def is_writable(folder: Path) -> bool:
    """Whether `folder`, which is made where it is missing, can be written."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        return os.access(folder, os.W_OK)
    return False


def sync(path: Path) -> None:
    """Flush a file, or a folder, so that a rename in it survives a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


LONGEST_NAME = 16 << 10
"""Maximum length of a name; the longest in the public traces has about 5,000. It limits the size of
a table of names for every file."""

_SURROGATES = re.compile("[\ud800-\udfff]")

Key = TypeVar("Key")


class Numbers(dict[Key, int]):
    """Distinct values, numbered in the order in which they appear."""

    def __missing__(self, key: Key) -> int:
        self[key] = number = len(self)
        return number


class Names(Numbers[str]):
    """Numbered names, overlong ones shortened."""

    def __missing__(self, key: str) -> int:
        if len(key) <= LONGEST_NAME:
            return super().__missing__(key)
        key = short_name(key)
        return self[key] if key in self else super().__missing__(key)


def encodable(text: str) -> str:
    """`text` with a replacement character for each half of a surrogate pair, which UTF-8 cannot
    encode; the same object where there are none."""
    if text.isascii() or not _SURROGATES.search(text):
        return text
    return _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text)


def short_name(name: str, most: int = LONGEST_NAME) -> str:
    """`name`, or its beginning with its length and a digest, so that different names stay
    different."""
    if len(name) <= most:
        return name
    import hashlib  # Loads OpenSSL, which takes 8 ms.

    digest = hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return f"{name[:most]}… [{len(name)} characters, {digest}]"
