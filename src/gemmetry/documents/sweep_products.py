"""Writes the files of the sweep analysis document."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from gemmetry.documents.sweep_files import (
    SOURCE,
    ProductSweep,
    master_table,
    timeline_tables,
    varying_gemms,
    varying_table,
)
from gemmetry.documents.sweep_workbooks import write_workbook
from gemmetry.domain.errors import RequestError
from gemmetry.results.emit import write_atomically
from gemmetry.results.tables import check_installed, csv_text

TOP_K = 5

PLOTS = "plots"
"""The folder of the pictures."""


@dataclass(frozen=True, slots=True)
class WrittenProducts:
    """What was written, and what was not."""

    paths: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Files that could not be made, each a sentence."""


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes the files of one sweep."""

    sweep: ProductSweep
    folder: Path
    top_k: int
    is_geometric: bool
    written: WrittenProducts
    plots_folder: Path

    def plots(self) -> None:
        from gemmetry.documents.sweep_plots import sweep_plots

        pictures = sweep_plots(self.sweep.points)
        for name, content in pictures.items():
            self._write(self.plots_folder / name, content)
        if not pictures:
            self.written.problems.append("no plots are drawn: no GEMM was recorded")

    def timeline(self) -> None:
        if not any(point.timelines for point in self.sweep.points):
            self.written.problems.append(
                "no timeline is written: nothing ran on a GPU at any point"
            )
            return
        mean = "geomean" if self.is_geometric else "mean"
        path = self.folder / f"gpu_timeline_all_configs_{mean}.xlsx"
        write_workbook(path, timeline_tables(self.sweep.points, geometric=self.is_geometric))
        self.written.paths.append(path)

    def collectives(self) -> None:
        of_points = []
        for point in self.sweep.points:
            path = point.collective_report(self.folder)
            try:
                sheets = self.sweep.collectives(point)
            except RequestError as error:
                self.written.problems.append(f"{path.name} is not written: {error.message}")
                continue
            if sheets and self.sweep.is_traced:
                write_workbook(path, sheets)
                self.written.paths.append(path)
            of_points += [(point, path.name, one) for one in sheets if one.name == SOURCE]
        if not of_points:
            self.written.problems.append(
                "no table of collectives is written: no point has collectives of several ranks"
            )
            return
        table = master_table(of_points)
        path = self.folder / "nccl_master_all_configs.xlsx"
        write_workbook(path, [table])
        self.written.paths.append(path)
        self._write(path.with_suffix(".csv"), csv_text(table).encode())

    def varying(self, suffix: str) -> None:
        name = f"top{self.top_k}_gemm_kernels_time_variance{suffix}.csv"
        if suffix and not self.sweep.is_traced:
            self.written.problems.append(
                f"{name} is not written: workbooks do not show when single instances ran; it needs "
                "the traces"
            )
            return
        rows = varying_gemms(self.sweep.points, self.top_k)
        if not rows:
            self.written.problems.append(f"{name} is empty: no GEMM was recorded")
        self._write(
            self.folder / name, csv_text(varying_table(suffix, rows)).encode("utf-8", "replace")
        )

    def _write(self, path: Path, content: bytes) -> None:
        write_atomically(path, content)
        self.written.paths.append(path)


@dataclass(frozen=True, slots=True)
class ProductStep:
    """A part of the analysis that can be written alone."""

    write: Callable[[_Writer], None]
    module: str = ""
    """The library that it needs; "": none."""
    extra: str = ""
    """What installs the library."""


STEPS = {
    "variance": ProductStep(lambda writer: writer.varying("")),
    "timestamps": ProductStep(lambda writer: writer.varying("_with_timestamps")),
    "overlap": ProductStep(lambda writer: writer.varying("_with_collective_overlap")),
    "plots": ProductStep(_Writer.plots, "matplotlib", "plot"),
    "timeline": ProductStep(_Writer.timeline, "xlsxwriter", "analysis"),
    "collectives": ProductStep(_Writer.collectives, "xlsxwriter", "analysis"),
}


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
        if STEPS[name].module:
            check_installed(STEPS[name].module, extra=STEPS[name].extra)


def write_products(
    sweep: ProductSweep,
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
    writer = _Writer(sweep, folder, top_k, geometric, written, plots or folder / PLOTS)
    for name, step in STEPS.items():
        if only and name not in only:
            continue
        try:
            check_steps([name])
        except RequestError as error:
            written.problems.append(f"{name} is left out: {error.message}; {error.hint}")
            continue
        step.write(writer)
    return written
