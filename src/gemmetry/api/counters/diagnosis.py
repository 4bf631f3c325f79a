"""What bounds kernels according to their hardware counters, for scripts and the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

from gemmetry.analysis.counters.matching import SAME_WORK
from gemmetry.counters.diagnosis.checklist import side_by_side
from gemmetry.counters.diagnosis.document import (
    brief_document,
    diagnosis_document,
    diagnosis_table,
    launch_document,
)
from gemmetry.counters.diagnosis.facts import Facts
from gemmetry.counters.diagnosis.gates import diagnose as diagnose_launch
from gemmetry.counters.diagnosis.model import LaunchDiagnosis
from gemmetry.counters.diagnosis.work import OPERATIONS, GemmWork, gemm_work
from gemmetry.counters.reading import read_counters
from gemmetry.counters.roofline import roofline_of
from gemmetry.domain.dtypes import DTYPES
from gemmetry.domain.errors import EmptySelectionError, RequestError
from gemmetry.domain.names import parse_operation
from gemmetry.domain.operation import MatmulShape
from gemmetry.formats.counters.launches import ProfiledLaunch
from gemmetry.reports.counters.text import DiagnosedLaunch, grid_text, operations_text
from gemmetry.specs.fields import canonical_dtypes
from gemmetry.specs.operations.shapes import parse_shape

MOST_GROUPS = 10
"""Kernels that are shown on a terminal; the others took less time."""


@dataclass(frozen=True)
class CounterDiagnosis:
    """The launches of one or more reports, each with its diagnosis."""

    launches: Sequence[ProfiledLaunch]
    diagnoses: Sequence[LaunchDiagnosis]
    problems: Sequence[str]
    """What could not be read, and why the work check may not apply."""
    work: GemmWork | None = None

    def document(self, *, brief: bool = False, checklists: bool = False) -> dict[str, Any]:
        """The content of ``gemmetry counters diagnose --json``.

        Args:
            brief: only verdicts and the first findings, of one launch of each kernel.
            checklists: with the checklist of the Nsight Compute document and NVIDIA's rules.
        """
        if brief:
            rows = [brief_document(one.diagnosis) for one in self.groups()]
        else:
            rows = [self._row(place, checklists) for place in range(len(self.launches))]
        return diagnosis_document(rows, self.problems)

    def _row(self, place: int, checklists: bool) -> dict[str, Any]:
        launch, found = self.launches[place], self.diagnoses[place]
        checklist = side_by_side(launch, found, self.work) if checklists else None
        return launch_document(found, roofline_of(launch), checklist)

    @cached_property
    def _alike(self) -> list[list[int]]:
        """Launches of one kernel with one grid and one verdict, the longest in total first."""
        found: dict[tuple[Any, ...], list[int]] = {}
        for place, (launch, one) in enumerate(zip(self.launches, self.diagnoses, strict=True)):
            key = (launch.name, launch.info.grid, launch.info.block, one.verdict.id)
            found.setdefault(key, []).append(place)
        return sorted(found.values(), key=lambda places: -sum(map(self._duration, places)))

    def _duration(self, place: int) -> float:
        return self.diagnoses[place].duration_ns or 0.0

    def groups(self, *, checklists: bool = False) -> list[DiagnosedLaunch]:
        """For each of the kernels that took most time, the launch of median duration."""
        shown = []
        for places in self._alike[:MOST_GROUPS]:
            middle = sorted(places, key=self._duration)[len(places) // 2]
            launch, found = self.launches[middle], self.diagnoses[middle]
            shown.append(DiagnosedLaunch(
                diagnosis=found, count=len(places), roofline=roofline_of(launch),
                stalls=Facts(launch).stalls, grid=grid_text(launch),
                checklists=side_by_side(launch, found, self.work) if checklists else None,
            ))  # fmt: skip
        return shown

    @property
    def hidden_groups(self) -> int:
        """Kernels that :meth:`groups` leaves out."""
        return max(len(self._alike) - MOST_GROUPS, 0)

    def write(self, path: str | PathLike[str], *, checklists: bool = False) -> None:
        """Write the document (.json), a page (.html), rooflines as a picture (.png, .svg), or a
        table with a row per finding.

        Raises:
            RequestError: unknown suffix, or a library is missing. StorageError: not writable.
        """
        from gemmetry.reports.extras import PICTURES
        from gemmetry.reports.tables.files import write_atomically
        from gemmetry.reports.tables.json import json_file
        from gemmetry.reports.tables.writing import write_tables

        path = Path(path)
        if path.suffix.lower() == ".json":
            write_atomically(path, json_file(self.document(checklists=checklists)))
        elif path.suffix.lower() in (".html", ".htm"):
            from gemmetry.reports.counters.page import diagnosis_page

            page = diagnosis_page(self.groups(checklists=checklists), self.problems)
            write_atomically(path, page.encode())
        elif path.suffix.lower() in PICTURES:
            from gemmetry.reports.counters.picture import diagnosis_picture

            write_atomically(path, diagnosis_picture(self.groups(), path.suffix.lower()[1:]))
        else:
            write_tables([diagnosis_table(self.diagnoses)], path)


def diagnose(
    *reports: str | PathLike[str],
    kernel: str | None = None,
    shape: str | None = None,
    dtype: str | None = None,
    operation: str | None = None,
) -> CounterDiagnosis:
    """Read reports of hardware counters, and report what bounds each launch.

    Args:
        reports: of Nsight Compute or rocprofv3, or folders of ``gemmetry counters collect``.
        kernel: a regular expression; only launches whose name contains it.
        shape: ``MxNxK`` or ``BxMxNxK`` (commas are accepted, too): what the GEMMs compute.
        dtype: ``bf16``, or ``bf16:bf16:f32`` for A, B and C.
        operation: the name of an operation, instead of both.

    Raises:
        RequestError: a report cannot be read, nothing matches `kernel`, or the work is not given
            in one of these forms.
    """
    work = requested_work(shape, dtype, operation)
    pattern = _pattern(kernel)
    launches: list[ProfiledLaunch] = []
    problems: list[str] = []
    names: dict[str, None] = {}
    for report in reports:
        table = read_counters(_file(Path(report)))
        problems.extend(table.problems)
        names.update(dict.fromkeys(one.name for one in table.infos))
        launches.extend(one for one in table if pattern is None or pattern.search(one.name))
    if not launches:
        raise _nothing(kernel, list(names), problems)
    diagnoses = [diagnose_launch(one, work) for one in launches]
    if work is not None:
        problems.extend(_differing_work(diagnoses, work))
    return CounterDiagnosis(launches, diagnoses, problems, work)


def _differing_work(diagnoses: Sequence[LaunchDiagnosis], work: GemmWork) -> Iterator[str]:
    """That launches are compared with one shape, although they counted different operations."""
    counts = [one.measured for found in diagnoses for one in found.work_check
              if one.quantity == OPERATIONS and one.measured]  # fmt: skip
    if counts and max(counts) - min(counts) > SAME_WORK * max(counts):
        fewest, most = (operations_text(one) for one in (min(counts), max(counts)))
        yield (
            f"the GEMMs did different work, from {fewest} to {most}, and all are compared with "
            f"{work.m}x{work.n}x{work.k}: select those of this shape by their name (--kernel), or "
            "collect them alone"
        )


def _nothing(
    kernel: str | None, names: Sequence[str], problems: Sequence[str]
) -> EmptySelectionError:
    """That no launch is left, and why."""
    if names:
        return EmptySelectionError(
            f"no kernel matches {kernel!r}", hint=f"Kernels of the reports: {', '.join(names[:5])}"
        )
    why = f": {problems[0]}" if problems else ""
    return EmptySelectionError(
        f"the reports have no kernel{why}",
        hint="Write the report again, from the profiler's own file." if problems
        else "No kernel was profiled when they were written, or the files are cut.",
    )  # fmt: skip


def _file(report: Path) -> Path:
    """The report of a folder that ``gemmetry counters collect`` wrote."""
    found = report / "counters.csv"
    return found if found.is_file() else report


def _pattern(kernel: str | None) -> re.Pattern[str] | None:
    if kernel is None:
        return None
    try:
        return re.compile(kernel)
    except re.error as error:
        raise RequestError(
            f"--kernel {kernel!r} is not a regular expression: {error}",
            hint="Put a backslash in front of ( ) [ ] * + ? . in names.",
        ) from None


def requested_work(shape: str | None, dtype: str | None, operation: str | None) -> GemmWork | None:
    """The work that options describe; None where they do not.

    Raises:
        RequestError: they contradict each other, or are not of the form required.
    """
    if operation is not None:
        if shape is not None or dtype is not None:
            raise RequestError(
                "--operation gives the shape and the formats, so that --shape and --dtype cannot "
                "be given, too",
                hint="Give one or the other.",
            )
        return gemm_work(parse_operation(operation))
    if shape is None:
        if dtype is not None:
            raise RequestError("--dtype was given without a shape", hint="Give --shape MxNxK, too.")
        return None
    sizes = parse_shape(shape.replace(",", "x"))
    if not isinstance(sizes, MatmulShape):
        raise RequestError(
            f"--shape {shape} is a convolution",
            hint="Give its operation: --operation conv2d_...",
        )
    work = GemmWork(m=sizes.m, n=sizes.n, k=sizes.k, batch=sizes.batch)
    if dtype is None:
        return work
    formats = [DTYPES[name] for name in canonical_dtypes(dtype).split(":")]
    lhs, rhs = formats[0], formats[min(1, len(formats) - 1)]
    return replace(work, lhs=lhs, rhs=rhs, result=formats[2] if len(formats) > 2 else None)
