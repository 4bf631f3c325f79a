"""``gemmetry report``.

``gemmetry show``.

``gemmetry merge``.

``gemmetry compare``.

``gemmetry import``.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gemmetry.cli.console import say
from gemmetry.cli.options import (
    COMPLETERS,
    Baseline,
    Columns,
    ComparisonOutputs,
    Experiment,
    Json,
    Outputs,
    WorkbenchCommand,
)
from gemmetry.domain.specs.keys import KEYS

report_app = typer.Typer(add_completion=False)


@report_app.command(cls=WorkbenchCommand)
def report(
    experiment: Experiment,
    json: Json = False,
    output: Outputs = None,
    append: Annotated[bool, typer.Option("--append", help=KEYS["append"].text)] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the HTML report.")
    ] = None,
    format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            autocompletion=COMPLETERS["format"],
            help=KEYS["format"].text,
        ),
    ] = "table",
    columns: Columns = None,
    baseline: Baseline = None,
) -> None:
    """Print or write the reports of an experiment; nothing runs and its folder does not change."""
    import dataclasses

    from gemmetry.cli.results import Rendering, check_rendering, columns_of, render
    from gemmetry.dispatches.profile import stored_baseline
    from gemmetry.dispatches.records import tag_names
    from gemmetry.domain.errors import UnknownNameError
    from gemmetry.engine.store.experiment import Experiment as StoredExperiment

    formats = ("table", "block", "csv", "md", "none")
    if format not in formats:
        raise UnknownNameError("format", format, formats)
    rendering = Rendering(
        outputs=tuple(output or ()),
        append=append,
        columns=columns_of(columns, format),
        baseline=baseline,
        format=format,
        json=json,
        html=html,
    )
    check_rendering(rendering)
    with StoredExperiment.open(experiment) as stored:
        results = stored.result_set()
        check_rendering(rendering, tags=tag_names(results.records))
        if baseline is None:
            rendering = dataclasses.replace(rendering, baseline=stored_baseline(experiment))
        render(results, rendering)


show_app = typer.Typer(add_completion=False)


@show_app.command(cls=WorkbenchCommand)
def show(
    experiment: Experiment,
    dispatch: Annotated[
        str,
        typer.Argument(
            metavar="DISPATCH",
            help="A dispatch's name, provider:name, a part of it, or a pattern.",
        ),
    ] = "*",
    json: Json = False,
    output: Outputs = None,
) -> None:
    """Show everything about one dispatch: verdict, samples, facts of its build, source, command."""
    import dataclasses

    from gemmetry.cli.console import stdout_console
    from gemmetry.cli.results import Rendering, check_rendering, render
    from gemmetry.dispatches.show import matching_records, show_dispatch
    from gemmetry.engine.store.experiment import Experiment as StoredExperiment

    outputs: tuple[Path, ...] = tuple(output or ())
    rendering = Rendering(outputs=outputs, json=json, format="none")
    check_rendering(rendering)
    with StoredExperiment.open(experiment) as stored:
        results = stored.result_set()
        if not json:
            show_dispatch(results, dispatch, stdout_console())
        chosen = matching_records(results.records, dispatch)
        render(dataclasses.replace(results, records=chosen), rendering)


merge_app = typer.Typer(add_completion=False)


@merge_app.command(cls=WorkbenchCommand)
def merge(
    experiments: Annotated[
        list[Path],
        typer.Argument(metavar="EXPERIMENT...", help="Folders of two or more experiments."),
    ],
    into: Annotated[
        Path,
        typer.Option(
            "--into",
            "-o",
            metavar="DIR",
            help="Folder to create; it must not contain an experiment yet.",
        ),
    ],
    json: Json = False,
) -> None:
    """Merge experiments into one folder; the newest record of each dispatch is kept."""
    from gemmetry.cli.console import command_line, print_facts
    from gemmetry.engine.store.merging import merge as merge_experiments
    from gemmetry.sweeps.training.manifest import MANIFEST

    if all((folder / MANIFEST).is_file() for folder in experiments):
        from gemmetry.sweeps.training.run import merge_sweeps

        points = merge_sweeps(experiments, into)
        if json:
            print_facts(sweep=str(into), points=points)
        else:
            say(f"{into}: {points} points")
        return
    summary = merge_experiments(experiments, into, command=command_line())
    if json:
        print_facts(experiment=str(into), records=summary.kept, replaced=summary.replaced)
        return
    replaced = f", {summary.replaced} older replaced" if summary.replaced else ""
    say(f"{into}: {summary.kept} records{replaced}")


class Undecided(StrEnum):
    FAIL = "fail"
    PASS = "pass"


compare_app = typer.Typer(add_completion=False)


@compare_app.command(cls=WorkbenchCommand)
def compare(
    experiments: Annotated[
        list[Path],
        typer.Argument(
            metavar="A [B...]", help="Folders of experiments; the others are compared with A."
        ),
    ],
    json: Json = False,
    output: ComparisonOutputs = None,
    threshold: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Relative differences up to this are ignored: 5% or 0.05. Default: 2%; with "
            "--baseline 0.5% on a GPU.",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With one experiment: compare its dispatches with those of this provider, or "
            "provider:configuration, for the same problem.",
        ),
    ] = None,
    across_distributions: Annotated[
        bool,
        typer.Option(
            "--across-distributions",
            help="Compare even if the inputs were drawn from different distributions.",
        ),
    ] = False,
    undecided: Annotated[
        Undecided,
        typer.Option(
            help="How an undecided dispatch, which was measured too little to know whether it "
            "became slower, affects the exit status.",
        ),
    ] = Undecided.FAIL,
) -> None:
    """Compare experiments dispatch by dispatch, or the dispatches of one experiment with a
    baseline, with intervals and verdicts.

    Exit status 1 if a dispatch of B (or C ...) became slower by more than the threshold, is no
    longer ok, or is undecided (unless --undecided pass). With a baseline the status is always 0.
    """
    from gemmetry.cli.console import check_outputs, note, print_json, stdout_console
    from gemmetry.dispatches.comparison import compare as compare_all
    from gemmetry.dispatches.comparison import compare_with_baseline
    from gemmetry.dispatches.comparison_report import (
        comparison_document,
        comparison_suffixes,
        print_comparison,
        write_comparison,
    )
    from gemmetry.domain.errors import RequestError
    from gemmetry.domain.units import parse_share
    from gemmetry.engine.store.experiment import Experiment as Experiment_

    check_outputs(output or (), comparison_suffixes())
    share = None if threshold is None else parse_share(threshold)
    if (len(experiments) < 2) == (baseline is None):
        raise RequestError(
            "a comparison needs two experiments, or one and a baseline",
            hint="Write gemmetry compare A B, or gemmetry compare A --baseline torch.",
        )
    opened = [Experiment_.open(path) for path in experiments]
    try:
        results = [experiment.result_set() for experiment in opened]
        if baseline is not None:
            comparison = compare_with_baseline(results[0], baseline, threshold=share)
        else:
            comparison = compare_all(
                results, threshold=share, allow_different_inputs=across_distributions
            )
    finally:
        for experiment in opened:
            experiment.close()
    if json:
        print_json(comparison_document(comparison))
    else:
        print_comparison(comparison, stdout_console())
    fails = undecided is Undecided.FAIL and baseline is None
    for path in output or ():
        write_comparison(comparison, path, undecided_fails=fails)
        note(f"wrote {path}")
    has_failed = comparison.has_regression or (fails and comparison.has_undecided)
    raise typer.Exit(1 if has_failed else 0)


import_app = typer.Typer(add_completion=False)


@import_app.command("import", cls=WorkbenchCommand)
def import_files(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Results of cutlass_profiler, hipblaslt-bench or tritonbench (CSV), "
            "FlashInfer-Bench (JSON lines) or Kernel Tuner (JSON); also compressed.",
        ),
    ],
    into: Annotated[
        Path,
        typer.Option(
            "--into",
            "-o",
            metavar="DIR",
            help="Folder to create; it must not contain an experiment yet.",
        ),
    ],
    operation: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What the kernels compute, where a file does not state it: formats and layouts "
            "(f16t_f16t_f16t), or a whole operation "
            "(matmul_4096x4096x4096_f32t_f32t_f32t). Default: none.",
        ),
    ] = "",
    like: Annotated[
        Path | None,
        typer.Option(
            metavar="EXPERIMENT",
            help="Folder of an experiment on the same device and inputs, so that merging both "
            "compares their dispatches. Default: none.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Import results of other benchmarks as an experiment; they are marked as not verified here.

    Rows that cannot be imported are listed with the reason, and the others are imported. Exit
    status 2 if there is none.
    """
    from gemmetry.cli.console import command_line, note, print_facts
    from gemmetry.domain.units import counted
    from gemmetry.engine.store.imported import MeasuredOn, import_results, measured_like

    summary = import_results(
        files,
        into,
        operation=operation,
        measured_on=MeasuredOn() if like is None else measured_like(like),
        command=command_line(),
    )
    for problem in summary.problems:
        note(f"left out: {problem}")
    if json:
        print_facts(
            experiment=str(into), records=summary.records, formats=dict(summary.by_format),
            left_out=summary.problems,
        )  # fmt: skip
        return
    by_format = ", ".join(f"{count} of {name}" for name, count in summary.by_format.items())
    left_out = f", {counted(len(summary.problems), 'row')} left out" if summary.problems else ""
    say(f"{into}: {counted(summary.records, 'record')} ({by_format}){left_out}")
