"""``gemmetry generate``."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gemmetry.cli.arguments import WorkbenchCommand
from gemmetry.cli.console import say
from gemmetry.cli.options import LEGACY_DEFAULTS, DryRun, Json, Verbose, with_request
from gemmetry.cli.requests import Source, plan_request, read_request

if TYPE_CHECKING:
    from gemmetry.api.profile import Prepared

app = typer.Typer(add_completion=False)


DEFAULTS = {"name": "generate", "generated_dir": "."}


@app.command(cls=WorkbenchCommand)
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
    from gemmetry.providers.traits import legacy_provider
    from gemmetry.specs.operations.defaults import legacy

    request = read_request(source, **DEFAULTS)
    prepared = plan_request(
        request,
        source,
        defaults=legacy(legacy_provider()),
        shows_notes=verbose,
        takes_generated=False,
    )
    if dry_run:
        from gemmetry.cli.dry_run import print_plan

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

    from gemmetry.api.listing import list_dispatches
    from gemmetry.cli.console import stderr_console
    from gemmetry.domain.contracts import Workspace
    from gemmetry.domain.errors import RequestError, StorageError
    from gemmetry.domain.events import Event, Message
    from gemmetry.engine import generate as generate_sources
    from gemmetry.reports.lines import print_line
    from gemmetry.reports.texts import printable

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
