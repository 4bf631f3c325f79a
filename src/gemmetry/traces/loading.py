"""Several trace files one after the other; those that cannot be read do not stop the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from gemmetry.domain.errors import RequestError
from gemmetry.traces.model import Trace
from gemmetry.traces.reading import find_traces, read_trace


def read_all(
    paths: Iterable[Path],
    errors: dict[str, RequestError],
    *,
    use_cache: bool = True,
    timings: dict[str, float] | None = None,
) -> Iterator[Trace]:
    """The traces of `paths` one by one, folders searched; those that cannot be read are told in
    `errors`, by file. `timings` gets the seconds of each stage of reading."""
    for path in paths:
        try:
            files = find_traces([path])
        except RequestError as error:
            errors[str(path)] = error
            continue
        for file in files:
            try:
                yield Trace(file, read_trace(file, use_cache=use_cache, timings=timings))
            except RequestError as error:
                errors[str(file)] = error


def all_failed(errors: Mapping[str, RequestError]) -> RequestError:
    """The error of a request of which no file could be read."""
    if len(errors) == 1:
        return next(iter(errors.values()))
    texts = "".join(f"\n  {error.message}" for error in errors.values())
    return RequestError(
        f"none of {len(errors)} traces can be read{texts}" if errors else "no trace was given",
        hint="Give paths of Kineto or rocprofv3 traces, or folders that hold some.",
    )
