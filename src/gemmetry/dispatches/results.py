"""Results for scripts and notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from gemmetry.domain.columns import row
from gemmetry.domain.errors import Outcome
from gemmetry.domain.record import Record, ResultSet
from gemmetry.domain.units import counted

if TYPE_CHECKING:
    import pandas
    import polars

    from gemmetry.dispatches.comparison import ExperimentComparison


class Results(Sequence[Record]):
    """The records of one experiment, and views of them; a sequence of ``Record``.

    ``result_set`` holds the same with environments, raw samples and the command.
    """

    def __init__(self, result_set: ResultSet) -> None:
        self.result_set = result_set

    @property
    def records(self) -> Sequence[Record]:
        """One record per dispatch, in the plan's order."""
        return self.result_set.records

    @property
    def failures(self) -> list[Record]:
        """Records whose outcome is not ok; each has a ``reason``."""
        return [record for record in self.records if record.outcome is not Outcome.OK]

    def samples(self, record: Record) -> Sequence[float]:
        """The raw samples of `record`, in ns per launch, in the order they were taken."""
        return self.result_set.samples(record)

    def best(self) -> list[Record]:
        """The fastest ok dispatch of each operation (per target and distribution)."""
        from gemmetry.dispatches.analysis import fastest, group_by_problem

        found = (fastest(group) for group in group_by_problem(self.records).values())
        return [record for record in found if record is not None]

    def compare(
        self, *others: Results, allow_different_inputs: bool = False
    ) -> ExperimentComparison:
        """These results compared with `others`, dispatch by dispatch, with intervals and verdicts.

        Raises:
            RequestError: the input distributions differ and `allow_different_inputs` is false.
        """
        from gemmetry.dispatches.comparison import compare

        sets = [self.result_set, *(other.result_set for other in others)]
        return compare(sets, allow_different_inputs=allow_different_inputs)

    def to_dicts(self) -> list[dict[str, Any]]:
        """One flat dict per record, with every column of docs/columns.md."""
        return [row(record) for record in self.records]

    def to_polars(self, columns: Sequence[str] | None = None) -> polars.DataFrame:
        """One row per record.

        Raises:
            RequestError: polars is not installed (extra ``analysis``).
            UnknownNameError: no such column.
        """
        from gemmetry.dispatches.records import record_table
        from gemmetry.results.tables import frame

        made: polars.DataFrame = frame(record_table(self.records, columns))
        return made

    def to_pandas(self, columns: Sequence[str] | None = None) -> pandas.DataFrame:
        """One row per record.

        Raises:
            RequestError: pandas, pyarrow or polars is not installed (extras ``pandas`` and
                ``analysis``).
            UnknownNameError: no such column.
        """
        from gemmetry.results.tables import require

        require("pandas", extra="pandas")
        require("pyarrow", extra="pandas")
        frame: pandas.DataFrame = self.to_polars(columns).to_pandas()
        return frame

    def write(
        self,
        path: str | PathLike[str],
        *,
        columns: Sequence[str] | None = None,
        append: bool = False,
    ) -> None:
        """Write to a file; its suffix picks csv, json, parquet, xlsx, md, html, xml, png or svg.

        Raises:
            RequestError: unknown suffix or column. StorageError: the file cannot be written.
        """
        from gemmetry.dispatches.writers import write

        write(self.result_set, Path(path), columns=columns, append=append)

    @overload
    def __getitem__(self, index: int) -> Record: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...

    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        return self.records[index]

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __repr__(self) -> str:
        ok = len(self) - len(self.failures)
        count = counted(len(self), "dispatch", "dispatches")
        return f"<Results {self.result_set.title!r}: {count}, {ok} ok>"

    def _repr_html_(self) -> str:
        from gemmetry.dispatches.page import render_notebook_table

        return render_notebook_table(self.result_set)


def load(path: str | PathLike[str]) -> Results:
    """The results of the experiment in the folder `path`.

    Raises:
        RequestError: no experiment is there.
        JournalDamagedError: its database cannot be read.
    """
    from gemmetry.engine.experiment import Experiment

    return Results(Experiment.open(Path(path)).result_set())
