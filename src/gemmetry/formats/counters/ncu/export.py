"""Nsight Compute's own reports, where its library is missing: ``ncu`` exports their raw page."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Collection
from pathlib import Path

from gemmetry.domain.errors import EnvironmentFailure
from gemmetry.formats.counters.launches import LaunchTable
from gemmetry.formats.counters.ncu.pages import read_ncu_csv


def read_by_export(
    path: Path, executable: Path, metrics: Collection[str] | None = None
) -> LaunchTable:
    """The launches of a report; without the conclusions of rules and the samples, which the raw
    page does not have.

    Raises:
        EnvironmentFailure: ``ncu`` cannot export it; the message is its own.
    """
    command = [str(executable), "--import", str(path), "--page", "raw", "--csv",
               "--print-units", "base"]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder) / "raw.csv"
        with exported.open("wb") as file:
            ended = subprocess.run(command, stdout=file, stderr=subprocess.PIPE, check=False)
        table = read_ncu_csv(exported, metrics)
        if ended.returncode != 0 or table is None:
            output = ended.stderr + exported.read_bytes()
            lines = output.decode("utf-8", "replace").strip().splitlines()
            raise EnvironmentFailure(
                f"{executable} cannot export {path}: {lines[-1] if lines else 'no output'}",
                hint="A report needs the version of Nsight Compute that wrote it, or a later one; "
                "pip install 'gemmetry[counters]' reads it without Nsight Compute.",
            )
    table.source = path
    return table
