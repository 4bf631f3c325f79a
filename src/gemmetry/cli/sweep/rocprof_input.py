"""``gemmetry sweep rocprof-input``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmetry.cli.completion import complete_names
from gemmetry.cli.options import Json
from gemmetry.domain.units import counted

_PRESETS = ("trace", "utilization", "gemm")
"""Keys of :data:`~gemmetry.training.rocprof_input.PRESETS`, without its import."""


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
    from gemmetry.training.rocprof_input import (
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
