"""Reads trace files of every kind into :class:`TraceRows`; the content identifies the format.

Readers are imported when a file needs them: a cached trace needs none.

Reads several trace files one after the other; unreadable files do not stop the others.

Rows are cached next to the trace, so that reading it again takes milliseconds. A cache file holds
the columns in their memory layout and everything else as msgpack; it is mapped, not read, so that a
table loads only the columns that it needs. It is used only if it was created from the same bytes by
the same version of the reader and its checksum is correct; otherwise it is recreated.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec
import numpy as np

from gemmetry.domain.errors import RequestError
from gemmetry.domain.files import completed, remove, user_cache
from gemmetry.domain.opening import XLSX_MAGIC
from gemmetry.formats.events import (
    MISSING,
    AnnotationRows,
    CallRows,
    GpuRows,
    OperatorRows,
    TraceRows,
    columns_of,
    concatenate,
    plausible,
    release_pages,
)
from gemmetry.traces.model import Trace, checked, split, stage

if TYPE_CHECKING:
    from gemmetry.formats.readers import Content, TraceFormat
    from gemmetry.formats.xlsx import TraceLensReport

READER_VERSION = 6
"""Incremented whenever a reader returns different rows for the same file."""


CACHE_SUFFIX = ".gemmetry-cache"


SMALLEST_CACHED_BYTES = 128 << 10
"""Smaller files (compressed size) are not cached: reading them takes about 20 ms, as long as
opening a cache."""


_MAGIC = b"GEMMETRYTRACE\x00\x01\n"


_ALIGNMENT = 64


_HASHED_BYTES = 64 << 10


_LEDGER = "beside.txt"


_TABLES: dict[str, type[Any]] = {
    "gpu": GpuRows,
    "calls": CallRows,
    "operators": OperatorRows,
    "annotations": AnnotationRows,
}


_OF_ROWS = {name: kind for name, kind in get_type_hints(TraceRows).items() if name not in _TABLES}
"""What a cache holds of :class:`TraceRows` apart from the columns of its tables."""


_Head = msgspec.defstruct(
    "_Head",
    [("key", str), ("counts", tuple[int, ...]), ("checksum", int), *_OF_ROWS.items()],
    frozen=True,
)
"""Header of a cache. The columns follow by table, each from a multiple of 64 bytes; `counts` are
the rows of the tables."""


def cache_key(files: Sequence[Path]) -> str | None:
    """The key of a cache of `files`: their sizes, times, first and last 64 KiB, and the version of
    the readers. None if they cannot be read."""
    parts = [f"{READER_VERSION}"]
    for file in files:
        try:
            with file.open("rb") as opened:
                status = os.fstat(opened.fileno())
                ends = zlib.crc32(opened.read(_HASHED_BYTES))
                opened.seek(max(0, status.st_size - _HASHED_BYTES))
                ends = zlib.crc32(opened.read(_HASHED_BYTES), ends)
        except OSError:
            return None
        parts.append(f"{os.fsencode(file.name)!r} {status.st_size} {status.st_mtime_ns} {ends:08x}")
    return "|".join(parts)


def load(path: Path, key: str) -> TraceRows | None:
    """The cached rows of the trace `path`; None where there are none for this `key`."""
    for place_of in (_place_next_to_trace, _place_of_user):
        with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError, TypeError):
            if (rows := _load(place_of(path), key)) is not None:
                return rows
    return None


def save(path: Path, key: str, rows: TraceRows) -> Path | None:
    """Store `rows` next to the trace `path`, else in the user's cache folder.

    Returns:
        The cache file; None where neither folder can be written.
    """
    near, own = _place_next_to_trace(path), _place_of_user(path)
    for place in (near, own):
        with contextlib.suppress(OSError):
            if place == own:
                place.parent.mkdir(parents=True, exist_ok=True)
            _write(place, key, rows, is_next_to_trace=place == near)
            return place
    return None


def clear_cache(paths: Sequence[Path] = ()) -> tuple[int, int]:
    """Remove all caches in the user's cache folder, those that this user's runs created next to
    traces, and those below `paths`.

    Returns:
        The number of files, and their total size in bytes.
    """
    folder = cache_folder()
    found: set[Path] = set()
    with contextlib.suppress(OSError):
        found |= set(folder.glob(f"*{CACHE_SUFFIX}"))
    with contextlib.suppress(OSError, UnicodeDecodeError):
        for line in (folder / _LEDGER).read_text("utf-8").splitlines():
            found |= _with_unfinished(Path(line)) if line else set()
    for path in paths:
        near = _place_next_to_trace(path)
        found |= set(path.rglob(f"*{CACHE_SUFFIX}")) if path.is_dir() else _with_unfinished(near)
    files = size = 0
    for file in found:
        with contextlib.suppress(OSError):
            if _is_cache(file):
                length = file.stat().st_size
                remove(file, inside=file.parent)
                files, size = files + 1, size + length
    with contextlib.suppress(OSError):
        remove(folder / _LEDGER, inside=folder)
    return files, size


def cache_folder() -> Path:
    """The user's cache folder for traces."""
    return user_cache("traces")


def _place_next_to_trace(path: Path) -> Path:
    whole = path.absolute()
    return whole.with_name(whole.name + CACHE_SUFFIX)


def _place_of_user(path: Path) -> Path:
    # Imported here, as it loads OpenSSL in 8 ms, which a cache next to the trace does not need.
    import hashlib

    name = hashlib.blake2b(os.fsencode(path.absolute()), digest_size=16).hexdigest()
    return cache_folder() / f"{name}{CACHE_SUFFIX}"


def _is_cache(file: Path) -> bool:
    """Whether the file is a cache, or the beginning of one whose writing was interrupted."""
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        begin = opened.read(len(_MAGIC))
    return begin == _MAGIC or (not begin and file.name.startswith("."))


def _with_unfinished(place: Path) -> set[Path]:
    """The cache, and any partial ones next to it whose writing was interrupted."""
    with contextlib.suppress(OSError):
        return {place, *place.parent.glob(f".*{CACHE_SUFFIX}")}
    return {place}


def _note(place: Path) -> None:
    """Record the cache's place so that :func:`clear_cache` finds it."""
    ledger = cache_folder() / _LEDGER
    with contextlib.suppress(OSError, UnicodeError):
        ledger.parent.mkdir(parents=True, exist_ok=True)
        known = ledger.read_text("utf-8").splitlines() if ledger.exists() else []
        if str(place) not in known and "\n" not in str(place):
            with ledger.open("a", encoding="utf-8") as opened:
                opened.write(f"{place}\n")


def _write(place: Path, key: str, rows: TraceRows, *, is_next_to_trace: bool) -> None:
    tables = [getattr(rows, table) for table in _TABLES]
    found = [np.ascontiguousarray(array) for table in tables for array in columns_of(table)]
    arrays = [array.data if array.nbytes else b"" for array in found]
    checksum = 0
    for content in arrays:
        checksum = zlib.crc32(content, checksum)
    counts = tuple(len(table.start_ns) for table in tables)
    values = {name: getattr(rows, name) for name in _OF_ROWS}
    head = msgspec.msgpack.encode(_Head(key=key, counts=counts, checksum=checksum, **values))
    prefix = _MAGIC + len(head).to_bytes(8, "little") + zlib.crc32(head).to_bytes(8, "little")
    with completed(place, end=CACHE_SUFFIX) as temporary:
        # Others may not read what a user's trace contains.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            if is_next_to_trace:
                _note(place)
            for content in (prefix + head, *arrays):
                file.write(content)
                file.write(bytes(-file.tell() % _ALIGNMENT))


def _load(place: Path, key: str) -> TraceRows | None:
    if not place.is_file():
        return None
    with place.open("rb") as file:
        prefix = file.read(len(_MAGIC) + 16)
        if len(prefix) != len(_MAGIC) + 16 or not prefix.startswith(_MAGIC):
            return None
        length = int.from_bytes(prefix[len(_MAGIC) : -8], "little")
        if length > os.fstat(file.fileno()).st_size:
            return None
        text = file.read(length)
        if zlib.crc32(text) != int.from_bytes(prefix[-8:], "little"):
            return None
        head: Any = msgspec.msgpack.decode(text, type=_Head)
        if head.key != key:
            return None
        start = file.tell() + -file.tell() % _ALIGNMENT
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    tables = {}
    checksum = 0
    for (table, kind), count in zip(_TABLES.items(), head.counts, strict=True):
        columns = []
        for model in columns_of(concatenate(kind, [])):
            shape = (count, *model.shape[1:])
            size = model.itemsize * math.prod(shape)
            part = view[start : start + size]
            checksum = zlib.crc32(part, checksum)
            columns.append(np.frombuffer(part, model.dtype).reshape(shape))
            start += size + -size % _ALIGNMENT
        tables[table] = kind(*columns)
    rows = TraceRows(**{name: getattr(head, name) for name in _OF_ROWS}, **tables)
    return rows if checksum == head.checksum and _is_sound(rows) else None


_INDICES = {
    "name": ("names", 0), "thread": ("threads", 0), "arguments": ("arguments", MISSING),
    "collective": ("collectives", MISSING),
}  # fmt: skip
"""Maps columns that index another part of the rows to that part and their smallest valid value."""


def _is_sound(rows: TraceRows) -> bool:
    """Whether the rows are valid. A checksum detects damage, but not a forged file placed next to a
    trace."""
    for table in (getattr(rows, name) for name in _TABLES):
        for name, (part, least) in _INDICES.items():
            array, count = getattr(table, name, np.zeros(0)), len(getattr(rows, part))
            if array.min(initial=least) < least or array.max(initial=-1) >= count:
                return False
        if table.duration_ns.min(initial=0) < 0:
            return False
    threads = [thread for part in rows.parts for thread in part.threads]
    if threads and not 0 <= min(threads) <= max(threads) < len(rows.threads):
        return False
    return plausible(rows) is rows


_PACKED = re.compile(r"\.(?:gz|zst)\Z")


_MOST_SEARCHED = 8 << 20
"""Bytes of a file without a trace that are searched for damage to its compression."""


_UTF16 = (b"\xff\xfe", b"\xfe\xff", b"{\0", b"\0{", b"[\0", b"\0[")


def read_trace(
    path: Path,
    *,
    use_cache: bool = True,
    timings: dict[str, float] | None = None,
    content: TraceFormat | Content | None = None,
) -> TraceRows:
    """The rows of one trace.

    Args:
        path: a trace file; for rocprofv3's CSV files the one of the kernels (the others in its
            folder are read with it).
        use_cache: read the rows from the cache next to the trace where it is current, and store
            them there where it is not.
        timings: the seconds of each stage are added to it: ``cache``, ``read``, ``save``.
        content: what the file is, where that is known.

    Raises:
        RequestError: the file does not exist or is not a trace; the message names the file and,
            where the content is invalid, the byte. A damaged or truncated trace does not raise: the
            readable part is returned, and ``problems`` describe the rest.
        StorageError: a trace too large for memory needs a temporary file that cannot be written.
    """
    times = timings if timings is not None else {}
    key = rows = None
    if use_cache:
        with stage(times, "cache"):
            key = _key(path)
            rows = load(path, key) if key else None
    if rows is None:
        with stage(times, "read"):
            rows = _read(path, content)
        if key:
            with stage(times, "save"):
                save(path, key, rows)
    release_pages(rows)
    return rows


def find_traces(paths: Iterable[Path]) -> list[Path]:
    """`paths` with each folder replaced by the traces below it, each once; within a folder in
    order of names, numbers in them by value (``rank2`` before ``rank10``).

    Of rocprofv3's CSV files of one process, the one of the kernels represents all. Files that are
    named explicitly are always kept. In a folder, files and folders that cannot be opened and
    invalid JSON files are kept too: reading them reports the reason, so that no rank is silently
    missing.

    Raises:
        RequestError: a path does not exist, or a folder holds no trace.
    """
    return list(_sniffed(paths))


def _sniffed(paths: Iterable[Path]) -> dict[Path, TraceFormat | Content | None]:
    """The traces at `paths`, as in :func:`find_traces`, and what the files in folders are."""
    found: dict[Path, TraceFormat | Content | None] = {}
    hint = "Give the path of a trace, or of a folder."
    for path in paths:
        try:
            if path.is_dir():
                inside = sorted(_inside(path), key=lambda one: _natural(one[0]))
                if not inside:
                    raise _no_trace_below(path)
                for file, content in inside:
                    found.setdefault(file, content)
            elif not path.exists():
                raise RequestError(f"{path} does not exist", hint=hint)
            elif not path.name.endswith(CACHE_SUFFIX):  # A pattern like rank0* matches caches too.
                found.setdefault(path, None)
        except OSError as error:
            what = f"{path} cannot be read: {error.strerror or error}"
            raise RequestError(what, hint=hint) from error
    return found


def _no_trace_below(folder: Path) -> RequestError:
    """The error for a folder without traces, which names a file that was taken for none, if the
    reason is known."""
    from gemmetry.formats.readers import Content, format_of, supported

    for place, _, names in os.walk(folder):
        for name in sorted(one for one in names if _named(one) and not one.startswith(".")):
            with contextlib.suppress(RequestError, OSError):
                found = format_of(Path(place, name))
                if not isinstance(found, Content) and found.read is None:
                    return RequestError(
                        f"no trace below {folder}: {Path(place, name)} is not one: {found.problem}",
                        hint=found.hint or supported(),
                    )
    return RequestError(f"no trace below {folder}", hint=supported())


def _inside(folder: Path) -> Iterator[tuple[Path, TraceFormat | Content | None]]:
    """The traces below `folder`, and the folders there that cannot be opened."""
    closed: list[OSError] = []
    for place, _, names in os.walk(folder, onerror=closed.append):
        for name in names:
            is_trace, content = _is_trace(Path(place, name))
            if is_trace:
                yield Path(place, name), content
    yield from ((Path(error.filename), None) for error in closed if error.filename is not None)


def _is_trace(file: Path) -> tuple[bool, TraceFormat | Content | None]:
    """Whether a file of a folder is read as a trace, and what it is, as far as it was opened."""
    name = file.name
    named = [form for form in _named(name) if form.read is not None]
    if not named or name.endswith(CACHE_SUFFIX) or name.startswith("."):
        return False, None
    from gemmetry.formats.readers import Content, format_of

    try:
        if not file.is_file():
            # The intended target of a broken link is unknown.
            return file.is_symlink() and not file.exists(), None
        found = format_of(file)
    except (RequestError, OSError):
        return any(form.is_missed(name) for form in named), None
    if not isinstance(found, Content):
        if found.read is not None:
            return found.leads(file), found
    # A damaged one is not skipped, so that no rank is silently missing.
    elif found is not Content.JSON and ".json" in name:
        return True, found
    return any(form.own_name is not None and form.own_name.search(name) for form in named), found


def _named(name: str) -> list[TraceFormat]:
    """The formats whose files may have this name."""
    from gemmetry.formats.readers import trace_formats

    bare = _PACKED.sub("", name)
    return [form for form in trace_formats() if bare.endswith(form.suffix)]


def _natural(path: Path) -> list[tuple[int, str | int]]:
    parts = re.split(r"(\d+)", str(path))
    return [(1, int(part)) if part.isdecimal() else (0, part) for part in parts]


def _key(path: Path) -> str | None:
    try:
        if path.stat().st_size < SMALLEST_CACHED_BYTES:
            return None
    except OSError:
        return None
    files = (files for form in _named(path.name) if len(files := form.files(path)) > 1)
    return cache_key(next(files, [path]))


def _read(path: Path, found: TraceFormat | Content | None) -> TraceRows:
    if path.is_dir():
        try:
            next(path.iterdir(), None)
        except OSError as error:
            what = f"{path} cannot be opened: {error.strerror or error}"
            hint = f"Allow yourself to list it: chmod u+rx {path.name}"
            raise RequestError(what, hint=hint) from error
        raise RequestError(f"{path} is a folder", hint="Give the trace files in it.")
    if found is None:
        from gemmetry.formats.readers import format_of

        found = format_of(path)
    rows = _read_as(path, found)
    if rows is None:
        reason, hint = _reason(path, found)
        raise RequestError(f"{path} is not a trace: {reason}", hint=hint)
    return checked(plausible(rows))


def _reason(path: Path, found: TraceFormat | Content) -> tuple[str, str]:
    """Reason why the file is not a trace, and what to do."""
    from gemmetry.domain.opening import open_decompressed
    from gemmetry.formats.readers import Content, supported, trace_formats

    if not isinstance(found, Content) and found.problem:
        return found.problem, found.hint or supported()
    if found is Content.JSON:
        keys = [form.json_key for form in trace_formats() if form.reads_unrecognised]
        return f'it is a JSON document without "{keys[0]}"', supported()
    with open_decompressed(path) as file:
        count = 0
        try:
            begin = file.read(16)
            count = len(begin)
            while count < _MOST_SEARCHED and (more := file.read(1 << 18)):
                count += len(more)
        except OSError as error:
            return f"byte {count}: {error}", (
                "Copy or record it again, each process into a file of its own: two that write one "
                "file at the same time damage it."
            )
    near = next((form for form in trace_formats() if form.problem and form.begins(begin)), None)
    if near is not None:
        return near.problem, near.hint or supported()
    if begin.startswith(_UTF16):
        return "it is text in UTF-16", "Convert it to UTF-8: iconv -f UTF-16 -t UTF-8 FILE."
    if found is Content.CUT:
        return "it is a JSON document that ends before any event of a trace", supported()
    if not begin:
        return "it is empty", supported()
    if begin.isascii() and all(c.isprintable() or c.isspace() for c in begin.decode()):
        return f"it begins with {begin.decode()!r}", supported()
    what = "it is neither text nor a known format; its first bytes are"
    return f"{what} {begin[:8].hex(' ')}", supported()


def _read_as(path: Path, found: TraceFormat | Content) -> TraceRows | None:
    from gemmetry.formats.readers import Content, trace_formats

    if not isinstance(found, Content):
        return found.read(path) if found.read is not None else None
    for form in trace_formats():
        if form.reads_unrecognised and form.read is not None:
            rows = form.read(path)
            # Complete events of a truncated array are kept; without any there is no trace.
            if rows is not None and (rows.events or found is not Content.CUT):
                return rows
    return None


def read_all(
    paths: Iterable[Path],
    errors: dict[str, RequestError],
    *,
    use_cache: bool = True,
    timings: dict[str, float] | None = None,
    workbooks: bool = False,
) -> Iterator[Trace | TraceLensReport]:
    """The traces of `paths` one by one, folders searched; those of several processes in one file
    one after the other.

    Args:
        errors: unreadable files are added to it.
        timings: the seconds of each stage of reading are added to it.
        workbooks: also read reports of TraceLens, which are no traces.
    """
    for path in paths:
        try:
            if workbooks and _is_workbook(path):
                from gemmetry.formats.xlsx import read_tracelens_report

                yield read_tracelens_report(path)
                continue
            files = _sniffed([path])
        except RequestError as error:
            errors[str(path)] = error
            continue
        for file, content in files.items():
            try:
                rows = read_trace(file, use_cache=use_cache, timings=timings, content=content)
            except RequestError as error:
                errors[str(file)] = error
                continue
            # A part is named as if the file were a folder of them, like a trace of a workbook.
            for name, part in split(rows):
                yield Trace(Path(f"{file}: {name}"), part, of=file) if name else Trace(file, part)


def _is_workbook(path: Path) -> bool:
    with contextlib.suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                return file.read(len(XLSX_MAGIC)) == XLSX_MAGIC
    return False


def all_failed(errors: Mapping[str, RequestError]) -> RequestError:
    """The error for a request none of whose files could be read."""
    if len(errors) == 1:
        return next(iter(errors.values()))
    texts = "".join(f"\n  {error.message}" for error in errors.values())
    return RequestError(
        f"none of {len(errors)} traces can be read{texts}" if errors else "no trace was given",
        hint="Give paths of Kineto or rocprofv3 traces, or folders that contain some.",
    )
