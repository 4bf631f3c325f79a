"""Opens trace files, whatever they are compressed with; what a file is, its first bytes tell."""

from __future__ import annotations

import io
import stat
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from gemmetry.domain.errors import RequestError

SQLITE_MAGIC = b"SQLite format 3\x00"
XLSX_MAGIC = b"PK\x03\x04"
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"

_COMPRESSED_BYTES = 256 << 10
_BOMB_BYTES = 64 << 20
_BOMB_FACTOR = 500
"""gzip shrinks no trace so far (the public ones: 8 to 30 times); a bomb of equal bytes is shrunk
1030 times, the most that deflate can."""

_ZSTD_BOMB_FACTOR = 5000
"""zstd shrinks equal bytes 30,000 times and finds repetitions over the whole of its window, so more
than deflate's factor may be honest."""

_ZSTD_HEADER = 18
"""The most that a frame's header takes."""

_ZSTD_WINDOW = 1 << 31
"""The most that ``zstd --long=31`` uses."""


@contextmanager
def open_decompressed(path: Path) -> Iterator[BinaryIO]:
    """The file's content, decompressed while it is read; reading raises OSError where the
    compressed data are damaged or cut short.

    Raises:
        RequestError: there is no such file, it is no regular one or cannot be read, or its
            compression needs a library that is not installed.
    """
    with ExitStack() as stack:
        try:
            _check_regular(path)
            file = stack.enter_context(path.open("rb"))
            magic = file.read(4)
            file.seek(0)
        except OSError as error:
            hint = "Give the path of a trace file."
            if isinstance(error, PermissionError):
                hint = f"Give yourself the permission to read it: chmod u+r {path.name}"
            raise RequestError(
                f"{path} cannot be read: {error.strerror or error}", hint=hint
            ) from error
        if magic.startswith(_GZIP):
            yield cast(BinaryIO, _Gunzip(file))
        elif magic == _ZSTD:
            yield _open_zstd(file, path, stack)
        else:
            yield file


_OTHER_KINDS = (
    (stat.S_ISDIR, "a directory", "Give the trace files in it."),
    (stat.S_ISFIFO, "a pipe", "A trace is read more than once: write it to a file first."),
    (stat.S_ISSOCK, "a socket", "Give the path of a trace file."),
)


def _check_regular(path: Path) -> None:
    """Opening a pipe would wait for somebody to write to it, and reading a device may never end.

    Raises:
        RequestError: it is no regular file. OSError: it cannot be looked at.
    """
    mode = path.stat().st_mode
    if stat.S_ISREG(mode):
        return
    for is_of_kind, what, hint in _OTHER_KINDS:
        if is_of_kind(mode):
            raise RequestError(f"{path} is {what}, not a file", hint=hint)
    raise RequestError(f"{path} is a device, not a file", hint="Give the path of a trace file.")


def _open_zstd(file: BinaryIO, path: Path, stack: ExitStack) -> BinaryIO:
    try:
        import zstandard
    except ImportError as error:
        raise RequestError(
            f"{path} is compressed with zstd, and the library for it is not installed",
            hint="pip install 'gemmetry[traces]', or decompress the file first.",
        ) from error
    begin = file.read(_ZSTD_HEADER)
    file.seek(0)
    try:
        size = zstandard.frame_content_size(begin)
    except zstandard.ZstdError:
        size = -1
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    reader = decompressor.stream_reader(file, read_across_frames=True)
    stack.enter_context(reader)
    return cast(BinaryIO, _Unzstd(reader, zstandard.ZstdError, size, file))


class _Gunzip(io.RawIOBase):
    """Three times as fast as :class:`gzip.GzipFile`'s small reads, and hands out what it had
    before the data ended or went wrong."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._unzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
        self._input = b""
        self._taken = self._given = 0
        self._failure = ""

    def readable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes, fewer at the end of a block of input; b"" at the end."""
        parts: list[bytes] = []
        missing = size if size >= 0 else 1 << 62
        while missing > 0 and not self._failure:
            part = self._next(missing)
            if part is None:
                break
            parts.append(part)
            missing -= len(part)
        got = b"".join(parts)
        if not got and self._failure:
            raise OSError(self._failure)
        return got

    def _next(self, most: int) -> bytes | None:
        if not self._input:
            self._more()
        if self._unzip.eof:
            # Members may follow each other, and zeros may fill up a block at the end.
            self._input = self._input.lstrip(b"\0")
            if not self._input:
                return None if not self._more() else b""
            self._unzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
        if not self._input:
            self._failure = self._failure or "the compressed data are cut short"
            return None
        try:
            part = self._unzip.decompress(self._input, min(most, 1 << 22))
        except zlib.error as error:
            self._failure = f"the compressed data are damaged: {error}"
            return None
        self._input = self._unzip.unconsumed_tail or self._unzip.unused_data
        self._given += len(part)
        if self._given > max(_BOMB_BYTES, _BOMB_FACTOR * self._taken):
            self._failure = f"it expands more than {_BOMB_FACTOR} times, like a gzip bomb"
        return part

    def _more(self) -> bool:
        try:
            self._input = self._file.read(_COMPRESSED_BYTES)
        except OSError as error:
            # Kept back until what was decompressed before is handed out.
            self._failure = error.strerror or str(error)
        self._taken += len(self._input)
        return bool(self._input)


class _Unzstd(io.RawIOBase):
    """A zstd stream whose library errors are OSErrors. That a file is cut short it tells where the
    frame's header has the size; else the reader of the content sees it."""

    def __init__(
        self, stream: BinaryIO, failure: type[Exception], size: int, file: BinaryIO
    ) -> None:
        self._stream = stream
        self._error = failure
        self._missing = size
        self._file = file
        self._given = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes; b"" at the end."""
        try:
            got = self._stream.read(size)
        except self._error as error:
            raise OSError(f"the compressed data are damaged: {error}") from error
        self._missing -= len(got)
        self._given += len(got)
        if self._given > max(_BOMB_BYTES, _ZSTD_BOMB_FACTOR * self._file.tell()):
            raise OSError(f"it expands more than {_ZSTD_BOMB_FACTOR} times, like a bomb")
        if not got and size != 0 and self._missing > 0:
            raise OSError("the compressed data are cut short")
        return got
