"""The job that records traces: each dispatch alone, under the profiler, into its own folder."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from gemmetry.domain.outcome import Stage
from gemmetry.domain.record import Record
from gemmetry.domain.settings import TraceSchedule
from gemmetry.engine.jobs import Document, Job, Lacking, Outputs, PreparedDispatch, Workbench

if TYPE_CHECKING:
    from gemmetry.domain.contracts import Executable
    from gemmetry.domain.dispatch import Dispatch
    from gemmetry.engine.device.grouping import Budget
    from gemmetry.engine.dispatches.candidate import Candidate
    from gemmetry.engine.workers.protocol import Opened, WireDispatch
    from gemmetry.store.experiment import Experiment


@dataclass(frozen=True, slots=True)
class Recording(Job):
    """Traces of every dispatch are recorded once it is verified; see :class:`Job`."""

    schedule: TraceSchedule

    reports_opening: ClassVar[bool] = False
    may_leave_out: ClassVar[bool] = True
    older_plans_grow: ClassVar[bool] = True  # it may have had fewer repeats
    keeps_verdicts: ClassVar[bool] = False
    leaves_files: ClassVar[bool] = True
    worker_defaults: ClassVar[Mapping[str, str]] = {
        "KINETO_LOG_LEVEL": "6",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }
    """Torch's profiler writes four lines per repeat, which would displace the explanation of a
    failure from the end of the output. It raises its errors in any case, as seen with torch
    2.13."""

    def groups(self, candidates: Iterable[Candidate], budget: Budget) -> Iterator[list[Candidate]]:
        """One at a time: traces are not compared in rounds, and each completed trace is kept at
        once."""
        return ([candidate] for candidate in candidates)

    def outputs(self, store: Experiment, environment_id: str, *, fresh: bool) -> Outputs:
        """The folders of the traces and their manifest."""
        from gemmetry.engine.recording.folders import TraceFolders

        return TraceFolders(store, self.schedule, kept_of=None if fresh else environment_id)

    def without_growth(self, old: Document, new: Document) -> Document:
        """More repeats are added to the existing ones; fewer would be another grid."""
        if "trace" not in old or "trace" not in new:
            return new
        before, now = old["trace"], new["trace"]
        return {**new, "trace": {**now, "repeats": min(before["repeats"], now["repeats"])}}

    def lacking(self, store: Experiment, *, other_amounts: bool) -> Lacking | None:
        """Dispatches that have fewer repeats than the schedule, or lost their folder."""

        def lacks(number: int, record: Record) -> bool:
            trace = record.trace
            if trace is None:
                return False
            is_there = (store.path / trace.folder).is_dir()
            return trace.repeats < self.schedule.repeats or not is_there

        return lacks

    def flaw_of_opened(self, opened: Opened, wire: WireDispatch) -> str:
        """Traces must be in the dispatch's own folder."""
        if opened.trace is None or opened.trace.folder != wire.trace_folder:
            return "traces in a folder that is not the dispatch's"
        return ""

    @property
    def launch_limit_s(self) -> float:
        """All launches of the schedule must fit the deadline of the stage."""
        return self.settings.deadlines_s[Stage.TRACE] / self.schedule.steps

    def objection(self, seconds: float) -> str:
        """Names the deadline to set instead."""
        steps, deadline_s = self.schedule.steps, self.settings.deadlines_s[Stage.TRACE]
        if steps * seconds <= deadline_s:
            return ""
        return (
            f"so that the {steps} launches of its traces would exceed their deadline of "
            f"{deadline_s:g} s; run it with --set "
            f"deadlines.trace={math.ceil(2 * steps * seconds)} or fewer repeats"
        )

    def prepare(
        self, bench: Workbench, wire: WireDispatch, dispatch: Dispatch, executable: Executable
    ) -> PreparedDispatch:
        """Record the traces."""
        from gemmetry.engine.recording.tracing import record_traces

        bench.enter(wire, Stage.TRACE)
        inputs, folder = bench.inputs(dispatch.operation), Path(wire.trace_folder)
        kept = wire.trace_kept
        return PreparedDispatch(
            trace=record_traces(executable, dispatch, inputs, self, folder, kept)
        )
