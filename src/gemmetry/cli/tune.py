"""``gemmetry tune``, with ``--simulate`` a comparison of its strategies; and the group of commands
about tables of fast kernels, ``gemmetry dispatcher``."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from gemmetry.cli.console import (
    Source,
    check_outputs,
    note,
    notes,
    print_facts,
    print_failure,
    print_json,
    read_request,
    say,
    stdout_console,
    watched,
    write_outputs,
)
from gemmetry.cli.main import group_app
from gemmetry.cli.options import (
    Options,
    Printed,
    Restartable,
    Written,
    argument,
    option,
    output_files,
    parse_duration,
    request,
)
from gemmetry.domain.tables import Column, ColumnType, Table

if TYPE_CHECKING:
    from gemmetry.tuning.dispatcher.building import BuiltTable
    from gemmetry.tuning.dispatcher.evaluation import Evaluation
    from gemmetry.tuning.dispatcher.table import DispatchTable
    from gemmetry.tuning.run import PreparedTuning, TuningRun


_STRATEGIES = ("model", "exhaustive", "random", "halving", "optuna")


def _complete_formats(incomplete: str) -> list[str]:
    from gemmetry.tuning.results import TABLE, export_formats

    return [name for name in (*export_formats(), TABLE, "space") if name.startswith(incomplete)]


def split_commas(texts: list[str], option: str) -> list[str]:
    """Names and paths, separated by commas or given one by one."""
    return [part for text in texts for part in text.split(",") if part]


class Search(Options):
    PANEL: ClassVar = "Search"

    strategy: str = option(
        "model, exhaustive, random, halving, optuna or optuna:SAMPLER (tpe, gp, cmaes, qmc, "
        "random). With --simulate, several names.",
        "NAMES",
        default="",
        complete=_STRATEGIES,
    )
    evaluations: str = option(
        "Configurations of each shape to measure: a number, or a share of its space, as in 5%. "
        "Default: 10%, or all of them with the strategy exhaustive. With --simulate, shares to "
        "compare; default: 1%,5%,10%.",
        "COUNT",
        default="",
    )
    time: float | None = option(
        "How long the search may take, without the finals: 10min. Default: as long as it takes.",
        "TIME",
        parse=parse_duration,
    )
    finalists: int = option(
        "Configurations of each shape that are verified at level standard and measured in turns "
        "with the baselines; 0: search only.",
        "COUNT",
        min=0,
        default=3,
    )
    seeds: list[str] = option(
        "Where configurations to try first come from: heuristics (NVIDIA's, in a process of its "
        "own), tables of the dispatcher, experiments.",
        "SOURCES",
        parse=split_commas,
    )
    simulate: Path | None = option(
        "Replay a stored exhaustive search, or a file of one, and compare strategies; nothing is "
        "measured.",
        "EXPERIMENT",
    )
    runs: int = option(
        "Replays of each strategy, each with another seed.",
        "COUNT",
        min=1,
        default=20,
    )


class Exports(Options):
    PANEL: ClassVar = "Results"

    output: list[Path] = output_files(
        "Write a file; the suffix picks a table of the dispatcher (.json), configurations in "
        "Python (.py), a tuning spec of IREE (.mlir), TunableOp's file (.csv), or a table (.md, "
        ".html, .xlsx, .parquet).",
    )
    format: str | None = option(
        "Format of the files instead of the suffix': dispatcher, results (JSON), triton, iree, "
        "tunableop, table, or, with --simulate, space.",
        "NAME",
        complete=_complete_formats,
    )


class Tune(Search, Exports, Restartable, Printed):
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
    from gemmetry.domain.errors import GemmetryError
    from gemmetry.tuning.results import check_exports, export
    from gemmetry.tuning.run import run_tuning
    from gemmetry.tuning.search import EFFORTS

    prepared = _prepare(options)
    check_exports(options.output, options.format, prepared.provider)
    if options.dry_run:
        _print_spaces(prepared, as_json=options.json)
        return 0
    searches = [prepared.search_folder(effort) for effort in reversed(range(len(EFFORTS)))]
    done = watched(
        partial(run_tuning, prepared), prepared.experiment, prepared.proofs_folder, *searches,
        fresh=options.fresh,
    )  # fmt: skip
    if options.json:
        from gemmetry.tuning.results import tuning_document

        print_json(tuning_document(done.result))
    else:
        _print(done)
    note(f"experiment: {prepared.experiment}")
    refused: list[GemmetryError] = []
    for path in options.output:
        try:
            export(done.result, path, options.format)
            note(f"wrote {path}")
        except GemmetryError as error:  # The other files are written all the same.
            refused.append(error)
    if refused:
        raise refused[0]
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
    notes(prepared.notes, "")
    return prepared


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
        (name := str(one.operation), len(one), prepared.limit.of(one), prepared.refusals.get(name))
        for one in prepared.spaces
    ]
    columns = (
        Column("operation"),
        Column("space", ColumnType.INTEGER, description="configurations that there are"),
        Column("evaluations", ColumnType.INTEGER, description="that the search may make"),
        Column("reason", description="why there are none"),
    )
    Printed(json=as_json).emit(Table("spaces", columns, rows))


_SPACE = "space"


def simulate_strategies(options: Tune, source: Path) -> None:
    """Compare strategies on the stored exhaustive search `source`, or write that as a compact file.

    Raises:
        RequestError: the search or an option cannot be read.
    """
    from gemmetry.domain.errors import UnknownNameError
    from gemmetry.domain.units import plural
    from gemmetry.results.emit import JSON, write_atomically
    from gemmetry.tuning.results import simulation_table
    from gemmetry.tuning.search import parse_shares
    from gemmetry.tuning.simulation import BUDGETS, compact, open_space, simulate
    from gemmetry.tuning.strategies import STRATEGIES

    if options.format not in (None, "table", _SPACE):
        raise UnknownNameError("format of a simulation", str(options.format), ("table", _SPACE))
    check_outputs(options.output, (JSON,) if options.format == _SPACE else ())
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
            f"{plural(len(measured), 'shape')}, {count} configurations "
            f"{'that it tried' if space.partial_strategy else 'in all'}, "
            f"{plural(options.runs, 'run')} of each strategy"
        )
    options.emit(simulation_table(found))


_TABLE = "A file of gemmetry dispatcher tune or build. Default: the one for the H200."


class Build(Printed):
    experiments: list[Path] = argument(
        "Folders of experiments on one device, with torch among the providers. Of a shape in "
        "several of them, the last one counts.",
        "EXPERIMENT...",
    )
    output: Path = option("Write the table here.", "-o FILE")


def build(options: Build) -> None:
    """Make a table of fast kernels from experiments.

    A shape gets another candidate than cuBLAS only where that is shown to be faster, and only
    candidates that passed verification at level standard are ever chosen.
    """
    from gemmetry.engine.experiment import Experiment
    from gemmetry.providers.registry import load_provider
    from gemmetry.results.emit import check_writable
    from gemmetry.tuning.dispatcher.building import build_table

    check_writable(options.output)
    with ExitStack() as stack:
        opened = [stack.enter_context(Experiment.open(path)) for path in options.experiments]
        built = build_table([one.result_set() for one in opened], load_provider)
    _write_built(built, options.output, options)


class TuneTable(Restartable, Printed):
    minutes: float = option("How long it may take.", "COUNT", min=0, default=10.0)
    output: Path | None = option(
        "Write the table here. Default: table.json in the folder of the experiment.", "-o FILE"
    )
    source: Source = request()


def tune_table(options: TuneTable) -> None:
    """Make a table of fast kernels for the device at hand, from a list of shapes.

    What providers propose is verified, then measured in turns with cuBLAS and cuBLASLt. The same
    command keeps what was verified.
    """
    from gemmetry.results.emit import check_writable
    from gemmetry.tuning.dispatcher import building as making

    prepared = making.prepare_table(read_request(options.source), 60 * options.minutes)
    output = options.output or prepared.experiment / "table.json"
    if options.output:
        check_writable(options.output)
    notes(prepared.notes, "")
    built = watched(
        partial(making.tune_table, prepared), prepared.experiment, fresh=options.fresh
    )  # fmt: skip
    _write_built(built, output, options)


def _write_built(built: BuiltTable, output: Path, options: Printed) -> None:
    from gemmetry.domain.units import plural
    from gemmetry.tuning.dispatcher.evaluation import library_name
    from gemmetry.tuning.dispatcher.table import CUBLAS, write_table

    write_table(built.table, output)
    notes(built.notes, "")
    entries = built.table.entries
    faster = sum(entry.choice != CUBLAS for entry in entries)
    undecided = sum(entry.verdict == "undecided" for entry in entries)
    library = library_name(built.table.target)
    options.state(
        f"{plural(len(entries), 'shape')} of {built.table.device}: {faster} with a candidate "
        f"that is shown to be faster than {library}, {undecided} undecided\n"
        f"{plural(len(built.table.certificates), 'verified candidate')}",
        **built.table.document(),
    )
    note(f"wrote {output}")


class Evaluate(Written):
    experiment: Path = argument(
        "Folder of an experiment with shapes that the table does not have, in which all "
        "candidates were measured.",
        "EXPERIMENT",
    )
    table: Path | None = option(_TABLE, "FILE")
    trials: bool = option(
        "Try likely candidates on the table's device first, as gemmetry.matmul can do, and judge "
        "by times that are measured there in turns."
    )


def evaluate(options: Evaluate) -> None:
    """Judge a table by how much slower its choices are than the best candidates of shapes that it
    has never seen, cuBLAS included.

    A replay of stored times: nothing runs, and no GPU is needed, unless --trials is given.
    """
    from gemmetry.engine.experiment import Experiment
    from gemmetry.results.emit import of_table
    from gemmetry.tuning.dispatcher.evaluation import evaluate as run
    from gemmetry.tuning.dispatcher.evaluation import (
        evaluation_document,
        library_name,
        replay_table,
    )

    options.check()
    with Experiment.open(options.experiment) as opened:
        used, trials = open_table(options.table), None
        if options.trials:
            from gemmetry.tuning.dispatcher.runtime import TrialsOnDevice

            trials = TrialsOnDevice(used)
        found = run(used, opened.result_set(), trials)
    if options.json:
        print_facts(**evaluation_document(found))
    else:
        _print_evaluation(found, library_name(used.target))
    write_outputs(of_table(replay_table(found)), options.output)


def _print_evaluation(found: Evaluation, library: str) -> None:
    from gemmetry.dispatches.terminal import print_table
    from gemmetry.domain.units import format_percent, plural
    from gemmetry.tuning.dispatcher.evaluation import regret_table

    shapes = plural(len(found.replayed), "unseen shape")
    left_out = [f"{found.seen} in the table"] if found.seen else []
    left_out += [f"{found.unusable} without a time of {library}"] if found.unusable else []
    say(shapes + (f"; left out: {', '.join(left_out)}" if left_out else ""))
    print_table(regret_table(found, library), stdout_console())
    for one in found.criteria:
        value = "unknown" if one.value is None else f"{one.value:.4g}"
        met = {None: "not judged", True: "met", False: "not met"}[one.met]
        say(f"Criterion: {one.name} {one.sign} {one.limit:g}: {value}, {met}")
    restricted = sum(one.restricted for one in found.replayed)
    if restricted:
        say(
            f"The first choice was not measured at {plural(restricted, 'shape')}; the next one "
            "that was stands for it."
        )
    noise = found.noise
    if noise.geometric_mean is None:
        say("Noise: unknown, no candidate was measured twice.")
    else:
        say(
            f"Noise: two times of one kernel differ by {format_percent(noise.geometric_mean)} on "
            f"average and {format_percent(noise.largest)} at most ({noise.shapes} pairs)."
        )


class Show(Written):
    table: Path | None = argument(_TABLE, "[TABLE]")


def show(options: Show) -> None:
    """Show what a table chooses for each shape that was measured, and why."""
    from gemmetry.domain.units import plural
    from gemmetry.providers.registry import load_provider
    from gemmetry.results.emit import of_table
    from gemmetry.tuning.dispatcher.evaluation import entry_table, library_name
    from gemmetry.tuning.dispatcher.table import refusals

    options.check()
    found = open_table(options.table)
    if options.json:
        print_facts(**found.document())
    else:
        versions = "".join(f", {name} {text}" for name, text in sorted(found.versions.items()))
        say(f"{found.device} ({found.target}){versions}")
        verified = plural(len(found.certificates), "verified candidate")
        say(f"{plural(len(found.entries), 'measured shape')}, {verified}")
        for reason, count in refusals(found, load_provider).items():
            say(f"{plural(count, 'candidate')} of them cannot be used here: {reason}")
        if found.entries:
            _print_choices(entry_table(found))
        else:
            library = library_name(found.target)
            say(f"{library} computes everything until the table is built from measurements.")
    write_outputs(of_table(entry_table(found)), options.output)


def _print_choices(table: Table) -> None:
    """Print the choices of each signature in one line each, with names elided to the width."""
    from gemmetry.dispatches.terminal import print_table
    from gemmetry.results.texts import elide

    console = stdout_console()
    shown = [n for n, one in enumerate(table.columns) if one.name not in ("signature", "verdict")]
    columns = tuple(Column(table.columns[n].label) for n in shown)
    choice = [one.name for one in columns].index("choice")
    signatures = table.values("signature")
    for signature in dict.fromkeys(signatures):
        texts = [
            [table.columns[n].text(row[n]) for n in shown]
            for row, own in zip(table.rows, signatures, strict=True)
            if own == signature
        ]
        widths = [max(map(len, one)) for one in zip((c.name for c in columns), *texts, strict=True)]
        room = console.width - sum(widths) + widths[choice] - 2 * len(columns)
        for row in texts:
            row[choice] = elide(row[choice], max(room, len("choice")))
        say(f"\n{signature}")
        print_table(Table("choices", columns, texts), console)


_SHIPPED = "NVIDIA H200"


def open_table(path: Path | None) -> DispatchTable:
    """The table in a file, or the one that comes with gemmetry.

    Raises:
        TableError: the table cannot be read or is damaged.
    """
    from gemmetry.tuning.dispatcher.table import read_table, shipped_table

    if path is not None:
        return read_table(path)
    found = shipped_table(_SHIPPED)
    assert found is not None
    return found


dispatcher_app = group_app(
    "Make, show and evaluate the tables of gemmetry.matmul.",
    {"tune": tune_table, "build": build, "show": show, "evaluate": evaluate},
)
