"""Traces for scripts and notebooks, and for the command line: read, summed up, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from gemmetry.domain.errors import RequestError
from gemmetry.traces.loading import all_failed, read_all
from gemmetry.traces.model import Trace

if TYPE_CHECKING:
    import polars

    from gemmetry.traces.collectives.jobs import JobCollectives


class Traces(Sequence[Trace]):
    """Traces of one or more files, and tables of them; a sequence of ``Trace``.

    ``errors`` lists the files that could not be read, and why.
    """

    def __init__(
        self, traces: Sequence[Trace], errors: Mapping[str, RequestError] | None = None
    ) -> None:
        self.traces = tuple(traces)
        self.errors = dict(errors or {})

    def summary(self) -> polars.DataFrame:
        """One row a file: counts, and exact times in µs (docs/traces.md defines them).

        Raises:
            RequestError: polars is not installed (extra ``analysis``).
        """
        from gemmetry.reports.traces.tables import summary_rows
        from gemmetry.traces.summary import summarize

        return _frame("trace_summary", summary_rows(map(summarize, self.traces)))

    def steps(self) -> polars.DataFrame:
        """One row a file and step, as :meth:`summary`.

        Raises:
            RequestError: polars is not installed (extra ``analysis``).
        """
        from gemmetry.reports.traces.steps import step_rows
        from gemmetry.traces.summary import summarize_steps

        steps = [step for trace in self.traces for step in summarize_steps(trace)]
        return _frame("trace_steps", step_rows(steps))

    def gemms(self) -> polars.DataFrame:
        """One row a GEMM kernel and shape, over all files, those with the most time first.

        Raises:
            RequestError: polars is not installed (extra ``analysis``).
        """
        from gemmetry.reports.traces.tables import gemm_rows
        from gemmetry.traces.gemms.summary import gemm_table

        return _frame("gemms", gemm_rows(gemm_table(self.traces)))

    def shapes(self) -> polars.DataFrame:
        """One row a distinct GEMM, over all files, those with the most time first; if none
        of them has work on a GPU, the products that operators of the host record.

        Raises:
            RequestError: polars is not installed (extra ``analysis``).
        """
        from gemmetry.reports.traces.tables import shape_rows
        from gemmetry.traces.gemms.shapes import workload
        from gemmetry.traces.operators.host import product_table

        return _frame("shapes", shape_rows(workload(product_table(self.traces))))

    def collectives(self) -> list[JobCollectives]:
        """The jobs that the traces belong to, with their collectives matched across ranks
        (docs/collectives.md).

        Raises:
            RequestError: a rank occurs twice in a job.
        """
        from gemmetry.traces.collectives.jobs import analyse_jobs
        from gemmetry.traces.jobs import rank_trace

        return analyse_jobs(map(rank_trace, self.traces))

    def spec(self, *, top: int = 0) -> str:
        """A spec file of the `top` GEMMs with the most time (0: all), which ``gemmetry profile
        --spec`` runs.

        Raises:
            RequestError: no GEMM has a known shape.
        """
        from gemmetry.traces.gemms.shapes import spec_text, workload
        from gemmetry.traces.operators.host import product_table

        names = [str(trace.file) for trace in self.traces]
        return spec_text(workload(product_table(self.traces)), names, top=top)

    @overload
    def __getitem__(self, index: int) -> Trace: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Trace]: ...
    def __getitem__(self, index: int | slice) -> Trace | Sequence[Trace]:
        return self.traces[index]

    def __len__(self) -> int:
        return len(self.traces)

    def __repr__(self) -> str:
        failed = f", {len(self.errors)} unreadable" if self.errors else ""
        return f"<Traces: {len(self)} files{failed}>"

    def _repr_html_(self) -> str:
        from gemmetry.reports.traces.tables import notebook_table
        from gemmetry.traces.summary import summarize

        return notebook_table([summarize(trace) for trace in self.traces], self.errors)


def load(*paths: str | PathLike[str], use_cache: bool = True) -> Traces:
    """The traces `paths`: Kineto (plain, gz, zst), rocprofv3 (JSON, CSV, rocpd), or folders.

    Raises:
        RequestError: none of them can be read; the message gives the reason for each.
    """
    errors: dict[str, RequestError] = {}
    traces = list(read_all(map(Path, paths), errors, use_cache=use_cache))
    if not traces:
        raise all_failed(errors)
    return Traces(traces, errors)


def _frame(table: str, rows: Sequence[dict[str, Any]]) -> Any:
    """`rows` of a `table` of :data:`COLUMNS`, whose columns are there also without rows."""
    from gemmetry.reports.extras import require
    from gemmetry.reports.traces.columns import COLUMNS

    schema = None if rows else COLUMNS[table]
    return require("polars", extra="analysis").DataFrame(rows, schema, infer_schema_length=None)
