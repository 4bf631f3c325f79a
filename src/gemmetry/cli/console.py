"""Output of text: results to stdout, everything else to stderr; and the common part of commands
that run a plan: from options to a request and its plan, to the run and its results.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import typer

from gemmetry.domain.rows import SCHEMA_VERSION
from gemmetry.domain.settings import RAY
from gemmetry.domain.units import noun_for, plural

if TYPE_CHECKING:
    from rich.console import Console

    from gemmetry.dispatches.profile import Prepared
    from gemmetry.domain.record import Record, ResultSet
    from gemmetry.domain.specs.model import ProfileSpec
    from gemmetry.domain.specs.operations import Defaults


_R = TypeVar("_R")

_INDENT = 4
"""Columns by which the continuation of a line that exceeds the terminal's width is indented."""


def stdout_console() -> Console:
    """The console of results. If it is not a terminal, it is as wide as COLUMNS specifies, or else
    160 columns, so that each row of a piped table stays on one line."""
    from gemmetry.results.lines import safe_console

    is_given = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return safe_console(width=None if is_given else 160)


def stderr_console() -> Console:
    """The console of progress."""
    from gemmetry.results.lines import safe_console

    return safe_console(stderr=True)


def say(text: str) -> None:
    """Print a line of a result on stdout as it is, however wide the terminal; control characters
    are replaced."""
    from gemmetry.results.texts import printable

    typer.echo(printable(text))


def note(text: str, *, command: str = "") -> None:
    """Print a line for the user on stderr; a terminal breaks it between words. Control characters,
    which names of files may contain, are replaced.

    Args:
        command: a command after `text` that can be copied: it gets lines of its own if the terminal
            is too narrow.
    """
    from gemmetry.results.texts import printable

    text, command = printable(text), printable(command)
    if not sys.stderr.isatty():
        typer.echo(f"{text} {command}" if command else text, err=True)
        return
    from rich.text import Text

    from gemmetry.results.lines import print_line, print_pointer

    if command:
        print_pointer(text, command, stderr_console())
    else:
        print_line(Text(text), stderr_console(), indent=_INDENT)


def notes(texts: Iterable[str], kind: str = "note") -> None:
    """Print on stderr what is not empty, after ``note:``, or ``warning:``, or nothing."""
    for text in filter(None, texts):
        note(f"{kind}: {text}" if kind else text)


def print_json(document: Any, *, indent: int = 0) -> None:
    """One JSON document on stdout; `indent` as in :func:`gemmetry.results.json_text.encoded`."""
    from gemmetry.results.json_text import encoded

    typer.echo(encoded(document, indent=indent).decode())


def print_facts(**facts: Any) -> None:
    """One JSON document of what a command did, with the version of its schema."""
    print_json({"schema_version": SCHEMA_VERSION, **facts})


def command_line() -> str:
    """The command as it was typed, without passwords, for the experiment's manifest."""
    from gemmetry.hardware.detect import masked_words

    return shlex.join(["gemmetry", *masked_words(sys.argv[1:])])


class Found(Protocol):
    """Findings of a command, as a JSON document and as files."""

    def document(self) -> Any:
        """JSON values."""

    def write(self, path: Path) -> object:
        """Write the findings in the format of the suffix."""


def write_outputs(found: Found, outputs: Sequence[Path]) -> None:
    """Write what was found to files, each in the format of its suffix."""
    for path in outputs:
        found.write(path)
        note(f"wrote {path}")


def check_outputs(
    outputs: Sequence[Path], suffixes: Iterable[str] = (), *, draws: bool = False
) -> None:
    """Refuse, before any work, files that could not be written after it. `suffixes` are those that
    there is a writer for (default: those of tables); `draws`: pages and pictures have plots.

    Raises:
        RequestError: a suffix is unknown or a library is missing. StorageError: not writable.
    """
    from gemmetry.results.emit import FORMATS, check_library, check_suffix, check_writable

    for path in outputs:
        check_library(check_suffix(path, suffixes or FORMATS), draws=draws)
        check_writable(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Source of a request."""

    given: dict[str, Any]
    """Keys given as options."""
    spec: Path | None = None
    settings: Iterable[str] = ()
    """``key=value`` of ``--set``."""
    save: Path | None = None


_PATTERN_KEYS = frozenset(("dispatches", "exclude", "output", "shapes", "matrix_sizes", "kernel"))
"""Keys whose items may hold commas of their own, or mean something else joined by commas."""


def read_request(source: Source, **defaults: Any) -> ProfileSpec:
    """The spec of a command line; `defaults` are keys for what it leaves out.

    Raises:
        SpecError: every mistake, with its place or its option.
        StorageError: the file of ``--save-spec`` cannot be written.
    """
    from gemmetry.dispatches.profile import read_spec, write_spec
    from gemmetry.domain.specs.loader import command_place, parse_settings

    settings = parse_settings(source.settings)
    # Lists are one text, so that ``--dtypes a,b c`` and a file's ``dtypes: "a, b, c"`` are read by
    # the same code.
    given = {
        name: ",".join(value) if isinstance(value, list) and name not in _PATTERN_KEYS else value
        for name, value in source.given.items()
    }
    place = command_place(settings.keys() - given.keys())
    spec = read_spec(source.spec, {**settings, **given}, place=place)
    silent = {key: value for key, value in defaults.items() if key not in spec.model_fields_set}
    if silent:
        spec = spec.model_copy(update=silent)
    if source.save is not None:
        write_spec(spec, source.save)
        note(f"spec: {source.save}")
    return spec


def warn_of_idle_patterns(prepared: Prepared) -> None:
    """Warn of patterns that selected nothing while others did, after the plan was enumerated."""
    from gemmetry.domain.specs.selection import PatternSelection

    selection = prepared.plan.selection
    if not isinstance(selection, PatternSelection):
        return
    for text in selection.idle_patterns():
        # A full name is a dispatch even where no provider lists its configuration.
        provider, _, glob = text.partition(":")
        is_listed = glob in selection.configurations.get(provider, ())
        if is_listed or set(text) & set("*?[{=") or text.startswith("re:"):
            note(f"warning: the pattern {text!r} matches no dispatch")


def plan_request(
    spec: ProfileSpec,
    source: Source,
    *,
    defaults: Defaults | None = None,
    shows_notes: bool = True,
    takes_generated: bool = True,
) -> Prepared:
    """The plan of `spec`; notes about choices made by default are printed on stderr."""
    from gemmetry.dispatches.profile import prepare

    # Paths in a spec file are relative to it, those on the command line to the working directory.
    has_own = bool({"shapes", "kernel"} & set(source.given))
    base = None if source.spec is None or has_own else source.spec.parent
    prepared = prepare(spec, defaults=defaults, base=base, takes_generated=takes_generated)
    notes(prepared.notes if shows_notes else (), "")
    return prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """Output to print and files to write."""

    outputs: tuple[Path, ...] = ()
    append: bool = False
    columns: tuple[str, ...] = ()
    baseline: str | None = None
    format: str = "table"
    json: bool = False
    html: Path | None = None


def rendering_of(request: Any, *, json: bool) -> Rendering:
    """The rendering that the keys of a spec request, or the options of the same names."""
    names = request.columns or ()
    parts = [part for name in names for part in name.replace(",", " ").split()]
    if not names and request.format == "block":
        # The format of the dispatch profiler has its columns in files, too.
        parts = ["dispatch-profiler"]
    return Rendering(
        outputs=tuple(map(Path, request.output)),
        append=request.append,
        columns=tuple("gemmetry" if part == "all" else part for part in parts),
        baseline=request.baseline,
        format=request.format,
        json=json,
        html=Path(request.html) if request.html else None,
    )


def check_rendering(rendering: Rendering, *, tags: Iterable[str] | None = None) -> None:
    """Check, before anything runs, that the results can be written.

    `tags` are the names of the results' tags, where they are known.

    Raises:
        RequestError: unknown suffix or column, or a file to append to that has other columns.
        StorageError: a file cannot be written.
    """
    from gemmetry.dispatches.results import select_columns
    from gemmetry.results.emit import CSV, every_form
    from gemmetry.results.tables import check_append

    select_columns(rendering.columns)
    paths = (*rendering.outputs, *((rendering.html,) if rendering.html else ()))
    check_outputs(paths, every_form(), draws=True)
    if rendering.append and tags is not None:
        for path in (one for one in paths if one.suffix.lower() == CSV):
            check_append(path, select_columns(rendering.columns, tags=tags))


def render(result_set: ResultSet, rendering: Rendering) -> None:
    """Print and write `result_set`.

    Raises:
        RequestError: a column does not exist or a library is missing.
        StorageError: a file cannot be written.
    """
    from gemmetry.dispatches.results import to_json_document, write
    from gemmetry.results.emit import CSV, with_columns

    if rendering.json:
        print_json({**to_json_document(result_set), "command": result_set.command})
    else:
        _print(result_set, rendering)
    if rendering.json or rendering.format != "table" or rendering.columns:
        notes(result_set.remarks, "warning")  # A table of one's own has no place for them.
    for path in rendering.outputs:
        suffix = path.suffix.lower()
        note(f"Writing performance report to {path}")
        write(
            result_set,
            path,
            columns=rendering.columns or None if suffix in with_columns() else None,
            append=rendering.append and suffix == CSV,
            baseline=rendering.baseline,
        )
    if rendering.html is not None:
        write(result_set, rendering.html, baseline=rendering.baseline)
        note(f"HTML report: {rendering.html}")


def _print(result_set: ResultSet, rendering: Rendering) -> None:
    from gemmetry.dispatches import results
    from gemmetry.dispatches.terminal import print_results

    columns = rendering.columns or None
    match rendering.format:
        case "block":
            typer.echo(results.format_block(result_set.records))
        case "csv":
            typer.echo(results.to_csv(result_set, columns), nl=False)
        case "md":
            typer.echo(results.to_markdown(result_set, columns), nl=False)
        case "table":
            console = stdout_console()
            print_results(result_set, console, columns=columns, baseline=rendering.baseline)


_SHOWN = 20


def print_plan(prepared: Prepared, *, as_json: bool) -> None:
    """Print the counts of a plan and its first dispatches; nothing is run or written."""
    from gemmetry.engine.catalogue import list_dispatches

    counts: Counter[tuple[str, str]] = Counter()
    refused: Counter[tuple[str, str]] = Counter()
    operations: Counter[str] = Counter()
    first: list[str] = []
    for dispatch in list_dispatches(prepared.plan):
        lane = (dispatch.provider, dispatch.target.name)
        counts[lane] += 1
        operations[dispatch.operation] += 1
        refused[lane] += bool(dispatch.refusal)
        if len(first) < _SHOWN:
            text = f"  unsupported: {dispatch.refusal}" if dispatch.refusal else ""
            first.append(f"{dispatch.provider}:{dispatch.name}{text}")
    warn_of_idle_patterns(prepared)
    total, kinds = sum(counts.values()), len(operations)
    if as_json:
        document: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "plan_hash": prepared.plan.hash,
            "experiment": str(prepared.experiment),
            "dispatches": total,
            "operations": kinds,
            "providers": [
                {"provider": provider, "target": target, "dispatches": count,
                 "unsupported": refused[provider, target]}
                for (provider, target), count in counts.items()
            ],
            "plan": prepared.plan.document,
        }  # fmt: skip
        print_json(document)
        return
    dispatches = noun_for(total, "dispatch", "dispatches")
    say(f"{total} {dispatches} of {kinds} {noun_for(kinds, 'operation')} would run:")
    for (provider, target), count in counts.items():
        missing = refused[provider, target]
        text = f" ({missing} unsupported)" if missing else ""
        say(f"  {provider} on {target}: {count}{text}")
    if prepared.plan.settings.executor == RAY:
        say("  The nodes decide whether they have the devices and libraries for this.")
    for line in first:
        say(f"    {line}")
    if total > len(first):
        say(f"    ... and {total - len(first)} more")
    say(f"experiment: {prepared.experiment}")


def default_html(experiment: Path) -> Path | None:
    """Default path of the HTML report; None if it cannot be made here."""
    from gemmetry.domain.errors import RequestError
    from gemmetry.results.emit import HTML, check_library

    try:
        check_library(HTML, draws=True)
    except RequestError as error:
        note(f"note: no HTML report is written: {error.message}")
        return None
    return experiment / "report.html"


def print_failure(failure: str) -> None:
    """Print why a run ended early, in the form of all errors; "": it did not."""
    if failure:
        note(f"error: {failure}")
        note("hint: The same command continues where this one stopped.")


def watched(run: Callable[..., _R], *folders: Path, fresh: bool, verbose: bool = False) -> _R:
    """`run`, with its progress on stderr; an interrupt becomes an error that names what is stored
    in the one of the `folders` of its results that was written last.

    `fresh`: the run begins anew, so that the same command would do so again.

    Raises:
        InterruptedRunError: the run was interrupted.
    """
    from gemmetry.dispatches.progress import ProgressListener
    from gemmetry.domain.errors import InterruptedRunError

    try:
        with ProgressListener(stderr_console(), verbose=verbose) as listener:
            return run(listener=listener, fresh=fresh, command=command_line())
    except KeyboardInterrupt:
        message, hint = _kept(folders, fresh)
        raise InterruptedRunError(message, hint=hint) from None


def _kept(folders: Iterable[Path], fresh: bool) -> tuple[str, str]:
    """Remains of an interrupted run in the latest of `folders`, and how to continue."""
    from gemmetry.domain.errors import GemmetryError
    from gemmetry.engine.experiment import Experiment

    def written(folder: Path) -> float:
        return max((file.stat().st_mtime for file in folder.glob("journal.sqlite*")), default=0.0)

    for folder in sorted(folders, key=written, reverse=True):
        try:
            with Experiment.open(folder) as experiment:
                done, total = sum(experiment.outcome_counts().values()), experiment.total()
                samples = experiment.samples_count()
                break
        except GemmetryError:
            continue
    else:
        return "nothing was stored yet", "The same command starts over."
    dispatches = plural(total, "dispatch", "dispatches")
    taken = f" and {plural(samples, 'sample')}" if samples else ""
    command = "The same command without --fresh" if fresh else "The same command"
    return (
        f"{done} of {dispatches}{taken} are stored in {folder}",
        f"{command} continues where this one stopped.",
    )


def _show_code(experiment: Path, records: Iterable[Record]) -> None:
    """Print where compiled code lies, if there is any, and the command that shows that of a
    dispatch."""
    files = {
        path: record.dispatch
        for record in records
        for path in (record.facts.binary_path, record.facts.assembly_path)
        if path
    }
    if not files:
        return
    folder = Path(os.path.commonpath([(experiment / path).resolve().parent for path in files]))
    if folder.is_relative_to(Path.cwd()):
        folder = folder.relative_to(Path.cwd())
    note(f"code: {plural(len(files), 'file')} under {folder}")
    first = next(iter(files.values()))
    note("show it:", command=shlex.join(["gemmetry", "show", str(experiment), first]))


def run_and_report(prepared: Prepared, *, fresh: bool, json: bool, verbose: bool) -> int:
    """Run a plan, render its results, and return the exit status."""
    from gemmetry.dispatches.profile import run_prepared
    from gemmetry.domain.errors import UnknownNameError
    from gemmetry.engine.experiment import Experiment

    rendering = rendering_of(prepared.spec, json=json)
    check_rendering(rendering, tags=prepared.plan.settings.tags)
    baseline = (prepared.spec.baseline or "").partition(":")[0]
    known = [request.name for request in prepared.plan.providers]
    if baseline and baseline not in known:
        raise UnknownNameError("baseline provider", baseline, known)
    settings = prepared.plan.settings
    if rendering.html is None and settings.trace is None:  # Without times it would be empty.
        # The user did not request it, so a missing library or folder is not a reason to stop.
        rendering = dataclasses.replace(rendering, html=default_html(prepared.experiment))
    summary = watched(
        partial(run_prepared, prepared), prepared.experiment, fresh=fresh, verbose=verbose
    )
    warn_of_idle_patterns(prepared)
    with Experiment.open(prepared.experiment) as experiment:
        results = experiment.result_set()
        render(results, rendering)
    note(f"experiment: {prepared.experiment}")
    if settings.trace is None and not (settings.measure or settings.verify):
        _show_code(prepared.experiment, results.records)
    if any(record.trace is not None for record in results.records):
        folder = shlex.quote(str(prepared.experiment))
        note("read the traces:", command=f"gemmetry trace report {folder} -o report.html")
    print_failure(summary.failure)
    return summary.exit_status
