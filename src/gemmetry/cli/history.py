"""``gemmetry history``: the group of commands about the history of many runs.

Options that several commands of ``gemmetry history`` have.

``gemmetry history add``.

``gemmetry history annotate``.

``gemmetry history check``.

``gemmetry history show``.

``gemmetry history site``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from gemmetry.cli.console import say
from gemmetry.cli.experiments import Undecided
from gemmetry.cli.main import LazyGroup, group_app
from gemmetry.cli.options import Baseline, ComparisonOutputs, Json, Outputs

if TYPE_CHECKING:
    from gemmetry.history.api import History


class HistoryGroup(LazyGroup):
    """The commands, each in a module of this folder."""

    modules: ClassVar = {
        "add": "history:add",
        "show": "history:show",
        "check": "history:check",
        "annotate": "history:annotate",
        "site": "history:site",
    }


app = group_app(HistoryGroup, "Store medians of many runs, find changes and their causes.")


Store = Annotated[
    Path, typer.Option("--store", metavar="DIR", help="Folder of the history.", show_default=False)
]
Latest = Annotated[
    int,
    typer.Option(
        "--latest",
        metavar="N",
        min=1,
        help="Changes whose first run is among the latest N runs are new.",
    ),
]
Threshold = Annotated[
    str, typer.Option("--threshold", metavar="SHARE", help="Changes up to this count as none.")
]

OnUndecided = Annotated[
    Undecided | None,
    typer.Option(
        "--undecided",
        help="How a history with too few runs, or too noisy ones, for a verdict affects the exit "
        "status; by default it passes while it has fewer than 10 runs, and fails from then on.",
    ),
]

LATEST = 10
THRESHOLD = "2%"


def loaded_history(folder: Path, *, threshold: str, **options: Any) -> History:
    """The history at `folder` with its changes; a note names each line of it that was skipped.
    `options` are those of :func:`gemmetry.history.api.load`."""
    from gemmetry.domain.units import parse_share
    from gemmetry.history.api import load

    found = load(folder, threshold=parse_share(threshold), **options)
    note_problems(found.problems)
    return found


def note_problems(problems: Iterable[str]) -> None:
    """Report lines of a history that were skipped."""
    from gemmetry.cli.console import note

    for problem in problems:
        note(f"note: {problem}")


def add(
    experiments: Annotated[
        list[Path], typer.Argument(metavar="EXPERIMENT...", help="Folders of experiments.")
    ],
    store: Store,
    commit: Annotated[
        str,
        typer.Option(
            metavar="SHA",
            help="Commit that was measured. Default: the one in which the run was started.",
        ),
    ] = "",
    label: Annotated[
        str, typer.Option(metavar="TEXT", help="Text that names the runs, such as nightly.")
    ] = "",
    time: Annotated[
        str,
        typer.Option(
            metavar="ISO",
            help="Time by which the runs are ordered (UTC). Default: when the run began.",
        ),
    ] = "",
    json: Json = False,
) -> None:
    """Add experiments to a history.

    An experiment that is in the history already is not added again; one that has grown since then
    replaces what was added. Lines are only ever appended. If one of the experiments cannot be read,
    none is added.
    """
    from gemmetry.cli.console import note, print_facts
    from gemmetry.domain.units import counted
    from gemmetry.history import api as history

    added, problems = history.add(*experiments, store=store, commit=commit, label=label, time=time)
    note_problems(problems)
    for one in added:
        path, run = one.experiment, one.run
        if one.state == "same":
            note(f"note: {path} is in the history already ({run.device})")
            continue
        if one.measured_before is not None:
            old = one.measured_before
            note(
                f"note: {path} measures commit {run.commit[:12]} again, which run {old.id} of "
                f"{old.time[:16]} measured before others: no change is looked for in it; place it "
                f"next to that run with --time {old.time[:10]}"
            )
        if one.is_older:
            note(f"note: {path} is older than the latest run and is placed by its time")
        more = ", replacing what was added before" if one.state == "replaced" else ""
        if json:
            continue
        say(f"{path}: {counted(len(run.points), 'dispatch', 'dispatches')} on "
                   f"{run.device}{more}")  # fmt: skip
    if json:
        print_facts(
            store=str(store),
            runs=[
                {
                    "experiment": str(one.experiment), "run": one.run.id, "device": one.run.device,
                    "dispatches": len(one.run.points), "state": one.state,
                    "is_older": one.is_older,
                }
                for one in added
            ],
            problems=list(map(str, problems)),
        )  # fmt: skip


def annotate(
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="PATTERN",
            help="Dispatches, as provider:name or a part of it, or a glob; '*' for all.",
        ),
    ],
    store: Store,
    run: Annotated[
        str,
        typer.Option(
            metavar="RUN",
            help="The first run after the change, as history check prints it: the beginning of its "
            "id, commit or time.",
        ),
    ],
    text: Annotated[str, typer.Option(metavar="TEXT", help="The remark.")],
    keep_alarm: Annotated[
        bool, typer.Option("--keep-alarm", help="Add the remark, but keep the alarm.")
    ] = False,
    json: Json = False,
) -> None:
    """Add a remark to a change, which is then acknowledged: `history check` no longer fails on it.

    Remarks are stored in annotations.jsonl in the folder of the history.
    """
    from gemmetry.cli.console import print_facts
    from gemmetry.history.checking import annotation_of
    from gemmetry.history.folder import append, read_history

    history = read_history(store)
    note_problems(history.problems)
    found = annotation_of(history, pattern, run, text, acknowledged=not keep_alarm)
    append(store, [found])
    if json:
        print_facts(
            store=str(store), dispatches=pattern, run=found.run, text=text,
            is_acknowledged=not keep_alarm,
        )  # fmt: skip
        return
    say(f"{'remark on' if keep_alarm else 'acknowledged'}: {pattern} at run {found.run}")


def check(
    store: Store,
    json: Json = False,
    output: ComparisonOutputs = None,
    latest: Latest = LATEST,
    fail_on: Annotated[
        str,
        typer.Option(
            "--fail-on",
            metavar="CAUSES",
            help="Causes on which slower changes fail: kernel, baseline, host, method, "
            "environment, undecided, noise, or lost for dispatches that are no longer ok; none for "
            "none.",
        ),
    ] = "kernel,lost",
    baseline: Baseline = None,
    threshold: Threshold = THRESHOLD,
    undecided: OnUndecided = None,
) -> None:
    """Find changes in a history and their causes, for continuous integration.

    Exit status 1 if a dispatch became slower, or was lost, within the latest N runs, by one of the
    causes of --fail-on, and nobody has acknowledged it (gemmetry history annotate); or if ten runs
    or more differ too much to find one (fewer with --undecided fail; never with --undecided pass).
    """
    from gemmetry.cli.console import check_outputs, note, print_json, stdout_console
    from gemmetry.history.text import print_check
    from gemmetry.results.emit import FORMATS

    check_outputs(output or (), (*FORMATS, ".xml"))
    causes = [name for name in fail_on.replace(",", " ").split() if name != "none"]
    found = loaded_history(
        store, latest=latest, threshold=threshold, baseline=baseline, fail_on=causes,
        undecided_fails=None if undecided is None else undecided is Undecided.FAIL,
    )  # fmt: skip
    if json:
        print_json(found.document())
    else:
        print_check(found.check, stdout_console())
    for path in output or ():
        found.write(path)
        note(f"wrote {path}")
    raise typer.Exit(1 if found.check.has_failed else 0)


def show(
    store: Store,
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="[PATTERN]",
            help="Dispatches, as provider:name or a part of it, or a glob. Default: all.",
        ),
    ] = "*",
    json: Json = False,
    output: Outputs = None,
    baseline: Baseline = None,
    threshold: Threshold = THRESHOLD,
) -> None:
    """Show how the times of dispatches developed, and their changes.

    A single dispatch is shown with a plot and with each of its changes and their causes.
    """
    from gemmetry.cli.console import check_outputs, print_json, stdout_console, write_outputs
    from gemmetry.domain.rows import table
    from gemmetry.history.rows import SeriesRow, history_document, series_row
    from gemmetry.history.text import print_history

    check_outputs(output or ())
    found = loaded_history(store, threshold=threshold, baseline=baseline)
    check, chosen = found.check, found.chosen(pattern)
    if json:
        print_json(history_document(check, chosen))
    else:
        print_history(check, chosen, stdout_console())
    rows = [series_row(check, *one) for one in chosen]
    write_outputs(table("series", SeriesRow, rows), output or ())


def site(
    store: Store,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder to write.")],
    title: Annotated[
        str, typer.Option(metavar="TEXT", help="Title of the pages.")
    ] = "GEMM history",
    latest: Latest = LATEST,
    baseline: Baseline = None,
    threshold: Threshold = THRESHOLD,
    json: Json = False,
) -> None:
    """Write a static site: health, trends with changes and remarks, a board of providers, and the
    latest run for a pull request.

    It needs no server and loads nothing from the network: open its index.html.
    """
    from gemmetry.cli.console import note, print_facts

    found = loaded_history(store, latest=latest, threshold=threshold, baseline=baseline)
    found.write_site(output, title)
    note(f"wrote {output / 'index.html'}")
    if json:
        files = sorted(str(path) for path in output.rglob("*") if path.is_file())
        print_facts(site=str(output), files=files)
