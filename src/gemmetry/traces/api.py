"""Traces for scripts, notebooks and the command line: reads them, summarises them, and returns
tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from gemmetry.domain.errors import RequestError
from gemmetry.domain.rows import Rows
from gemmetry.domain.units import noun_for, plural
from gemmetry.results.tables import frame
from gemmetry.traces.model import Trace, problem_texts, stage
from gemmetry.traces.reading import all_failed, read_all

if TYPE_CHECKING:
    from types import ModuleType

    import polars

    from gemmetry.formats.events import TraceProblem
    from gemmetry.formats.xlsx import TraceLensReport
    from gemmetry.results.emit import Result
    from gemmetry.traces.collectives.matching import JobCollectives
    from gemmetry.traces.gemms import GemmRow
    from gemmetry.traces.report import Sheets, TraceReport
    from gemmetry.traces.summary import Outside, StepSummary, Summary


class Summaries(NamedTuple):
    """Summaries of files and of their steps, and the work outside of steps."""

    files: list[Summary]
    steps: list[StepSummary]
    outside: list[Outside]

    def rows(self, *, steps: bool) -> dict[str, Rows]:
        """The rows of the document, with those of `steps`."""
        from gemmetry.traces.summary import Outside, StepSummary, Summary

        found = {"files": Rows(Summary, self.files)}
        if steps:
            found["steps"] = Rows(StepSummary, self.steps)
            found["outside_steps"] = Rows(Outside, self.outside)
        return found

    def no_steps_note(self) -> str:
        """A sentence about the files that have no steps; "" if all have some."""
        having = {one.file for one in self.steps}
        files = [one.file for one in self.outside if one.file not in having]
        if not files:
            return ""
        which = files[0] if len(files) == 1 else f"{len(files)} of {len(self.outside)} files"
        have = noun_for(len(files), "has", "have")
        return (
            f"{which} {have} no steps: no marks such as ProfilerStep#1 (torch.profiler's step()), "
            "step[DECODE bs=64] (SGLang) or execute_context_1(8)_generation_0(0) (vLLM) with work "
            "on a GPU"
        )


class Traces(Sequence[Trace]):
    """Traces of one or more files, and tables of them; a sequence of ``Trace``.

    Traces that :func:`load` returns are in memory. Without :meth:`keep`, each method reads the
    files again, one by one, and keeps none of them, so call only one method.

    ``errors`` lists the files that could not be read, with the reason.

    Args:
        workbooks: loads the module whose ``workbook_summaries`` and ``workbook_gemms`` return the
            rows of a report of TraceLens; None: such a report is an error.
    """

    def __init__(
        self,
        files: Iterable[Path],
        *,
        use_cache: bool = True,
        workbooks: Callable[[], ModuleType] | None = None,
    ) -> None:
        self._files = tuple(files)
        self._use_cache = use_cache
        self._workbooks = workbooks
        self.traces: tuple[Trace, ...] = ()
        self.times: dict[str, float] = {}
        """Seconds of each stage."""
        self.errors: dict[str, RequestError] = {}
        self.names: list[str] = []
        """Files that could be read."""
        self.without_gpu: list[Path] = []
        """Files among them that have no work on a GPU."""
        self._found: list[tuple[Path, bool, tuple[TraceProblem, ...]]] = []
        """Each trace with whether events are missing, and its problems."""
        self._above_peak = ""
        self._of_convolutions = 0
        self._of_convolutions_ns = 0

    def keep(self) -> None:
        """Read all files into memory.

        Raises:
            RequestError: no file can be read; the message has the reason for each.
        """
        self.traces = tuple(self.passing())
        self._check_any()

    def passing(self) -> Iterator[Trace]:
        """The traces, one by one; a workbook is an error."""
        for found in self._read(workbooks=False):
            if isinstance(found, Trace):
                yield found

    def _read(self, *, workbooks: bool) -> Iterator[Trace | TraceLensReport]:
        """The traces and, if wanted, the reports of TraceLens, in the order of the files."""
        if self.traces:
            yield from self.traces
            return
        for found in read_all(
            self._files, self.errors, use_cache=self._use_cache, timings=self.times,
            workbooks=workbooks,
        ):  # fmt: skip
            if isinstance(found, Trace):
                self.names.append(str(found.file))
                self._found.append((found.file, found.rows.partial, found.rows.problems))
                if not found.has_gpu_work:
                    self.without_gpu.append(found.file)
            yield found

    def _of_workbook(self, report: TraceLensReport, rows: str) -> list[Any]:
        """`rows` of the workbook; [] and an error where its sheets are missing."""
        try:
            assert self._workbooks is not None
            found: list[Any] = getattr(self._workbooks(), rows)(report)
        except RequestError as error:
            self.errors[str(report.path)] = error
            return []
        self.names.append(str(report.path))
        return found

    def _check_any(self) -> None:
        if not self.names:
            raise all_failed(self.errors)

    def stage(self, name: str) -> AbstractContextManager[None]:
        """Adds the seconds of a block to :attr:`times`."""
        return stage(self.times, name)

    def summaries(self, *, steps: bool = False) -> Summaries:
        """The GPU activity of each file, including workbooks, and of each step if `steps`.

        Raises:
            RequestError: none of the files can be read.
        """
        from gemmetry.traces.summary import outside_steps, summarize, summarize_steps

        result = Summaries([], [], [])
        for found in self._read(workbooks=self._workbooks is not None):
            with self.stage("summary"):
                if not isinstance(found, Trace):
                    result.files.extend(self._of_workbook(found, "workbook_summaries"))
                    continue
                result.files.append(summarize(found))
                if steps:
                    result.steps.extend(summarize_steps(found))
                    result.outside.append(outside_steps(found))
        self._check_any()
        return result

    def gemm_rows(self, *, or_products: bool = False) -> list[GemmRow]:
        """GEMM kernels by kernel and shape, over all files, those with the most time first.

        Args:
            or_products: if no file has work on a GPU, the products that operators record.

        Raises:
            RequestError: none of the files can be read.
        """
        from gemmetry.traces.gemms import Gemms, above_peak_warning
        from gemmetry.traces.operators.host import HostOperators

        kernels, operators = Gemms(), HostOperators()
        of_workbooks: list[GemmRow] = []
        has_gpu_times = False
        self._of_convolutions = self._of_convolutions_ns = 0
        with self.stage("gemms"):
            for found in self._read(workbooks=self._workbooks is not None):
                if not isinstance(found, Trace):
                    of_workbooks += self._of_workbook(found, "workbook_gemms")
                    has_gpu_times |= str(found.path) not in self.errors
                    continue
                kernels.add(found)
                has_gpu_times |= found.has_gpu_work
                if or_products and not found.has_gpu_work:
                    operators.add(found)
                left_out = found.rows.gpu.duration_ns[found.is_gemm_of_convolution]
                self._of_convolutions += len(left_out)
                self._of_convolutions_ns += int(left_out.sum())
            # Times of the host are not added to times of a GPU.
            rows = kernels.rows() if has_gpu_times else operators.products()
            rows = sorted([*rows, *of_workbooks], key=lambda row: -row.sum_ns)
        self._check_any()
        self._above_peak = above_peak_warning(rows)
        return rows

    def report(self, *, sheets: Sheets | None = None, with_lanes: bool = False) -> TraceReport:
        """Everything that a report shows.

        Args:
            sheets: collects further sheets, such as TraceLens'.
            with_lanes: also collect the data from which the timeline is drawn.

        Raises:
            RequestError: none of the files can be read, or a rank occurs twice in a job.
        """
        from gemmetry.traces.report import build_report

        found = build_report(
            self.passing(), self.errors, sheets=sheets, with_lanes=with_lanes, times=self.times
        )
        self._check_any()
        return found

    def summary(self) -> polars.DataFrame:
        """One row per file: counts, and exact times in µs (docs/traces.md defines them).

        Raises:
            RequestError: polars is not installed (extra ``analysis``).
        """
        from gemmetry.traces.report import summary_table

        return frame(summary_table(self.summaries().files))

    def steps(self) -> polars.DataFrame:
        """One row per file and step, like :meth:`summary`.

        Raises:
            RequestError: polars is not installed (extra ``analysis``).
        """
        from gemmetry.traces.report import step_table

        return frame(step_table(self.summaries(steps=True).steps))

    def gemms(self) -> polars.DataFrame:
        """One row per GEMM kernel and shape, over all files, those with the most time first.

        Raises:
            RequestError: polars is not installed (extra ``analysis``).
        """
        from gemmetry.traces.report import gemms_table

        return frame(gemms_table(self.gemm_rows()))

    def shapes(self) -> polars.DataFrame:
        """One row per distinct GEMM, over all files, those with the most time first; if no file has
        work on a GPU, these are the products that operators of the host record.

        Raises:
            RequestError: polars is not installed (extra ``analysis``).
        """
        from gemmetry.traces.gemms import workload
        from gemmetry.traces.report import shapes_table

        return frame(shapes_table(workload(self.gemm_rows(or_products=True))))

    def collectives(self) -> list[JobCollectives]:
        """The jobs that the traces belong to, with their collectives matched across ranks
        (docs/collectives.md).

        Raises:
            RequestError: none of the files can be read, or a rank occurs twice in a job.
        """
        from gemmetry.traces.collectives.matching import analyse_jobs
        from gemmetry.traces.jobs import rank_trace

        ranks = []
        for trace in self.passing():
            with self.stage("kernels"):
                ranks.append(rank_trace(trace))
        self._check_any()
        with self.stage("matching"):
            return analyse_jobs(ranks)

    def spec(self, *, top: int = 0) -> str:
        """A spec file of the `top` GEMMs with the most time (0: all), which ``gemmetry profile
        --spec`` runs.

        Raises:
            RequestError: no GEMM has a known shape.
        """
        from gemmetry.traces.gemms import spec_text, workload

        return spec_text(workload(self.gemm_rows(or_products=True)), self.names, top=top)

    def result(self, rows: Mapping[str, Rows]) -> Result:
        """`rows`, with the problems of the files and those that could not be read."""
        from gemmetry.results.emit import Result
        from gemmetry.traces.summary import problem_rows

        problems = [row for file, _, ones in self._found for row in problem_rows(file, ones)]
        notes = {
            "partial": [str(file) for file, is_partial, _ in self._found if is_partial],
            "problems": [row.record() for row in problems],
            "errors": [{"file": file, "error": text} for file, text in self.failures.items()],
        }
        return Result(rows=rows, notes=notes)

    @property
    def failures(self) -> Mapping[str, str]:
        """Files that could not be read, with the reason."""
        return {file: error.message for file, error in self.errors.items()}

    @property
    def warnings(self) -> list[str]:
        """The parts that are missing from files that could be read: the first problems of each
        file."""
        texts = [text for found in self._found for text in problem_texts(*found)]
        return [*texts, *filter(None, [self._above_peak])]

    def without_gpu_note(self, instead: str = "") -> str:
        """A sentence about the files without work on a GPU; "" if all have some. `instead`: what is
        shown if none has."""
        files, count = self.without_gpu, len(self.names)
        if not files:
            return ""
        from gemmetry.traces.operators.host import without_gpu_text

        if not instead or len(files) < count:
            instead = "`gemmetry trace report FILE... -o report.html` reports operators on the host"
        return f"{without_gpu_text(files, count)}; {instead}"

    def convolutions_note(self) -> str:
        """The kernels that have the name of a GEMM and are not in the table of GEMMs, or ""."""
        if not self._of_convolutions:
            return ""
        are = noun_for(self._of_convolutions, "is", "are")
        return (
            f"{plural(self._of_convolutions, 'kernel')} with the name of a GEMM, "
            f"{self._of_convolutions_ns / 1e6:,.3f} ms, ran in convolution operators and {are} "
            "left out"
        )

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
        return f"<Traces: {plural(len(self), 'file')}{failed}>"

    def _repr_html_(self) -> str:
        from gemmetry.traces.text import notebook_table

        return notebook_table(self.summaries().files, self.errors)


def load(*paths: str | PathLike[str], use_cache: bool = True) -> Traces:
    """The traces `paths`: Kineto (plain, gz, zst), rocprofv3 (JSON, CSV, rocpd), or folders.

    Raises:
        RequestError: no trace can be read; the message has the reason for each.
    """
    traces = Traces(map(Path, paths), use_cache=use_cache)
    traces.keep()
    return traces
