"""Arguments of ``gemmetry sweep``, also as the scripts of the sweep analysis document write
them.

``gemmetry sweep``: the group of commands about training sweeps.

``gemmetry sweep analyze``.

``gemmetry sweep compare``.

``gemmetry sweep tuner-config``.

``gemmetry sweep rocprof-input``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from gemmetry.cli.experiments import Undecided
from gemmetry.cli.main import LazyGroup, group_app
from gemmetry.cli.options import Json, WorkbenchCommand, complete_names, split_outputs
from gemmetry.domain.errors import RequestError
from gemmetry.domain.units import counted

if TYPE_CHECKING:
    from gemmetry.documents.sweep_products import WrittenProducts


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


def parse_numbers(text: str | None, option: str) -> tuple[int, ...] | None:
    """``28,42,56``; None where the option is not given.

    Raises:
        RequestError: the text is not a list of whole numbers.
    """
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() and len(part) < 10 for part in parts):
        raise RequestError(
            f"{option} takes whole numbers separated by commas, not {text!r}",
            hint=f"Write {option} 28,42,56,70.",
        )
    return tuple(map(int, parts))


def parse_counts(texts: Iterable[str], option: str) -> tuple[int, ...]:
    """Numbers, separated by commas or given one by one.

    Raises:
        RequestError: one of them is not a whole number.
    """
    parts = list(_parts(texts))
    for part in parts:
        if not part.isdecimal() or len(part) > 9:
            raise RequestError(
                f"{option}: {part!r} is not a positive whole number",
                hint=f"Write {option} 256,512.",
            )
    return tuple(map(int, parts))


def parse_axes(texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
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


def parse_steps(text: str | None) -> tuple[str, ...]:
    """``variance,plots``; () where the option ``--only`` is not given.

    Raises:
        RequestError: there is no such step, or its library is not installed.
    """
    if text is None:
        return ()
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
    from gemmetry.sweeps.folder import ANALYSIS_FOLDERS

    if path.suffix.lower() in (".csv", ".xlsx") and not path.is_dir():
        path = path.parent
    return (path.parent, path) if path.name in ANALYSIS_FOLDERS else (path, None)


class SweepGroup(LazyGroup):
    """The commands, each in a module of this folder."""

    command_class = SweepCommand
    modules: ClassVar = {
        "run": "sweep_run:run",
        "analyze": "sweep:analyze",
        "compare": "sweep:compare",
        "tuner-config": "sweep:tuner_config",
        "rocprof-input": "sweep:rocprof_input",
    }


app = group_app(
    SweepGroup, "Run, analyse and compare sweeps of training runs over settings of communication."
)


OLD_PANEL = "Names of the sweep in the old scripts"


def analyze(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR",
            help="The sweep: <T>thread/nccl_<C>channels/torch_profiler/ below it hold a trace per "
            "rank.",
        ),
    ] = None,
    json: Json = False,
    top_k: Annotated[
        int,
        typer.Option("--top-k", min=1, help="GEMMs that the tables list of each rank and point."),
    ] = 5,
    threads: Annotated[
        str | None, typer.Option(metavar="LIST", help="Only these numbers of threads: 256,512.")
    ] = None,
    channels: Annotated[
        str | None, typer.Option(metavar="LIST", help="Only these numbers of channels: 28,42.")
    ] = None,
    ranks: Annotated[
        str | None, typer.Option(metavar="LIST", help="Only the traces of these ranks: 0,1.")
    ] = None,
    analysis_dir: Annotated[
        str | None,
        typer.Option(
            "--analysis-dir",
            metavar="NAME",
            help="Where the files are written: a folder below DIR, or a path. Default: the one "
            "that is named, tracelens_analysis if DIR has it, else analysis.",
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Write only these files: variance, timestamps, overlap, plots, "
            "timeline, collectives.",
        ),
    ] = None,
    geo_mean: Annotated[
        bool,
        typer.Option(
            "--geo-mean",
            help="Use geometric means over ranks in the workbook of timelines; a time of 0 makes "
            "the mean 0.",
        ),
    ] = False,
    base_path: Annotated[
        Path | None,
        typer.Option(
            "--base-path",
            metavar="DIR",
            rich_help_panel=OLD_PANEL,
            help="The sweep, or its tracelens_analysis.",
        ),
    ] = None,
    sweep_dir: Annotated[
        Path | None,
        typer.Option("--sweep-dir", metavar="DIR", rich_help_panel=OLD_PANEL, help="The sweep."),
    ] = None,
    tracelens_path: Annotated[
        Path | None,
        typer.Option(
            "--tracelens-path",
            metavar="DIR",
            rich_help_panel=OLD_PANEL,
            help="Its tracelens_analysis.",
        ),
    ] = None,
    input_csv: Annotated[
        Path | None,
        typer.Option(
            "--input-csv",
            metavar="FILE",
            rich_help_panel=OLD_PANEL,
            help="A file in its tracelens_analysis.",
        ),
    ] = None,
    csv_path: Annotated[
        Path | None,
        typer.Option(
            "--csv-path",
            metavar="FILE",
            rich_help_panel=OLD_PANEL,
            help="A file in its tracelens_analysis.",
        ),
    ] = None,
    output_dir: Annotated[
        Path | None,
        typer.Option(
            "--output-dir",
            metavar="DIR",
            rich_help_panel=OLD_PANEL,
            help="Where the plots are written. Default: plots, next to the other files.",
        ),
    ] = None,
) -> None:
    """Analyse a sweep of training runs: what communication costs, and which point is best.

    Reads each trace once, in parallel. For every GEMM, instances next to a collective are compared
    with instances alone: slowdown, interval, cost per step. The time of a step is split into
    compute, slowed compute, exposed communication and idle time. Every figure is written to
    analysis.json, next to tables, plots and workbooks. A sweep of which only TraceLens' workbooks
    are left gives the tables and plots that follow from them. Exit status 1 if some of the traces
    cannot be read.
    """
    from gemmetry.cli.console import note, print_json, stderr_console, stdout_console
    from gemmetry.dispatches.progress import CountProgress
    from gemmetry.sweeps import api as sweeps

    olds = base_path, sweep_dir, tracelens_path, input_csv, csv_path
    place, into = sweep_folders(folder, olds)
    steps = parse_steps(only)
    selected: dict[str, Any] = {
        "threads": parse_numbers(threads, "--threads"),
        "channels": parse_numbers(channels, "--channels"),
        "ranks": parse_numbers(ranks, "--ranks"),
        # Joined with the sweep's folder, of which an absolute path is independent.
        "analysis_dir": analysis_dir or (str(into.absolute()) if into is not None else None),
    }
    products: dict[str, Any] = {"top_k": top_k, "geometric": geo_mean, "plots": output_dir}
    workbooks = None if json else sweeps.read_workbooks(place, **selected)
    if workbooks is not None:
        note(f"{place} has no traces; its files are made from the workbooks in {workbooks.folder}")
        written = workbooks.write(steps, **products)
        _report(written, workbooks.folder, written.problems)
        raise typer.Exit(1 if workbooks.sweep.problems else 0)
    with CountProgress("read", stderr_console()) as progress:
        found = sweeps.analyze(
            place, **selected, check_writable=True, workbooks=not steps, progress=progress
        )
    if json:
        print_json(found.document())
    elif not steps:
        from gemmetry.sweeps.text import print_rocprof, print_sweep

        print_sweep(found.document(), stdout_console(), top=top_k)
        print_rocprof(found.analysis, stdout_console(), top=top_k)
    written = found.write(steps, **products)
    _report(written, found.folder, [*found.problems, *written.problems])
    raise typer.Exit(0 if found.is_complete else 1)


def _report(written: WrittenProducts, folder: Path, problems: Iterable[str]) -> None:
    """List the files in the folder itself, count those below it, and state the problems."""
    from gemmetry.cli.console import note

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


def compare(
    sweeps: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="A B [C...]",
            help="Folders of sweeps, or their analysis.json; the others are compared with A.",
        ),
    ] = None,
    json: Json = False,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            callback=split_outputs,
            help="Write a file: .html is one page that works offline, .json the document, and "
            ".csv, .xlsx, .parquet and .md have the compared figures.",
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--label", metavar="NAME", help="Name of a sweep, once per sweep. Default: A, B, C ..."
        ),
    ] = None,
    threshold: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Relative differences up to this are ignored: 5% or 0.05. Default: 1%.",
        ),
    ] = None,
    undecided: Annotated[
        Undecided,
        typer.Option(
            help="Whether a point whose step is undecided, because too few runs were recorded, "
            "makes the exit status 1.",
        ),
    ] = Undecided.FAIL,
    sweep1: Annotated[
        Path | None,
        typer.Option("--sweep1", metavar="DIR", rich_help_panel=OLD_PANEL, help="A."),
    ] = None,
    sweep2: Annotated[
        Path | None,
        typer.Option("--sweep2", metavar="DIR", rich_help_panel=OLD_PANEL, help="B."),
    ] = None,
    label1: Annotated[
        str | None,
        typer.Option("--label1", metavar="NAME", rich_help_panel=OLD_PANEL, help="Label of A."),
    ] = None,
    label2: Annotated[
        str | None,
        typer.Option("--label2", metavar="NAME", rich_help_panel=OLD_PANEL, help="Label of B."),
    ] = None,
) -> None:
    """Compare sweeps of training runs: each point, GEMM and collective that both have.

    Runs are the observations: without repeats of the points (sweep run --repeats 3) a change of one
    point is undecided. Sweeps that are not analysed yet are analysed first.

    Exit status 1 if anything of B (or C ...) is shown to be slower, a point fails that ran in A, or
    the step of a point is undecided (unless --undecided pass).
    """
    from gemmetry.cli.console import check_outputs, note, print_json, stderr_console, stdout_console
    from gemmetry.dispatches.progress import CountProgress
    from gemmetry.domain.units import parse_share
    from gemmetry.sweeps import api

    check_outputs(output or (), draws=True)
    with CountProgress("read", stderr_console()) as progress:
        found = api.compare(
            *(one for one in (sweep1, sweep2, *(sweeps or ())) if one is not None),
            labels=_labels(label or [], label1, label2),
            threshold=None if threshold is None else parse_share(threshold),
            progress=progress,
        )
    if json:
        print_json(found.document())
    else:
        from gemmetry.sweeps.text import print_sweep_comparison

        print_sweep_comparison(found.comparison, stdout_console())
    for path in output or ():
        found.write(path)
        note(f"wrote {path}")
    comparison = found.comparison
    is_unsure = undecided is Undecided.FAIL and comparison.has_undecided
    raise typer.Exit(1 if comparison.has_regression or is_unsure else 0)


def _labels(labels: list[str], first: str | None, second: str | None) -> list[str]:
    """The labels in the order of the sweeps; A and B where only one old option is given."""
    if first is None and second is None:
        return labels
    return [first or "A", second or "B", *labels]


def tuner_config(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The sweep; its points must have been repeated.")
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="Where the configuration is written."),
    ] = Path("nccl_tuner.conf"),
    json: Json = False,
    threads: Annotated[
        str | None, typer.Option(metavar="LIST", help="Only these numbers of threads: 256,512.")
    ] = None,
    channels: Annotated[
        str | None, typer.Option(metavar="LIST", help="Only these numbers of channels: 28,42.")
    ] = None,
) -> None:
    """Write the best setting of each collective and size for NCCL's example tuner plugin.

    A line is written where the repeats of the sweep show that algorithm, protocol and number of
    channels of one point are faster than those of all others; the evidence for it, and why other
    collectives have no line, are comments. NCCL reads the file if the plugin is loaded
    (NCCL_TUNER_PLUGIN) and NCCL_TUNER_CONFIG_FILE names it. Exit status 1 if no line is written.
    """
    from gemmetry.cli.console import note, print_facts, stdout_console
    from gemmetry.results.emit import check_writable, write_atomically
    from gemmetry.sweeps import api as sweeps
    from gemmetry.sweeps.tuner import print_tuned, tuned_entry

    check_writable(output)
    found = sweeps.analyze(
        folder,
        threads=parse_numbers(threads, "--threads"),
        channels=parse_numbers(channels, "--channels"),
    )
    tuned = found.tuned_collectives()
    if json:
        print_facts(collectives=[tuned_entry(one) for one in tuned])
    else:
        print_tuned(tuned, stdout_console())
    write_atomically(output, found.tuner_config().encode())
    note(f"wrote {output}")
    for problem in found.problems:
        note(f"warning: {problem}")
    raise typer.Exit(0 if any(not one.obstacle for one in tuned) else 1)


_PRESETS = ("trace", "utilization", "gemm")
"""Keys of :data:`~gemmetry.sweeps.training.rocprof.PRESETS`, without its import."""


def rocprof_input(
    source: Annotated[
        Path,
        typer.Option(
            "--from",
            "--input-csv",
            metavar="CSV",
            help="Table with the names of the kernels, such as "
            "top5_gemm_kernels_time_variance.csv.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            "--output-yaml",
            metavar="FILE",
            help="The input file, .yaml; the names are also listed in FILE_kernel_list.txt.",
        ),
    ],
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset",
            metavar="NAME",
            autocompletion=complete_names(*_PRESETS),
            help="trace: times alone; utilization: how busy compute and matrix units are, in one "
            "pass; gemm: also work, waits, LDS and L2, in two. Default: utilization, or none "
            "with --counters.",
        ),
    ] = None,
    counters: Annotated[
        list[str] | None,
        typer.Option(
            "--counters",
            metavar="NAMES",
            help="Further counters, such as SQ_INSTS_LDS,MfmaUtil.",
        ),
    ] = None,
    chip: Annotated[
        str | None,
        typer.Option(
            "--chip",
            metavar="GFX",
            help="The GPU, such as gfx942: its counters are checked by name.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write rocprofv3's input file for the kernels of a table.

    The kernels are matched by their exact names. Counters are distributed over as few passes as the
    GPU can take; rocprofv3 runs the training once for each pass, and runs kernels one after the
    other while it counts, so that their times and overlap are not those of the training.
    """
    import shlex

    from gemmetry.cli.console import note, print_facts
    from gemmetry.domain.errors import UnknownNameError
    from gemmetry.hardware.amd_counters import check_chip
    from gemmetry.sweeps.training.rocprof import (
        PRESETS,
        kernel_names,
        make_rocprof_input,
        nvidia_note,
        write_rocprof_input,
    )

    if preset is None:
        preset = "trace" if counters else "utilization"
    if preset not in PRESETS:
        raise UnknownNameError("preset of counters", preset, PRESETS)
    named = [one for text in counters or () for one in text.replace(",", " ").split()]
    kernels = kernel_names(source)
    if foreign := nvidia_note(kernels):
        note(f"warning: {foreign}")
    made = make_rocprof_input(
        kernels, [*PRESETS[preset], *named], chip=chip if chip is None else check_chip(chip)
    )
    written = write_rocprof_input(made, kernels, output)
    for path in written:
        note(f"wrote {path}")
    passes = counted(len(made.jobs), "time")
    note(f"{counted(len(kernels), 'kernel')}; the training runs {passes} per point")
    if json:
        print_facts(
            files=list(map(str, written)), kernels=kernels, jobs=list(made.jobs),
            warnings=[foreign] if foreign else [],
        )  # fmt: skip
    note("use it:", command=f"gemmetry sweep run --rocprof-input {shlex.quote(str(output))}")
