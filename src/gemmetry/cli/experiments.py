"""Commands about experiments: ``gemmetry report``, ``show``, ``merge``, ``compare``, ``import``."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from gemmetry.cli.console import command_line, note, print_facts, say, stdout_console
from gemmetry.cli.options import (
    COMPLETERS,
    Compared,
    Printed,
    Undecided,
    WithBaseline,
    Written,
    argument,
    option,
    parse_share,
    split_names,
)
from gemmetry.domain.specs.keys import KEYS


@dataclass(kw_only=True)
class Report(Written, WithBaseline):
    experiment: Path = argument("Folder of an experiment.", "EXPERIMENT")
    append: bool = option(KEYS["append"].text)
    html: Path | None = option("Write the HTML report.", metavar="FILE")
    format: str = option(
        KEYS["format"].text, metavar="NAME", default="table", complete=COMPLETERS["format"]
    )
    columns: list[str] = option(
        KEYS["columns"].help(), metavar="NAMES", parse=split_names, complete=COMPLETERS["columns"]
    )


def report(options: Report) -> None:
    """Print or write the reports of an experiment; nothing runs and its folder does not change."""
    from gemmetry.cli.results import Rendering, check_rendering, columns_of, render
    from gemmetry.dispatches.profile import stored_baseline
    from gemmetry.dispatches.records import tag_names
    from gemmetry.domain.errors import UnknownNameError
    from gemmetry.engine.store.experiment import Experiment

    formats = ("table", "block", "csv", "md", "none")
    if options.format not in formats:
        raise UnknownNameError("format", options.format, formats)
    rendering = Rendering(
        outputs=tuple(options.output),
        append=options.append,
        columns=columns_of(options.columns, options.format),
        baseline=options.baseline,
        format=options.format,
        json=options.json,
        html=options.html,
    )
    check_rendering(rendering)
    with Experiment.open(options.experiment) as stored:
        results = stored.result_set()
        check_rendering(rendering, tags=tag_names(results.records))
        if options.baseline is None:
            rendering = dataclasses.replace(rendering, baseline=stored_baseline(options.experiment))
        render(results, rendering)


@dataclass(kw_only=True)
class Show(Written):
    experiment: Path = argument("Folder of an experiment.", "EXPERIMENT")
    dispatch: str = argument(
        "A dispatch's name, provider:name, a part of it, or a pattern.", "DISPATCH", default="*"
    )


def show(options: Show) -> None:
    """Show everything about one dispatch: verdict, samples, facts of its build, source, command."""
    from gemmetry.cli.results import Rendering, check_rendering, render
    from gemmetry.dispatches.show import matching_records, show_dispatch
    from gemmetry.engine.store.experiment import Experiment

    rendering = Rendering(outputs=tuple(options.output), json=options.json, format="none")
    check_rendering(rendering)
    with Experiment.open(options.experiment) as stored:
        results = stored.result_set()
        if not options.json:
            show_dispatch(results, options.dispatch, stdout_console())
        chosen = matching_records(results.records, options.dispatch)
        render(dataclasses.replace(results, records=chosen), rendering)


@dataclass(kw_only=True)
class IntoFolder(Printed):
    """The options of a command that makes an experiment of others' results."""

    into: Path = option(
        "Folder to create; it must not contain an experiment yet.", "-o", metavar="DIR"
    )


@dataclass(kw_only=True)
class Merge(IntoFolder):
    experiments: list[Path] = argument("Folders of two or more experiments.", "EXPERIMENT...")


def merge(options: Merge) -> None:
    """Merge experiments into one folder; the newest record of each dispatch is kept."""
    from gemmetry.engine.store.merging import merge as merge_experiments
    from gemmetry.sweeps.folder import MANIFEST

    into = options.into
    if all((folder / MANIFEST).is_file() for folder in options.experiments):
        from gemmetry.sweeps.run import merge_sweeps

        points = merge_sweeps(options.experiments, into)
        if options.json:
            print_facts(sweep=str(into), points=points)
        else:
            say(f"{into}: {points} points")
        return
    summary = merge_experiments(options.experiments, into, command=command_line())
    if options.json:
        print_facts(experiment=str(into), records=summary.kept, replaced=summary.replaced)
        return
    replaced = f", {summary.replaced} older replaced" if summary.replaced else ""
    say(f"{into}: {summary.kept} records{replaced}")


@dataclass(kw_only=True)
class Compare(Compared):
    experiments: list[Path] = argument(
        "Folders of experiments; the others are compared with A.", "A [B...]"
    )
    threshold: float | None = option(
        "Relative differences up to this are ignored: 5% or 0.05. Default: 2%; with --baseline "
        "0.5% on a GPU.",
        metavar="SHARE",
        parse=parse_share,
    )
    baseline: str | None = option(
        "With one experiment: compare its dispatches with those of this provider, or "
        "provider:configuration, for the same problem.",
        metavar="NAME",
        complete=COMPLETERS["baseline"],
    )
    across_distributions: bool = option(
        "Compare even if the inputs were drawn from different distributions."
    )
    undecided: Undecided = option(
        "How an undecided dispatch, which was measured too little to know whether it became "
        "slower, affects the exit status.",
        default=Undecided.FAIL,
    )


def compare(options: Compare) -> int:
    """Compare experiments dispatch by dispatch, or the dispatches of one experiment with a
    baseline, with intervals and verdicts.

    Exit status 1 if a dispatch of B (or C ...) became slower by more than the threshold, is no
    longer ok, or is undecided (unless --undecided pass). With a baseline the status is always 0.
    """
    from gemmetry.dispatches.comparison import compare as compare_all
    from gemmetry.dispatches.comparison import compare_with_baseline
    from gemmetry.dispatches.comparison_report import (
        comparison_document,
        comparison_suffixes,
        print_comparison,
        write_comparison,
    )
    from gemmetry.domain.errors import RequestError
    from gemmetry.engine.store.experiment import Experiment

    options.check(comparison_suffixes())
    baseline, share = options.baseline, options.threshold
    if (len(options.experiments) < 2) == (baseline is None):
        raise RequestError(
            "a comparison needs two experiments, or one and a baseline",
            hint="Write gemmetry compare A B, or gemmetry compare A --baseline torch.",
        )
    with ExitStack() as stack:
        opened = [stack.enter_context(Experiment.open(path)) for path in options.experiments]
        results = [experiment.result_set() for experiment in opened]
        if baseline is not None:
            found = compare_with_baseline(results[0], baseline, threshold=share)
        else:
            found = compare_all(
                results, threshold=share, allow_different_inputs=options.across_distributions
            )
    fails = options.undecided is Undecided.FAIL and baseline is None
    options.deliver(
        lambda: comparison_document(found),
        lambda console: print_comparison(found, console),
        lambda path: write_comparison(found, path, undecided_fails=fails),
    )
    return int(found.has_regression or (fails and found.has_undecided))


@dataclass(kw_only=True)
class Import(IntoFolder):
    files: list[Path] = argument(
        "Results of cutlass_profiler, hipblaslt-bench or tritonbench (CSV), FlashInfer-Bench "
        "(JSON lines) or Kernel Tuner (JSON); also compressed.",
        "FILE...",
    )
    operation: str = option(
        "What the kernels compute, where a file does not state it: formats and layouts "
        "(f16t_f16t_f16t), or a whole operation (matmul_4096x4096x4096_f32t_f32t_f32t). "
        "Default: none.",
        metavar="NAME",
        default="",
    )
    like: Path | None = option(
        "Folder of an experiment on the same device and inputs, so that merging both compares "
        "their dispatches. Default: none.",
        metavar="EXPERIMENT",
    )


def import_(options: Import) -> None:
    """Import results of other benchmarks as an experiment; they are marked as not verified here.

    Rows that cannot be imported are listed with the reason, and the others are imported. Exit
    status 2 if there is none.
    """
    from gemmetry.domain.units import counted
    from gemmetry.engine.store.imported import MeasuredOn, import_results, measured_like

    into, like = options.into, options.like
    summary = import_results(
        options.files,
        into,
        operation=options.operation,
        measured_on=MeasuredOn() if like is None else measured_like(like),
        command=command_line(),
    )
    for problem in summary.problems:
        note(f"left out: {problem}")
    if options.json:
        print_facts(
            experiment=str(into), records=summary.records, formats=dict(summary.by_format),
            left_out=summary.problems,
        )  # fmt: skip
        return
    by_format = ", ".join(f"{count} of {name}" for name, count in summary.by_format.items())
    left_out = f", {counted(len(summary.problems), 'row')} left out" if summary.problems else ""
    say(f"{into}: {counted(summary.records, 'record')} ({by_format}){left_out}")
