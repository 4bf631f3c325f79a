"""Writes comparisons of sweeps to files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gemmetry.analysis.sweeps.comparison.document import (
    comparison_table,
    sweep_comparison_document,
)
from gemmetry.analysis.sweeps.comparison.model import LabelledSweep, SweepComparison
from gemmetry.reports.sweeps.page import comparison_page
from gemmetry.reports.tables.files import write_atomically
from gemmetry.reports.tables.json import json_file
from gemmetry.reports.tables.writing import check_suffix, write_tables


def write_sweep_comparison(
    comparison: SweepComparison, sweeps: Sequence[LabelledSweep], path: Path
) -> None:
    """Write a page (.html), the document (.json), or the rows as a table (other suffixes).

    Raises:
        RequestError: unknown suffix, or a library is missing. StorageError: not writable.
    """
    suffix = check_suffix(path)
    if suffix == ".html":
        write_atomically(path, comparison_page(comparison, sweeps).encode())
    elif suffix == ".json":
        write_atomically(path, json_file(sweep_comparison_document(comparison)))
    else:
        write_tables([comparison_table(comparison)], path)
