"""Training sweeps for scripts and notebooks, and for the command line."""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmetry.analysis.sweeps.analysis import PointSelection, SweepAnalysis, analyse_sweep
from gemmetry.analysis.sweeps.layout import analysis_folder, sweep_of

if TYPE_CHECKING:
    import polars

    from gemmetry.analysis.sweeps.collectives.tuner import TunedCollective
    from gemmetry.analysis.sweeps.products.model import ProductSweep
    from gemmetry.analysis.sweeps.ranks.parallel import Progress
    from gemmetry.reports.sweeps.products import WrittenProducts

TOP_K = 5
"""GEMMs per rank and point in the tables of varying GEMMs, unless requested otherwise."""

DOCUMENT = "analysis.json"


class AnalyzedSweep:
    """What a sweep shows: as objects (:attr:`analysis`), as data frames, and as a document."""

    def __init__(self, analysis: SweepAnalysis, folder: Path) -> None:
        self.analysis = analysis
        self.folder = folder
        """Where its files are written."""

    @property
    def workbooks(self) -> list[Path]:
        """Those of single traces, which were written when the traces were read."""
        ranks = [rank for point in self.analysis.points for rank in point.ranks]
        return [Path(rank.workbook) for rank in ranks if rank.workbook]

    @property
    def problems(self) -> list[str]:
        """What could not be read or compared."""
        return self.analysis.all_problems

    @property
    def is_complete(self) -> bool:
        """Whether every point that was run ended well, and all of its traces could be read."""
        return all(one.is_complete for one in self.analysis.points)

    def document(self) -> dict[str, Any]:
        """The content of ``analysis.json``."""
        from gemmetry.analysis.sweeps.document import sweep_document

        return sweep_document(self.analysis)

    def points(self) -> polars.DataFrame:
        """One row per point: the median step and its parts.

        Raises:
            RequestError: polars is not installed (extra ``analysis``).
        """
        from gemmetry.analysis.sweeps.tables import points_table

        return _frame(points_table(self.analysis))

    def gemms(self) -> polars.DataFrame:
        """One row per kernel and shape of each rank of each point.

        Raises:
            RequestError: polars is not installed (extra ``analysis``).
        """
        from gemmetry.analysis.sweeps.tables import gemms_table

        return _frame(gemms_table(self.analysis))

    def pooled_gemms(self) -> polars.DataFrame:
        """One row per kernel and shape of each point, over its ranks.

        Raises:
            RequestError: polars is not installed (extra ``analysis``).
        """
        from gemmetry.analysis.sweeps.tables import pooled_table

        return _frame(pooled_table(self.analysis))

    def write(
        self, only: Collection[str] = (), *, top_k: int = TOP_K, geometric: bool = False
    ) -> WrittenProducts:
        """Write its files into :attr:`folder`: ``analysis.json``, and those of the sweep analysis
        document.

        Args:
            only: write only the files of these steps: ``variance``, ``timestamps``, ``overlap``,
                ``plots``, ``timeline``, ``collectives``.
            top_k: GEMMs per rank and point in the tables of varying GEMMs, and in their names.
            geometric: geometric instead of arithmetic means over ranks in the workbook of
                timelines.

        Returns:
            The paths of all files, and a sentence for each that could not be made.

        Raises:
            RequestError: a step is unknown, or its library is not installed.
            StorageError: a file cannot be written.
        """
        from gemmetry.analysis.sweeps.products.traces import product_sweep
        from gemmetry.reports.sweeps.products import write_products
        from gemmetry.reports.tables.files import write_atomically

        found = write_products(
            product_sweep(self.analysis), self.folder, only, top_k=top_k, geometric=geometric
        )
        if not only:
            path = self.folder / DOCUMENT
            write_atomically(path, (json.dumps(self.document(), indent=1) + "\n").encode())
            found.paths[:0] = [path, *self.workbooks]
        return found

    def tuned_collectives(self) -> list[TunedCollective]:
        """Each collective of each size with the best way to run it that the sweep shows."""
        from gemmetry.analysis.sweeps.collectives.tuner import tuned_collectives

        return tuned_collectives(self.analysis)

    def tuner_config(self) -> str:
        """The content of ``nccl_tuner.conf`` for NCCL's example tuner plugin, with the evidence as
        comments."""
        from gemmetry.analysis.sweeps.collectives.tuner import tuner_entries
        from gemmetry.formats.nccl.tuner import tuner_config

        title = (
            f"Settings of collectives from the sweep {self.analysis.sweep.folder.name}. Each line "
            "is the fastest way to run one collective; whether steps are shorter with it is for "
            "another run to show."
        )
        return tuner_config(title, tuner_entries(self.tuned_collectives()))

    def __repr__(self) -> str:
        count = sum(len(one.ranks) for one in self.analysis.points)
        return f"<AnalyzedSweep: {len(self.analysis.points)} points, {count} traces>"


class SweepWorkbooks:
    """A sweep of which only TraceLens' workbooks are left."""

    def __init__(self, sweep: ProductSweep, folder: Path) -> None:
        self.sweep = sweep
        self.folder = folder
        """Where its workbooks are, and its files are written."""

    def write(
        self, only: Collection[str] = (), *, top_k: int = TOP_K, geometric: bool = False
    ) -> WrittenProducts:
        """Write those of the sweep analysis document's files that follow from workbooks, like
        :meth:`AnalyzedSweep.write`."""
        from gemmetry.reports.sweeps.products import write_products

        return write_products(self.sweep, self.folder, only, top_k=top_k, geometric=geometric)

    def __repr__(self) -> str:
        return f"<SweepWorkbooks: {len(self.sweep.points)} points>"


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
    from gemmetry.analysis.sweeps.layout import has_traces
    from gemmetry.analysis.sweeps.products.workbooks import find_workbooks, workbook_sweep

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
        progress: is called with the number of traces that are read and that of all.
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
        from gemmetry.reports.tables import files

        files.check_writable(target / DOCUMENT)
    place, hook = None, ""
    if workbooks:
        from gemmetry.reports.sweeps.workbooks import RANK_HOOK, can_write, rank_workbooks

        if can_write():
            place, hook = partial(rank_workbooks, target), RANK_HOOK
    found = analyse_sweep(
        Path(folder), selection=selection, workbook_of=place, hook=hook, processes=processes,
        progress=progress,
    )  # fmt: skip
    return AnalyzedSweep(found, target)


def _frame(table: Any) -> polars.DataFrame:
    from gemmetry.reports.tables.frames import frame

    made: polars.DataFrame = frame(table)
    return made
