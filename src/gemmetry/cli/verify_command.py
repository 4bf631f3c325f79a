"""``gemmetry verify run`` and ``gemmetry verify self-test``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmetry.cli.arguments import WorkbenchCommand
from gemmetry.cli.help_text import PlainGroup
from gemmetry.cli.options import Fresh, Json, Outputs, runs_plan
from gemmetry.cli.requests import Source, plan_request, read_request

if TYPE_CHECKING:
    from gemmetry.api.profile import Prepared
    from gemmetry.api.self_test import SelfTest

app = typer.Typer(
    cls=PlainGroup,
    add_completion=False,
    no_args_is_help=True,
    help="Verify dispatches without timing them.",
)

COLUMNS = ("provider", "operation", "configuration", "outcome", "verification",
           "max_error_ratio", "relative_frobenius_error", "accuracy_class", "reason")  # fmt: skip


@app.callback()
def _group() -> None:
    """Verify dispatches without timing them."""


@app.command(cls=WorkbenchCommand)
@runs_plan
def run(source: Source) -> Prepared:
    """Compile and verify dispatches; nothing is timed. Exit status 1 if one is wrong."""
    source.given["profiling_enabled"] = False
    return plan_request(read_request(source, name="verify", columns=COLUMNS), source)


@app.command("self-test", cls=WorkbenchCommand)
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
    from gemmetry.api.self_test import matrix_of, prepare_self_test, run_self_test
    from gemmetry.cli.console import command_line, note, print_json, stderr_console, stdout_console
    from gemmetry.cli.run import print_failure, reporting_what_is_kept
    from gemmetry.cli.tables import check_outputs
    from gemmetry.reports.progress import ProgressListener
    from gemmetry.reports.self_test.matrix import (
        kill_matrix_document,
        print_kill_matrix,
        write_kill_matrix,
    )

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
    from gemmetry.store.experiment import Experiment

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
