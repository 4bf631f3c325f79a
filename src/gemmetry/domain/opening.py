"""Opens files that others wrote, with any supported compression, which the first bytes identify.

All readers of foreign files come through here, so that none waits for a pipe, reads a device
without end, or is given more than it can hold: kind of file, size, ratio of compression, and length
of lines and fields have limits, which the messages state.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import select
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from gemmetry.domain.errors import RequestError

SQLITE_MAGIC = b"SQLite format 3\x00"
XLSX_MAGIC = b"PK\x03\x04"
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"

MOST_BYTES = 64 << 20
"""Maximum size of a document that is decoded as a whole: values take up to 30 times as much
memory."""

MOST_TEXT_BYTES = 4 << 20
"""Maximum size of what people write: specs, shapes, configurations, kernels."""

STANDARD_INPUT = "-"
"""The path that means standard input, where a caller allows it."""

LONGEST_LINE = 16 << 20
"""Characters of a line of text, which is held as a whole."""

LONGEST_FIELD = 16 << 20
"""Characters of a field of CSV; in a file with an unclosed quote, one field is the rest of it."""

_COMPRESSED_BYTES = 256 << 10
_TEXT_BYTES = 256 << 10
_BOMB_BYTES = 16 << 20
_BOMB_FACTOR = 500
"""Compression ratio that no gzipped trace reaches (the public ones: 8 to 30); a bomb of equal bytes
has 1030, the maximum of deflate."""

_ZSTD_BOMB_FACTOR = 5000
"""zstd compresses equal bytes 30,000 times and finds repetitions over its whole window, so a ratio
above deflate's maximum may be legitimate."""

_ZSTD_HEADER = 18
"""Largest size of a frame header."""

_ZSTD_WINDOW = 1 << 31
"""Largest window of ``zstd --long=31``."""


@contextmanager
def open_decompressed(path: Path) -> Iterator[BinaryIO]:
    """The file's content, decompressed while it is read; reading raises OSError where the
    compressed data are damaged or truncated.

    Raises:
        RequestError: the file does not exist, is not a regular file or cannot be read, or its
            compression requires a library that is not installed.
    """
    csv.field_size_limit(LONGEST_FIELD)  # The process's, which others set too.
    with ExitStack() as stack:
        try:
            _check_regular(path)
            file = stack.enter_context(path.open("rb"))
            magic = file.read(4)
            file.seek(0)
        except (OSError, ValueError) as error:  # ValueError: NUL in the path
            raise _unreadable(path, "", "", error) from error
        try:
            if magic.startswith(_GZIP):
                yield cast(BinaryIO, _Gunzip(file))
            elif magic == _ZSTD:
                yield _open_zstd(file, path, stack)
            else:
                yield file
        except OSError as error:
            if error.errno is not None:
                raise
            # Damage that the reader leaves to its caller; the system's errors have a number.
            raise RequestError(
                f"{path} is damaged: {error}", hint="Copy or record it again."
            ) from error


@contextmanager
def open_text(path: Path) -> Iterator[io.TextIOWrapper]:
    """The file's content as lines of text, decompressed while it is read: UTF-8 or, with its mark
    at the beginning, UTF-16, which PowerShell writes. Reading raises OSError as
    :func:`open_decompressed` describes.

    Raises:
        RequestError: as :func:`open_decompressed`.
    """
    with open_decompressed(path) as file:
        buffered = io.BufferedReader(_Raw(file), _TEXT_BYTES)
        encoding = "utf-8-sig"
        with suppress(OSError):  # Damage is reported where the content is read.
            if buffered.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
                encoding = "utf-16"
        yield _Lines(buffered, encoding=encoding, errors="replace", newline="")


class _Lines(io.TextIOWrapper):
    """Text whose lines are not longer than ``LONGEST_LINE``."""

    def __next__(self) -> str:  # type: ignore[override]  # the stubs have the bytes of a raw file
        line = self.readline(LONGEST_LINE)
        if not line:
            raise StopIteration
        if len(line) == LONGEST_LINE:
            raise OSError(f"a line has more than {LONGEST_LINE >> 20} Mi characters")
        return line


def read_whole(
    path: Path, what: str = "", *, hint: str = "", most: int = MOST_BYTES, pipes: bool = False
) -> bytes:
    """The content of a file, decompressed.

    Args:
        what: what the file is for, with an article; it begins the error: ``the spec``.
        hint: what to do about a file that cannot be read.
        most: the most bytes that are accepted.
        pipes: accept a pipe too, into which another program writes.

    Raises:
        RequestError: it does not exist, is not a regular file, cannot be read, is damaged, or has
            more than `most` bytes.
    """
    try:
        if pipes and stat.S_ISFIFO(path.stat().st_mode):
            content = _piped(path, most)
        else:
            with open_decompressed(path) as file:
                content = _up_to(file, most)
    except (OSError, ValueError) as error:
        raise _unreadable(path, what, hint, error) from error
    except RequestError as error:
        if isinstance(error.__cause__, OSError):
            raise _unreadable(path, what, hint, error.__cause__) from error
        raise RequestError(f"{what} {error.message}".lstrip(), hint=hint or error.hint) from error
    if len(content) > most:
        raise RequestError(
            f"{what} {path}".lstrip() + f" has more than {most >> 20} MiB",
            hint=hint or "Is it the right file?",
        )
    return content


def read_text_file(path: Path, what: str, *, hint: str, standard_input: bool = False) -> str:
    """The text of the file at `path`; a byte order mark at its start is left out.

    Args:
        what: what the file is for, with an article; it begins the error: ``the spec``.
        hint: what to do about a file that cannot be read.
        standard_input: whether ``-`` means standard input.

    Raises:
        RequestError: the file does not exist, is a folder, may not be read, is not UTF-8 text, or
            has more than 4 MiB.
    """
    if standard_input and str(path) == STANDARD_INPUT:
        name, content = "on standard input", sys.stdin.buffer.read(MOST_TEXT_BYTES + 1)
        if len(content) > MOST_TEXT_BYTES:
            most = MOST_TEXT_BYTES >> 20
            raise RequestError(f"{what} {name} has more than {most} MiB", hint=hint)
    else:
        name = str(path)
        content = read_whole(path, what, hint=hint, most=MOST_TEXT_BYTES, pipes=True)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        why = why_unreadable(error)
        raise RequestError(f"cannot read {what} {name}: {why}", hint=hint) from error


def read_json(path: Path, *, hint: str = "") -> Any:
    """The document in a JSON file.

    Raises:
        RequestError: :func:`read_whole` cannot read the file, or the content is not JSON.
    """
    try:
        return parsed_json(read_whole(path, hint=hint))
    except ValueError as error:
        raise RequestError(f"{path} is damaged: {error}", hint=hint) from error


def parsed_json(content: bytes | str) -> Any:
    """The document in a JSON text.

    Raises:
        ValueError: it is not JSON or not UTF-8, or is nested more deeply or has longer numbers than
            Python reads.
    """
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def why_unreadable(error: Exception) -> str:
    """The cause of an OSError or UnicodeDecodeError in words, without error numbers; else its
    text."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 text (byte {error.start + 1})"
    if isinstance(error, IsADirectoryError):
        return "it is a folder, not a file"
    if isinstance(error, PermissionError):
        return "you have no permission to read it"
    return getattr(error, "strerror", None) or str(error)


def _unreadable(path: Path, what: str, hint: str, error: Exception) -> RequestError:
    name = f"{what} {path}".lstrip()
    if what and isinstance(error, FileNotFoundError | NotADirectoryError):
        return RequestError(f"{name} does not exist", hint=hint)
    if isinstance(error, PermissionError):
        hint = hint or f"Allow yourself to read it: chmod u+r {path.name}"
    why = why_unreadable(error) if what else getattr(error, "strerror", None) or error
    return RequestError(
        f"cannot read {name}: {why}" if what else f"{name} cannot be read: {why}",
        hint=hint or "Give the path of a file that exists.",
    )


def _up_to(file: BinaryIO, most: int) -> bytes:
    """The content, or more than `most` bytes of it; one read may give less than requested."""
    content = bytearray()
    while len(content) <= most and (part := file.read(min(most + 1 - len(content), _TEXT_BYTES))):
        content += part
    return bytes(content)


def _piped(path: Path, most: int) -> bytes:
    """Text that another program writes into a pipe; empty if no program has opened it."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", 0) as pipe:
        content = b""
        while len(content) <= most and (part := pipe.read(_TEXT_BYTES)) != b"":
            if part is None:
                select.select([pipe], [], [])
            content += part or b""
    return content


_OTHER_KINDS = (
    (stat.S_ISDIR, "a directory", "Give the files in it."),
    (stat.S_ISFIFO, "a pipe", "It is read more than once: write it to a file first."),
    (stat.S_ISSOCK, "a socket", "Give the path of a file."),
)


def _check_regular(path: Path) -> None:
    """Reject anything but regular files: opening a pipe would wait for a writer, and reading a
    device may never end.

    Raises:
        RequestError: not a regular file. OSError: inspecting the file fails.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        what, hint = next((found for is_of_kind, *found in _OTHER_KINDS if is_of_kind(mode)),
                          ("a device", "Give the path of a file."))  # fmt: skip
        raise RequestError(f"{path} is {what}, not a file", hint=hint)


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


class _Readable(io.RawIOBase):
    def readable(self) -> bool:
        """True: the stream can be read."""
        return True


class _Raw(_Readable):
    """Wraps a file that only has ``read``, so that it can be buffered."""

    def __init__(self, file: BinaryIO) -> None:
        self._read: Callable[[int], bytes] = file.read

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill `buffer` with the data of one read."""
        got = self._read(len(buffer))
        buffer[: len(got)] = got
        return len(got)


class _Gunzip(_Readable):
    """Decompresses gzip three times as fast as the small reads of :class:`gzip.GzipFile`. It
    returns the data before a truncation or damage."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._unzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
        self._input = b""
        self._taken = self._given = 0
        self._failure = ""

    def read(self, size: int = -1) -> bytes:
        """Read at most `size` bytes, fewer at the end of a block of input; b"" at the end."""
        parts: list[bytes] = []
        missing = size if size >= 0 else 1 << 62
        while missing > 0 and not self._failure and (part := self._next(missing)) is not None:
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
            # Several members may follow each other, and zeros may pad the last block.
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
            # Held back until the data decompressed before it have been returned.
            self._failure = error.strerror or str(error)
        self._taken += len(self._input)
        return bool(self._input)


class _Unzstd(_Readable):
    """A zstd stream that raises the library's errors as OSError. It detects a truncated file where
    the frame header has the size; otherwise the reader of the content does."""

    def __init__(
        self, stream: BinaryIO, failure: type[Exception], size: int, file: BinaryIO
    ) -> None:
        self._stream = stream
        self._error = failure
        self._missing = size
        self._file = file
        self._given = 0

    def read(self, size: int = -1) -> bytes:
        """Read at most `size` bytes; b"" at the end."""
        try:
            got = self._stream.read(size)
        except self._error as error:
            raise OSError(f"the compressed data are damaged: {error}") from error
        self._missing -= len(got)
        self._given += len(got)
        if self._given > max(_BOMB_BYTES, _ZSTD_BOMB_FACTOR * self._file.tell()):
            raise OSError(
                f"it expands more than {_ZSTD_BOMB_FACTOR} times, like a decompression bomb"
            )
        if not got and size != 0 and self._missing > 0:
            raise OSError("the compressed data are cut short")
        return got
