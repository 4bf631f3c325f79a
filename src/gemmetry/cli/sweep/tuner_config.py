"""``gemmetry sweep tuner-config``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmetry.cli.options import Json


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
    from gemmetry.analysis.sweeps.collectives.tuner import tuned_entry
    from gemmetry.api import sweeps
    from gemmetry.cli.console import note, print_facts, stdout_console
    from gemmetry.cli.sweep.arguments import parse_numbers
    from gemmetry.reports.sweeps.tuner import print_tuned
    from gemmetry.reports.tables.files import check_writable, write_atomically

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
