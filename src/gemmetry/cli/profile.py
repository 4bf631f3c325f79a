"""Commands that run a plan: ``gemmetry profile``, ``generate``, ``compile``, ``verify run`` and
``verify self-test``.
"""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmetry.cli.console import command_line, note, print_facts, say, stderr_console
from gemmetry.cli.main import group_app
from gemmetry.cli.options import (
    LEGACY_DEFAULTS,
    DryRun,
    Planned,
    Printed,
    Restartable,
    Verbose,
    Written,
    option,
    request,
    split_names,
)
from gemmetry.cli.run import Source, plan_request, read_request

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
    return options.run(plan_request(read_request(options.source), options.source))


DEFAULTS = {"name": "generate", "generated_dir": "."}


@dataclass(kw_only=True)
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
        from gemmetry.cli.results import print_plan

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


COLUMNS = ("provider", "target", "operation", "configuration", "outcome", "compile_ns",
           "registers", "spill_bytes", "shared_memory_bytes", "matrix_instruction",
           "reason")  # fmt: skip
"""The columns printed without --columns: facts of the build, no times."""


COMPILE_DEFAULTS = {"name": "compile", "columns": COLUMNS}


@dataclass(kw_only=True)
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
    source = options.source
    source.given["profiling_enabled"] = False
    prepared = plan_request(read_request(source, name="verify", columns=VERIFY_COLUMNS), source)
    return options.run(prepared)


@dataclass(kw_only=True)
class SelfTestOptions(Written, Restartable):
    level: str = option(
        "How many checks verification runs: quick, standard or paranoid.",
        "--verification-level",
        "--level",
        metavar="NAME",
        default="standard",
    )
    vehicle: list[str] = option(
        "Only mutants of these carriers: host, triton, cuda. Default: all that run on this "
        "machine.",
        metavar="NAMES",
        parse=split_names,
    )
    mutants: list[str] = option(
        "Only mutants with these names: m05*, ok*.", metavar="GLOBS", parse=split_names
    )
    experiment: Path | None = option(
        "Folder. Default: gemmetry-out/self-test-<hash of plan and code>.", metavar="DIR"
    )


def self_test(options: SelfTestOptions) -> int:
    """Verify mutants, kernels with deliberate bugs, and correct kernels that look wrong.

    Print which check caught which mutant, the score, the false alarms, and what the checks of
    other harnesses let through. Exit status 1 if a mutant survives, a correct kernel is flagged,
    or a kernel that should run on this machine does not. Unseen kernels, which were written
    without looking at the checks, are scored separately; their score does not change the exit
    status.
    """
    from gemmetry.cli.run import print_failure, reporting_what_is_kept
    from gemmetry.dispatches.progress import ProgressListener
    from gemmetry.engine import run
    from gemmetry.selftest.kill_matrix import (
        kill_matrix_document,
        print_kill_matrix,
        write_kill_matrix,
    )
    from gemmetry.selftest.run import matrix_of, prepare_self_test

    options.check()
    fresh = options.fresh
    prepared = prepare_self_test(
        level=options.level,
        vehicles=tuple(options.vehicle),
        mutants=tuple(options.mutants),
        experiment=options.experiment,
    )
    progress = ProgressListener(stderr_console())
    with reporting_what_is_kept(prepared.experiment, fresh=fresh), progress as listener:
        summary = run(
            prepared.plan,
            prepared.experiment,
            listener=listener,
            fresh=fresh,
            command=command_line(),
        )
    matrix = matrix_of(prepared)
    facts = _facts(prepared, options.level)
    options.deliver(
        lambda: kill_matrix_document(matrix, facts),
        lambda console: print_kill_matrix(matrix, console),
        lambda path: write_kill_matrix(matrix, path, facts),
    )
    note(f"experiment: {prepared.experiment}")
    if summary.failure:
        print_failure(summary.failure)
        return summary.exit_status
    return int(not matrix.is_perfect)


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


verify_app = group_app(
    "Verify dispatches without timing them.", {"run": verify, "self-test": self_test}
)
