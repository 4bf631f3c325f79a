"""Training sweeps for scripts and notebooks, and for the command line.

A sweep's analysis as tables: the columns are the keys of ``analysis.json``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from gemmetry.domain.errors import RequestError
from gemmetry.domain.units import plural
from gemmetry.results import emit
from gemmetry.results.emit import Result, write_atomically, write_tables, written_together
from gemmetry.results.json_text import json_file
from gemmetry.results.tables import is_installed
from gemmetry.sweeps.comparison import (
    DOCUMENT,
    LabelledSweep,
    SweepComparison,
    compare_sweeps,
    fresh_document,
    read_document,
)
from gemmetry.sweeps.folder import analysis_folder, has_traces, sweep_of
from gemmetry.sweeps.points import PointSelection, SweepAnalysis, analyse_sweep
from gemmetry.sweeps.rows import sweep_result

if TYPE_CHECKING:
    import polars

    from gemmetry.documents.sweep_files import ReportedSweep
    from gemmetry.documents.sweep_workbooks import WrittenProducts
    from gemmetry.engine.external import JobListener
    from gemmetry.sweeps.run import SweepRun
    from gemmetry.sweeps.tuner import TunedCollective
    from gemmetry.sweeps.workers import Progress


PAGE = "report.html"

TOP_K = 5
"""GEMMs per rank and point in the tables of varying GEMMs, unless requested otherwise."""

COUNTERS = "rocprof_kernels.csv"
"""Written where rocprofv3 recorded a point."""


class AnalyzedSweep:
    """Results of a sweep: as objects (:attr:`analysis`), as data frames, and as a document."""

    def __init__(self, analysis: SweepAnalysis, folder: Path) -> None:
        self.analysis = analysis
        self.folder = folder
        """Folder of the written files."""

    @property
    def workbooks(self) -> list[Path]:
        """Workbooks of single traces, written when the traces were read."""
        ranks = [rank for point in self.analysis.points for rank in point.ranks]
        return [Path(rank.workbook) for rank in ranks if rank.workbook]

    @property
    def problems(self) -> list[str]:
        """Files that could not be read, and points that could not be compared."""
        return self.analysis.all_problems

    @property
    def is_complete(self) -> bool:
        """Whether every point that was run ended well, and all of its traces could be read."""
        return all(one.is_complete for one in self.analysis.points)

    @cached_property
    def result(self) -> Result:
        """Rows of the analysis: points, gemms, pooled_gemms, settings, collectives, rocprof,
        effects."""
        return sweep_result(self.analysis)

    @cached_property
    def _document(self) -> dict[str, Any]:
        return self.result.document()

    def document(self) -> dict[str, Any]:
        """The content of ``analysis.json``."""
        return self._document

    def frame(self, name: str) -> polars.DataFrame:
        """Rows of one kind as a data frame: ``points``, the median steps and their parts; ``gemms``
        of each rank; ``pooled_gemms`` over the ranks of a point; ``rocprof``, the records of
        rocprofv3; ``settings``, ``collectives`` or ``effects``.

        Raises:
            RequestError: polars is not installed (extra ``analysis``).
        """
        return self.result.frame(name)

    @written_together()
    def write(
        self,
        only: Collection[str] = (),
        *,
        top_k: int = TOP_K,
        geometric: bool = False,
        plots: Path | None = None,
    ) -> WrittenProducts:
        """Write its files into :attr:`folder`: ``analysis.json``, the page ``report.html``, and
        those of the sweep analysis document.

        Args:
            only: write only the files of these steps: ``variance``, ``timestamps``, ``overlap``,
                ``plots``, ``timeline``, ``collectives``.
            top_k: GEMMs per rank and point in the tables of varying GEMMs, and in their names.
            geometric: geometric instead of arithmetic means over ranks in the workbook of
                timelines.
            plots: the folder of the pictures; None: ``plots`` in :attr:`folder`.

        Returns:
            The paths of all files, and a sentence for each that could not be made.

        Raises:
            RequestError: a step is unknown, or its library is not installed.
            StorageError: a file cannot be written.
        """
        from gemmetry.documents.sweep_files import reported_sweep
        from gemmetry.documents.sweep_workbooks import write_products

        found = write_products(
            reported_sweep(self.analysis), self.folder, only, top_k=top_k, geometric=geometric,
            plots=plots,
        )  # fmt: skip
        if only:
            return found
        counters = self.result.table("rocprof")
        if counters.rows:
            write_tables([counters], self.folder / COUNTERS)
            found.paths.insert(0, self.folder / COUNTERS)
        write_atomically(self.folder / DOCUMENT, json_file(self.document()))
        found.paths[:0] = [self.folder / DOCUMENT, *self._page(found), *self.workbooks]
        return found

    def tuned_collectives(self) -> list[TunedCollective]:
        """Each collective of each size with the best way to run it that the sweep shows."""
        from gemmetry.sweeps.tuner import tuned_collectives

        return tuned_collectives(self.analysis)

    def tuner_config(self) -> str:
        """The content of ``nccl_tuner.conf`` for NCCL's example tuner plugin, with the evidence as
        comments."""
        from gemmetry.sweeps.tuner import tuner_text

        return tuner_text(self.analysis.sweep.folder.name, self.tuned_collectives())

    def _page(self, written: WrittenProducts) -> list[Path]:
        """Write the page, which contains the plots that were written; without plotly there is
        none."""
        from gemmetry.sweeps.page import sweep_page

        try:
            page = sweep_page(self.document(), self.folder)
        except RequestError as error:
            written.problems.append(f"{PAGE} was not written: {error}")
            return []
        write_atomically(self.folder / PAGE, page.encode())
        return [self.folder / PAGE]

    def __repr__(self) -> str:
        points = self.analysis.points
        traces = plural(sum(len(one.ranks) for one in points), "trace")
        return f"<AnalyzedSweep: {plural(len(points), 'point')}, {traces}>"


class SweepWorkbooks:
    """A sweep of which only TraceLens' workbooks are left."""

    def __init__(self, sweep: ReportedSweep, folder: Path) -> None:
        self.sweep = sweep
        self.folder = folder
        """Folder of the workbooks and of the written files."""

    @written_together()
    def write(
        self,
        only: Collection[str] = (),
        *,
        top_k: int = TOP_K,
        geometric: bool = False,
        plots: Path | None = None,
    ) -> WrittenProducts:
        """Write those of the sweep analysis document's files that follow from workbooks, like
        :meth:`AnalyzedSweep.write`."""
        from gemmetry.documents.sweep_workbooks import write_products

        return write_products(
            self.sweep, self.folder, only, top_k=top_k, geometric=geometric, plots=plots
        )

    def document(self) -> dict[str, Any]:
        """Data for :func:`compare`, with the keys of ``analysis.json``."""
        from gemmetry.documents.sweep_files import workbook_document

        return workbook_document(self.sweep, str(self.folder))

    def __repr__(self) -> str:
        return f"<SweepWorkbooks: {plural(len(self.sweep.points), 'point')}>"


def read_workbooks(
    folder: str | PathLike[str],
    *,
    threads: Collection[int] | None = None,
    channels: Collection[int] | None = None,
    ranks: Collection[int] | None = None,
    analysis_dir: str | None = None,
) -> SweepWorkbooks | None:
    """The workbooks of a sweep without traces, as TraceLens or :func:`analyze` wrote them; None if
    it has traces, or no workbooks.

    Args:
        folder, threads, channels, ranks, analysis_dir: like those of :func:`analyze`.

    Raises:
        RequestError: the folder does not exist, or no selected workbook can be read.
    """
    from gemmetry.documents.sweep_workbooks import find_workbooks, workbook_sweep

    sweep = sweep_of(Path(folder))
    place = None if has_traces(sweep) else find_workbooks(sweep, analysis_dir)
    if place is None:
        return None
    return SweepWorkbooks(workbook_sweep(place, PointSelection(threads, channels, ranks)), place)


def analyze(
    folder: str | PathLike[str],
    *,
    threads: Collection[int] | None = None,
    channels: Collection[int] | None = None,
    ranks: Collection[int] | None = None,
    analysis_dir: str | None = None,
    processes: int | None = None,
    progress: Progress | None = None,
    check_writable: bool = False,
    workbooks: bool = False,
) -> AnalyzedSweep:
    """Read every trace of a sweep once, in parallel, and compute what they show. Nothing is
    written, except `workbooks`; :meth:`AnalyzedSweep.write` does.

    Args:
        folder: of the sweep (``<T>thread/nccl_<C>channels/...`` below it), or of its analysis.
        threads, channels, ranks: analyse only these; None: all.
        analysis_dir: name of the folder for its files; None: ``tracelens_analysis`` if the sweep
            has one, else ``analysis``.
        processes: workers that read traces; None: as many as there are processors.
        progress: is called with the number of traces that are read, that of all, and the path of
            the latest.
        check_writable: refuse a folder that :meth:`AnalyzedSweep.write` could not write to, before
            anything is read.
        workbooks: write the workbook of each trace, which needs XlsxWriter, while the trace is in
            memory.

    Raises:
        RequestError: the folder has no point of a sweep, none is selected, or no trace of those
            that are can be read.
        StorageError: the folder cannot be written to.
    """
    selection = PointSelection(threads, channels, ranks)
    target = analysis_folder(sweep_of(Path(folder)), analysis_dir)
    if check_writable:
        emit.check_writable(target / DOCUMENT)
    place = target if workbooks and is_installed("xlsxwriter") else None
    found = analyse_sweep(
        Path(folder), selection=selection, workbooks=place, processes=processes, progress=progress
    )
    return AnalyzedSweep(found, target)


def run_sweep(
    output: str | PathLike[str] | None = None,
    *,
    listener: JobListener | None = None,
    **options: Any,
) -> SweepRun:
    """Train once for each combination of communication settings, and trace every run::

        run_sweep("sweep", channels=[4, 8], repeats=3, config="tiny").analyze()

    Points that succeeded in an earlier run into the same folder are kept.

    Args:
        output, options: the fields of :class:`gemmetry.sweeps.options.SweepOptions`.
        listener: like that of :meth:`gemmetry.sweeps.run.SweepPlan.run`.

    Raises:
        RequestError: the request is wrong, this machine cannot carry it out, or the folder belongs
            to something else.
        StorageError: a file cannot be written; what is there is kept.
    """
    from gemmetry.sweeps.run import plan

    return plan(output, **options).run(listener=listener)


class ComparedSweeps:
    """Results of a comparison of sweeps: as objects (:attr:`comparison`), and as a data frame, a
    document and files (:attr:`result`)."""

    def __init__(self, comparison: SweepComparison, sweeps: Sequence[LabelledSweep]) -> None:
        self.comparison = comparison
        self.sweeps = tuple(sweeps)
        self.result = comparison.result(self._page)

    def _page(self) -> str:
        from gemmetry.sweeps.page import comparison_page

        return comparison_page(self.comparison, self.sweeps)

    def document(self) -> dict[str, Any]:
        """The content of ``gemmetry sweep compare --json``."""
        return self.comparison.document()

    def rows(self) -> polars.DataFrame:
        """One row per compared figure of each candidate.

        Raises:
            RequestError: polars is not installed (extra ``analysis``).
        """
        return self.result.frame("comparison")

    def write(self, path: str | PathLike[str]) -> None:
        """Write a page (.html), the document (.json), or the rows as a table (.csv, .xlsx ...).

        Raises:
            RequestError: unknown suffix, or a library is missing. StorageError: not writable.
        """
        self.result.write(path)

    def __repr__(self) -> str:
        return f"<ComparedSweeps: {', '.join(one.label for one in self.sweeps)}>"


def compare(
    *sweeps: str | PathLike[str],
    labels: Sequence[str] = (),
    threshold: float | None = None,
    progress: Progress | None = None,
) -> ComparedSweeps:
    """Compare sweeps with the first of them: each point, GEMM and collective that both have.

    Args:
        sweeps: folders of sweeps, or their ``analysis.json``. An ``analysis.json`` that is newer
            than the traces of its sweep is used; other sweeps are analysed now. If only workbooks
            are left of one, all are compared by what workbooks show.
        labels: short names of the sweeps, in their order; A, B, C ... where there are fewer.
        threshold: relative differences up to this count as none (None: 1 %).
        progress: as for :func:`analyze`.

    Raises:
        RequestError: fewer than two sweeps, more labels than sweeps, the same label twice, or a
            sweep without a point that ran well.
    """
    names = _labels(labels, len(sweeps))
    documents = _documents([Path(one) for one in sweeps], progress)
    labelled = [
        LabelledSweep(label=name, document=document, reported=reported)
        for name, (document, reported) in zip(names, documents, strict=True)
    ]
    return ComparedSweeps(compare_sweeps(labelled, threshold=threshold), labelled)


def _labels(labels: Sequence[str], count: int) -> list[str]:
    if len(labels) > count:
        raise RequestError(
            f"{len(labels)} labels were given for {count} sweeps", hint="Give one label per sweep."
        )
    # A given label may be a letter, too.
    letters = [one for one in ascii_uppercase if one not in labels]
    found = [*labels, *letters[len(labels) :], *map(str, range(count))][:count]
    if len(set(found)) < count:
        raise RequestError(
            f"two sweeps have the same label: {', '.join(found)}", hint="Give different labels."
        )
    return found


def _documents(
    places: Sequence[Path], progress: Progress | None
) -> list[tuple[dict[str, Any], Callable[[], ReportedSweep] | None]]:
    """The document of each sweep, read or made now, and the data of plots if analysed now. If only
    workbooks are left of one sweep, all documents show only what workbooks do."""
    from gemmetry.documents.sweep_files import reported_sweep

    known = {
        one: read_document(one) if one.is_file() else fresh_document(one)
        for one in dict.fromkeys(places)
    }
    left = {one: None if found else read_workbooks(one) for one, found in known.items()}
    as_workbooks = any(left.values())
    documents: dict[Path, tuple[dict[str, Any], Callable[[], ReportedSweep] | None]] = {}
    for place, found in known.items():
        is_replaced = as_workbooks and place.is_dir() and has_traces(sweep_of(place))
        if (workbooks := left[place]) is not None:
            documents[place] = workbooks.document(), partial(getattr, workbooks, "sweep")
        elif found is not None and not is_replaced:
            documents[place] = found, None
        else:
            analyzed = analyze(place, progress=progress)
            reported = partial(reported_sweep, analyzed.analysis)
            made = SweepWorkbooks(reported(), place) if as_workbooks else analyzed
            documents[place] = made.document(), reported
    return [documents[place] for place in places]
