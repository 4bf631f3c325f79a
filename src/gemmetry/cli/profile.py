"""``gemmetry profile``.

``gemmetry generate``.

``gemmetry compile``.

``gemmetry verify run`` and ``gemmetry verify self-test``.
"""

from __future__ import annotations

import dataclasses
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmetry.cli.console import say
from gemmetry.cli.main import PlainGroup
from gemmetry.cli.options import (
    LEGACY_DEFAULTS,
    DryRun,
    Fresh,
    Json,
    Outputs,
    Verbose,
    WorkbenchCommand,
    runs_plan,
    with_request,
)
from gemmetry.cli.run import Source, plan_request, read_request

if TYPE_CHECKING:
    from gemmetry.dispatches.profile import Prepared
    from gemmetry.selftest.run import SelfTest


profile_app = typer.Typer(add_completion=False)


@profile_app.command(cls=WorkbenchCommand)
@runs_plan
def profile(source: Source) -> Prepared:
    """Generate, compile, verify, measure and report dispatches.

    Without options, three f32 shapes run with every provider that works here, in less than a
    minute. The same command resumes an interrupted run; with more shapes, providers, configurations
    or repeats and the same --experiment, the experiment grows. A spec file can contain everything
    that options can.
    """
    return plan_request(read_request(source), source)


generate_app = typer.Typer(add_completion=False)


DEFAULTS = {"name": "generate", "generated_dir": "."}


@generate_app.command(cls=WorkbenchCommand)
@partial(
    with_request,
    defaults={
        **LEGACY_DEFAULTS,
        "name": DEFAULTS["name"],
        "generated_dir": "the working directory",
    },
)
def generate(
    source: Source,
    dry_run: DryRun = False,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Write the sources of dispatches under --generated-dir (default: here) without compiling them.

    Without options, these are the 109 dispatches of IREE's dispatch profiler for CUDA sm_80. Given
    shapes replace that set; --shapes legacy,768x512x1024 adds a shape to its matmuls.
    """
    from gemmetry.cli.console import note, print_facts
    from gemmetry.domain.specs.operations import legacy
    from gemmetry.providers.base import legacy_provider

    request = read_request(source, **DEFAULTS)
    prepared = plan_request(
        request,
        source,
        defaults=legacy(legacy_provider()),
        shows_notes=verbose,
        takes_generated=False,
    )
    if dry_run:
        from gemmetry.cli.results import print_plan

        print_plan(prepared, as_json=json)
        return
    files = generate_files(prepared)
    if json:
        print_facts(files=files)
        return
    folder = shlex.quote(str(request.generated_dir))
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

    from gemmetry.cli.console import stderr_console
    from gemmetry.domain.contracts import Workspace
    from gemmetry.domain.errors import RequestError, StorageError
    from gemmetry.domain.record import Event, Message
    from gemmetry.engine import generate as generate_sources
    from gemmetry.engine.catalogue import list_dispatches
    from gemmetry.results.lines import print_line
    from gemmetry.results.texts import printable

    console = stderr_console()
    warned = False

    def listen(event: Event) -> None:
        nonlocal warned
        if isinstance(event, Message):
            warned = True
            print_line(Text(printable(event.text), style="yellow"), console, indent=4)

    folder = prepared.generated or Path("generated")
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
            if warned
            else "Add iree or triton with --providers; they write sources.",
        )
    configurations: dict[str, list[str]] = {}
    for dispatch in list_dispatches(prepared.plan):
        if not dispatch.refusal:
            configurations.setdefault(dispatch.operation, []).append(dispatch.configuration)
    return [
        {
            "path": _shown(path),
            "operation": path.parent.name,
            "configurations": configurations.get(path.parent.name, []),
        }
        for path in paths
    ]


def _shown(path: Path) -> str:
    """Relative paths start with ``./``, as the dispatch profiler wrote them."""
    return str(path) if path.is_absolute() else f"./{path}"


compile_app = typer.Typer(add_completion=False)

COLUMNS = ("provider", "target", "operation", "configuration", "outcome", "compile_ns",
           "registers", "spill_bytes", "shared_memory_bytes", "matrix_instruction",
           "reason")  # fmt: skip
"""The columns printed without --columns: facts of the build, no times."""


COMPILE_DEFAULTS = {"name": "compile", "columns": COLUMNS}


@compile_app.command("compile", cls=WorkbenchCommand)
@partial(runs_plan, defaults={**LEGACY_DEFAULTS, **COMPILE_DEFAULTS})
def compile_dispatches(source: Source) -> Prepared:
    """Compile dispatches without running them.

    Without options, these are the 109 dispatches of IREE's dispatch profiler for CUDA sm_80, as in
    `generate`. The table has one row per dispatch with its outcome. A configuration that the
    compiler rejects is a row too and does not affect the others.
    """
    from gemmetry.domain.specs.operations import legacy
    from gemmetry.engine import compile_plan
    from gemmetry.providers.base import legacy_provider

    request = read_request(source, **COMPILE_DEFAULTS)
    prepared = plan_request(request, source, defaults=legacy(legacy_provider()))
    plan = compile_plan(prepared.plan)
    if not request.experiment:
        folder = prepared.experiment.parent / f"{plan.name}-{plan.hash}"
        prepared = dataclasses.replace(prepared, experiment=folder)
    return dataclasses.replace(prepared, plan=plan)


verify_app = typer.Typer(
    cls=PlainGroup,
    add_completion=False,
    no_args_is_help=True,
    help="Verify dispatches without timing them.",
)

VERIFY_COLUMNS = ("provider", "operation", "configuration", "outcome", "verification",
           "max_error_ratio", "relative_frobenius_error", "accuracy_class", "reason")  # fmt: skip


@verify_app.callback()
def _group() -> None:
    """Verify dispatches without timing them."""


@verify_app.command(cls=WorkbenchCommand)
@runs_plan
def run(source: Source) -> Prepared:
    """Compile and verify dispatches; nothing is timed. Exit status 1 if one is wrong."""
    source.given["profiling_enabled"] = False
    return plan_request(read_request(source, name="verify", columns=VERIFY_COLUMNS), source)


@verify_app.command("self-test", cls=WorkbenchCommand)
def self_test(
    level: Annotated[
        str,
        typer.Option(
            "--verification-level",
            "--level",
            metavar="NAME",
            help="How many checks verification runs: quick, standard or paranoid.",
        ),
    ] = "standard",
    vehicle: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Only mutants of these carriers: host, triton, cuda. Default: all that run on "
            "this machine.",
        ),
    ] = None,
    mutants: Annotated[
        list[str] | None,
        typer.Option(metavar="GLOBS", help="Only mutants with these names: m05*, ok*."),
    ] = None,
    experiment: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder. Default: gemmetry-out/self-test-<hash of plan and code>."
        ),
    ] = None,
    json: Json = False,
    output: Outputs = None,
    fresh: Fresh = False,
) -> None:
    """Verify mutants, kernels with deliberate bugs, and correct kernels that look wrong.

    Print which check caught which mutant, the score, the false alarms, and what the checks of
    other harnesses let through. Exit status 1 if a mutant survives, a correct kernel is flagged,
    or a kernel that should run on this machine does not. Unseen kernels, which were written
    without looking at the checks, are scored separately; their score does not change the exit
    status.
    """
    from gemmetry.cli.console import (
        check_outputs,
        command_line,
        note,
        print_json,
        stderr_console,
        stdout_console,
    )
    from gemmetry.cli.run import print_failure, reporting_what_is_kept
    from gemmetry.dispatches.progress import ProgressListener
    from gemmetry.selftest.kill_matrix import (
        kill_matrix_document,
        print_kill_matrix,
        write_kill_matrix,
    )
    from gemmetry.selftest.run import matrix_of, prepare_self_test, run_self_test

    check_outputs(output or ())
    prepared = prepare_self_test(
        level=level, vehicles=_split(vehicle), mutants=_split(mutants), experiment=experiment
    )
    progress = ProgressListener(stderr_console())
    with reporting_what_is_kept(prepared.experiment, fresh=fresh), progress as listener:
        summary = run_self_test(prepared, listener=listener, fresh=fresh, command=command_line())
    matrix = matrix_of(prepared)
    facts = _facts(prepared, level)
    if json:
        document = kill_matrix_document(matrix, facts)
        print_json(document)
    else:
        print_kill_matrix(matrix, stdout_console())
    for path in output or ():
        write_kill_matrix(matrix, path, facts)
        note(f"wrote {path}")
    note(f"experiment: {prepared.experiment}")
    if summary.failure:
        print_failure(summary)
        raise typer.Exit(summary.exit_status)
    raise typer.Exit(0 if matrix.is_perfect else 1)


def _split(values: list[str] | None) -> tuple[str, ...]:
    return tuple(part for value in values or () for part in value.replace(",", " ").split())


def _facts(prepared: SelfTest, level: str) -> dict[str, Any]:
    """What the documents hold in addition to the matrix."""
    from gemmetry.engine.store.experiment import Experiment

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
