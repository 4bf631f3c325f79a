"""The summary of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gemmetry.domain.errors import EnvironmentFailure
from gemmetry.domain.outcome import Outcome
from gemmetry.store.experiment import Experiment

_LEFT_OUT = (Outcome.UNSUPPORTED, Outcome.SKIPPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """Counts over the whole experiment, including earlier runs."""

    experiment: Path
    total: int
    """The dispatches of the plan."""
    kept: int = 0
    """The dispatches that were done before this run."""
    samples_kept: int = 0
    outcomes: Mapping[Outcome, int] = field(default_factory=dict)
    operations_without_ok: int = 0
    """The operations of which no dispatch is ok."""
    failure: str = ""
    """Why the run ended before its plan did; the same command resumes it."""

    @property
    def finished(self) -> int:
        """The dispatches with an outcome."""
        return sum(self.outcomes.values())

    @property
    def exit_status(self) -> int:
        """0: done. 1: something was wrong, crashed, timed out or ran out of memory, or an operation
        has no ok dispatch. 3: the environment failed. (2, an invalid request, is raised; 130, an
        interrupt, is KeyboardInterrupt.)"""
        if self.failure:
            return EnvironmentFailure.exit_status
        failed = any(outcome.is_failure and count for outcome, count in self.outcomes.items())
        return 1 if failed or self.operations_without_ok else 0


def summarize_run(
    experiment: Experiment,
    *,
    kept: int,
    samples_kept: int,
    failure: str = "",
    may_leave_out: bool = False,
) -> RunSummary:
    """Count the results in the journal.

    `may_leave_out`: operations that the device does not support are no failure, as long as others
        are ok.
    """
    outcomes = {Outcome(name): count for name, count in experiment.outcome_counts().items()}
    leaves_out = may_leave_out and Outcome.OK in outcomes
    return RunSummary(
        experiment=experiment.path,
        total=experiment.total(),
        kept=kept,
        samples_kept=samples_kept,
        outcomes=outcomes,
        operations_without_ok=experiment.operations_without_ok(_LEFT_OUT if leaves_out else ()),
        failure=failure,
    )
