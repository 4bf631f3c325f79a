"""``gemmetry history``: the group of commands about the history of many runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmetry.cli.console import note, notes, print_facts, say
from gemmetry.cli.main import group_app
from gemmetry.cli.options import (
    Compared,
    Options,
    Printed,
    Undecided,
    WithBaseline,
    Written,
    argument,
    option,
    parse_share,
    split_names,
)

if TYPE_CHECKING:
    from gemmetry.history.api import AddedRun, History


class WithStore(Options):
    """The option of every command of a history."""

    store: Path = option("Folder of the history.", "DIR")


class Loads(WithStore, WithBaseline):
    """The options of a command that reads a history."""

    threshold: float = option(
        "Changes up to this count as none.", "SHARE", default="2%", parse=parse_share
    )

    def history(self, **options: Any) -> History:
        """The history with its changes; a note names each line of it that was skipped. `options`
        are further ones of :func:`gemmetry.history.api.load`."""
        from gemmetry.history.api import load

        found = load(self.store, threshold=self.threshold, baseline=self.baseline, **options)
        notes(found.problems)
        return found


class WithLatest(Options):
    """The option that says which changes are new."""

    latest: int = option(
        "Changes whose first run is among the latest N runs are new.", "N", min=1, default=10
    )


class Add(WithStore, Printed):
    experiments: list[Path] = argument("Folders of experiments.", "EXPERIMENT...")
    commit: str = option(
        "Commit that was measured. Default: the one in which the run was started.",
        "SHA",
        default="",
    )
    label: str = option("Text that names the runs, such as nightly.", "TEXT", default="")
    time: str = option(
        "Time by which the runs are ordered (UTC). Default: when the run began.", "ISO", default=""
    )


def add(options: Add) -> None:
    """Add experiments to a history.

    An experiment that is in the history already is not added again; one that has grown since then
    replaces what was added. Lines are only ever appended. If one of the experiments cannot be read,
    none is added.
    """
    from gemmetry.history import api as history

    added, problems = history.add(
        *options.experiments,
        store=options.store,
        commit=options.commit,
        label=options.label,
        time=options.time,
    )
    notes(problems)
    for one in added:
        _report(one, is_silent=options.json)
    if options.json:
        runs = [
            {
                "experiment": str(one.experiment), "run": one.run.id, "device": one.run.device,
                "dispatches": len(one.run.points), "state": one.state, "is_older": one.is_older,
            }
            for one in added
        ]  # fmt: skip
        print_facts(store=str(options.store), runs=runs, problems=list(map(str, problems)))


def _report(one: AddedRun, *, is_silent: bool) -> None:
    """Print what became of the results of an experiment; if `is_silent`, the notes alone."""
    from gemmetry.domain.units import plural

    path, run = one.experiment, one.run
    if one.state == "same":
        note(f"note: {path} is in the history already ({run.device})")
        return
    if one.measured_before is not None:
        old = one.measured_before
        note(
            f"note: {path} measures commit {run.commit[:12]} again, which run {old.id} of "
            f"{old.time[:16]} measured before others: no change is looked for in it; place it "
            f"next to that run with --time {old.time[:10]}"
        )
    if one.is_older:
        note(f"note: {path} is older than the latest run and is placed by its time")
    if not is_silent:
        more = ", replacing what was added before" if one.state == "replaced" else ""
        dispatches = plural(len(run.points), "dispatch", "dispatches")
        say(f"{path}: {dispatches} on {run.device}{more}")


class Annotate(WithStore, Printed):
    pattern: str = argument(
        "Dispatches, as provider:name or a part of it, or a glob; '*' for all.", "PATTERN"
    )
    run: str = option(
        "The first run after the change, as history check prints it: the beginning of its id, "
        "commit or time.",
        "RUN",
    )
    text: str = option("The remark.", "TEXT")
    keep_alarm: bool = option("Add the remark, but keep the alarm.")


def annotate(options: Annotate) -> None:
    """Add a remark to a change, which is then acknowledged: `history check` no longer fails on it.

    Remarks are stored in annotations.jsonl in the folder of the history.
    """
    from gemmetry.history.api import annotation_of
    from gemmetry.history.folder import append, read_history

    history = read_history(options.store)
    notes(history.problems)
    is_acknowledged, pattern = not options.keep_alarm, options.pattern
    found = annotation_of(history, pattern, options.run, options.text, acknowledged=is_acknowledged)
    append(options.store, [found])
    options.state(
        f"{'acknowledged' if is_acknowledged else 'remark on'}: {pattern} at run {found.run}",
        store=str(options.store), dispatches=pattern, run=found.run, text=options.text,
        is_acknowledged=is_acknowledged,
    )  # fmt: skip


def parse_causes(text: str, option: str) -> list[str]:
    """``kernel,lost`` as names; ``none`` is no cause."""
    return [name for name in split_names([text], option) if name != "none"]


class Check(Loads, Compared, WithLatest):
    fail_on: list[str] = option(
        "Causes on which slower changes fail: kernel, baseline, host, method, environment, "
        "undecided, noise, or lost for dispatches that are no longer ok; none for none.",
        "CAUSES",
        default="kernel,lost",
        parse=parse_causes,
    )
    undecided: Undecided | None = option(
        "How a history with too few runs, or too noisy ones, for a verdict affects the exit "
        "status; by default it passes while it has fewer than 10 runs, and fails from then on."
    )


def check(options: Check) -> int:
    """Find changes in a history and their causes, for continuous integration.

    Exit status 1 if a dispatch became slower, or was lost, within the latest N runs, by one of the
    causes of --fail-on, and nobody has acknowledged it (gemmetry history annotate); or if ten runs
    or more differ too much to find one (fewer with --undecided fail; never with --undecided pass).
    """
    from gemmetry.history.show import print_check
    from gemmetry.results.emit import FORMATS, JUNIT

    options.check((*FORMATS, JUNIT))
    undecided = options.undecided
    found = options.history(
        latest=options.latest,
        fail_on=options.fail_on,
        undecided_fails=None if undecided is None else undecided is Undecided.FAIL,
    )
    options.deliver(found, lambda console: print_check(found, console))
    return int(found.has_failed)


class Show(Loads, Written):
    pattern: str = argument(
        "Dispatches, as provider:name or a part of it, or a glob. Default: all.",
        "[PATTERN]",
        default="*",
    )


def show(options: Show) -> None:
    """Show how the times of dispatches developed, and their changes.

    A single dispatch is shown with a plot and with each of its changes and their causes.
    """
    from gemmetry.domain.rows import Rows
    from gemmetry.history.rows import SeriesRow, history_document, series_row
    from gemmetry.history.show import print_history
    from gemmetry.results.emit import Result

    options.check()
    found = options.history()
    chosen = found.chosen(options.pattern)
    rows = [series_row(found, *one) for one in chosen]
    files = Result(
        rows={"series": Rows(SeriesRow, rows)}, whole=lambda: history_document(found, chosen)
    )
    options.deliver(files, lambda console: print_history(found, chosen, console))


class Site(Loads, Printed, WithLatest):
    output: Path = option("Folder to write.", "-o DIR")
    title: str = option("Title of the pages.", "TEXT", default="GEMM history")


def site(options: Site) -> None:
    """Write a static site: health, trends with changes and remarks, a board of providers, and the
    latest run for a pull request.

    It needs no server and loads nothing from the network: open its index.html.
    """
    options.history(latest=options.latest).write_site(options.output, options.title)
    note(f"wrote {options.output / 'index.html'}")
    if options.json:
        files = sorted(str(path) for path in options.output.rglob("*") if path.is_file())
        print_facts(site=str(options.output), files=files)


app = group_app(
    "Store medians of many runs, find changes and their causes.",
    {"add": add, "show": show, "check": check, "annotate": annotate, "site": site},
)
