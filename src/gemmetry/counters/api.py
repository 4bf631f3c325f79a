"""Hardware counters, for scripts and the command line: metrics of a chip, plans of collections,
diagnoses, comparisons, and reports as tables and documents.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import chain
from os import PathLike
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from gemmetry.counters.catalogue import chip_of, concept_of, concepts, expression_on, flags_for
from gemmetry.counters.collector import read_counters
from gemmetry.counters.comparison import (
    SAME_WORK,
    THRESHOLD,
    CounterComparison,
    CounterReport,
    Variant,
    compare_counters,
    variants_of,
)
from gemmetry.counters.document import (
    DiagnosisRow,
    brief_document,
    diagnosis_rows,
    launch_document,
    side_by_side,
)
from gemmetry.counters.facts import Facts
from gemmetry.counters.gates import diagnose as diagnose_launch
from gemmetry.counters.model import LaunchDiagnosis
from gemmetry.counters.roofline import roofline_of
from gemmetry.counters.text import DiagnosedLaunch, grid_text, operations_text
from gemmetry.counters.work import OPERATIONS, GemmWork, gemm_work
from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.errors import EmptySelectionError, GemmetryError, RequestError
from gemmetry.domain.operation import DTYPES, MatmulShape
from gemmetry.domain.rows import SCHEMA_VERSION, Row, fact
from gemmetry.domain.rows import table as table_of
from gemmetry.domain.specs.fields import canonical_dtypes
from gemmetry.domain.specs.shapes import parse_shape
from gemmetry.domain.tables import Column, ColumnType, Table, grouped
from gemmetry.formats.counters.launches import DURATION, LaunchTable, ProfiledLaunch
from gemmetry.hardware.detect import amd_gpus, nvidia_gpus
from gemmetry.results.emit import Result


class MetricRow(Row):
    """A concept of the catalogue on a chip."""

    concept: str = fact("what counters show")
    chip: str = fact()
    metric: str | None = fact("the metric, or the expression of metrics, that shows it")
    unit: str | None = fact()
    collect: str | None = fact("the options of ncu or rocprofv3 that collect it")
    meaning: str = fact()
    source: str | None = fact("where the expression is defined or was checked")


def metric_table(chip: str | None = None, pattern: str | None = None) -> Table:
    """The concepts of the catalogue with their metrics on a chip.

    Args:
        chip: like that of :func:`~gemmetry.counters.catalogue.chip_of`; None: of this machine's
            GPU.
        pattern: a glob on the concepts' names; None: all.

    Raises:
        UnknownNameError: there is no such chip.
        RequestError: no chip was given and this machine has no GPU; nothing has such a name.
    """
    known = chip_of(chip) if chip is not None else chip_here()
    rows = [
        MetricRow(
            concept=one.name, chip=known, metric=expression_on(known, one), unit=one.unit or None,
            collect=flags_for([one], known) or None, meaning=one.meaning, source=one.source or None,
        )
        for one in concepts()
        if pattern is None or fnmatchcase(one.name, pattern)
    ]  # fmt: skip
    if not rows:
        raise EmptySelectionError(
            f"no concept matches {pattern!r}", hint="gemmetry counters metrics lists them all."
        )
    return table_of("metrics", MetricRow, rows)


def chip_here() -> str:
    """The chip of this machine's first GPU.

    Raises:
        RequestError: the machine has no GPU, or an unlisted one.
    """
    for gpu in (*nvidia_gpus().gpus, *amd_gpus().gpus):
        if gpu.architecture:
            return chip_of(gpu.architecture)
    raise RequestError(
        "this machine has no GPU whose chip could be the default", hint="Give one: --chip gh100"
    )


MOST_GROUPS = 10
"""Kernels that are shown on a terminal; the others took less time."""


@dataclass(frozen=True)
class CounterDiagnosis:
    """The launches of one or more reports, each with its diagnosis."""

    launches: Sequence[ProfiledLaunch]
    diagnoses: Sequence[LaunchDiagnosis]
    problems: Sequence[str]
    """Files that could not be read, and reasons why the work check may not apply."""
    work: GemmWork | None = None

    def document(self, *, brief: bool = False, checklists: bool = False) -> dict[str, Any]:
        """The content of ``gemmetry counters diagnose --json``.

        Args:
            brief: only verdicts and the first findings, of one launch of each kernel.
            checklists: with the checklist of the Nsight Compute document and NVIDIA's rules.
        """
        rows = [brief_document(one.diagnosis) for one in self.groups()] if brief else [
            launch_document(found, roofline_of(launch),
                            side_by_side(launch, found, self.work) if checklists else None)
            for launch, found in zip(self.launches, self.diagnoses, strict=True)
        ]  # fmt: skip
        return {"schema_version": SCHEMA_VERSION, "launches": rows, "problems": list(self.problems)}

    @cached_property
    def _alike(self) -> list[list[tuple[ProfiledLaunch, LaunchDiagnosis]]]:
        """Launches of one kernel with one grid and one verdict, the longest in total first."""
        pairs = zip(self.launches, self.diagnoses, strict=True)
        found = grouped(pairs, lambda one: (
            one[0].name, one[0].info.grid, one[0].info.block, one[1].verdict.id
        ))  # fmt: skip
        return sorted(found.values(), key=lambda pairs: -sum(map(_duration, pairs)))

    def groups(self, *, checklists: bool = False) -> list[DiagnosedLaunch]:
        """For each of the kernels that took most time, the launch of median duration."""
        shown = []
        for pairs in self._alike[:MOST_GROUPS]:
            launch, found = sorted(pairs, key=_duration)[len(pairs) // 2]
            shown.append(DiagnosedLaunch(
                diagnosis=found, count=len(pairs), roofline=roofline_of(launch),
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
        self.result(checklists=checklists).write(path)

    def result(self, *, checklists: bool = False) -> Result:
        """The diagnosis with its formats of files."""
        from gemmetry.counters.page import diagnosis_page, diagnosis_panels, figure_forms

        forms: dict[str, Callable[[], str | bytes]] = {
            ".html": lambda: diagnosis_page(self.groups(checklists=checklists), self.problems),
            **figure_forms(lambda: diagnosis_panels(self.groups())),
        }
        return Result(
            rows={"diagnosis": lambda: table_of(
                "diagnosis", DiagnosisRow, diagnosis_rows(self.diagnoses)
            )},
            forms=forms,
            whole=lambda: self.document(checklists=checklists),
            short=lambda: {**self.document(brief=True), "more_kernels": self.hidden_groups},
        )  # fmt: skip


def _duration(pair: tuple[ProfiledLaunch, LaunchDiagnosis]) -> float:
    return pair[1].duration_ns or 0.0


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
    try:
        pattern = re.compile(kernel or "")
    except re.error as error:
        raise RequestError(
            f"--kernel {kernel!r} is not a regular expression: {error}",
            hint="Put a backslash in front of ( ) [ ] * + ? . in names.",
        ) from None
    launches: list[ProfiledLaunch] = []
    problems: list[str] = []
    names: dict[str, None] = {}
    for report in map(Path, reports):
        collected = report / "counters.csv"  # Of a folder of `gemmetry counters collect`.
        table = read_counters(collected if collected.is_file() else report)
        problems.extend(table.problems)
        names.update(dict.fromkeys(one.name for one in table.infos))
        launches.extend(one for one in table if pattern.search(one.name))
    if not launches:
        raise _nothing(kernel, list(names), problems)
    diagnoses = [diagnose_launch(one, work) for one in launches]
    if work is not None:
        problems.extend(_differing_work(diagnoses, work))
    return CounterDiagnosis(launches, diagnoses, problems, work)


def _differing_work(diagnoses: Sequence[LaunchDiagnosis], work: GemmWork) -> Iterator[str]:
    """Report launches that are compared with one shape although they counted different
    operations."""
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
    """Error: no launch is left, with the reason."""
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


def requested_work(shape: str | None, dtype: str | None, operation: str | None) -> GemmWork | None:
    """The work that options describe; None where they do not.

    Raises:
        RequestError: the options contradict each other, or are not of the form required.
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
            f"--shape {shape} is a convolution", hint="Give its operation: --operation conv2d_..."
        )
    work = GemmWork(m=sizes.m, n=sizes.n, k=sizes.k, batch=sizes.batch)
    if dtype is None:
        return work
    formats = [DTYPES[name] for name in canonical_dtypes(dtype).split(":")]
    lhs, rhs = formats[0], formats[min(1, len(formats) - 1)]
    return replace(work, lhs=lhs, rhs=rhs, result=formats[2] if len(formats) > 2 else None)


def compare(
    *reports: str | PathLike[str],
    labels: Sequence[str] = (),
    kernel: str | None = None,
    metrics: Sequence[str] = (),
    threshold: float = THRESHOLD,
    shape: str | None = None,
    dtype: str | None = None,
    operation: str | None = None,
) -> CounterComparison:
    """Compare the kernels of each report with those of the first one.

    Args:
        reports: as those of :func:`~gemmetry.counters.api.diagnose`. Of a single report,
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
    return replace(compared, problems=[text for one in read for text in one.problems])


def _by_occurrence(variants: Sequence[Variant]) -> list[list[Variant]]:
    """The first variants of kernels that have several, their second ones, and so on."""
    several = [of for of in grouped(variants, lambda one: one.name).values() if len(of) > 1]
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


_INFO = ("number", "process", "context", "stream", "device", "capability", "grid", "block",
         "cluster")  # fmt: skip


def _integer(name: str, description: str = "", **more: Any) -> Column:
    return Column(name, ColumnType.INTEGER, description=description, **more)


_DESCRIPTION = (
    Column("file"),
    _integer("launch", "number of the launch in its process, as the profiler counts it"),
    Column("kernel"),
    Column("tool", description="what recorded it"),
    Column("device"),
    Column("capability", description="compute capability or architecture"),
    _integer("process"),
    _integer("context"),
    _integer("stream"),
    *(_integer(f"{what}_{axis}") for what in ("grid", "block", "cluster") for axis in "xyz"),
    Column("duration_ns", ColumnType.NUMBER, "ns"),
)


@dataclass(frozen=True, slots=True)
class CounterReports:
    """Reports that were read."""

    tables: Sequence[LaunchTable]
    errors: dict[str, GemmetryError]
    """File -> why it could not be read."""

    def launches(self) -> Iterator[ProfiledLaunch]:
        """Launches of all reports."""
        return (launch for table in self.tables for launch in table)

    def wide(self) -> Table:
        """One row per launch, with a column for each metric in its base unit."""
        units: dict[str, str] = {}
        texts: dict[str, None] = {}
        for table in self.tables:
            units = {**table.units, **units}
            texts |= dict.fromkeys(table.texts)
        numbers = [name for name in units if name not in texts]
        columns = [Column(name, ColumnType.NUMBER, units[name]) for name in numbers]
        columns += [Column(name) for name in texts]
        rows = [
            (*_description(one), *map(one.value, numbers), *(_text(one, name) for name in texts))
            for one in self.launches()
        ]  # fmt: skip
        return Table("launches", (*_DESCRIPTION, *columns), rows)

    def document(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "schema_version": SCHEMA_VERSION,
            "reports": [
                {"file": str(table.source), "tool": table.tool, "version": table.version,
                 "units": table.units, "problems": table.problems,
                 "launches": [_launch(one) for one in table]}
                for table in self.tables
            ],
            "errors": [{"file": file, "error": one.message} for file, one in self.errors.items()],
        }  # fmt: skip

    def problems(self) -> list[str]:
        """Parts of reports that could not be read, and reports that could not be read at all."""
        found = [f"{table.source}: {one}" for table in self.tables for one in table.problems]
        return found + [one.message for one in self.errors.values()]


def read_reports(paths: Iterable[Path], patterns: Sequence[str] = ()) -> CounterReports:
    """Read reports of hardware counters of any supported tool (docs/counter-formats.md).

    Args:
        paths: files, or folders of rocprofv3 or rocprof-compute.
        patterns: ids of the metrics to read besides the time, or globs on them; all if there are
            none.

    Raises:
        GemmetryError: none can be read, or none has such a metric.
    """
    are_ids = patterns and not any(set("*?[") & set(one) for one in patterns)
    tables = []
    errors: dict[str, GemmetryError] = {}
    for path in paths:
        try:
            table = read_counters(path, {*patterns, DURATION} if are_ids else None)
        except GemmetryError as error:
            errors[str(path)] = error
        else:
            tables.append(_chosen(table, patterns))
    names = [name for table in tables for name in (*table.values, *table.texts)]
    if not tables and len(errors) == 1:
        raise next(iter(errors.values()))
    if not tables:
        listed = "".join(f"\n  {one.message}" for one in errors.values())
        raise RequestError(f"none of {len(errors)} reports can be read{listed}")
    if patterns and not any(_is_chosen(name, patterns) for name in names):
        raise RequestError(
            f"no launch has a metric {' or '.join(map(repr, patterns))}",
            hint="Without --metric, --json lists the metrics that there are.",
        )
    return CounterReports(tables, errors)


def _is_chosen(metric: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(metric, one) for one in patterns)


def _chosen(table: LaunchTable, patterns: Sequence[str]) -> LaunchTable:
    """`table` with the time, and the metrics that `patterns` match."""
    kept: dict[str, Any] = {
        part: {name: column for name, column in getattr(table, part).items()
               if name == DURATION or _is_chosen(name, patterns)}
        for part in ("values", "units", "texts")
    }  # fmt: skip
    return replace(table, **kept)


def _text(one: ProfiledLaunch, name: str) -> str | None:
    """The text; a number, as a text, where other launches have a text."""
    value = one.value(name)
    return one.text(name) or (f"{value:.17g}" if value is not None else None)


def _description(one: ProfiledLaunch) -> tuple[Any, ...]:
    info = one.info
    triples = (sizes or (None,) * 3 for sizes in (info.grid, info.block, info.cluster))
    return (
        str(one.table.source), info.number, one.name, one.table.tool, info.device or None,
        info.capability or None, info.process, info.context, info.stream,
        *chain.from_iterable(triples), one.duration_ns,
    )  # fmt: skip


def _launch(one: ProfiledLaunch) -> dict[str, Any]:
    return {
        "kernel": one.name,
        **{name: getattr(one.info, name) for name in _INFO},
        "duration_ns": one.duration_ns,
        "metrics": one.metrics(),
        "texts": one.texts(),
        "rules": [asdict(rule) for rule in one.info.rules],
    }
