"""Reads trace files of every kind into :class:`TraceRows`; the content identifies the format.

Readers are imported when a file needs them: a cached trace needs none.

Reads several trace files one after the other; unreadable files do not stop the others.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gemmetry.domain.errors import RequestError
from gemmetry.domain.opening import XLSX_MAGIC
from gemmetry.formats.events import TraceRows, let_go
from gemmetry.traces.cache import CACHE_SUFFIX, SMALLEST_CACHED_BYTES, cache_key, load, save
from gemmetry.traces.missing import split
from gemmetry.traces.model import Trace, stage

if TYPE_CHECKING:
    from gemmetry.formats.readers import Content, TraceFormat
    from gemmetry.formats.xlsx import TraceLensReport


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
    key = None
    if use_cache:
        with stage(times, "cache"):
            key = _key(path)
            found = load(path, key) if key else None
        if found is not None:
            let_go(found)
            return found
    with stage(times, "read"):
        rows = _read(path, content)
    if key:
        with stage(times, "save"):
            save(path, key, rows)
    let_go(rows)
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
    for path in paths:
        try:
            for file, content in _traces_at(path):
                found.setdefault(file, content)
        except OSError as error:
            raise RequestError(
                f"{path} cannot be read: {error.strerror or error}",
                hint="Give the path of a trace, or of a folder.",
            ) from error
    return found


def _traces_at(path: Path) -> list[tuple[Path, TraceFormat | Content | None]]:
    if path.is_dir():
        inside = sorted(_inside(path), key=lambda found: _natural(found[0]))
        if not inside:
            raise _no_trace_below(path)
        return inside
    if not path.exists():
        raise RequestError(
            f"{path} does not exist", hint="Give the path of a trace, or of a folder."
        )
    # A shell pattern like rank0* matches caches too.
    return [] if path.name.endswith(CACHE_SUFFIX) else [(path, None)]


def _no_trace_below(folder: Path) -> RequestError:
    """The error for a folder without traces, which names a file that was taken for none, if the
    reason is known."""
    from gemmetry.formats.readers import Content, format_of, supported

    for place, _, names in os.walk(folder):
        for name in sorted(names):
            if not _named(name) or name.startswith("."):
                continue
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
    files = next((files for form in _named(path.name) if len(files := form.files(path)) > 1), ())
    return cache_key(files or [path])


def _read(path: Path, found: TraceFormat | Content | None) -> TraceRows:
    if path.is_dir():
        try:
            next(path.iterdir(), None)
        except OSError as error:
            raise RequestError(
                f"{path} cannot be opened: {error.strerror or error}",
                hint=f"Allow yourself to list it: chmod u+rx {path.name}",
            ) from error
        raise RequestError(f"{path} is a folder", hint="Give the trace files in it.")
    if found is None:
        from gemmetry.formats.readers import format_of

        found = format_of(path)
    rows = _read_as(path, found)
    if rows is None:
        reason, hint = _reason(path, found)
        raise RequestError(f"{path} is not a trace: {reason}", hint=hint)
    from gemmetry.formats.events import plausible
    from gemmetry.traces.missing import checked

    return checked(plausible(rows))


def _reason(path: Path, found: TraceFormat | Content) -> tuple[str, str]:
    """Why the file is not a trace, and what to do."""
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
    return (
        f"it is neither text nor a known format; its first bytes are {begin[:8].hex(' ')}",
        supported(),
    )


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
        if workbooks and _is_workbook(path):
            from gemmetry.formats.xlsx import read_tracelens_report

            try:
                yield read_tracelens_report(path)
            except RequestError as error:
                errors[str(path)] = error
            continue
        try:
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
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(XLSX_MAGIC)) == XLSX_MAGIC
    except OSError:
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
