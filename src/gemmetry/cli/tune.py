"""``gemmetry tune``.

``gemmetry tune --simulate``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmetry.cli.console import say
from gemmetry.cli.options import (
    Fresh,
    Json,
    WorkbenchCommand,
    complete_names,
    split_outputs,
    with_request,
)
from gemmetry.cli.run import Source, read_request

if TYPE_CHECKING:
    from gemmetry.tuning.run import PreparedTuning, TuningRun


tune_app = typer.Typer(add_completion=False)
_PANEL = "Search"
_STRATEGIES = ("model", "exhaustive", "random", "halving", "optuna")


def _complete_formats(incomplete: str) -> list[str]:
    from gemmetry.tuning.exporting import TABLE, export_formats

    return [name for name in (*export_formats(), TABLE, "space") if name.startswith(incomplete)]


def tune(
    source: Source,
    strategy: Annotated[
        str,
        typer.Option(
            "--strategy",
            metavar="NAMES",
            rich_help_panel=_PANEL,
            autocompletion=complete_names(*_STRATEGIES),
            help="model, exhaustive, random, halving, optuna or optuna:SAMPLER (tpe, gp, cmaes, "
            "qmc, random). With --simulate, several names.",
        ),
    ] = "",
    evaluations: Annotated[
        str,
        typer.Option(
            "--evaluations",
            metavar="COUNT",
            rich_help_panel=_PANEL,
            help="Configurations of each shape to measure: a number, or a share of its space, as "
            "in 5%. Default: 10%, or all of them with the strategy exhaustive. With --simulate, "
            "shares to compare; default: 1%,5%,10%.",
        ),
    ] = "",
    time: Annotated[
        str | None,
        typer.Option(
            "--time",
            metavar="TIME",
            rich_help_panel=_PANEL,
            help="How long the search may take, without the finals: 10min. Default: as long as it "
            "takes.",
        ),
    ] = None,
    finalists: Annotated[
        int,
        typer.Option(
            "--finalists",
            metavar="COUNT",
            min=0,
            rich_help_panel=_PANEL,
            help="Configurations of each shape that are verified at level standard and measured "
            "in turns with the baselines; 0: search only.",
        ),
    ] = 3,
    seeds: Annotated[
        list[str] | None,
        typer.Option(
            "--seeds",
            metavar="SOURCES",
            rich_help_panel=_PANEL,
            help="Where configurations to try first come from: heuristics (NVIDIA's, in a process "
            "of its own), tables of the dispatcher, experiments.",
        ),
    ] = None,
    simulate: Annotated[
        Path | None,
        typer.Option(
            "--simulate",
            metavar="EXPERIMENT",
            rich_help_panel=_PANEL,
            help="Replay a stored exhaustive search, or a file of one, and compare strategies; "
            "nothing is measured.",
        ),
    ] = None,
    runs: Annotated[
        int,
        typer.Option(
            "--runs",
            metavar="COUNT",
            min=1,
            rich_help_panel=_PANEL,
            help="Replays of each strategy, each with another seed.",
        ),
    ] = 20,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            callback=split_outputs,
            rich_help_panel="Results",
            help="Write a file; the suffix picks a table of the dispatcher (.json), "
            "configurations in Python (.py), a tuning spec of IREE (.mlir), TunableOp's file "
            "(.csv), or a table (.md, .html, .xlsx, .parquet).",
        ),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            rich_help_panel="Results",
            autocompletion=_complete_formats,
            help="Format of the files instead of the suffix': dispatcher, results (JSON), triton, "
            "iree, tunableop, table, or, with --simulate, space.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be searched, and stop.")
    ] = False,
    fresh: Fresh = False,
    json: Json = False,
) -> None:
    """Search for the fastest configurations of a provider, shape by shape.

    The engine verifies and measures; the strategy decides what is measured next. Wrong
    configurations never win: the best of each shape are verified at level standard and measured in
    turns with torch (or --baseline) in the finals, and a difference that is not shown is called
    undecided. The same command resumes. --seed is that of the inputs and of the search;
    --benchmark-repetitions is the number of samples of each trial of the search.
    """  # fmt: skip
    if simulate is not None:
        simulate_strategies(
            simulate, strategy, evaluations, runs, output or (), format, as_json=json
        )
        return
    from gemmetry.cli.console import note, print_json
    from gemmetry.domain.errors import GemmetryError
    from gemmetry.tuning.exporting import check_exports, export

    prepared = _prepare(source, strategy, evaluations, time, finalists, seeds or ())
    check_exports(output or (), format, prepared.provider)
    if dry_run:
        _print_spaces(prepared, as_json=json)
        return
    done = _run(prepared, fresh=fresh)
    if json:
        from gemmetry.tuning.documents import tuning_document

        print_json(tuning_document(done.result))
    else:
        _print(done)
    note(f"experiment: {prepared.experiment}")
    refused: GemmetryError | None = None
    for path in output or ():
        try:
            export(done.result, path, format)
            note(f"wrote {path}")
        except GemmetryError as error:  # The other files are written all the same.
            refused = refused or error
    if refused:
        raise refused
    if done.failure:
        note(f"error: {done.failure}")
        note("hint: The same command continues where this one stopped.")
    raise typer.Exit(done.exit_status)


tune_app.command(cls=WorkbenchCommand)(with_request(tune))


def _prepare(
    source: Source,
    strategy: str,
    evaluations: str,
    time: str | None,
    finalists: int,
    seeds: list[str] | tuple[str, ...],
) -> PreparedTuning:
    from gemmetry.cli.console import note
    from gemmetry.domain.units import parse_duration_s
    from gemmetry.tuning.run import prepare_tuning
    from gemmetry.tuning.search import DEFAULT_STRATEGY, Limit, parse_limit

    name = strategy or DEFAULT_STRATEGY
    usual = Limit() if name == "exhaustive" else Limit(share=0.1)
    prepared = prepare_tuning(
        read_request(source, name="tune"),
        strategy=name,
        limit=parse_limit(evaluations) if evaluations else usual,
        seconds=None if time is None else parse_duration_s(time),
        finalists=finalists,
        seeds=[part for text in seeds for part in text.split(",") if part],
    )
    for text in prepared.notes:
        note(text)
    return prepared


def _run(prepared: PreparedTuning, *, fresh: bool) -> TuningRun:
    from gemmetry.cli.console import command_line, stderr_console
    from gemmetry.cli.run import reporting_what_is_kept
    from gemmetry.dispatches.progress import ProgressListener
    from gemmetry.tuning.run import run_tuning
    from gemmetry.tuning.search import EFFORTS

    progress = ProgressListener(stderr_console())
    searches = [prepared.search_folder(effort) for effort in reversed(range(len(EFFORTS)))]
    kept = reporting_what_is_kept(prepared.experiment, *searches, fresh=fresh)
    with kept, progress as listener:
        return run_tuning(prepared, listener=listener, fresh=fresh, command=command_line())


def _print(done: TuningRun) -> None:
    from gemmetry.cli.console import stdout_console
    from gemmetry.dispatches.terminal import print_table
    from gemmetry.tuning.documents import gain_lines, winner_table

    print_table(winner_table(done.result, shown=True), stdout_console())
    for line in gain_lines(done.result):
        say(line)


def _print_spaces(prepared: PreparedTuning, *, as_json: bool) -> None:
    from gemmetry.cli.console import emit
    from gemmetry.domain.tables import Column, ColumnType, Table

    rows = [
        [
            str(space.operation),
            len(space),
            prepared.limit.of(space),
            prepared.refusals.get(str(space.operation)),
        ]
        for space in prepared.spaces
    ]
    columns = (
        Column("operation"),
        Column("space", ColumnType.INTEGER, description="configurations that there are"),
        Column("evaluations", ColumnType.INTEGER, description="that the search may make"),
        Column("reason", description="why there are none"),
    )
    emit(Table("spaces", columns, rows), as_json=as_json)


_SPACE = "space"


def simulate_strategies(
    source: Path,
    strategies: str,
    budgets: str,
    runs: int,
    outputs: Sequence[Path],
    format_name: str | None,
    *,
    as_json: bool,
) -> None:
    """Compare strategies on a stored exhaustive search, or write that as a compact file.

    Raises:
        RequestError: the search or an option cannot be read.
    """
    from gemmetry.cli.console import check_outputs, emit, note
    from gemmetry.domain.errors import UnknownNameError
    from gemmetry.domain.units import counted
    from gemmetry.results.emit import write_atomically
    from gemmetry.tuning.documents import simulation_table
    from gemmetry.tuning.search import STRATEGIES, parse_shares
    from gemmetry.tuning.simulation import BUDGETS, compact, open_space, simulate

    if format_name not in (None, "table", _SPACE):
        raise UnknownNameError("format of a simulation", str(format_name), ("table", _SPACE))
    check_outputs(outputs, (".json",) if format_name == _SPACE else ())
    space = open_space(source)
    if format_name == _SPACE:
        for path in outputs:
            write_atomically(path, compact(space))
            note(f"wrote {path}")
        return
    measured = space.measured()
    if space.partial_strategy:
        note(
            f"note: {source} is a search by the strategy {space.partial_strategy}, which does not "
            "try all configurations: its best may not be the best there is"
        )
    names = strategies.replace(",", " ").split() or list(STRATEGIES)
    shares = simulate(measured, names, parse_shares(budgets) if budgets else BUDGETS, runs)
    if not as_json:
        count = sum(len(one.space) for one in measured)
        say(
            f"{space.provider} on {space.device or space.target}: "
            f"{counted(len(measured), 'shape')}, {count} configurations "
            f"{'that it tried' if space.partial_strategy else 'in all'}, "
            f"{counted(runs, 'run')} of each strategy"
        )
    emit(simulation_table(shares), as_json=as_json, outputs=outputs)
