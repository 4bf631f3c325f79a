"""Training sweeps for scripts and notebooks, and for the command line."""

from __future__ import annotations

import json
from collections.abc import Collection
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmetry.analysis.sweeps.analysis import PointSelection, SweepAnalysis, analyse_sweep
from gemmetry.analysis.sweeps.layout import analysis_folder, sweep_of

if TYPE_CHECKING:
    import polars

    from gemmetry.analysis.sweeps.ranks.parallel import Progress

DOCUMENT = "analysis.json"


class AnalyzedSweep:
    """What a sweep shows: as objects (:attr:`analysis`), as data frames, and as a document."""

    def __init__(self, analysis: SweepAnalysis, folder: Path) -> None:
        self.analysis = analysis
        self.folder = folder
        """Where its files are written."""

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

    def write(self) -> list[Path]:
        """Write its files into :attr:`folder`, and return their paths."""
        from gemmetry.reports.tables.files import write_atomically

        path = self.folder / DOCUMENT
        write_atomically(path, (json.dumps(self.document(), indent=1) + "\n").encode())
        return [path]

    def __repr__(self) -> str:
        count = sum(len(one.ranks) for one in self.analysis.points)
        return f"<AnalyzedSweep: {len(self.analysis.points)} points, {count} traces>"


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
) -> AnalyzedSweep:
    """Read every trace of a sweep once, in parallel, and compute what they show. Nothing is
    written; :meth:`AnalyzedSweep.write` does.

    Args:
        folder: of the sweep (``<T>thread/nccl_<C>channels/...`` below it), or of its analysis.
        threads, channels, ranks: analyse only these; None: all.
        analysis_dir: name of the folder for its files; None: ``tracelens_analysis`` if the sweep
            has one, else ``analysis``.
        processes: workers that read traces; None: as many as there are processors.
        progress: is called with the number of traces that are read and that of all.
        check_writable: refuse a folder that :meth:`AnalyzedSweep.write` could not write to, before
            anything is read.

    Raises:
        RequestError: the folder has no point of a sweep, none is selected, or no trace of those
            that are can be read.
        StorageError: the folder cannot be written to.
    """
    selection = PointSelection(threads, channels, ranks)
    if check_writable:
        from gemmetry.reports.tables import files

        files.check_writable(analysis_folder(sweep_of(Path(folder)), analysis_dir) / DOCUMENT)
    found = analyse_sweep(Path(folder), selection=selection, processes=processes, progress=progress)
    return AnalyzedSweep(found, analysis_folder(found.sweep.folder, analysis_dir))


def _frame(table: Any) -> polars.DataFrame:
    from gemmetry.reports.tables.frames import frame

    made: polars.DataFrame = frame(table)
    return made
