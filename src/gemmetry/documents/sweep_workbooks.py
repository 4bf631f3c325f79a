"""The points of a sweep of which only TraceLens' workbooks are left.

The sheet ``gpu_timeline`` of each rank's workbook has the times of its GPU, ``GEMM`` the kernels of
each operator with their shortest, median and longest time, and ``nccl_summary_implicit_sync`` of
each point's workbook the collectives. None of them has the times of single instances.

The workbooks of a sweep, in TraceLens' sheets and columns.

Writes the files of the sweep analysis document.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gemmetry.documents.sweep_files import (
    SOURCE,
    RankGemm,
    ReportedPoint,
    ReportedSweep,
    Timeline,
    bare_point,
    master_table,
    timeline_tables,
    varying_gemms,
    varying_table,
)
from gemmetry.documents.tracelens import BY_NAME
from gemmetry.documents.tracelens_workbooks import (
    TraceLensSheets,
    columns_sheet,
    trace_workbook,
    workbook_gemm_rows,
)
from gemmetry.domain.errors import RequestError
from gemmetry.domain.tables import Table
from gemmetry.formats.xlsx import Cell, TraceLensReport, read_tracelens_report
from gemmetry.results.emit import write_atomically
from gemmetry.results.tables import Looks, check_installed, csv_text, workbook
from gemmetry.sweeps.folder import (
    ANALYSIS_FOLDERS,
    Point,
    Sweep,
    configuration_of,
    is_of_configuration,
    whole_grid,
)
from gemmetry.sweeps.points import PointSelection
from gemmetry.sweeps.ranks import RankFacts
from gemmetry.sweeps.rows import GemmKind, SweepConfiguration
from gemmetry.traces.model import Trace
from gemmetry.traces.names import KernelKind
from gemmetry.traces.report import build_report

_OF_RANK = re.compile(r"perf_(?:(\d+)ch_)?rank(\d+)\.xlsx")
_OF_POINT = re.compile(r"collective(?:_(\d+)ch)?\.xlsx")
_REPORTS = ("individual_reports", "collective_reports")


class _Key(NamedTuple):
    """A point, as the paths of its workbooks name it."""

    configuration: SweepConfiguration
    repeat: int | None


def find_workbooks(sweep: Path, analysis_dir: str | None = None) -> Path | None:
    """The folder with workbooks: `analysis_dir` in the folder of the sweep if it is given, else
    that of its analysis, or the sweep itself; None if there are none."""
    names = ANALYSIS_FOLDERS if analysis_dir is None else (analysis_dir,)
    places = (*(sweep / name for name in names), sweep)
    return next((one for one in places if next(_workbooks(one), None) is not None), None)


def workbook_sweep(folder: Path, selection: PointSelection) -> ReportedSweep:
    """The selected points whose workbooks are in `folder`; a workbook that cannot be read is a
    problem.

    Raises:
        RequestError: it has no workbook that can be read.
    """
    gemms: dict[_Key, list[RankGemm]] = {}
    timelines: dict[_Key, dict[int | None, Timeline]] = {}
    sheets: dict[_Key, list[Table]] = {}
    problems: list[str] = []
    for key, rank, path in _workbooks(folder):
        is_of_rank = rank is None or selection.ranks is None or rank in selection.ranks
        if not (is_of_rank and selection.takes(key.configuration)):
            continue
        try:
            report = read_tracelens_report(path, only=("gpu_timeline", "GEMM", SOURCE))
            timelines.setdefault(key, {})
            if rank is None:
                sheets[key] = [_summary(report)]
            else:
                timelines[key][rank] = _timeline(report)
                gemms.setdefault(key, []).extend(_gemms(report, rank))
        except RequestError as error:
            problems.append(error.message)
    if not timelines:
        raise _nothing_read(folder, problems)
    points = [
        ReportedPoint(
            configuration=key.configuration,
            repeat=key.repeat,
            gemms=tuple(gemms.get(key, ())),
            timelines=timelines.get(key, {}),
            outcome="ok" if key in timelines else "not_run",
            reason="" if key in timelines else "there is no workbook of it",
        )
        for key in sorted(
            (_Key(*one) for one in whole_grid(timelines)),
            key=lambda key: (key.configuration.order, key.repeat or 0),
        )
    ]
    return ReportedSweep(
        points=points,
        collectives=lambda point: sheets.get(_Key(point.configuration, point.repeat), []),
        is_traced=False,
        problems=problems,
    )


def _nothing_read(folder: Path, problems: list[str]) -> RequestError:
    if problems:
        return RequestError(
            f"{folder} has no workbook that can be read: {'; '.join(problems[:4])}",
            hint="Write them again from the traces.",
        )
    have = sorted({path.relative_to(folder).as_posix() for *_, path in _workbooks(folder)})
    more = f" and {len(have) - 4} more" if len(have) > 4 else ""
    return RequestError(
        f"{folder} has no workbook of the selected threads, channels and ranks",
        hint=f"It has {', '.join(have[:4])}{more}.",
    )


def _workbooks(folder: Path) -> Iterator[tuple[_Key, int | None, Path]]:
    """Each workbook with its point, and its rank where it is that of one."""
    for kind, pattern in zip(_REPORTS, (_OF_RANK, _OF_POINT), strict=True):
        for path in sorted(folder.glob(f"**/{kind}/*.xlsx")):
            found = pattern.fullmatch(path.name)
            folders = path.relative_to(folder).parts[:-2]
            if found is None or not all(map(is_of_configuration, folders)):
                continue  # in another folder, it belongs to another sweep
            named, repeat = configuration_of(folders)
            channels = None if found[1] is None else int(found[1])
            key = _Key(replace(named, channels=channels), repeat)
            yield key, int(found[2]) if kind == _REPORTS[0] else None, path


def _timeline(report: TraceLensReport) -> Timeline:
    sheet = report.sheet("gpu_timeline", ("type", "time ms", "percent"))
    return {
        str(row["type"]): (_number(row["time ms"]), _number(row["percent"]))
        for row in sheet.rows()
        if row["type"] is not None
    }


def _number(cell: Cell) -> float:
    """An empty cell is a time of 0."""
    return float(cell) if isinstance(cell, (int, float)) else 0.0


def _gemms(report: TraceLensReport, rank: int) -> Iterator[RankGemm]:
    if "GEMM" not in report.sheets:
        return
    for cells, row in workbook_gemm_rows(report):
        kind = GemmKind.of_shape(
            row.shape, kernel=row.kernel, short=row.facts.short, dtype=row.dtype,
            layout=row.layout, is_helper=row.facts.kind is KernelKind.GEMM_REDUCTION,
        )  # fmt: skip
        times = np.array([row.min_ns, row.median_ns, row.max_ns]) / 1000
        yield RankGemm(
            rank=rank,
            kind=kind,
            count=row.count,
            min_us=float(times[0]),
            median_us=float(times[1]),
            max_us=float(times[2]),
            durations_us=times if row.count > 2 else times[[0, 2][: row.count]],
            row=cells,
        )


def _summary(report: TraceLensReport) -> Table:
    """The sheet with all columns that ours has; empty cells where it lacks one."""
    columns, rows = BY_NAME[SOURCE].columns, report.sheet(SOURCE).rows()
    return Table(SOURCE, columns, [[row.get(c.name) for c in columns] for row in rows])


_LOOKS = Looks(widths={
    "full_config": 22, "type": 22, "meaning": 80, "source_file": 26, "reason": 40,
    "operation_name": 18, "Collective name": 22,
})  # fmt: skip


def rank_workbooks(folder: Path, sweep: Sweep, point: Point) -> str:
    """The beginning of the paths of the workbooks of the traces of `point`, below the `folder` of
    the analysis."""
    return bare_point(point, has_repeats=sweep.repeats > 1).rank_reports(folder)


def write_rank_workbook(trace: Trace, facts: RankFacts, start: str) -> Path:
    """Write the report of a trace in memory, as ``gemmetry trace report`` does.

    Args:
        start: prefix of the path, followed by the rank, or by the file's name where no rank is
            known.

    Raises:
        RequestError: XlsxWriter is not installed. StorageError: not writable.
    """
    file = trace.file.name.partition(".")[0]
    path = Path(f"{start}{file if facts.rank is None else f'rank{facts.rank}'}.xlsx")
    write_atomically(path, trace_workbook(build_report([trace], {}, sheets=TraceLensSheets())))
    return path


def _workbook(tables: Sequence[Table]) -> bytes:
    """`tables`, and a sheet with the meanings of their columns.

    Raises:
        RequestError: XlsxWriter is not installed.
    """
    return workbook([*tables, columns_sheet(tables)], _LOOKS)


TOP_K = 5

PLOTS = "plots"
"""The folder of the pictures."""


@dataclass(frozen=True, slots=True)
class WrittenProducts:
    """Products that were written, and those that were not."""

    paths: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Files that could not be made, each a sentence."""


_Made = tuple[Path, bytes] | str
"""A file with its content, or why one is not made."""


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes the files of one sweep."""

    sweep: ReportedSweep
    folder: Path
    top_k: int
    is_geometric: bool
    plots_folder: Path

    def plots(self) -> Iterator[_Made]:
        from gemmetry.documents.sweep_plots import sweep_plots

        pictures = sweep_plots(self.sweep.points)
        for name, content in pictures.items():
            yield self.plots_folder / name, content
        if not pictures:
            yield "no plots are drawn: no GEMM was recorded"

    def timeline(self) -> Iterator[_Made]:
        if not any(point.timelines for point in self.sweep.points):
            yield "no timeline is written: nothing ran on a GPU at any point"
            return
        mean = "geomean" if self.is_geometric else "mean"
        tables = timeline_tables(self.sweep.points, geometric=self.is_geometric)
        yield self.folder / f"gpu_timeline_all_configs_{mean}.xlsx", _workbook(tables)

    def collectives(self) -> Iterator[_Made]:
        of_points = []
        for point in self.sweep.points:
            path = point.collective_report(self.folder)
            try:
                sheets = self.sweep.collectives(point)
            except RequestError as error:
                yield f"{path.name} is not written: {error.message}"
                continue
            if sheets and self.sweep.is_traced:
                yield path, _workbook(sheets)
            of_points += [(point, path.name, one) for one in sheets if one.name == SOURCE]
        if not of_points:
            yield "no table of collectives is written: no point has collectives of several ranks"
            return
        table = master_table(of_points)
        path = self.folder / "nccl_master_all_configs.xlsx"
        yield path, _workbook([table])
        yield path.with_suffix(".csv"), csv_text(table).encode()

    def varying(self, suffix: str) -> Iterator[_Made]:
        name = f"top{self.top_k}_gemm_kernels_time_variance{suffix}.csv"
        if suffix and not self.sweep.is_traced:
            yield (
                f"{name} is not written: workbooks do not show when single instances ran; it needs "
                "the traces"
            )
            return
        rows = varying_gemms(self.sweep.points, self.top_k)
        if not rows:
            yield f"{name} is empty: no GEMM was recorded"
        text = csv_text(varying_table(suffix, rows))
        yield self.folder / name, text.encode("utf-8", "replace")


STEPS: dict[str, Callable[[_Maker], Iterator[_Made]]] = {
    "variance": lambda maker: maker.varying(""),
    "timestamps": lambda maker: maker.varying("_with_timestamps"),
    "overlap": lambda maker: maker.varying("_with_collective_overlap"),
    "plots": _Maker.plots,
    "timeline": _Maker.timeline,
    "collectives": _Maker.collectives,
}
"""The parts of the analysis, each of which can be written alone."""

_LIBRARIES = {
    "plots": ("matplotlib", "plot"), "timeline": ("xlsxwriter", "analysis"),
    "collectives": ("xlsxwriter", "analysis"),
}  # fmt: skip
"""Step -> required library, and what installs it."""


def check_steps(only: Collection[str]) -> None:
    """Check, before any work, that these steps exist and their libraries are installed.

    Raises:
        RequestError: a step is unknown, or a library is missing.
    """
    for name in only:
        if name not in STEPS:
            raise RequestError(
                f"the analysis of a sweep has no step {name!r}",
                hint=f"Use one or more of {', '.join(STEPS)}, separated by commas.",
            )
        if name in _LIBRARIES:
            module, extra = _LIBRARIES[name]
            check_installed(module, extra=extra)


def write_products(
    sweep: ReportedSweep,
    folder: Path,
    only: Collection[str] = (),
    *,
    top_k: int = TOP_K,
    geometric: bool = False,
    plots: Path | None = None,
) -> WrittenProducts:
    """Write the document's files into `folder`.

    The workbooks of single traces are written where the traces are read
    (:func:`~gemmetry.documents.sweep_workbooks.write_rank_workbook`).

    Args:
        only: keys of :data:`STEPS`; empty for all of them, without those whose library is missing.
        top_k: GEMMs per rank and point in the tables of varying GEMMs.
        geometric: geometric means over ranks in the workbook of timelines, and in its name.
        plots: the folder of the pictures; None: ``plots`` in `folder`.

    Raises:
        RequestError: a step of `only` is unknown, or its library is missing.
        StorageError: a file cannot be written.
    """
    check_steps(only)
    written = WrittenProducts(problems=list(sweep.problems))
    maker = _Maker(sweep, folder, top_k, geometric, plots or folder / PLOTS)
    for name, make in STEPS.items():
        if only and name not in only:
            continue
        try:
            check_steps([name])
        except RequestError as error:
            written.problems.append(f"{name} is left out: {error.message}; {error.hint}")
            continue
        for made in make(maker):
            if isinstance(made, str):
                written.problems.append(made)
            else:
                write_atomically(*made)
                written.paths.append(made[0])
    return written
