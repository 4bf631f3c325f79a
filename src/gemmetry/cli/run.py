"""Runs a plan and renders its results, for every command that does so.

From options to a request and its plan: the spec file, overridden by ``--set`` and options.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmetry.cli.console import note

if TYPE_CHECKING:
    from gemmetry.dispatches.profile import Prepared
    from gemmetry.domain.record import Record
    from gemmetry.domain.specs.model import ProfileSpec
    from gemmetry.domain.specs.operations import Defaults


def check_baseline_provider(prepared: Prepared) -> None:
    """Refuse a baseline whose provider is not in the plan.

    Raises:
        UnknownNameError: it is not.
    """
    from gemmetry.domain.errors import UnknownNameError

    name = (prepared.spec.baseline or "").partition(":")[0]
    known = [request.name for request in prepared.plan.providers]
    if name and name not in known:
        raise UnknownNameError("baseline provider", name, known)


def default_html(experiment: Path) -> Path | None:
    """Where the HTML report goes when no place was given; None if it cannot be made here."""
    from gemmetry.cli.console import note
    from gemmetry.dispatches.writers import check_libraries
    from gemmetry.domain.errors import RequestError

    try:
        check_libraries(".html")
    except RequestError as error:
        note(f"note: no HTML report is written: {error.message}")
        return None
    return experiment / "report.html"


def print_failure(failure: str) -> None:
    """Print why a run ended early, in the form of all errors."""
    from gemmetry.cli.console import note

    note(f"error: {failure}")
    note("hint: The same command continues where this one stopped.")


@contextmanager
def reporting_what_is_kept(*folders: Path, fresh: bool) -> Iterator[None]:
    """Around a run into `folders`: an interrupt becomes an error that names what is stored in the
    one of them that was written last.

    `fresh`: the run began anew, so that the same command would do so again.

    Raises:
        InterruptedRunError: the run was interrupted.
    """
    from gemmetry.domain.errors import InterruptedRunError

    try:
        yield
    except KeyboardInterrupt:
        message, hint = _kept(folders, fresh)
        raise InterruptedRunError(message, hint=hint) from None


def _kept(folders: Iterable[Path], fresh: bool) -> tuple[str, str]:
    """What an interrupted run left in the one of `folders` that was written last, and how to
    continue."""
    from gemmetry.domain.errors import GemmetryError
    from gemmetry.domain.units import counted
    from gemmetry.engine.store.experiment import Experiment

    for folder in sorted(folders, key=_written, reverse=True):
        try:
            with Experiment.open(folder) as experiment:
                done, total = sum(experiment.outcome_counts().values()), experiment.total()
                samples = experiment.samples_count()
                break
        except GemmetryError:
            continue
    else:
        return "nothing was stored yet", "The same command starts over."
    dispatches = counted(total, "dispatch", "dispatches")
    taken = f" and {counted(samples, 'sample')}" if samples else ""
    command = "The same command without --fresh" if fresh else "The same command"
    return (
        f"{done} of {dispatches}{taken} are stored in {folder}",
        f"{command} continues where this one stopped.",
    )


def _written(folder: Path) -> float:
    return max((file.stat().st_mtime for file in folder.glob("journal.sqlite*")), default=0.0)


def _runs(prepared: Prepared) -> bool:
    """False where dispatches are only compiled."""
    return prepared.plan.settings.measure or prepared.plan.settings.verify


def _built(records: Iterable[Record]) -> tuple[str, list[str]] | None:
    """A dispatch whose code was made, and the files of all such; None if none was."""
    first, files = "", []
    for record in records:
        facts = record.facts
        found = [path for path in (facts.binary_path, facts.assembly_path) if path]
        files += found
        first = first or (record.dispatch if found else "")
    return (first, files) if files else None


def _show_code(experiment: Path, dispatch: str, files: Sequence[str]) -> None:
    """Print where compiled code lies, and the command that shows that of a dispatch."""
    from gemmetry.cli.console import note
    from gemmetry.domain.units import counted

    paths = [(experiment / path).resolve() for path in dict.fromkeys(files)]
    folder = Path(os.path.commonpath([path.parent for path in paths]))
    if folder.is_relative_to(Path.cwd()):
        folder = folder.relative_to(Path.cwd())
    note(f"code: {counted(len(paths), 'file')} under {folder}")
    note("show it:", command=shlex.join(["gemmetry", "show", str(experiment), dispatch]))


def run_and_report(prepared: Prepared, *, fresh: bool, json: bool, verbose: bool) -> int:
    """Run a plan, render its results, and return the exit status."""
    from gemmetry.cli.console import command_line, note, stderr_console
    from gemmetry.cli.results import check_rendering, render, rendering_of
    from gemmetry.dispatches.profile import run_prepared
    from gemmetry.dispatches.progress import ProgressListener
    from gemmetry.engine.store.experiment import Experiment

    rendering = rendering_of(prepared.spec, json=json)
    check_rendering(rendering, tags=prepared.plan.settings.tags)
    check_baseline_provider(prepared)
    records_traces = prepared.plan.settings.trace is not None
    if rendering.html is None and not records_traces:  # Without times it would be empty.
        # The user did not request it, so a missing library or folder is not a reason to stop.
        rendering = dataclasses.replace(rendering, html=default_html(prepared.experiment))
    progress = ProgressListener(stderr_console(), verbose=verbose)
    with reporting_what_is_kept(prepared.experiment, fresh=fresh), progress as listener:
        summary = run_prepared(prepared, listener=listener, fresh=fresh, command=command_line())
    warn_of_idle_patterns(prepared)
    with Experiment.open(prepared.experiment) as experiment:
        results = experiment.result_set()
        render(results, rendering)
        has_traces = any(record.trace is not None for record in results.records)
        built = None if records_traces or _runs(prepared) else _built(results.records)
    note(f"experiment: {prepared.experiment}")
    if built is not None:
        _show_code(prepared.experiment, *built)
    if has_traces:
        folder = shlex.quote(str(prepared.experiment))
        note("read the traces:", command=f"gemmetry trace report {folder} -o report.html")
    if summary.failure:
        print_failure(summary.failure)
    return summary.exit_status


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a request comes from."""

    given: dict[str, Any]
    """Keys given as options."""
    spec: Path | None = None
    settings: Iterable[str] = ()
    """``key=value`` of ``--set``."""
    save: Path | None = None


_PATTERN_KEYS = frozenset(("dispatches", "exclude", "output", "shapes", "matrix_sizes", "kernel"))
"""Keys whose items may hold commas of their own, or mean something else joined by commas."""


def given_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options as values of a spec: list options become one text, so that ``--dtypes a,b c`` and
    a file's ``dtypes: "a, b, c"`` are read by the same code."""
    return {
        name: ",".join(value) if isinstance(value, list) and name not in _PATTERN_KEYS else value
        for name, value in given.items()
    }


def read_request(source: Source, **defaults: Any) -> ProfileSpec:
    """The spec of a command line; `defaults` are keys for what it leaves out.

    Raises:
        SpecError: every mistake, with its place or its option.
        StorageError: the file of ``--save-spec`` cannot be written.
    """
    from gemmetry.dispatches.profile import read_spec, write_spec
    from gemmetry.domain.specs.loader import command_place, parse_settings

    settings, given = parse_settings(source.settings), given_values(source.given)
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
    from gemmetry.domain.specs.generated import WithoutReused
    from gemmetry.domain.specs.selection import PatternSelection

    selection = prepared.plan.selection
    if isinstance(selection, WithoutReused):
        selection = selection.inner
    if not isinstance(selection, PatternSelection):
        return
    for text in selection.idle_patterns():
        # A full name is a dispatch even where no provider lists its configuration.
        if set(text) & set("*?[{=") or text.startswith("re:"):
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
    is_from_file = source.spec is not None and not {"shapes", "kernel"} & set(source.given)
    base = source.spec.parent if is_from_file and source.spec is not None else None
    prepared = prepare(spec, defaults=defaults, base=base, takes_generated=takes_generated)
    for text in prepared.notes if shows_notes else ():
        note(text)
    return prepared
