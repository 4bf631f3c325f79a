"""Jobs: what a run does with each dispatch of its plan.

A run compiles, verifies, measures or records traces. All differences between these are in a
:class:`Job`, which both the parent and the workers derive from the settings of the plan. Nothing
else in the engine depends on the kind of job.

The command line that repeats one dispatch.

A dispatch on its way through the engine, and the record that it results in.

How long a launch may take, and the reason that is reported if one takes longer.

A prediction alone never excludes a dispatch. If a provider predicts a launch that may be too long,
one launch is timed first. The parent enforces its deadline, so that even a launch that never ends
is stopped.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gemmetry.domain.dispatch import Configuration, Target, split_dispatch_name
from gemmetry.domain.errors import NameSyntaxError, Outcome, Stage, Verification
from gemmetry.domain.operation import Operation, operation_name
from gemmetry.domain.options import SETTINGS
from gemmetry.domain.record import BuildFacts, Listener, Measurement, Record, TraceFacts, Verdict
from gemmetry.domain.settings import Effect, Form, Key, RunSettings, TraceSchedule
from gemmetry.engine.protocol import Ending, WireDispatch, left_behind, with_left_behind
from gemmetry.engine.schema import Lane, StoredRound
from gemmetry.hardware.roofline import roofline
from gemmetry.measurement.energy import EnergyTaken
from gemmetry.measurement.stopping import Round
from gemmetry.verification.protocol import launches

if TYPE_CHECKING:
    from gemmetry.domain.contracts import Executable
    from gemmetry.domain.dispatch import Dispatch
    from gemmetry.domain.operation import Operation
    from gemmetry.engine.bench import Bench
    from gemmetry.engine.experiment import Experiment
    from gemmetry.engine.protocol import Opened, WireDispatch
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
class Job:
    """What a run does with each dispatch of its plan. Every job builds dispatches, and verifies
    them if the settings require it; kinds of jobs override what else they do."""

    settings: RunSettings

    uses_device: ClassVar[bool] = True
    """Whether dispatches are opened on the device; otherwise they are done once they are
    compiled."""
    samples: ClassVar[bool] = False
    """Whether dispatches are sampled in rounds."""
    may_leave_out: ClassVar[bool] = False
    """Whether operations that the device does not support are no failure, as long as others are
    ok."""
    older_plans_grow: ClassVar[bool] = False
    """Whether an experiment may lack results of a plan beyond which it has grown."""
    keeps_verdicts: ClassVar[bool] = True
    """Whether a finished dispatch that is continued is not verified again."""
    works_alone: ClassVar[bool] = False
    """Whether dispatches are open one at a time: they are not compared in rounds, and each is kept
    at once. Progress then counts no dispatches of a group that are verified or built."""
    leaves_files: ClassVar[bool] = False
    """Whether workers write results to files, which stay on the machine where they run."""
    worker_defaults: ClassVar[Mapping[str, str]] = {}
    """Environment variables of workers, unless the user has set them."""

    # In the parent.

    def process_count(self, target: Target) -> int:
        """The number of processes that share the work on a dispatch."""
        return 1

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
        self, bench: Bench, wire: WireDispatch, dispatch: Dispatch, executable: Executable
    ) -> Sampler | TraceFacts | None:
        """Do the work that follows building and verification. Returns what takes the samples, or
        the traces that were recorded.

        Raises:
            DispatchError, OutOfMemoryError, DeviceLostError: it failed.
        """
        return None


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
        from gemmetry.measurement.stopping import StopPolicy

        targets = {lane.place[:2]: lane.target for lane in store.lanes()}

        def lacks(number: int, record: Record) -> bool:
            if record.measurement is None or record.environment_id not in store.alike:
                return False
            rounds = [one.taken for one in store.rounds([number]).get(number, ())]
            target = targets[record.provider, record.target]
            spent = sum(taken.seconds for taken in rounds)
            return bool(rounds and StopPolicy(self.settings, target).next_count(rounds, spent))

        return lacks

    def prepare(
        self, bench: Bench, wire: WireDispatch, dispatch: Dispatch, executable: Executable
    ) -> Sampler:
        """Upload the inputs and warm up."""
        bench.enter(wire, Stage.MEASURE)
        return bench.make_sampler(dispatch, executable)


def job_of(settings: RunSettings) -> Job:
    """The job that the settings of a plan describe."""
    if settings.trace is not None:
        from gemmetry.engine.recording import Recording

        return Recording(settings, settings.trace)
    if settings.measure:
        return Measuring(settings)
    return Verifying(settings) if settings.verify else Compiling(settings)


PROBE_DOUBT = 12
"""How many times longer than predicted a launch may take. Predictions scale the time of small
products, which stay in the cache: for torch's f16 on a CPU without f16 arithmetic they were 0.7 s
where 1024³ takes 2 s, and 6 s where 2048³ takes 65 s."""

LEAST_TRIAL_S = 2.0
"""A launch on trial may take at least this long before its worker is ended, whatever limit then
applies to its time: starting another worker takes about as long."""


@dataclass(frozen=True, slots=True)
class LaunchBudget:
    """The limits that a job and its settings set for one launch."""

    job: Job
    verifies: bool
    """Whether this dispatch is verified, if the settings require it."""

    @property
    def limit_s(self) -> float:
        """The longest launch that can run within its deadlines."""
        settings = self.job.settings
        fewest = self._launches(math.inf)
        verify_s = settings.deadlines_s[Stage.VERIFY] / fewest if fewest else math.inf
        return min(settings.max_seconds_per_launch, self.job.launch_limit_s, verify_s)

    @property
    def trial_s(self) -> float:
        """The time after which a launch on trial is ended."""
        return max(self.limit_s, LEAST_TRIAL_S)

    def is_doubtful(self, predicted_s: float | None) -> bool:
        """True if a launch that takes :data:`PROBE_DOUBT` times as long as predicted would be too
        long, so that one has to be tried; False if nothing is predicted."""
        return predicted_s is not None and bool(self.objection(PROBE_DOUBT * predicted_s))

    def overrun(self) -> str:
        """The objection to a launch that exceeded :attr:`trial_s`."""
        observed = f"one launch did not end within {self.trial_s:.3g} s"
        return self.objection(math.nextafter(self.trial_s, math.inf), observed)

    def objection(self, seconds: float, observed: str = "") -> str:
        """Why a launch that took `seconds` is too long, and what to do; "" if it is not."""
        settings, observed = self.job.settings, observed or f"one launch took {seconds:.3g} s"
        if seconds > settings.max_seconds_per_launch:
            return (
                f"{observed}, more than the {settings.max_seconds_per_launch:.3g} s allowed; "
                "raise --max-seconds-per-launch to run it"
            )
        if objection := self.job.objection(seconds):
            return f"{observed}, {objection}"
        count, deadline_s = self._launches(seconds), settings.deadlines_s[Stage.VERIFY]
        if count * seconds <= deadline_s:
            return ""
        return (
            f"{observed}, so that the {count} launches of {settings.verification_level} "
            f"verification would exceed its deadline of {deadline_s:g} s; run it with --set "
            f"deadlines.verify={math.ceil(2 * count * seconds)}"
            + ("" if settings.verification_level == "quick" else " or --verification-level quick")
        )

    def _launches(self, seconds: float) -> int:
        settings = self.job.settings
        is_verified = settings.verify and self.verifies
        return launches(settings.verification_level, seconds) if is_verified else 0


_DEFAULTS = RunSettings()


def reproduction_command(
    lane: Lane, dispatch: str, settings: RunSettings, *, verify_only: bool = False
) -> str:
    """A ``gemmetry profile`` command for the dispatch called `dispatch` of `lane`, with the seed,
    the distribution and every other setting that differs from its default and can change the
    outcome. It is ``gemmetry verify run`` if only verification is requested or `verify_only` shows
    that verification decided, and ``gemmetry trace record`` if traces were requested. Of several
    kernels of a user's own it names the one that the dispatch belongs to, if the name shows
    that."""
    lane, dispatch = _with_its_kernel(lane, dispatch)
    schedule = None if verify_only else settings.trace
    verify_only = verify_only or (settings.verify and not settings.measure and schedule is None)
    if verify_only or schedule is not None:
        deadlines = {**settings.deadlines_s, Stage.MEASURE: _DEFAULTS.deadlines_s[Stage.MEASURE]}
        silent = {key.setting: getattr(_DEFAULTS, key.setting) for key in SETTINGS
                  if key.effect is Effect.TIMING}  # fmt: skip
        settings = replace(settings, **silent, deadlines_s=deadlines)
    command = ["verify", "run"] if verify_only else ["profile"]
    if schedule is not None:
        command = ["trace", "record", *_schedule(schedule)]
    words = ["gemmetry", *command, *_provider(lane)]
    words += ["--dispatches", dispatch, "--device", lane.target.device or lane.target.name]
    words += ["--seed", str(settings.seed), "--distribution", settings.distribution]
    return shlex.join([*words, *_settings(settings), "--fresh"])


def _with_its_kernel(lane: Lane, dispatch: str) -> tuple[Lane, str]:
    """The lane with only the kernel of `dispatch`, and the name of the dispatch in it: with several
    kernels, the function's name precedes the configuration's."""
    kernels = lane.options.get("kernel") or []
    if isinstance(kernels, str) or len(kernels) < 2:
        return lane, dispatch
    try:
        operation, configuration = split_dispatch_name(dispatch)
    except NameSyntaxError:
        return lane, dispatch
    prefixes = {text: f"{text.rpartition(':')[2]}_" for text in kernels}
    found = [text for text, prefix in prefixes.items() if configuration.startswith(prefix)]
    if len(found) != 1:
        return lane, dispatch
    alone = configuration.removeprefix(prefixes[found[0]])
    name = f"{operation_name(operation)}_{alone}"
    if split_dispatch_name(name) != (operation, alone):
        return lane, dispatch  # the operation would swallow the start of the configuration's name
    return replace(lane, options={**lane.options, "kernel": found}), name


def _schedule(schedule: TraceSchedule) -> list[str]:
    return [
        "--wait-steps", str(schedule.wait_steps),
        "--warmup-iterations", str(schedule.warmup_steps),
        "--active-steps", str(schedule.active_steps),
        "--benchmark-repetitions", str(schedule.repeats),
    ]  # fmt: skip


def _provider(lane: Lane) -> list[str]:
    options = {name: value for name, value in lane.options.items() if name != "kernel"}
    if options:
        # JSON is YAML, so that any options can be given this way.
        document = json.dumps([{"name": lane.provider, "options": options}])
        words = ["--set", f"providers={document}"]
    else:
        words = ["--providers", lane.provider]
    if kernels := lane.options.get("kernel") or []:
        words += ["--kernel", kernels if isinstance(kernels, str) else ",".join(kernels)]
    return words


def _settings(settings: RunSettings) -> list[str]:
    """Options of the settings that can change an outcome and differ from their defaults."""
    words: list[str] = []
    for key in sorted(SETTINGS, key=lambda key: list(Form).index(key.form)):
        value, usual = getattr(settings, key.setting), getattr(_DEFAULTS, key.setting)
        is_named = key.effect is Effect.NOTHING or key.name in ("seed", "distribution")
        if value != usual and not is_named:
            words += _option(key, value, usual)
    return words


def _option(key: Key, value: Any, usual: Any) -> list[str]:
    match key.form:
        case Form.FLAG:
            return [key.option if value else key.option.replace("--", "--no-", 1)]
        case Form.LIST:
            return [key.option, ",".join(value)]
        case Form.TEXT:
            return [key.option, f"{value!r}s" if key.metavar == "TIME" else str(value)]
        case Form.SPEC_ONLY if isinstance(value, Mapping):
            changed = {part: own for part, own in value.items() if own != usual[part]}
            return [word for part, own in changed.items()
                    for word in ("--set", f"{key.name}.{part}={own!r}")]  # fmt: skip
        case Form.SPEC_ONLY:
            return ["--set", f"{key.name}={json.dumps(value)}"]


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
    outclassed_by: int | None = None
    """The faster candidate of the operation, which ended the sampling of this one; None: none."""
    sample_s: float = 0.0
    """The time of one sample, estimated by the warm-up; 0: not known."""
    stage: Stage = Stage.BUILD
    compiling: Future[Any] | None = None
    """The batch of its compilation ahead (``compiling.py``); None: not compiled ahead."""
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
    """True if launched in this run."""
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

    def add_round(self, taken: Round) -> StoredRound:
        """Add a round, taken now or by an earlier run. Returns what the store keeps of it."""
        self.rounds.append(taken)
        self.seconds_spent += taken.seconds
        return StoredRound(self.id, len(self.rounds) - 1, taken)

    def afresh(self, *, alone: bool) -> Candidate:
        """The same dispatch before anything ran, for another device; `alone`: in a group of its
        own."""
        return Candidate(
            self.id, self.lane, self.operation, self.operation_name, self.configuration,
            self.facts, compiling=self.compiling, trace_folder=self.trace_folder,
            trace_kept=self.trace_kept, runs_alone=alone,
        )  # fmt: skip


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

    def refused(
        self, lane: Lane, operation: Operation, configuration: Configuration, reason: str
    ) -> Record:
        """The record of a dispatch that its provider does not support."""
        candidate = Candidate(0, lane, operation, str(operation), configuration)
        return self._record(candidate, Outcome.UNSUPPORTED, reason=reason)

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
            mark = f"left running: {text}: they may disturb it and others; end them in the kernel"
            measurement = replace(measurement, marks=(*measurement.marks, mark))
        elif text:
            candidate.facts = replace(candidate.facts, notes=(*candidate.facts.notes, text))
        fields: dict[str, Any] = {}
        if measurement is not None and measurement.median_ns > 0:
            target, operation = candidate.lane.target, candidate.operation
            roof = roofline(target, operation, host_bytes_per_s=self.host_bytes_per_s)
            if roof is not None:
                speed = operation.flops / (measurement.median_ns / 1e9)
                fields["roofline_fraction"] = speed / roof.attainable_flops_per_s
                fields["roofline_source"] = roof.source
        if (trace := candidate.trace) is not None:
            folder = str(Path(trace.folder).relative_to(self.folder))
            fields["trace"] = replace(trace, folder=folder)
        return self._record(candidate, Outcome.OK, measurement=measurement, **fields)

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

    def _of_this_run(self, facts: BuildFacts) -> BuildFacts:
        """Make paths relative to the experiment, so that the folder can be moved; files outside it
        keep absolute paths. Providers give absolute paths, or paths relative to the parent of
        ``Workspace.generated``. The provider's own benchmark command gets this run's seed and
        distribution, which the provider does not have."""
        changed: dict[str, Any] = {}
        for name in FACT_PATHS:
            if text := getattr(facts, name):
                path = (self.generated or self.folder).parent / text
                inside = path.is_relative_to(self.folder)
                changed[name] = str(path.relative_to(self.folder) if inside else path)
        if facts.run_command:
            drawn = shlex.quote(self.settings.distribution)
            command = facts.run_command.replace("{seed}", str(self.settings.seed))
            changed["run_command"] = command.replace("{distribution}", drawn)
        return replace(facts, **changed)


def merge_facts(compiled: BuildFacts, built: BuildFacts) -> BuildFacts:
    """The facts from building, completed by those from compiling."""
    if compiled == BuildFacts():
        return built
    values = ((one.name, getattr(built, one.name)) for one in fields(built))
    return replace(compiled, **{name: value for name, value in values if value not in (None, ())})
