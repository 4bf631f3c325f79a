"""``gemmetry sweep``: the group of commands about training sweeps.

Their arguments may be written as the scripts of the sweep analysis document write them.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gemmetry.cli.console import (
    command_line,
    note,
    notes,
    print_facts,
    print_json,
    say,
    stderr_console,
    stdout_console,
)
from gemmetry.cli.main import group_app, named
from gemmetry.cli.options import (
    DryRun,
    Options,
    Printed,
    Undecided,
    WorkbenchCommand,
    Written,
    argument,
    option,
    output_files,
    split_names,
    threshold,
    values,
)
from gemmetry.domain.errors import RequestError
from gemmetry.domain.units import noun_for, plural
from gemmetry.sweeps.options import SweepOptions, parse_counts, parts_of

if TYPE_CHECKING:
    from gemmetry.documents.sweep_workbooks import WrittenProducts
    from gemmetry.sweeps.run import SweepPlan


LISTS = ("--threads", "--channels", "--ranks")
"""Options whose values the old scripts separate by spaces: ``--channels 28 42 56``."""


class SweepCommand(WorkbenchCommand):
    """A command whose lists of numbers may be separated by spaces."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _joined(args))


def _joined(args: Iterable[str]) -> list[str]:
    """Numbers after the first value of an option of :data:`LISTS` become a part of it."""
    result: list[str] = []
    in_list = False
    for word in args:
        is_numbers = word and all(part.strip().isdecimal() for part in word.split(",") if part)
        if in_list and is_numbers and result[-1] not in LISTS:
            result[-1] += f",{word}"
            continue
        result.append(word)
        in_list = word in LISTS or bool(in_list and is_numbers)
    return result


def parse_numbers(text: str, option: str) -> tuple[int, ...]:
    """``28,42,56``.

    Raises:
        RequestError: the text is not a list of whole numbers.
    """
    return parse_counts([text], option)


def parse_steps(text: str, option: str) -> tuple[str, ...]:
    """``variance,plots``.

    Raises:
        RequestError: there is no such step, or its library is not installed.
    """
    from gemmetry.documents.sweep_workbooks import check_steps

    steps = parts_of([text])
    check_steps(steps or (text,))
    return steps


def sweep_folders(folder: Path | None, others: Iterable[Path | None]) -> tuple[Path, Path | None]:
    """The folder of the sweep, and that of its analysis if that was named: by `folder`, or by the
    old scripts' options, which name the sweep, the folder of its analysis, or a file in it.

    Raises:
        RequestError: no sweep is named, or the options name different sweeps.
    """
    named = [_sweep_of(one) for one in (folder, *others) if one is not None]
    given = [sweep for sweep, _ in named]
    if not given:
        raise RequestError(
            "no sweep was given",
            hint="Give its folder: gemmetry sweep analyze sweep_20251124_222204",
        )
    if len({one.absolute() for one in given}) > 1:
        raise RequestError(
            f"the arguments name different sweeps: {', '.join(map(str, dict.fromkeys(given)))}",
            hint="Give the folder of one sweep.",
        )
    return given[0], next((place for _, place in named if place is not None), None)


def _sweep_of(path: Path) -> tuple[Path, Path | None]:
    """The sweep that `path` names, and the folder of its analysis if it names that."""
    from gemmetry.results.emit import CSV, XLSX
    from gemmetry.sweeps.folder import ANALYSIS_FOLDERS

    if path.suffix.lower() in (CSV, XLSX) and not path.is_dir():
        path = path.parent
    return (path.parent, path) if path.name in ANALYSIS_FOLDERS else (path, None)


_OLD = "Names of the sweep in the old scripts"


class OldNames(Options):
    """The sweep, as the old scripts name it."""

    PANEL: ClassVar = _OLD

    base_path: Path | None = option("The sweep, or its tracelens_analysis.", "DIR")
    sweep_dir: Path | None = option("The sweep.", "DIR")
    tracelens_path: Path | None = option("Its tracelens_analysis.", "DIR")
    input_csv: Path | None = option("A file in its tracelens_analysis.", "FILE")
    csv_path: Path | None = option("A file in its tracelens_analysis.", "FILE")


class OldPlots(Options):
    """Destination of the old script's plots."""

    PANEL: ClassVar = _OLD

    output_dir: Path | None = option(
        "Where the plots are written. Default: plots, next to the other files.", "DIR"
    )


def _only(what: str) -> Any:
    """An option that takes a list of numbers."""
    return option(f"Only {what}.", "LIST", parse=parse_numbers)


class Points(Options):
    """The options of a command about some points of a sweep."""

    command_class: ClassVar = SweepCommand

    threads: tuple[int, ...] | None = _only("these numbers of threads: 256,512")
    channels: tuple[int, ...] | None = _only("these numbers of channels: 28,42")


class Analyze(Points, Printed, OldNames, OldPlots):
    folder: Path | None = argument(
        "The sweep: <T>thread/nccl_<C>channels/torch_profiler/ below it hold a trace per rank.",
        "DIR",
    )
    top_k: int = option("GEMMs that the tables list of each rank and point.", min=1, default=5)
    ranks: tuple[int, ...] | None = _only("the traces of these ranks: 0,1")
    analysis_dir: str | None = option(
        "Where the files are written: a folder below DIR, or a path. Default: the one that is "
        "named, tracelens_analysis if DIR has it, else analysis.",
        "NAME",
    )
    only: tuple[str, ...] = option(
        "Write only these files: variance, timestamps, overlap, plots, timeline, collectives.",
        "LIST",
        parse=parse_steps,
    )
    geo_mean: bool = option(
        "Use geometric means over ranks in the workbook of timelines; a time of 0 makes the mean 0."
    )


def analyze(options: Analyze) -> int:
    """Analyse a sweep of training runs: what communication costs, and which point is best.

    Reads each trace once, in parallel. For every GEMM, instances next to a collective are compared
    with instances alone: slowdown, interval, cost per step. The time of a step is split into
    compute, slowed compute, exposed communication and idle time. Every figure is written to
    analysis.json, next to tables, plots and workbooks. A sweep of which only TraceLens' workbooks
    are left gives the tables and plots that follow from them. Exit status 1 if some of the traces
    cannot be read.
    """
    from gemmetry.dispatches.progress import CountProgress
    from gemmetry.sweeps import api as sweeps

    place, into = sweep_folders(options.folder, values(options, OldNames).values())
    steps = options.only
    selected: dict[str, Any] = {
        "threads": options.threads,
        "channels": options.channels,
        "ranks": options.ranks,
        # Joined with the sweep's folder, of which an absolute path is independent.
        "analysis_dir": options.analysis_dir or (None if into is None else str(into.absolute())),
    }
    details: dict[str, Any] = {
        "top_k": options.top_k, "geometric": options.geo_mean, "plots": options.output_dir,
    }  # fmt: skip
    if not options.json and (workbooks := sweeps.read_workbooks(place, **selected)) is not None:
        note(f"{place} has no traces; its files are made from the workbooks in {workbooks.folder}")
        written = workbooks.write(steps, **details)
        _report(written, workbooks.folder, written.problems)
        return int(bool(workbooks.sweep.problems))
    with CountProgress("read", stderr_console()) as progress:
        found = sweeps.analyze(
            place, **selected, check_writable=True, workbooks=not steps, progress=progress
        )
    if options.json:
        print_json(found.document())
    elif not steps:
        from gemmetry.sweeps.report import print_rocprof, print_sweep

        print_sweep(found.document(), stdout_console(), top=options.top_k)
        print_rocprof(found.analysis, stdout_console(), top=options.top_k)
    written = found.write(steps, **details)
    _report(written, found.folder, [*found.problems, *written.problems])
    return int(not found.is_complete)


def _report(written: WrittenProducts, folder: Path, problems: Iterable[str]) -> None:
    """List the files in the folder itself, count those below it, and state the problems."""
    for path in written.paths:
        if path.parent == folder:
            note(f"wrote {path}")
    below = Counter(
        f"{path.parent.name}/*{path.suffix}" for path in written.paths if path.parent != folder
    )
    if below:
        counts = ", ".join(f"{name} ({count})" for name, count in below.items())
        note(f"wrote below {folder}: {counts}")
    notes(problems, "warning")


class OldComparison(Options):
    """Sweeps and labels, as the old script names them."""

    PANEL: ClassVar = _OLD

    sweep1: Path | None = option("A.", "DIR")
    sweep2: Path | None = option("B.", "DIR")
    label1: str | None = option("Label of A.", "NAME")
    label2: str | None = option("Label of B.", "NAME")


class Compare(Written, OldComparison):
    command_class: ClassVar = SweepCommand

    sweeps: list[Path] = argument(
        "Folders of sweeps, or their analysis.json; the others are compared with A.",
        "A B [C...]",
        default=None,
    )
    output: list[Path] = output_files(
        "Write a file: .html is one page that works offline, .json the document, and .csv, .xlsx, "
        ".parquet and .md have the compared figures."
    )
    label: list[str] = option("Name of a sweep, once per sweep. Default: A, B, C ...", "NAME")
    threshold: float | None = threshold("1%")
    undecided: Undecided = option(
        "Whether a point whose step is undecided, because too few runs were recorded, makes the "
        "exit status 1.",
        default=Undecided.FAIL,
    )


def compare(options: Compare) -> int:
    """Compare sweeps of training runs: each point, GEMM and collective that both have.

    Runs are the observations: without repeats of the points (sweep run --repeats 3) a change of one
    point is undecided. Sweeps that are not analysed yet are analysed first.

    Exit status 1 if anything of B (or C ...) is shown to be slower, a point fails that ran in A, or
    the step of a point is undecided (unless --undecided pass).
    """
    from gemmetry.dispatches.progress import CountProgress
    from gemmetry.sweeps import api
    from gemmetry.sweeps.report import print_sweep_comparison

    options.check(draws=True)
    first, second, labels = options.label1, options.label2, options.label
    if first is not None or second is not None:
        labels = [first or "A", second or "B", *labels]
    named = (options.sweep1, options.sweep2, *options.sweeps)
    with CountProgress("read", stderr_console()) as progress:
        found = api.compare(
            *(one for one in named if one is not None),
            labels=labels,
            threshold=options.threshold,
            progress=progress,
        )
    comparison = found.comparison
    options.deliver(found, lambda console: print_sweep_comparison(comparison, console))
    is_unsure = options.undecided is Undecided.FAIL and comparison.has_undecided
    if is_unsure and not comparison.has_regression:
        note("Undecided points fail; --undecided pass accepts them, and sweep run --repeats N "
             "repeats runs more often.")  # fmt: skip
    return int(comparison.has_regression or is_unsure)


class TunerConfig(Points, Printed):
    folder: Path = argument("The sweep; its points must have been repeated.", "DIR")
    output: Path = option(
        "Where the configuration is written.", "-o FILE", default=Path("nccl_tuner.conf")
    )


def tuner_config(options: TunerConfig) -> int:
    """Write the best setting of each collective and size for NCCL's example tuner plugin.

    A line is written where the repeats of the sweep show that algorithm, protocol and number of
    channels of one point are faster than those of all others; the evidence for it, and why other
    collectives have no line, are comments. NCCL reads the file if the plugin is loaded
    (NCCL_TUNER_PLUGIN) and NCCL_TUNER_CONFIG_FILE names it. Exit status 1 if no line is written.
    """
    from gemmetry.results.emit import check_writable, write_atomically
    from gemmetry.sweeps import api as sweeps
    from gemmetry.sweeps.tuner import print_tuned, tuned_entry

    check_writable(options.output)
    found = sweeps.analyze(options.folder, threads=options.threads, channels=options.channels)
    tuned = found.tuned_collectives()
    if options.json:
        print_facts(collectives=[tuned_entry(one) for one in tuned])
    else:
        print_tuned(tuned, stdout_console())
    write_atomically(options.output, found.tuner_config().encode())
    note(f"wrote {options.output}")
    notes(found.problems, "warning")
    return int(all(one.obstacle for one in tuned))


_PRESETS = ("trace", "utilization", "gemm")
"""Keys of :data:`~gemmetry.sweeps.rocprof_input.PRESETS`, without its import."""


class RocprofInput(Printed):
    command_class: ClassVar = SweepCommand

    source: Path = option(
        "Table with the names of the kernels, such as top5_gemm_kernels_time_variance.csv.",
        "--from --input-csv CSV",
    )
    output: Path = option(
        "The input file, .yaml; the names are also listed in FILE_kernel_list.txt.",
        "--output -o --output-yaml FILE",
    )
    preset: str | None = option(
        "trace: times alone; utilization: how busy compute and matrix units are, in one pass; "
        "gemm: also work, waits, LDS and L2, in two. Default: utilization, or none with "
        "--counters.",
        "NAME",
        complete=_PRESETS,
    )
    counters: list[str] = option(
        "Further counters, such as SQ_INSTS_LDS,MfmaUtil.", "NAMES", parse=split_names
    )
    chip: str | None = option("The GPU, such as gfx942: its counters are checked by name.", "GFX")


def rocprof_input(options: RocprofInput) -> None:
    """Write rocprofv3's input file for the kernels of a table.

    The kernels are matched by their exact names. Counters are distributed over as few passes as the
    GPU can take; rocprofv3 runs the training once for each pass, and runs kernels one after the
    other while it counts, so that their times and overlap are not those of the training.
    """
    from gemmetry.domain.errors import UnknownNameError
    from gemmetry.hardware.amd_counters import check_chip
    from gemmetry.sweeps.rocprof_input import (
        PRESETS,
        kernel_names,
        make_rocprof_input,
        nvidia_note,
        write_rocprof_input,
    )

    preset = options.preset or ("trace" if options.counters else "utilization")
    if preset not in PRESETS:
        raise UnknownNameError("preset of counters", preset, PRESETS)
    kernels = kernel_names(options.source)
    foreign = nvidia_note(kernels)
    notes([foreign], "warning")
    chip = options.chip if options.chip is None else check_chip(options.chip)
    made = make_rocprof_input(kernels, [*PRESETS[preset], *options.counters], chip=chip)
    written = write_rocprof_input(made, kernels, options.output)
    for path in written:
        note(f"wrote {path}")
    passes = plural(len(made.jobs), "time")
    note(f"{plural(len(kernels), 'kernel')}; the training runs {passes} per point")
    if options.json:
        print_facts(
            files=list(map(str, written)), kernels=kernels, jobs=list(made.jobs),
            warnings=[foreign] if foreign else [],
        )  # fmt: skip
    note(
        "use it:", command=f"gemmetry sweep run --rocprof-input {shlex.quote(str(options.output))}"
    )


class Run(SweepOptions, DryRun, Printed):
    command_class: ClassVar = SweepCommand

    no_aggregate: bool = option("No effect.", "-n", hidden=True)


def run(options: Run) -> int:
    """Train once for each combination of communication settings, and trace every run.

    Each point of the sweep gets a folder, <T>thread/nccl_<C>channels/, with the traces of all
    ranks, the log and point.json; sweep.json describes the sweep. A point that fails is marked and
    the others run. The same command continues an interrupted sweep: points that succeeded are kept,
    and further values and repeats are added.

    Without --command, gemmetry's own workload trains: a transformer with DDP or FSDP2.
    """
    from gemmetry.sweeps.plan import plan_sweep
    from gemmetry.sweeps.run import SweepPlan

    planned = SweepPlan(plan_sweep(options))
    if options.no_aggregate:
        note("note: --no-aggregate has no effect: gemmetry sweep analyze is a separate command")
    notes(planned.notes)
    if options.dry_run:
        _show_sweep(planned, as_json=options.json)
        return 0
    return _run_sweep(planned, fresh=options.fresh, as_json=options.json)


_MOST_LOGS = 5
"""Failed points whose logs are named."""


def _run_sweep(planned: SweepPlan, *, fresh: bool, as_json: bool) -> int:
    from gemmetry.domain.errors import InterruptedRunError
    from gemmetry.sweeps.folder import LOG
    from gemmetry.sweeps.run import JobProgress, succeeded

    folder = shlex.quote(str(planned.folder))
    again = f"the same command with -o {folder}" + (" and without --fresh" if fresh else "")
    count = len(planned.plan.points)
    try:
        with JobProgress(str(planned.folder), stderr_console()) as listener:
            found = planned.run(listener=listener, command=command_line())
    except KeyboardInterrupt:
        done = sum(map(succeeded, planned.ends().values()))
        raise InterruptedRunError(
            f"{done} of {plural(count, 'point')} {noun_for(done, 'has its', 'have their')} traces "
            f"in {planned.folder}",
            hint=f"Continue it: {again}.",
        ) from None
    if as_json:
        print_json(found.document(), indent=1)
    if failed := len(found.failed):
        again = f"{again} runs {noun_for(failed, 'it', 'them')} again"
        note(f"{failed} of {plural(count, 'point')} failed; {again}")
        for point in found.failed[:_MOST_LOGS]:
            note(f"  {point.folder}: {planned.folder / point.folder / LOG}")
        if failed > _MOST_LOGS:
            note(f"  and {failed - _MOST_LOGS} more, each with a {LOG}")
    note(f"sweep: {planned.folder}")
    if failed < count:
        note("analyse it:", command=f"gemmetry sweep analyze {folder}")
    return int(failed > 0)


def _show_sweep(planned: SweepPlan, *, as_json: bool) -> None:
    """Print the points in the order in which they would run, and the command of the first."""
    if as_json:
        print_json(planned.document(), indent=1)
        return
    count, kept = len(planned.jobs), len(planned.kept)
    heading = f"{plural(count, 'point')} would run, in this order"
    if 0 < kept < count:
        rest = f"{kept} {noun_for(kept, 'has', 'have')} succeeded earlier"
        heading = f"{count - kept} of {heading}; {rest}"
    elif kept:
        heading = f"no point would run: {noun_for(count, 'it has', 'all have')} succeeded earlier"
    say(f"{heading}:")
    for job in planned.jobs:
        say(f"  {job.name}" + ("  (kept)" if job.name in planned.kept else ""))
    waiting = [job for job in planned.jobs if job.name not in planned.kept]
    if waiting:
        say(f"environment of {waiting[0].name}:")
        for name, value in waiting[0].environment.items():
            say(f"  {name}={value}")
        say(f"command:\n  {shlex.join(waiting[0].argv)}")
    say(f"sweep: {planned.folder}")


app = group_app(
    "Run, analyse and compare sweeps of training runs over settings of communication.",
    named(run, analyze, compare, tuner_config, rocprof_input),
)
