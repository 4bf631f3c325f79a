"""Reads several trace files one after the other; unreadable files do not stop the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gemmetry.domain.errors import RequestError
from gemmetry.formats.opening import XLSX_MAGIC
from gemmetry.traces.missing import split
from gemmetry.traces.model import Trace
from gemmetry.traces.reading import find_traces, read_trace

if TYPE_CHECKING:
    from gemmetry.formats.tracelens import TraceLensReport


def read_all(
    paths: Iterable[Path],
    errors: dict[str, RequestError],
    *,
    use_cache: bool = True,
    timings: dict[str, float] | None = None,
) -> Iterator[Trace]:
    """The traces of `paths` one by one, folders searched; those of several processes in one file
    one after the other. Unreadable ones are listed in `errors`, by file. `timings` receives the
    seconds of each stage of reading."""
    for path in paths:
        try:
            files = find_traces([path])
        except RequestError as error:
            errors[str(path)] = error
            continue
        for file in files:
            try:
                rows = read_trace(file, use_cache=use_cache, timings=timings)
            except RequestError as error:
                errors[str(file)] = error
                continue
            # A part is named as if the file were a folder of them, like a trace of a workbook.
            for name, part in split(rows):
                yield Trace(Path(f"{file}: {name}"), part, of=file) if name else Trace(file, part)


def read_any(
    paths: Iterable[Path],
    errors: dict[str, RequestError],
    *,
    use_cache: bool = True,
    timings: dict[str, float] | None = None,
) -> Iterator[Trace | TraceLensReport]:
    """Like :func:`read_all`, but also reads TraceLens workbooks."""
    for path in paths:
        if not _is_workbook(path):
            yield from read_all([path], errors, use_cache=use_cache, timings=timings)
            continue
        from gemmetry.formats.tracelens import read_tracelens_report

        try:
            yield read_tracelens_report(path)
        except RequestError as error:
            errors[str(path)] = error


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
