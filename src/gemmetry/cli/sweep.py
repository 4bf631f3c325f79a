"""``gemmetry sweep``: the group of commands about training sweeps.

Their arguments may be written as the scripts of the sweep analysis document write them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gemmetry.cli.console import (
    command_line,
    note,
    print_facts,
    print_json,
    say,
    stderr_console,
    stdout_console,
)
from gemmetry.cli.main import group_app
from gemmetry.cli.options import (
    DryRun,
    Printed,
    Undecided,
    WorkbenchCommand,
    Written,
    argument,
    option,
    output_files,
    parse_share,
    split_names,
    values,
)
from gemmetry.domain.errors import RequestError
from gemmetry.domain.units import counted, noun_for

if TYPE_CHECKING:
    from gemmetry.documents.sweep_products import WrittenProducts
    from gemmetry.sweeps.runs import SweepPlan


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
        if in_list and result[-1] not in LISTS and _is_numbers(word):
            result[-1] += f",{word}"
            continue
        result.append(word)
        in_list = word in LISTS or (in_list and _is_numbers(word))
    return result


def _is_numbers(word: str) -> bool:
    return bool(word) and all(part.strip().isdecimal() for part in word.split(",") if part)


def parse_numbers(text: str, option: str) -> tuple[int, ...]:
    """``28,42,56``.

    Raises:
        RequestError: the text is not a list of whole numbers.
    """
    return parse_counts([text], option)


def parse_counts(texts: list[str], option: str) -> tuple[int, ...]:
    """Numbers, separated by commas or given one by one.

    Raises:
        RequestError: one of them is not a whole number, or there is none.
    """
    parts = list(_parts(texts))
    if not parts or not all(part.isdecimal() and len(part) < 10 for part in parts):
        raise RequestError(
            f"{option} takes whole numbers separated by commas, not {','.join(texts)!r}",
            hint=f"Write {option} 28,42,56,70.",
        )
    return tuple(map(int, parts))


def parse_axes(texts: list[str], option: str) -> dict[str, tuple[str, ...]]:
    """Axes of the form ``NAME=VALUE,VALUE``.

    Raises:
        RequestError: one is not of that form, or occurs twice.
    """
    from gemmetry.sweeps.training.axes import AXIS_FORM

    axes: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name, parts = name.strip(), tuple(_parts([values]))
        if not equals or not name or not parts:
            raise RequestError(f"--axis {text}: not of the form NAME=VALUE,VALUE", hint=AXIS_FORM)
        if name in axes:
            raise RequestError(f"--axis: {name} is given twice", hint="Give each value once.")
        axes[name] = parts
    return axes


def _parts(texts: Iterable[str]) -> Iterator[str]:
    return (part.strip() for text in texts for part in text.split(",") if part.strip())


def parse_steps(text: str, option: str) -> tuple[str, ...]:
    """``variance,plots``.

    Raises:
        RequestError: there is no such step, or its library is not installed.
    """
    from gemmetry.documents.sweep_products import check_steps

    steps = tuple(part.strip() for part in text.split(",") if part.strip())
    check_steps(steps or (text,))
    return steps


def sweep_folders(folder: Path | None, others: Iterable[Path | None]) -> tuple[Path, Path | None]:
    """The folder of the sweep, and that of its analysis if that is what was named: by `folder`, or
    by the old scripts' options, which name the sweep, the folder of its analysis, or a file in it.

    Raises:
        RequestError: none is given, or they name different sweeps.
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


@dataclass(kw_only=True)
class OldNames:
    """The sweep, as the old scripts name it."""

    PANEL: ClassVar = _OLD

    base_path: Path | None = option("The sweep, or its tracelens_analysis.", "DIR")
    sweep_dir: Path | None = option("The sweep.", "DIR")
    tracelens_path: Path | None = option("Its tracelens_analysis.", "DIR")
    input_csv: Path | None = option("A file in its tracelens_analysis.", "FILE")
    csv_path: Path | None = option("A file in its tracelens_analysis.", "FILE")


@dataclass(kw_only=True)
class OldPlots:
    """Where the old script writes plots."""

    PANEL: ClassVar = _OLD

    output_dir: Path | None = option(
        "Where the plots are written. Default: plots, next to the other files.", "DIR"
    )


@dataclass(kw_only=True)
class Points:
    """The options of a command about some points of a sweep."""

    command_class: ClassVar = SweepCommand

    threads: tuple[int, ...] | None = option(
        "Only these numbers of threads: 256,512.", "LIST", parse=parse_numbers
    )
    channels: tuple[int, ...] | None = option(
        "Only these numbers of channels: 28,42.", "LIST", parse=parse_numbers
    )


@dataclass(kw_only=True)
class Analyze(Points, Printed, OldNames, OldPlots):
    folder: Path | None = argument(
        "The sweep: <T>thread/nccl_<C>channels/torch_profiler/ below it hold a trace per rank.",
        "DIR",
    )
    top_k: int = option("GEMMs that the tables list of each rank and point.", min=1, default=5)
    ranks: tuple[int, ...] | None = option(
        "Only the traces of these ranks: 0,1.", "LIST", parse=parse_numbers
    )
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
    products: dict[str, Any] = {
        "top_k": options.top_k, "geometric": options.geo_mean, "plots": options.output_dir,
    }  # fmt: skip
    workbooks = None if options.json else sweeps.read_workbooks(place, **selected)
    if workbooks is not None:
        note(f"{place} has no traces; its files are made from the workbooks in {workbooks.folder}")
        written = workbooks.write(steps, **products)
        _report(written, workbooks.folder, written.problems)
        return int(bool(workbooks.sweep.problems))
    with CountProgress("read", stderr_console()) as progress:
        found = sweeps.analyze(
            place, **selected, check_writable=True, workbooks=not steps, progress=progress
        )
    if options.json:
        print_json(found.document())
    elif not steps:
        from gemmetry.sweeps.text import print_rocprof, print_sweep

        print_sweep(found.document(), stdout_console(), top=options.top_k)
        print_rocprof(found.analysis, stdout_console(), top=options.top_k)
    written = found.write(steps, **products)
    _report(written, found.folder, [*found.problems, *written.problems])
    return int(not found.is_complete)


def _report(written: WrittenProducts, folder: Path, problems: Iterable[str]) -> None:
    """List the files in the folder itself, count those below it, and state the problems."""
    below: dict[str, int] = {}
    for path in written.paths:
        if path.parent == folder:
            note(f"wrote {path}")
        else:
            name = f"{path.parent.name}/*{path.suffix}"
            below[name] = below.get(name, 0) + 1
    if below:
        counts = ", ".join(f"{name} ({count})" for name, count in below.items())
        note(f"wrote below {folder}: {counts}")
    for problem in problems:
        note(f"warning: {problem}")


@dataclass(kw_only=True)
class OldComparison:
    """Sweeps and labels, as the old script names them."""

    PANEL: ClassVar = _OLD

    sweep1: Path | None = option("A.", "DIR")
    sweep2: Path | None = option("B.", "DIR")
    label1: str | None = option("Label of A.", "NAME")
    label2: str | None = option("Label of B.", "NAME")


@dataclass(kw_only=True)
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
    threshold: float | None = option(
        "Relative differences up to this are ignored: 5% or 0.05. Default: 1%.",
        "SHARE",
        parse=parse_share,
    )
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
    from gemmetry.sweeps.text import print_sweep_comparison

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
    return int(comparison.has_regression or is_unsure)


@dataclass(kw_only=True)
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
    for problem in found.problems:
        note(f"warning: {problem}")
    return int(all(one.obstacle for one in tuned))


_PRESETS = ("trace", "utilization", "gemm")
"""Keys of :data:`~gemmetry.sweeps.training.rocprof.PRESETS`, without its import."""


@dataclass(kw_only=True)
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
    from gemmetry.sweeps.training.rocprof import (
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
    if foreign := nvidia_note(kernels):
        note(f"warning: {foreign}")
    chip = options.chip if options.chip is None else check_chip(options.chip)
    made = make_rocprof_input(kernels, [*PRESETS[preset], *options.counters], chip=chip)
    written = write_rocprof_input(made, kernels, options.output)
    for path in written:
        note(f"wrote {path}")
    passes = counted(len(made.jobs), "time")
    note(f"{counted(len(kernels), 'kernel')}; the training runs {passes} per point")
    if options.json:
        print_facts(
            files=list(map(str, written)), kernels=kernels, jobs=list(made.jobs),
            warnings=[foreign] if foreign else [],
        )  # fmt: skip
    output = shlex.quote(str(options.output))
    note("use it:", command=f"gemmetry sweep run --rocprof-input {output}")


def parse_options(text: str, option: str) -> dict[str, str]:
    """``name=value,name=value``; none in an empty text."""
    from gemmetry.domain.specs.fields import read_options

    return read_options(text) if text else {}


@dataclass(kw_only=True)
class Axes:
    """What distinguishes the points of a sweep."""

    PANEL: ClassVar = "What varies"

    channels: tuple[int, ...] = option(
        "Channels of NCCL or RCCL. Default: the library's choice.",
        "-c NUMBERS",
        parse=parse_counts,
    )
    threads: tuple[int, ...] = option(
        "Threads per channel. Default: the library's choice.",
        "-t NUMBERS",
        parse=parse_counts,
    )
    axes: dict[str, tuple[str, ...]] = option(
        "A further axis: an environment variable (NCCL_ALGO=Ring,Tree), a key of the "
        "configuration (distributed.bucket_cap_mb=16,32), a {placeholder} of --command, or path "
        "(kernel,copy_engine).",
        "--axis NAME=VALUES",
        parse=parse_axes,
    )
    repeats: int = option("Runs of each point. Default: 1.", min=1, default=1)
    order: str = option(
        "Order of the points: random (shuffled for each repeat) or given (as listed). Default: "
        "random.",
        "ORDER",
        complete=("random", "given"),
        default="random",
    )
    seed: int = option("Seed of the random order. Default: 0.", default=0)


@dataclass(kw_only=True)
class Trained:
    """What each point runs."""

    PANEL: ClassVar = "What trains"

    config: str | None = option(
        "Configuration of the workload: a YAML file, or the preset document (the default) or tiny"
        " (for a CPU).",
        "-f FILE",
        complete=("document", "tiny"),
    )
    overrides: list[str] = option(
        "Replace a key of the configuration, for every point.",
        "--override KEY=VALUE",
    )
    nproc: int | None = option(
        "Ranks per node. Default: the number of GPUs, or 2 on a CPU.", "-p", min=1
    )
    path: str = option(
        "How bytes move: kernel, symmetric or copy_engine. Default: kernel.",
        "PATH",
        complete=("kernel", "symmetric", "copy_engine"),
        default="kernel",
    )
    command: str | None = option(
        "Your own training command in place of the workload, such as 'torchrun --nproc-per-node 8"
        " train.py'. It writes its traces to $GEMMETRY_TRACE_DIR.",
        "COMMAND",
    )
    library: str | None = option(
        "The library whose variables are set: nccl, rccl or gloo. Default: the one that this "
        "machine's devices use.",
        "LIBRARY",
        complete=("nccl", "rccl", "gloo"),
    )


@dataclass(kw_only=True)
class Nodes:
    """Where the points run."""

    PANEL: ClassVar = "Several nodes"

    nnodes: int = option("Number of nodes. Default: 1.", min=1, default=1)
    rdzv_endpoint: str = option(
        "Where the agents of torchrun on all nodes meet.", "HOST:PORT", default=""
    )
    launcher: str = option(
        "A command that starts what follows it on every node, such as 'srun --ntasks-per-node=1'.",
        "COMMAND",
        default="",
    )
    executor: str = option(
        "Where the points run: local (this machine), or ray (a node of a Ray cluster).",
        "NAME",
        default="local",
    )
    executor_options: dict[str, str] = option(
        "Options of the executor ray: address, num_gpus, num_cpus, resources, retries.",
        "NAME=VALUE",
        default="",
        parse=parse_options,
    )
    shard: str = option("Run one of N parts of the points, as in 1/2 and 2/2.", "K/N", default="")


@dataclass(kw_only=True)
class Profilers:
    """What else records each point."""

    PANEL: ClassVar = "Further profilers"

    rocprof: bool = option("Run each point under rocprofv3.", "-r")
    rocprof_input: Path | None = option(
        "Its input file: kernels, counters. Implies --rocprof.", "FILE"
    )
    stats: bool = option("Let rocprofv3 write statistics of its times.", "-m")
    ncu: str | None = option(
        "Run each rank under Nsight Compute with these arguments; no traces are recorded.",
        "ARGUMENTS",
    )


@dataclass(kw_only=True)
class Folder:
    """Where the sweep is, and what becomes of what is there."""

    output: Path | None = option(
        "Folder of the sweep. Default: gemmetry-out/sweep_<date>_<time>.",
        "--output -o --output-dir DIR",
    )
    resume: bool = option(
        "Continue the sweep in --output, or the latest one if there is one.",
        "--resume -s --skip-existing",
    )
    fresh: bool = option("Begin anew in --output; what is there is moved aside.")
    timeout_s: float | None = option(
        "End a point that takes longer. Default: no limit.", "--timeout SECONDS", min=0
    )


@dataclass(kw_only=True)
class Training(Axes, Trained, Nodes, Profilers, Folder):
    """What a sweep runs, and where."""


@dataclass(kw_only=True)
class Run(Training, DryRun, Printed):
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
    from gemmetry.sweeps.runs import plan

    planned = plan(**values(options, Training))
    if options.no_aggregate:
        note("note: --no-aggregate has no effect: gemmetry sweep analyze is a separate command")
    for text in planned.notes:
        note(f"note: {text}")
    if options.dry_run:
        _show_sweep(planned, as_json=options.json)
        return 0
    return _run_sweep(planned, fresh=options.fresh, as_json=options.json)


_MOST_LOGS = 5
"""Failed points whose logs are named."""


def _run_sweep(planned: SweepPlan, *, fresh: bool, as_json: bool) -> int:
    from gemmetry.domain.errors import InterruptedRunError
    from gemmetry.sweeps.folder import LOG
    from gemmetry.sweeps.progress import JobProgress

    folder = shlex.quote(str(planned.folder))
    again = f"the same command with -o {folder}" + (" and without --fresh" if fresh else "")
    count = len(planned.plan.points)
    try:
        with JobProgress("points", str(planned.folder), stderr_console()) as listener:
            found = planned.run(listener=listener, command=command_line())
    except KeyboardInterrupt:
        raise InterruptedRunError(
            f"{planned.succeeded} of {counted(count, 'point')} "
            f"{noun_for(planned.succeeded, 'has its', 'have their')} traces in {planned.folder}",
            hint=f"Continue it: {again}.",
        ) from None
    if as_json:
        print_json(found.document(), indent=1)
    failed = len(found.failed)
    if failed:
        again = f"{again} runs {noun_for(failed, 'it', 'them')} again"
        note(f"{failed} of {counted(count, 'point')} failed; {again}")
        for point in found.failed[:_MOST_LOGS]:
            note(f"  {point.folder}: {planned.folder / point.folder / LOG}")
        if failed > _MOST_LOGS:
            note(f"  and {failed - _MOST_LOGS} more, each with a {LOG}")
    note(f"sweep: {planned.folder}")
    if failed < count:
        note("analyse it:", command=f"gemmetry sweep analyze {folder}")
    return 1 if failed else 0


def _show_sweep(planned: SweepPlan, *, as_json: bool) -> None:
    """Print the points in the order in which they would run, and the command of the first."""
    if as_json:
        print_json(planned.document(), indent=1)
        return
    say(_heading(planned))
    for job in planned.jobs:
        say(f"  {job.name}" + ("  (kept)" if job.name in planned.kept else ""))
    waiting = [job for job in planned.jobs if job.name not in planned.kept]
    if waiting:
        say(f"environment of {waiting[0].name}:")
        for name, value in waiting[0].environment.items():
            say(f"  {name}={value}")
        say(f"command:\n  {shlex.join(waiting[0].argv)}")
    say(f"sweep: {planned.folder}")


def _heading(planned: SweepPlan) -> str:

    count, kept = len(planned.jobs), len(planned.kept)
    if not kept:
        return f"{counted(count, 'point')} would run, in this order:"
    if kept == count:
        return f"no point would run: {noun_for(count, 'it has', 'all have')} succeeded earlier:"
    rest = f"{kept} {noun_for(kept, 'has', 'have')} succeeded earlier"
    return f"{count - kept} of {counted(count, 'point')} would run, in this order; {rest}:"


app = group_app(
    "Run, analyse and compare sweeps of training runs over settings of communication.",
    {
        "run": run,
        "analyze": analyze,
        "compare": compare,
        "tuner-config": tuner_config,
        "rocprof-input": rocprof_input,
    },
)
