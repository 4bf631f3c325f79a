"""Commands that run a plan (``gemmetry profile``, ``generate``, ``compile``, ``verify``), and those
about experiments: ``report``, ``show``, ``merge``, ``compare``, ``import``.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections import defaultdict
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmetry.cli.console import (
    Rendering,
    Source,
    check_rendering,
    command_line,
    note,
    plan_request,
    print_facts,
    print_failure,
    print_plan,
    read_request,
    render,
    rendering_of,
    say,
    stderr_console,
    stdout_console,
    watched,
)
from gemmetry.cli.main import group_app
from gemmetry.cli.options import (
    COMPLETERS,
    LEGACY_DEFAULTS,
    Brief,
    Compared,
    DryRun,
    Planned,
    Printed,
    Restartable,
    Undecided,
    Verbose,
    WithBaseline,
    Written,
    argument,
    option,
    request,
    split_names,
    threshold,
)
from gemmetry.domain.options import KEYS

if TYPE_CHECKING:
    from gemmetry.dispatches.profile import Prepared
    from gemmetry.selftest.run import SelfTest


def profile(options: Planned) -> int:
    """Generate, compile, verify, measure and report dispatches.

    Without options, three f32 shapes run with every provider that works here, in less than a
    minute. The same command resumes an interrupted run; with more shapes, providers, configurations
    or repeats and the same --experiment, the experiment grows. A spec file can contain everything
    that options can.
    """
    options.begin()
    return options.run(plan_request(read_request(options.source), options.source))


DEFAULTS = {"name": "generate", "generated_dir": ".", "configurations": "all"}


class Generate(DryRun, Printed, Verbose):
    source: Source = request(
        {**LEGACY_DEFAULTS, "name": "generate", "generated_dir": "the working directory"}
    )


def generate(options: Generate) -> None:
    """Write the sources of dispatches under --generated-dir (default: here) without compiling them.

    Without options, these are the 109 dispatches of IREE's dispatch profiler for CUDA sm_80. Given
    shapes replace that set; --shapes legacy,768x512x1024 adds a shape to its matmuls.
    """
    from gemmetry.domain.specs.operations import legacy
    from gemmetry.providers.base import legacy_provider

    wanted = read_request(options.source, **DEFAULTS)
    prepared = plan_request(
        wanted,
        options.source,
        defaults=legacy(legacy_provider()),
        shows_notes=options.verbose,
        takes_generated=False,
    )
    if options.dry_run:
        print_plan(prepared, as_json=options.json)
        return
    files = generate_files(prepared)
    if options.json:
        print_facts(files=files)
        return
    folder = shlex.quote(str(wanted.generated_dir))
    note("compile them:", command=f"gemmetry compile --generated-dir {folder}")
    for file in files:
        say(f"[Generating]: {file['path']}")
        for configuration in file["configurations"]:
            say(f"    Emitting tuning configuration : {configuration}")


def generate_files(prepared: Prepared) -> list[dict[str, Any]]:
    """Write the sources of a plan: path, provider, operation and configurations of each file.

    Raises:
        RequestError: no provider of the plan writes sources. StorageError: not writable.
    """
    from rich.text import Text

    from gemmetry.dispatches.profile import generated_folder
    from gemmetry.domain.contracts import Workspace
    from gemmetry.domain.errors import RequestError, StorageError
    from gemmetry.domain.record import Event, Message
    from gemmetry.engine import generate as generate_sources
    from gemmetry.engine.catalogue import list_dispatches
    from gemmetry.results.lines import print_line
    from gemmetry.results.texts import printable

    console = stderr_console()
    warnings: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, Message):
            warnings.append(event.text)
            print_line(Text(printable(event.text), style="yellow"), console, indent=4)

    folder = generated_folder(prepared.spec) or Path("generated")
    workspace = Workspace(generated=folder, force=prepared.plan.settings.force_compile)
    try:
        paths = generate_sources(prepared.plan, workspace, listener=listen)
    except OSError as error:
        raise StorageError(
            f"cannot write under {folder}: {error.strerror or error}",
            hint="Give a writable folder with --generated-dir.",
        ) from error
    if not paths:
        names = ", ".join(request.name for request in prepared.plan.providers)
        raise RequestError(
            f"nothing was generated: {names} wrote no source for these operations",
            hint="The warnings above list what was left out."
            if warnings
            else "Add iree or triton with --providers; they write sources.",
        )
    configurations: dict[str, list[str]] = defaultdict(list)
    for dispatch in list_dispatches(prepared.plan):
        if not dispatch.refusal:
            configurations[dispatch.operation].append(dispatch.configuration)
    # Relative paths start with ``./``, as the dispatch profiler wrote them.
    return [
        {"path": str(path) if path.is_absolute() else f"./{path}", "operation": path.parent.name,
         "configurations": configurations[path.parent.name]}
        for path in paths
    ]  # fmt: skip


COLUMNS = ("provider", "target", "operation", "configuration", "outcome", "compile_ns",
           "registers", "spill_bytes", "shared_memory_bytes", "matrix_instruction",
           "reason")  # fmt: skip
"""The columns printed without --columns: facts of the build, no times."""


COMPILE_DEFAULTS = {"name": "compile", "columns": COLUMNS, "configurations": "all"}


class Compile(Planned):
    source: Source = request({**LEGACY_DEFAULTS, **COMPILE_DEFAULTS})


def compile_(options: Compile) -> int:
    """Compile dispatches without running them.

    Without options, these are the 109 dispatches of IREE's dispatch profiler for CUDA sm_80, as in
    `generate`. The table has one row per dispatch with its outcome. A configuration that the
    compiler rejects is a row too and does not affect the others.
    """
    from gemmetry.domain.specs.operations import legacy
    from gemmetry.engine import compile_plan
    from gemmetry.providers.base import legacy_provider

    wanted = read_request(options.source, **COMPILE_DEFAULTS)
    prepared = plan_request(wanted, options.source, defaults=legacy(legacy_provider()))
    plan = compile_plan(prepared.plan)
    if not wanted.experiment:
        folder = prepared.experiment.parent / f"{plan.name}-{plan.hash}"
        prepared = dataclasses.replace(prepared, experiment=folder)
    return options.run(dataclasses.replace(prepared, plan=plan))


VERIFY_COLUMNS = ("provider", "operation", "configuration", "outcome", "verification",
           "max_error_ratio", "relative_frobenius_error", "accuracy_class", "reason")  # fmt: skip


def verify(options: Planned) -> int:
    """Compile and verify dispatches; nothing is timed. Exit status 1 if one is wrong."""
    options.begin()
    source = options.source
    source.given["profiling_enabled"] = False
    prepared = plan_request(read_request(source, name="verify", columns=VERIFY_COLUMNS), source)
    return options.run(prepared)


class SelfTestOptions(Written, Restartable):
    level: str = option(
        "How many checks verification runs: quick, standard or paranoid.",
        "--verification-level --level NAME",
        default="standard",
    )
    vehicle: list[str] = option(
        "Only mutants of these carriers: host, triton, cuda. Default: all that run on this "
        "machine.",
        "NAMES",
        parse=split_names,
    )
    mutants: list[str] = option(
        "Only mutants with these names: m05*, ok*.", "GLOBS", parse=split_names
    )
    experiment: Path | None = option(
        "Folder. Default: gemmetry-out/self-test-<hash of plan and code>.", "DIR"
    )


def self_test(options: SelfTestOptions) -> int:
    """Verify mutants, kernels with deliberate bugs, and correct kernels that look wrong.

    Print which check caught which mutant, the score, the false alarms, and what the checks of
    other harnesses let through. Exit status 1 if a mutant survives, a correct kernel is flagged,
    or a kernel that should run on this machine does not. Unseen kernels, which were written
    without looking at the checks, are scored separately; their score does not change the exit
    status.
    """
    from gemmetry.engine import run
    from gemmetry.selftest.kill_matrix import kill_matrix_files, print_kill_matrix
    from gemmetry.selftest.run import matrix_of, prepare_self_test

    options.check()
    prepared = prepare_self_test(
        level=options.level,
        vehicles=tuple(options.vehicle),
        mutants=tuple(options.mutants),
        experiment=options.experiment,
    )

    summary = watched(
        partial(run, prepared.plan, prepared.experiment), prepared.experiment, fresh=options.fresh
    )
    matrix = matrix_of(prepared)
    files = kill_matrix_files(matrix, _facts(prepared, options.level))
    options.deliver(files, lambda console: print_kill_matrix(matrix, console))
    note(f"experiment: {prepared.experiment}")
    print_failure(summary.failure)
    return summary.exit_status if summary.failure else int(not matrix.is_perfect)


def _facts(prepared: SelfTest, level: str) -> dict[str, Any]:
    """Facts of the documents in addition to the matrix."""
    from gemmetry.engine.experiment import Experiment

    with Experiment.open(prepared.experiment) as stored:
        environments = list(stored.environments().values())
    latest = environments[-1] if environments else None
    machine = {} if latest is None else {
        "cpu": latest.cpu,
        "cpu_count": latest.cpu_count,
        "devices": list(latest.devices),
        "gemmetry": latest.packages.get("gemmetry", ""),
    }  # fmt: skip
    return {"level": level, "experiment": str(prepared.experiment), "machine": machine}


verify_app = group_app(
    "Verify dispatches without timing them.", {"run": verify, "self-test": self_test}
)


class Report(Written, WithBaseline):
    experiment: Path = argument("Folder of an experiment.", "EXPERIMENT")
    append: bool = option(KEYS["append"].text)
    html: Path | None = option("Write the HTML report.", "FILE")
    format: str = option(
        KEYS["format"].text, "NAME", default="table", complete=COMPLETERS["format"]
    )
    columns: list[str] = option(
        KEYS["columns"].help(), "NAMES", parse=split_names, complete=COMPLETERS["columns"]
    )


def report(options: Report) -> None:
    """Print or write the reports of an experiment; nothing runs and its folder does not change."""
    from gemmetry.dispatches.profile import stored_baseline
    from gemmetry.dispatches.results import tag_names
    from gemmetry.domain.errors import UnknownNameError
    from gemmetry.engine.experiment import Experiment

    formats = ("table", "block", "csv", "md", "none")
    if options.format not in formats:
        raise UnknownNameError("format", options.format, formats)
    rendering = rendering_of(options, json=options.json)
    check_rendering(rendering)
    with Experiment.open(options.experiment) as stored:
        results = stored.result_set()
        check_rendering(rendering, tags=tag_names(results.records))
        if options.baseline is None:
            rendering = dataclasses.replace(rendering, baseline=stored_baseline(options.experiment))
        render(results, rendering)


class Show(Written):
    experiment: Path = argument("Folder of an experiment.", "EXPERIMENT")
    dispatch: str = argument(
        "A dispatch's name, provider:name, a part of it, or a pattern.", "DISPATCH", default="*"
    )


def show(options: Show) -> None:
    """Show everything about one dispatch: verdict, samples, facts of its build, source, command."""
    from gemmetry.dispatches.show import matching_records, show_dispatch
    from gemmetry.engine.experiment import Experiment

    rendering = Rendering(outputs=tuple(options.output), json=options.json, format="none")
    check_rendering(rendering)
    with Experiment.open(options.experiment) as stored:
        results = stored.result_set()
        if not options.json:
            show_dispatch(results, options.dispatch, stdout_console())
        chosen = matching_records(results.records, options.dispatch)
        render(dataclasses.replace(results, records=chosen), rendering)


class IntoFolder(Printed):
    """The options of a command that makes an experiment of others' results."""

    into: Path = option("Folder to create; it must not contain an experiment yet.", "-o DIR")


class Merge(IntoFolder):
    experiments: list[Path] = argument("Folders of two or more experiments.", "EXPERIMENT...")


def merge(options: Merge) -> None:
    """Merge experiments into one folder; the newest record of each dispatch is kept."""
    from gemmetry.engine.merging import merge as merge_experiments
    from gemmetry.sweeps.folder import MANIFEST

    into = options.into
    if all((folder / MANIFEST).is_file() for folder in options.experiments):
        from gemmetry.sweeps.run import merge_sweeps

        points = merge_sweeps(options.experiments, into)
        options.state(f"{into}: {points} points", sweep=str(into), points=points)
        return
    found = merge_experiments(options.experiments, into, command=command_line())
    replaced = f", {found.replaced} older replaced" if found.replaced else ""
    text = f"{into}: {found.kept} records{replaced}"
    options.state(text, experiment=str(into), records=found.kept, replaced=found.replaced)


class Compare(Brief, Compared):
    experiments: list[Path] = argument(
        "Folders of experiments; the others are compared with A.", "A [B...]"
    )
    threshold: float | None = threshold("2%; with --baseline 0.5% on a GPU")
    baseline: str | None = option(
        "With one experiment: compare its dispatches with those of this provider, or "
        "provider:configuration, for the same problem.",
        "NAME",
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
    from gemmetry.dispatches.comparison_report import comparison_files, print_comparison
    from gemmetry.domain.errors import RequestError
    from gemmetry.engine.experiment import Experiment
    from gemmetry.results.emit import FORMATS, JUNIT

    options.check((*FORMATS, JUNIT))
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
    files = comparison_files(found, undecided_fails=fails)
    options.deliver(files, lambda console: print_comparison(found, console))
    return int(found.has_regression or (fails and found.has_undecided))


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
        "NAME",
        default="",
    )
    like: Path | None = option(
        "Folder of an experiment on the same device and inputs, so that merging both compares "
        "their dispatches. Default: none.",
        "EXPERIMENT",
    )


def import_(options: Import) -> None:
    """Import results of other benchmarks as an experiment; they are marked as not verified here.

    Rows that cannot be imported are listed with the reason, and the others are imported. Exit
    status 2 if there is none.
    """
    from gemmetry.domain.units import plural
    from gemmetry.engine.merging import MeasuredOn, import_results, measured_like

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
    by_format = ", ".join(f"{count} of {name}" for name, count in summary.by_format.items())
    left_out = f", {plural(len(summary.problems), 'row')} left out" if summary.problems else ""
    options.state(
        f"{into}: {plural(summary.records, 'record')} ({by_format}){left_out}",
        experiment=str(into), records=summary.records, formats=dict(summary.by_format),
        left_out=summary.problems,
    )  # fmt: skip
