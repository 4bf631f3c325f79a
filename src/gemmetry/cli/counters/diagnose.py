"""``gemmetry counters diagnose``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmetry.cli.options import DrawingOutputs, Json


def diagnose(
    reports: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Reports of Nsight Compute (.ncu-rep, CSV), counters of rocprofv3, or folders of "
            "gemmetry counters collect.",
        ),
    ],
    kernel: Annotated[
        str | None,
        typer.Option("--kernel", metavar="REGEX", help="Only kernels whose name contains it."),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(
            "--shape", metavar="MxNxK", help="What the GEMMs compute, to check the work they did."
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype",
            metavar="NAME",
            help="Format of A and B: bf16; with that of C: bf16:bf16:f32.",
        ),
    ] = None,
    operation: Annotated[
        str | None,
        typer.Option(
            "--operation",
            metavar="NAME",
            help="Instead of both: matmul_4096x4096x4096_bf16t_bf16n_bf16t.",
        ),
    ] = None,
    brief: Annotated[
        bool,
        typer.Option("--brief", help="The verdict and three findings per kernel, in eleven lines."),
    ] = False,
    checklist: Annotated[
        bool,
        typer.Option(
            "--beside",
            help="Also what the checklist of the Nsight Compute document and NVIDIA's rules say.",
        ),
    ] = False,
    json: Json = False,
    output: DrawingOutputs = None,
) -> None:
    """Report what bounds each kernel, with evidence, threshold, confidence and remedy.

    A unit at its limit comes first; stalls and occupancy count only where no unit is near its
    limit. What was not counted is named, with the options that collect it.
    """
    from gemmetry.api.counters.diagnosis import diagnose as run
    from gemmetry.cli.console import note, print_json, stdout_console
    from gemmetry.cli.tables import check_outputs
    from gemmetry.domain.errors import RequestError
    from gemmetry.reports.extras import PICTURES
    from gemmetry.reports.tables.writing import FORMATS

    check_outputs(output or (), (*FORMATS, *PICTURES), draws=True)
    if brief and checklist and not (json or output):
        raise RequestError(
            "--brief and --beside cannot be shown together: the checklist takes more than the "
            "lines of --brief",
            hint="Leave one of them out, or write the checklist to a file: -o diagnosis.html.",
        )
    found = run(*reports, kernel=kernel, shape=shape, dtype=dtype, operation=operation)
    for problem in found.problems:
        note(f"warning: {problem}")
    if json:
        print_json(found.document(brief=brief, checklists=checklist))
    else:
        from gemmetry.reports.counters.text import print_brief, print_diagnoses

        shown = found.groups(checklists=checklist)
        (print_brief if brief else print_diagnoses)(shown, stdout_console())
        if hidden := found.hidden_groups:
            note(f"{hidden} more kernels took less time; --kernel REGEX selects, --json has all")
    for path in output or ():
        found.write(path, checklists=checklist)
        note(f"wrote {path}")
