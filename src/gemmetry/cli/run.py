"""Runs a plan and renders its results, for every command that does so."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gemmetry.api.profile import Prepared
    from gemmetry.domain.record import Record
    from gemmetry.engine import RunSummary


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
    from gemmetry.domain.errors import RequestError
    from gemmetry.reports.dispatches.writers import check_libraries

    try:
        check_libraries(".html")
    except RequestError as error:
        note(f"note: no HTML report is written: {error.message}")
        return None
    return experiment / "report.html"


def print_failure(summary: RunSummary) -> None:
    """Print why a run ended early, in the form of all errors."""
    from gemmetry.cli.console import note

    note(f"error: {summary.failure}")
    note("hint: The same command continues where this one stopped.")


@contextmanager
def reporting_what_is_kept(*folders: Path, fresh: bool) -> Iterator[None]:
    """Around a run into `folders`: an interrupt becomes an error that names what is stored in the
    first of them that has something.

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
    """What an interrupted run left in the first of `folders` with results, and how to continue."""
    from gemmetry.domain.errors import GemmetryError
    from gemmetry.domain.units import counted
    from gemmetry.store.experiment import Experiment

    for folder in folders:
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
    from gemmetry.api.profile import run_prepared
    from gemmetry.cli.console import command_line, note, stderr_console
    from gemmetry.cli.requests import warn_of_idle_patterns
    from gemmetry.cli.results import check_rendering, render, rendering_of
    from gemmetry.reports.progress import ProgressListener
    from gemmetry.store.experiment import Experiment

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
        print_failure(summary)
    return summary.exit_status
