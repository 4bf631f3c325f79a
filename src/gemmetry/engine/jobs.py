"""Jobs: what a run does with each dispatch of its plan.

A run compiles, verifies, measures or records traces. All differences between these are in a
:class:`Job`, which both the parent and the workers derive from the settings of the plan. Nothing
else in the engine depends on the kind of job.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from gemmetry.domain.dispatch import Target
from gemmetry.domain.errors import Stage
from gemmetry.domain.record import Listener, Record, TraceFacts
from gemmetry.domain.settings import RunSettings

if TYPE_CHECKING:
    from gemmetry.domain.contracts import Executable, HostArray
    from gemmetry.domain.dispatch import Dispatch
    from gemmetry.domain.operation import Operation
    from gemmetry.engine.candidates import Candidate
    from gemmetry.engine.slots import Budget
    from gemmetry.engine.store.experiment import Experiment
    from gemmetry.engine.workers.protocol import Opened, WireDispatch
    from gemmetry.measurement.sampler import Sampler


Lacking = Callable[[int, Record], bool]
"""Whether a finished dispatch, given by its number in the plan and its record, lacks results that
the job's settings require."""


Document = Mapping[str, Any]
"""The part of a plan's document that determines results."""


class Outputs:
    """Files that a job keeps in the experiment in addition to the journal: here, none.

    The thread that writes the journal calls all methods.
    """

    def assign(self, candidate: Candidate) -> None:
        """Store the location of its files in `candidate`."""

    def noting(self, listener: Listener) -> Listener:
        """`listener`, preceded by whatever must follow the events of the run."""
        return listener

    def close(self) -> None:
        """Finish, at the end of the run."""


@dataclass(frozen=True, slots=True)
class PreparedDispatch:
    """What a worker keeps of an open dispatch."""

    sampler: Sampler | None = None
    trace: TraceFacts | None = None


class Workbench(Protocol):
    """What a worker offers to a job."""

    def enter(self, wire: WireDispatch, stage: Stage) -> None:
        """Announce that the dispatch enters `stage`, which starts the deadline of that stage."""

    def inputs(self, operation: Operation) -> tuple[HostArray, ...]:
        """The inputs of `operation`, on the host."""

    def make_sampler(self, dispatch: Dispatch, executable: Executable) -> Sampler:
        """A sampler of `executable`, warmed up."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a run does with each dispatch of its plan. Every job builds dispatches, and verifies
    them if the settings require it; kinds of jobs override what else they do."""

    settings: RunSettings

    uses_device: ClassVar[bool] = True
    """Whether dispatches are opened on the device; otherwise they are done once they are
    compiled."""
    samples: ClassVar[bool] = False
    """Whether dispatches are sampled in rounds."""
    reports_opening: ClassVar[bool] = True
    """Whether progress counts the dispatches of a group that are verified or built."""
    may_leave_out: ClassVar[bool] = False
    """Whether operations that the device does not support are no failure, as long as others are
    ok."""
    older_plans_grow: ClassVar[bool] = False
    """Whether an experiment may lack results of a plan beyond which it has grown."""
    keeps_verdicts: ClassVar[bool] = True
    """Whether a finished dispatch that is continued is not verified again."""
    leaves_files: ClassVar[bool] = False
    """Whether workers write results to files, which stay on the machine where they run."""
    worker_defaults: ClassVar[Mapping[str, str]] = {}
    """Environment variables of workers, unless the user has set them."""

    # In the parent.

    def process_count(self, target: Target) -> int:
        """The number of processes that share the work on a dispatch."""
        return 1

    def groups(self, candidates: Iterable[Candidate], budget: Budget) -> Iterator[list[Candidate]]:
        """`candidates` in groups that are open at the same time."""
        from gemmetry.engine.slots import groups

        return groups(candidates, budget)

    def outputs(self, store: Experiment, environment_id: str, *, fresh: bool) -> Outputs:
        """Files to keep in the experiment `store`.

        Args:
            environment_id: the environment of this run.
            fresh: whether nothing of an earlier run is kept.

        Raises:
            StorageError, JournalDamagedError: they cannot be read or written.
        """
        return Outputs()

    def without_growth(self, old: Document, new: Document) -> Document:
        """The document `new` of a plan, without the parts by which an experiment with the document
        `old` may grow."""
        return new

    def lacking(self, store: Experiment, *, other_amounts: bool) -> Lacking | None:
        """A function that finds finished dispatches of `store` that this job continues; None if
        there can be none.

        Args:
            other_amounts: whether the experiment's current plan requires a different number of
                samples.
        """
        return None

    def flaw_of_opened(self, opened: Opened, wire: WireDispatch) -> str:
        """What is wrong with the answer about `wire`, which neither failed nor was skipped; "" if
        nothing is."""
        return ""

    # In the parent and in workers.

    @property
    def launch_limit_s(self) -> float:
        """The longest launch that fits the deadlines of this job, verification excepted."""
        return math.inf

    def objection(self, seconds: float) -> str:
        """Why a launch that takes `seconds` does not fit, as a continuation of what was observed;
        "" if it fits."""
        return ""

    # In workers.

    def prepare(
        self,
        bench: Workbench,
        wire: WireDispatch,
        dispatch: Dispatch,
        executable: Executable,
    ) -> PreparedDispatch:
        """Do the work that follows building and verification.

        Raises:
            DispatchError, OutOfMemoryError, DeviceLostError: it failed.
        """
        return PreparedDispatch()


class Compiling(Job):
    """Dispatches are compiled, and not opened on a device."""

    uses_device = False


class Verifying(Job):
    """Dispatches are only verified."""


class Measuring(Job):
    """Dispatches are sampled in rounds after they are verified."""

    samples = True

    def process_count(self, target: Target) -> int:
        """As the settings or the target require."""
        from gemmetry.measurement.stopping import process_count

        return process_count(self.settings, target)

    def lacking(self, store: Experiment, *, other_amounts: bool) -> Lacking | None:
        """Dispatches measured in the environment of this run that need more samples."""
        if not other_amounts:
            return None
        from gemmetry.engine.candidates import restored
        from gemmetry.measurement.stopping import StopPolicy

        targets = {lane.place[:2]: lane.target for lane in store.lanes()}

        def lacks(number: int, record: Record) -> bool:
            if record.measurement is None or not store.is_alike(record):
                return False
            rounds = restored(store.rounds([number]).get(number, ()))
            target = targets[record.provider, record.target]
            spent = sum(taken.seconds for taken in rounds)
            return bool(rounds and StopPolicy(self.settings, target).next_count(rounds, spent))

        return lacks

    def prepare(
        self, bench: Workbench, wire: WireDispatch, dispatch: Dispatch, executable: Executable
    ) -> PreparedDispatch:
        """Upload the inputs and warm up."""
        bench.enter(wire, Stage.MEASURE)
        return PreparedDispatch(sampler=bench.make_sampler(dispatch, executable))


def job_of(settings: RunSettings) -> Job:
    """The job that the settings of a plan describe."""
    if settings.trace is not None:
        from gemmetry.engine.recording import Recording

        return Recording(settings, settings.trace)
    if settings.measure:
        return Measuring(settings)
    return Verifying(settings) if settings.verify else Compiling(settings)
