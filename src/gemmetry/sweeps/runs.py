"""Running training sweeps from scripts, and from the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from gemmetry.domain.rows import SCHEMA_VERSION
from gemmetry.engine.opaque import is_kept
from gemmetry.sweeps.training.planning import (
    PlannedSweep,
    SweepOptions,
    make_request,
    plan_sweep,
    sweep_folder,
)
from gemmetry.sweeps.training.run import ended_points, job_executor, plan_jobs, run_sweep, succeeded

if TYPE_CHECKING:
    from gemmetry.engine.opaque import JobEnd, JobListener, OpaqueJob
    from gemmetry.sweeps.api import AnalyzedSweep
    from gemmetry.sweeps.training.axes import PlannedPoint


class SweepRun:
    """A sweep that was run: its points, and how each of them ended."""

    def __init__(self, plan: PlannedSweep, ends: Mapping[str, JobEnd]) -> None:
        self.folder = plan.folder
        self.points = plan.points
        self.ends = ends
        """Folder of a point below :attr:`folder` -> how it ended."""

    @property
    def failed(self) -> list[PlannedPoint]:
        """The points without their traces."""
        return [one for one in self.points if not succeeded(self.ends.get(one.folder))]

    def document(self) -> dict[str, Any]:
        """The content of ``gemmetry sweep run --json``."""
        ended = [(one, self.ends[one.folder]) for one in self.points if one.folder in self.ends]
        return _document(self.folder, [(one, msgspec.to_builtins(end)) for one, end in ended])

    def analyze(self, **options: Any) -> AnalyzedSweep:
        """What its traces show, like :func:`gemmetry.sweeps.api.analyze` with its options."""
        from gemmetry.sweeps.api import analyze

        return analyze(self.folder, **options)

    def __repr__(self) -> str:
        return f"<SweepRun {self.folder}: {len(self.points)} points, {len(self.failed)} failed>"


class SweepPlan:
    """A sweep that can run; nothing has been written yet."""

    def __init__(self, plan: PlannedSweep, *, fresh: bool) -> None:
        self.plan = plan
        self._fresh = fresh

    @property
    def folder(self) -> Path:
        """Where it is stored."""
        return self.plan.folder

    @property
    def notes(self) -> Sequence[str]:
        """What is worth knowing before it runs, one sentence each."""
        return self.plan.notes

    @cached_property
    def jobs(self) -> Sequence[OpaqueJob]:
        """The command and environment of each point, in the order in which they run."""
        return plan_jobs(self.plan)

    @cached_property
    def kept(self) -> frozenset[str]:
        """The folders of the points that succeeded earlier and do not run again."""
        if self._fresh:
            return frozenset()
        ends = ended_points(self.plan)
        return frozenset(job.name for job in self.jobs if is_kept(job, ends.get(job.name)))

    @property
    def succeeded(self) -> int:
        """Number of points that have their traces already."""
        return sum(map(succeeded, ended_points(self.plan).values()))

    def document(self) -> dict[str, Any]:
        """The content of ``gemmetry sweep run --dry-run --json``."""
        return _document(self.folder, [
            (one, {"command": list(job.argv), "environment": dict(job.environment),
                   "kept": job.name in self.kept})
            for one, job in zip(self.plan.points, self.jobs, strict=True)
        ])  # fmt: skip

    def run(self, *, listener: JobListener | None = None, command: str = "") -> SweepRun:
        """Run the points that have not succeeded yet. One that fails is marked, and the others run.

        Args:
            listener: is called with what happens, such as a
                :class:`~gemmetry.engine.opaque.JobFinished`.
            command: the command line, for the manifest.

        Raises:
            RequestError: another process uses the folder.
            StorageError: a file cannot be written; what is there is kept.
            EnvironmentFailure: the executor cannot be used.
            KeyboardInterrupt: after the running point has been ended.
        """
        listener = listener or (lambda event: None)
        ends = run_sweep(
            self.plan, listener=listener, fresh=self._fresh, command=command,
            executor=job_executor(self.plan),
        )  # fmt: skip
        return SweepRun(self.plan, ends)

    def __repr__(self) -> str:
        return f"<SweepPlan {self.folder}: {len(self.plan.points)} points>"


def plan(
    output: str | PathLike[str] | None = None,
    *,
    resume: bool = False,
    fresh: bool = False,
    **options: Unpack[SweepOptions],
) -> SweepPlan:
    """The sweep with these options, checked; nothing runs and nothing is written.

    Args:
        output: folder of the sweep; None: a new one, or the latest of its kind to `resume`.
        resume: continue the sweep in `output`, or the latest one. A folder that is given is
            continued in any case.
        fresh: begin anew in `output`; what is there is moved aside.
        options: :class:`~gemmetry.sweeps.training.planning.SweepOptions`, those of
            ``gemmetry sweep run``.

    Raises:
        RequestError: the request is wrong, this machine cannot carry it out, or the folder belongs
            to something else.
    """
    request = make_request(**options)
    folder = sweep_folder(
        request, None if output is None else Path(output), resume=resume, fresh=fresh
    )
    return SweepPlan(plan_sweep(request, folder, fresh=fresh), fresh=fresh)


def _document(
    folder: Path, points: Sequence[tuple[PlannedPoint, Mapping[str, Any]]]
) -> dict[str, Any]:
    listed = [{**one.document(), "folder": one.folder, **more} for one, more in points]
    return {"schema_version": SCHEMA_VERSION, "sweep": str(folder), "points": listed}
