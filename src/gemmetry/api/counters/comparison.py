"""Comparison of hardware counters, for scripts and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from gemmetry.analysis.counters.comparison import (
    THRESHOLD,
    CounterComparison,
    CounterReport,
    compare_counters,
)
from gemmetry.analysis.counters.documents import comparison_document, comparison_table
from gemmetry.analysis.counters.matching import Variant, variants_of
from gemmetry.api.counters.diagnosis import diagnose
from gemmetry.counters.catalogue import concept_of
from gemmetry.domain.errors import EmptySelectionError, RequestError


@dataclass(frozen=True)
class ComparedCounters:
    """Reports of counters, compared with the first one."""

    comparison: CounterComparison
    problems: Sequence[str]
    """What could not be read."""

    def document(self) -> dict[str, Any]:
        """The content of ``gemmetry counters compare --json``."""
        return {**comparison_document(self.comparison), "problems": list(self.problems)}

    def write(self, path: str | PathLike[str]) -> None:
        """Write the document (.json), a page (.html), rooflines as a picture (.png, .svg), or a
        table with a row per metric.

        Raises:
            RequestError: unknown suffix, or a library is missing. StorageError: not writable.
        """
        from gemmetry.reports.extras import PICTURES
        from gemmetry.reports.tables.files import write_atomically
        from gemmetry.reports.tables.json import json_file
        from gemmetry.reports.tables.writing import write_tables

        path = Path(path)
        if path.suffix.lower() == ".json":
            write_atomically(path, json_file(self.document()))
        elif path.suffix.lower() in (".html", ".htm"):
            from gemmetry.reports.counters.page import comparison_page

            write_atomically(path, comparison_page(self.comparison, self.problems).encode())
        elif path.suffix.lower() in PICTURES:
            from gemmetry.reports.counters.picture import comparison_picture

            write_atomically(path, comparison_picture(self.comparison, path.suffix.lower()[1:]))
        else:
            write_tables([comparison_table(self.comparison)], path)


def compare(
    *reports: str | PathLike[str],
    labels: Sequence[str] = (),
    kernel: str | None = None,
    metrics: Sequence[str] = (),
    threshold: float = THRESHOLD,
    shape: str | None = None,
    dtype: str | None = None,
    operation: str | None = None,
) -> ComparedCounters:
    """Compare the kernels of reports of counters with those of the first report.

    Args:
        reports: as those of :func:`~gemmetry.api.counters.diagnosis.diagnose`. Of a single report,
            launches of one kernel with other grids are compared with the first of them.
        labels: one for each report; by default A, B, C ...
        kernel: a regular expression; only launches whose name contains it.
        metrics: further concepts of the catalogue, or ids of metrics.
        threshold: relative differences up to this count as none.
        shape: what the GEMMs compute, as for a diagnosis; so are `dtype` and `operation`.

    Raises:
        RequestError: a report cannot be read, there is nothing to compare, or labels do not fit.
        UnknownNameError: there is no such concept.
    """
    for name in metrics:
        if "." not in name and "__" not in name:
            concept_of(name)
    read = [
        diagnose(one, kernel=kernel, shape=shape, dtype=dtype, operation=operation)
        for one in reports
    ]
    variants = [variants_of(one.launches, one.diagnoses) for one in read]
    sources = [str(one) for one in reports]
    if len(reports) == 1:
        variants = _by_occurrence(variants[0])
        sources *= len(variants)
    found = [
        CounterReport(label, source, of)
        for label, source, of in zip(_labels(labels, len(variants)), sources, variants, strict=True)
    ]
    if len(found) < 2:
        raise EmptySelectionError(
            "the report has no kernel with launches of different grids or blocks to compare",
            hint="Give a second report.",
        )
    compared = compare_counters(found, metrics, threshold)
    if not compared.kernels:
        names = ", ".join(name for _, name in compared.unmatched[:4])
        raise EmptySelectionError(
            f"the reports have no kernel in common: {names}",
            hint="Select one in each report with --kernel REGEX.",
        )
    return ComparedCounters(compared, [text for one in read for text in one.problems])


def _by_occurrence(variants: Sequence[Variant]) -> list[list[Variant]]:
    """The first variants of kernels that have several, their second ones, and so on."""
    by_name: dict[str, list[Variant]] = {}
    for one in variants:
        by_name.setdefault(one.name, []).append(one)
    several = [of for of in by_name.values() if len(of) > 1]
    most = max(map(len, several), default=0)
    return [[of[place] for of in several if place < len(of)] for place in range(most)]


def _labels(labels: Sequence[str], count: int) -> list[str]:
    if not labels:
        return [ascii_uppercase[n] if n < 26 else f"#{n + 1}" for n in range(count)]
    if len(labels) != count or len(set(labels)) != count:
        raise RequestError(
            f"{len(labels)} labels ({', '.join(labels)}) for {count} reports",
            hint="Give a different --label for each report, or none.",
        )
    return list(labels)
