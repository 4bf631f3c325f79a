"""A dispatch on its way through the engine, and the record that it results in."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.errors import Outcome, Stage, Verification
from gemmetry.domain.operation import Operation
from gemmetry.domain.record import BuildFacts, Measurement, Record, TraceFacts, Verdict
from gemmetry.domain.settings import RunSettings
from gemmetry.engine.failures import Ending, left_behind, with_left_behind
from gemmetry.engine.reproduce import reproduction_command
from gemmetry.engine.store.rows import Lane, StoredRound
from gemmetry.engine.workers.protocol import WireDispatch
from gemmetry.hardware.roofline import roofline
from gemmetry.measurement.energy import EnergyTaken
from gemmetry.measurement.stopping import Round

FACT_PATHS = ("source_path", "binary_path", "assembly_path", "tool_output_path")
"""The fields of facts that name files."""


@dataclass(slots=True)
class Candidate:
    """What is known of one dispatch so far."""

    id: int
    lane: Lane
    operation: Operation
    operation_name: str
    configuration: Configuration
    facts: BuildFacts = BuildFacts()
    verdict: Verdict | None = None
    rounds: list[Round] = field(default_factory=list)
    seconds_spent: float = 0.0
    """Time spent on samples only: warming up again, loading the device or changing the inputs
    between rounds does not count towards the time budget."""
    energy: list[EnergyTaken] = field(default_factory=list)
    """What each process measured, if the settings request it."""
    sample_s: float = 0.0
    """The time of one sample, estimated by the warm-up; 0: not known."""
    stage: Stage = Stage.BUILD
    trace: TraceFacts | None = None
    trace_folder: str = ""
    """The folder of its traces, absolute."""
    trace_kept: int = 0
    """The number of repeats of an earlier run that are kept."""
    right_output: str = ""
    """The digest of the output that was verified in this run."""
    workers: list[int] = field(default_factory=list)
    """The numbers of the workers, among its lane's, that hold it open."""
    left_behind: tuple[str, ...] = ()
    """Processes that it left running and that were ended."""
    was_launched: bool = False
    """Whether it was launched in this run."""
    runs_alone: bool = False
    """It ran out of memory alongside others, or what it was blamed for may be another's fault, or
    the device was lost while it ran. It gets a second chance, alone."""

    @property
    def name(self) -> str:
        return f"{self.operation_name}_{self.configuration.name}"

    def __str__(self) -> str:
        return f"{self.lane.provider}:{self.name}"

    @property
    def wire(self) -> WireDispatch:
        """The dispatch as it is sent to a worker. A dispatch that was verified is not verified
        again when it is reopened in a new worker."""
        verify = self.verdict is None
        is_new = verify and not (self.rounds or self.was_launched)
        return WireDispatch(
            self.id, self.operation_name, self.configuration, verify, is_new, self.trace_folder,
            self.trace_kept, self.right_output,
        )  # fmt: skip

    @property
    def next_worker(self) -> int:
        """The number of the worker that samples the next round; workers take turns."""
        return self.workers[len(self.rounds) % len(self.workers)]

    def add_round(self, taken: Round) -> StoredRound:
        """Add a round. Returns the part that the store keeps."""
        number = len(self.rounds)
        self._count(taken)
        document = msgspec.to_builtins(taken)
        samples = document.pop("samples_ns")
        return StoredRound(self.id, number, samples, taken.seconds, document)

    def restore(self, stored: Sequence[StoredRound]) -> None:
        """Restore the rounds of an earlier run."""
        for taken in restored(stored):
            self._count(taken)

    def afresh(self, *, alone: bool) -> Candidate:
        """The same dispatch before anything ran, for another device; `alone`: in a group of its
        own."""
        return Candidate(
            self.id, self.lane, self.operation, self.operation_name, self.configuration,
            self.facts, trace_folder=self.trace_folder, trace_kept=self.trace_kept,
            runs_alone=alone,
        )  # fmt: skip

    def _count(self, taken: Round) -> None:
        self.rounds.append(taken)
        self.seconds_spent += taken.seconds


def restored(stored: Iterable[StoredRound]) -> list[Round]:
    """The rounds as they were sampled, from the part that the store keeps."""
    return [
        msgspec.convert({**one.document, "samples_ns": one.samples.tolist()}, Round)
        for one in stored
    ]


@dataclass(frozen=True, slots=True)
class RecordMaker:
    """Creates the records of one run."""

    settings: RunSettings
    environment_id: str
    folder: Path
    """The experiment's folder, absolute."""
    generated: Path | None = None
    """The folder to which providers write, absolute."""
    device_id: str = ""
    """The device on which dispatches run; "" where nothing runs."""
    host_bytes_per_s: float | None = None
    """The memory bandwidth of the host, if it was measured for the roofline of CPU targets."""

    def failed(
        self,
        lane: Lane,
        operation: Operation,
        configuration: Configuration,
        outcome: Outcome,
        reason: str,
    ) -> Record:
        """The record of a dispatch that ended before anything was done with it."""
        candidate = Candidate(0, lane, operation, str(operation), configuration)
        return self._record(candidate, outcome, reason=reason)

    def ended(self, candidate: Candidate, ending: Ending) -> Record:
        """The record of a dispatch that did not complete."""
        ending = with_left_behind(ending, candidate.left_behind)
        return self._record(
            candidate, ending.outcome, stage=candidate.stage, reason=ending.reason,
            output_tail=ending.output_tail,
        )  # fmt: skip

    def done(self, candidate: Candidate, measurement: Measurement | None) -> Record:
        """The record of a dispatch that is ok."""
        text = left_behind(candidate.left_behind)
        if text and measurement is not None:
            marks = (
                *measurement.marks,
                f"left running: {text}: they may disturb it and others; end them in the kernel",
            )
            measurement = dataclasses.replace(measurement, marks=marks)
        elif text:
            notes = (*candidate.facts.notes, text)
            candidate.facts = dataclasses.replace(candidate.facts, notes=notes)
        fraction, source = None, ""
        if measurement is not None and measurement.median_ns > 0:
            target, operation = candidate.lane.target, candidate.operation
            roof = roofline(target, operation, host_bytes_per_s=self.host_bytes_per_s)
            if roof is not None:
                speed = operation.flops / (measurement.median_ns / 1e9)
                fraction, source = speed / roof.attainable_flops_per_s, roof.source
        return self._record(
            candidate, Outcome.OK, measurement=measurement, trace=self._trace(candidate),
            roofline_fraction=fraction, roofline_source=source,
        )  # fmt: skip

    def _record(self, candidate: Candidate, outcome: Outcome, **fields: Any) -> Record:
        """The record of `candidate`, with `fields` of it that only some outcomes have."""
        lane, operation, settings = candidate.lane, candidate.operation, self.settings
        was_wrong = outcome is Outcome.WRONG and fields.get("stage") is Stage.VERIFY
        return Record(
            dispatch=candidate.name,
            provider=lane.provider,
            target=lane.target.name,
            device=lane.target.device,
            operation=candidate.operation_name,
            configuration=candidate.configuration.name,
            outcome=outcome,
            distribution=settings.distribution,
            seed=settings.seed,
            flops=operation.flops,
            bytes=operation.bytes,
            configuration_parameters=candidate.configuration.parameters,
            verdict=candidate.verdict or Verdict(status=Verification.NOT_VERIFIED),
            facts=self._of_this_run(candidate.facts),
            reproduce=reproduction_command(lane, candidate.name, settings, verify_only=was_wrong),
            tags=settings.tags,
            environment_id=self.environment_id,
            device_ids=(self.device_id,) if self.device_id else (),
            **fields,
        )

    def _trace(self, candidate: Candidate) -> TraceFacts | None:
        """The recorded trace, with a folder relative to the experiment's."""
        trace = candidate.trace
        if trace is None:
            return None
        folder = Path(trace.folder).relative_to(self.folder)
        return dataclasses.replace(trace, folder=str(folder))

    def _of_this_run(self, facts: BuildFacts) -> BuildFacts:
        """Make paths relative to the experiment, so that the folder can be moved; files outside it
        keep absolute paths. Providers give absolute paths, or paths relative to the parent of
        ``Workspace.generated``. The provider's own benchmark command gets this run's seed and
        distribution, which the provider does not have."""
        changed: dict[str, Any] = {}
        for name in FACT_PATHS:
            text = getattr(facts, name)
            if text:
                path = (self.generated or self.folder).parent / text
                inside = path.is_relative_to(self.folder)
                changed[name] = str(path.relative_to(self.folder) if inside else path)
        if facts.run_command:
            command = facts.run_command.replace("{seed}", str(self.settings.seed))
            changed["run_command"] = command.replace(
                "{distribution}", shlex.quote(self.settings.distribution)
            )
        return dataclasses.replace(facts, **changed) if changed else facts


def merge_facts(compiled: BuildFacts, built: BuildFacts) -> BuildFacts:
    """The facts from building, completed by those from compiling."""
    if compiled == BuildFacts():
        return built
    values = {
        item.name: getattr(built, item.name)
        for item in dataclasses.fields(built)
        if getattr(built, item.name) not in (None, ())
    }
    return dataclasses.replace(compiled, **values)
