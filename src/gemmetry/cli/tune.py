"""``gemmetry tune``, and with ``--simulate`` a comparison of its strategies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gemmetry.cli.console import (
    check_outputs,
    command_line,
    emit,
    note,
    print_json,
    say,
    stderr_console,
    stdout_console,
)
from gemmetry.cli.options import Printed, Restartable, option, output_files, parse_duration, request
from gemmetry.cli.run import Source, read_request
from gemmetry.domain.tables import Column, ColumnType, Table

if TYPE_CHECKING:
    from gemmetry.tuning.run import PreparedTuning, TuningRun


_PANEL = "Search"
_STRATEGIES = ("model", "exhaustive", "random", "halving", "optuna")


def _complete_formats(incomplete: str) -> list[str]:
    from gemmetry.tuning.results import TABLE, export_formats

    return [name for name in (*export_formats(), TABLE, "space") if name.startswith(incomplete)]


def split_commas(texts: list[str], option: str) -> list[str]:
    """Names and paths, separated by commas or given one by one."""
    return [part for text in texts for part in text.split(",") if part]


@dataclass(kw_only=True)
class Tune(Restartable, Printed):
    strategy: str = option(
        "model, exhaustive, random, halving, optuna or optuna:SAMPLER (tpe, gp, cmaes, qmc, "
        "random). With --simulate, several names.",
        metavar="NAMES",
        panel=_PANEL,
        default="",
        complete=_STRATEGIES,
    )
    evaluations: str = option(
        "Configurations of each shape to measure: a number, or a share of its space, as in 5%. "
        "Default: 10%, or all of them with the strategy exhaustive. With --simulate, shares to "
        "compare; default: 1%,5%,10%.",
        metavar="COUNT",
        panel=_PANEL,
        default="",
    )
    time: float | None = option(
        "How long the search may take, without the finals: 10min. Default: as long as it takes.",
        metavar="TIME",
        panel=_PANEL,
        parse=parse_duration,
    )
    finalists: int = option(
        "Configurations of each shape that are verified at level standard and measured in turns "
        "with the baselines; 0: search only.",
        metavar="COUNT",
        panel=_PANEL,
        min=0,
        default=3,
    )
    seeds: list[str] = option(
        "Where configurations to try first come from: heuristics (NVIDIA's, in a process of its "
        "own), tables of the dispatcher, experiments.",
        metavar="SOURCES",
        panel=_PANEL,
        parse=split_commas,
    )
    simulate: Path | None = option(
        "Replay a stored exhaustive search, or a file of one, and compare strategies; nothing is "
        "measured.",
        metavar="EXPERIMENT",
        panel=_PANEL,
    )
    runs: int = option(
        "Replays of each strategy, each with another seed.",
        metavar="COUNT",
        panel=_PANEL,
        min=1,
        default=20,
    )
    output: list[Path] = output_files(
        "Write a file; the suffix picks a table of the dispatcher (.json), configurations in "
        "Python (.py), a tuning spec of IREE (.mlir), TunableOp's file (.csv), or a table (.md, "
        ".html, .xlsx, .parquet).",
        panel="Results",
    )
    format: str | None = option(
        "Format of the files instead of the suffix': dispatcher, results (JSON), triton, iree, "
        "tunableop, table, or, with --simulate, space.",
        metavar="NAME",
        panel="Results",
        complete=_complete_formats,
    )
    dry_run: bool = option("Show what would be searched, and stop.")
    source: Source = request()


def tune(options: Tune) -> int:
    """Search for the fastest configurations of a provider, shape by shape.

    The engine verifies and measures; the strategy decides what is measured next. Wrong
    configurations never win: the best of each shape are verified at level standard and measured in
    turns with torch (or --baseline) in the finals, and a difference that is not shown is called
    undecided. The same command resumes. --seed is that of the inputs and of the search;
    --benchmark-repetitions sets the samples of each trial.
    """
    if options.simulate is not None:
        simulate_strategies(options, options.simulate)
        return 0
    from gemmetry.cli.run import print_failure
    from gemmetry.domain.errors import GemmetryError
    from gemmetry.tuning.results import check_exports, export

    prepared = _prepare(options)
    check_exports(options.output, options.format, prepared.provider)
    if options.dry_run:
        _print_spaces(prepared, as_json=options.json)
        return 0
    done = _run(prepared, fresh=options.fresh)
    if options.json:
        from gemmetry.tuning.results import tuning_document

        print_json(tuning_document(done.result))
    else:
        _print(done)
    note(f"experiment: {prepared.experiment}")
    refused: GemmetryError | None = None
    for path in options.output:
        try:
            export(done.result, path, options.format)
            note(f"wrote {path}")
        except GemmetryError as error:  # The other files are written all the same.
            refused = refused or error
    if refused:
        raise refused
    if done.failure:
        print_failure(done.failure)
    return done.exit_status


def _prepare(options: Tune) -> PreparedTuning:
    from gemmetry.tuning.run import prepare_tuning
    from gemmetry.tuning.search import DEFAULT_STRATEGY, Limit, parse_limit

    name = options.strategy or DEFAULT_STRATEGY
    usual = Limit() if name == "exhaustive" else Limit(share=0.1)
    prepared = prepare_tuning(
        read_request(options.source, name="tune"),
        strategy=name,
        limit=parse_limit(options.evaluations) if options.evaluations else usual,
        seconds=options.time,
        finalists=options.finalists,
        seeds=options.seeds,
    )
    for text in prepared.notes:
        note(text)
    return prepared


def _run(prepared: PreparedTuning, *, fresh: bool) -> TuningRun:
    from gemmetry.cli.run import reporting_what_is_kept
    from gemmetry.dispatches.progress import ProgressListener
    from gemmetry.tuning.run import run_tuning
    from gemmetry.tuning.search import EFFORTS

    progress = ProgressListener(stderr_console())
    searches = [prepared.search_folder(effort) for effort in reversed(range(len(EFFORTS)))]
    others = (prepared.experiment, prepared.proofs_folder)
    kept = reporting_what_is_kept(*others, *searches, fresh=fresh)
    with kept, progress as listener:
        return run_tuning(prepared, listener=listener, fresh=fresh, command=command_line())


def _print(done: TuningRun) -> None:
    from rich.text import Text

    from gemmetry.dispatches.terminal import print_table
    from gemmetry.results.lines import print_line
    from gemmetry.results.texts import printable
    from gemmetry.tuning.results import gain_lines, winner_table

    console = stdout_console()
    print_table(winner_table(done.result, shown=True), console)
    for line in gain_lines(done.result):
        print_line(Text(printable(line)), console)


def _print_spaces(prepared: PreparedTuning, *, as_json: bool) -> None:
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


def simulate_strategies(options: Tune, source: Path) -> None:
    """Compare strategies on the stored exhaustive search `source`, or write that as a compact file.

    Raises:
        RequestError: the search or an option cannot be read.
    """
    from gemmetry.domain.errors import UnknownNameError
    from gemmetry.domain.units import counted
    from gemmetry.results.emit import write_atomically
    from gemmetry.tuning.results import simulation_table
    from gemmetry.tuning.search import parse_shares
    from gemmetry.tuning.simulation import BUDGETS, compact, open_space, simulate
    from gemmetry.tuning.strategies import STRATEGIES

    if options.format not in (None, "table", _SPACE):
        raise UnknownNameError("format of a simulation", str(options.format), ("table", _SPACE))
    check_outputs(options.output, (".json",) if options.format == _SPACE else ())
    space = open_space(source)
    if options.format == _SPACE:
        for path in options.output:
            write_atomically(path, compact(space))
            note(f"wrote {path}")
        return
    measured = space.measured()
    if space.partial_strategy:
        note(
            f"note: {source} is a search by the strategy {space.partial_strategy}, which does not "
            "try all configurations: its best may not be the best there is"
        )
    names = options.strategy.replace(",", " ").split() or list(STRATEGIES)
    shares = parse_shares(options.evaluations) if options.evaluations else BUDGETS
    found = simulate(measured, names, shares, options.runs)
    if not options.json:
        count = sum(len(one.space) for one in measured)
        say(
            f"{space.provider} on {space.device or space.target}: "
            f"{counted(len(measured), 'shape')}, {count} configurations "
            f"{'that it tried' if space.partial_strategy else 'in all'}, "
            f"{counted(options.runs, 'run')} of each strategy"
        )
    emit(simulation_table(found), as_json=options.json, outputs=options.output)
