"""Files of what a search found; the suffix picks the format, unless it is named."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from gemmetry.domain.contracts import TunedDispatch, TunedFormat
from gemmetry.domain.dispatch import Dispatch, parse_target
from gemmetry.domain.errors import RequestError, UnknownNameError
from gemmetry.domain.names import parse_operation
from gemmetry.domain.record import Record
from gemmetry.providers.base import builtin_names, traits_of
from gemmetry.providers.registry import load_provider
from gemmetry.results.emit import FORMATS as TABLE_FORMATS
from gemmetry.results.emit import check_library, check_writable, write_atomically, write_tables
from gemmetry.tuning.documents import tuning_document, winner_table
from gemmetry.tuning.results import ShapeTuning, TuningResult
from gemmetry.tuning.simulation import median_of

TABLE = "table"


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """A format of files."""

    suffixes: tuple[str, ...]
    content: Callable[[TuningResult, str], str]
    """From what was found, and the file's suffix."""
    provider: str = ""
    """The only provider whose configurations it can hold; "": any."""


def _dispatcher(found: TuningResult, _suffix: str) -> str:
    from gemmetry.engine.experiment import Experiment
    from gemmetry.tuning.dispatcher.building import build_table
    from gemmetry.tuning.dispatcher.table import table_text

    if found.experiment is None:
        raise RequestError(
            "there are no finals from which a table could be made",
            hint="Let the search run to its end.",
        )
    folders = [found.experiment, *([found.proofs] if found.proofs else [])]
    with ExitStack() as stack:
        sets = [stack.enter_context(Experiment.open(one)).result_set() for one in folders]
        return table_text(build_table(sets, load_provider).table)


def _results(found: TuningResult, _suffix: str) -> str:
    return _json(tuning_document(found))


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1) + "\n"


def _owned(provider: str, form: TunedFormat, found: TuningResult, suffix: str) -> str:
    """A provider's own format: of the winners, or of the baseline."""
    if found.provider == provider:
        shapes = [_winners(one) for one in found.shapes if one.winner is not None]
    else:
        shapes = [own for one in found.shapes if (own := _baseline(one, provider))]
    write: Callable[..., str] = import_module(form.module).tuned_text
    return write(shapes, found.device, suffix)


def _winners(shape: ShapeTuning) -> list[TunedDispatch]:
    assert shape.winner is not None
    return [*_tuned(shape.winner), *(one for tie in shape.ties for one in _tuned(tie))]


def _baseline(shape: ShapeTuning, provider: str) -> list[TunedDispatch]:
    records = (one.record for one in shape.against if one.record is not None)
    return [one for r in records if r.provider == provider for one in _tuned(r)]


def _tuned(record: Record) -> Iterator[TunedDispatch]:
    operation, target = parse_operation(record.operation), parse_target(record.target)
    provider = load_provider(record.provider)
    configuration = provider.parse_configuration(record.configuration, operation, target)
    median = median_of(record)
    if configuration is not None and median is not None:
        dispatch = Dispatch(operation, configuration, record.provider, target)
        yield TunedDispatch(dispatch=dispatch, median_ns=median)


def export_formats() -> dict[str, ExportFormat]:
    """Name -> format. A suffix stands for the first one that has it; other suffixes, and all with
    the format ``table``, are those of tables."""
    found = {
        "dispatcher": ExportFormat((".json",), _dispatcher),
        "results": ExportFormat((".json",), _results),
    }
    for provider in builtin_names():
        for form in traits_of(provider).tuned_formats:
            owner = "" if traits_of(provider).baseline_rank is not None else provider
            content = partial(_owned, provider, form)
            found[form.name] = ExportFormat(form.suffixes, content, owner)
    return found


def check_exports(paths: Sequence[Path], name: str | None, provider: str) -> None:
    """Refuse, before anything runs, files that could not be written after it.

    Args:
        name: the format; None: by suffix.
        provider: whose configurations are tuned.

    Raises:
        UnknownNameError: there is no such format.
        RequestError: it does not go with a suffix or with the provider; a library is missing.
        StorageError: a file cannot be written.
    """
    if name is not None and name not in (known := (*export_formats(), TABLE)):
        raise UnknownNameError("format of tuned configurations", name, known)
    for path in paths:
        chosen = _format_of(path, name)
        if chosen is None:
            check_library(path.suffix.lower())
        elif chosen.provider and chosen.provider != provider:
            raise RequestError(
                f"{path} would hold configurations of {chosen.provider}, not of {provider}",
                hint="Write a table of the dispatcher (.json), or --format results.",
            )
        check_writable(path)


def _format_of(path: Path, name: str | None) -> ExportFormat | None:
    """The format of a file; None for a table.

    Raises:
        RequestError: its suffix is not one of the format, or of no format.
    """
    suffix = path.suffix.lower()
    known = export_formats()
    if name is None:
        found = next((one for one in known.values() if suffix in one.suffixes), None)
        suffixes = [end for one in known.values() for end in one.suffixes] + [*TABLE_FORMATS]
    else:
        found = known.get(name)
        suffixes = list(found.suffixes if found else TABLE_FORMATS)
    if suffix not in suffixes:
        raise RequestError(
            f"unknown format of {path}: unknown suffix {path.suffix!r}",
            hint=f"Give a name that ends in one of {', '.join(dict.fromkeys(suffixes))}.",
        )
    return found


def export(found: TuningResult, path: Path, name: str | None) -> None:
    """Write what a search found.

    Raises:
        RequestError: the format cannot hold it. StorageError: the file cannot be written.
    """
    chosen = _format_of(path, name)
    if chosen is None:
        write_tables([winner_table(found)], path)
    else:
        write_atomically(path, chosen.content(found, path.suffix.lower()).encode())
