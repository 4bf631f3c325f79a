"""Stored results: the record of a dispatch, which is the one row that store, reports and the JSON
contract share; the environment it was measured in; and the set of an experiment's records.

Events that the engine sends to its listeners (progress bars, logs, tests) during a run.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from gemmetry.domain.errors import Outcome, Stage, Verification
from gemmetry.domain.settings import BACK_TO_BACK
from gemmetry.domain.units import format_ns


class Trait(StrEnum):
    """Properties that an executable declares of its arithmetic, as stored in
    :attr:`BuildFacts.declared`. A declaration relaxes one rule of verification."""

    NONDETERMINISTIC = "nondeterministic"
    """Launches may differ in their last bits (sums by atomics): the bound judges each of them."""
    NORMWISE = "normwise"
    """Winograd, Strassen: errors are bounded by norms of A and B, not element by element."""
    FLUSHES_SUBNORMALS = "flushes_subnormals"
    """Subnormal inputs and results count as zero, even in formats where that is unusual."""
    STOCHASTIC_ROUNDING = "stochastic_rounding"
    """The result is rounded up or down at random: one ulp instead of half, and no bias."""
    TF32 = "tf32"
    """f32 inputs are rounded to tf32, as the caller's settings allow."""
    FP8_FAST_ACCUMULATION = "fp8_fast_accumulation"
    """fp8 sums stay in the tensor cores' 14 bits and are never promoted to f32."""
    REUSES_RESULTS = "reuses_results"
    """The memory of a returned result is reused for later results: callers that keep a result copy
    it."""
    ROUNDS_BEFORE_ADDING = "rounds_before_adding"
    """alpha·A·B is rounded to the result's format before beta·C is added, as by a second kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFacts:
    """Facts learned from building a dispatch; None where the provider cannot know them."""

    registers: int | None = None
    """Per thread."""
    spill_bytes: int | None = None
    """Local memory per thread that the register allocator had to use."""
    shared_memory_bytes: int | None = None
    """Static plus dynamic, per block."""
    matrix_instruction: str | None = None
    """The multiply instruction found in the machine code: a matrix instruction, e.g. ``wgmma``, or
    on a CPU the most frequent multiply-add with its register type, e.g. ``vfmadd231ps zmm``; "none"
    if there is none."""
    compiled_for: str | None = None
    """Architecture the code was compiled for, where it differs from the target's."""
    default_configuration: str | None = None
    """The compiler's own choices, where the configuration leaves them open."""
    algorithms_tried: int | None = None
    """Number of algorithms that the provider timed to choose `default_configuration`; None where it
    timed none."""
    workspace_bytes: int | None = None
    """Device memory that launches write besides the result."""
    compile_ns: int | None = None
    source_path: str | None = None
    """Generated source, relative to the experiment folder, like all paths here."""
    binary_path: str | None = None
    assembly_path: str | None = None
    tool_output_path: str | None = None
    """Output of the provider's tools (a compiler, an assembler) about this dispatch."""
    compile_command: str | None = None
    run_command: str | None = None
    """A command that makes the same measurement with the provider's own tool, as a cross-check. The
    engine replaces ``{seed}`` and ``{distribution}`` by those of the run."""
    declared: tuple[Trait, ...] = ()
    """The provider's declarations about its arithmetic; verification applies them."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Result of verification; ratios are errors divided by the bound (1.0 = on the bound)."""

    status: Verification
    checks: Mapping[str, str] = field(default_factory=dict)
    """Check -> "passed", "failed: why" or "not applicable: why"."""
    max_error_ratio: float | None = None
    relative_frobenius_error: float | None = None
    signed_bias: float | None = None
    """Mean of (result − reference) / bound scale; far from zero where rounding truncates."""
    accuracy_class: str | None = None
    zero_share: float | None = None
    """Share of zeros among the quantised inputs."""
    first_bad: str | None = None
    """Index, value and expectation of the first element outside its bound."""
    reason: str = ""
    error_map: tuple[str, ...] = ()
    """Map of the result where elements were wrong, with one character per tile: ``.`` correct,
    ``1`` to ``9`` tenths of the tile wrong, ``#`` all of it wrong. The first line is the
    caption."""
    refused_shapes: int = 0
    """Small shapes that checks tried and the configuration rejected."""
    evidence_path: str | None = None
    """Folder with the failing inputs, output and expectation, relative to the experiment."""
    rivals: Mapping[str, bool] = field(default_factory=dict)
    """Maps the checks of other harnesses to whether they would have accepted the first result;
    filled only for the self-test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """State of the device during sampling, medians over the rounds; None where it was not
    reported."""

    sm_clock_hz: float | None = None
    memory_clock_hz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    load_average: float | None = None
    """Runnable processes per core, from the host (CPU targets)."""
    others_cpu_share: float | None = None
    """Share of processor time used by other programs or by the hypervisor (CPU targets)."""
    run_delay_share: float | None = None
    """Time that runnable threads of the dispatch waited for a processor, divided by the sampling
    time; summed over the threads, so that it may exceed 1 (CPU targets)."""
    processors: str = ""
    """Processors that the dispatch was pinned to, e.g. ``0-3,8`` (CPU targets)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyFacts:
    """Energy of one launch while launches follow each other; what the idle device uses is part of
    it."""

    energy_j: float | None = None
    ci_low_j: float | None = None
    ci_high_j: float | None = None
    """95 % interval of the median over the windows; None where there are too few."""
    windows: int = 0
    window_s: float | None = None
    """Duration of the shortest window."""
    resolution: float | None = None
    """The largest relative uncertainty of a window from the counter's updates."""
    idle_power_w: float | None = None
    """Power of the device before the load, half a second after other work."""
    reason: str = ""
    """Reason why the energy, or that of a process, is missing."""


IMPORTED = "imported"
"""Method of a time that another benchmark measured, of a result that was not verified here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Statistics over the raw samples, which the store keeps; durations are per launch."""

    median_ns: float
    ci_low_ns: float | None
    ci_high_ns: float | None
    """95 % interval of the median; None where there are too few samples for one."""
    min_ns: float | None
    p95_ns: float | None
    """95th percentile; None where an imported file states no samples."""
    sample_count: int
    launches_per_sample: int = 1
    rounds: int = 1
    processes: int = 1
    """Number of processes that the rounds were run in."""
    process_spread: float = 0.0
    """Range of the processes' medians over the median of all samples; 0 where the rounds of the
    slowest are not all slower than those of the fastest. Processes with a single round (a short
    run, or a worker that was replaced) do not count."""
    method: str = ""
    """``wall_clock``, ``events``, ``graph``, ``simulated``, or :data:`IMPORTED`."""
    regime: str = "burst"
    launches: str = BACK_TO_BACK
    """``apart`` where another kernel ran ahead of each launch."""
    stop_reason: str = ""
    """``interval``, ``time_budget``, ``max_samples``, ``out_of_reach`` or ``outclassed``."""
    input_sets: int = 1
    """Number of rotated copies of the inputs; together they exceed twice the last-level cache."""
    first_launch_ns: float | None = None
    harness_overhead_ns: float | None = None
    """Duration that timing an empty call reports, per sample."""
    effective_samples: float | None = None
    """Effective number of independent samples, given the correlation within rounds."""
    telemetry: Telemetry = Telemetry()
    energy: EnergyFacts | None = None
    """Energy; None where it was not requested."""
    marks: tuple[str, ...] = ()
    """Reasons not to trust this measurement fully, each with a remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFacts:
    """The trace files recorded of a dispatch under a profiler."""

    folder: str
    """Folder of the trace files, relative to the experiment folder (absolute until they are
    stored)."""
    files: tuple[str, ...]
    """File names: the Chakra execution trace, then one Kineto trace per repeat."""
    operators: int
    """Total number of CPU operators in the Kineto traces."""
    kernels: int
    """Total number of GPU kernels in the Kineto traces."""
    input_sha256: Mapping[str, str]
    """Maps the role of each input to the SHA-256 over its stored bytes."""
    output_sha256: str
    """SHA-256 over the output of the last launch."""

    @property
    def repeats(self) -> int:
        """The Kineto traces among the files."""
        return len(self.files) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterFacts:
    """The hardware counters collected of one launch of a dispatch, outside of its run."""

    folder: str
    """Folder of the profiler's files, relative to the experiment folder."""
    metric_set: str
    """Collected set, such as ``gemm``."""
    launches: int | None = None
    """Number of kernels that one launch of the dispatch started; None where that is not known."""
    passes: int | None = None
    """Number of runs of each kernel."""
    verdict: str = ""
    """Identifier of what bounds the kernel that took longest (docs/diagnosis.md)."""
    summary: str = ""
    """Summary in one sentence."""
    confidence: str = ""
    """``high``, ``medium`` or ``low``; "" where there is no verdict."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Record:
    """Everything about one dispatch. `measurement` exists only where `outcome` is ok."""

    dispatch: str
    provider: str
    target: str
    device: str
    operation: str
    configuration: str
    outcome: Outcome
    stage: Stage | None = None
    """The stage that ended it, where `outcome` is not ok."""
    reason: str = ""
    output_tail: str = ""
    """The last lines of the worker's output, where they explain the outcome."""
    distribution: str
    seed: int
    flops: int
    bytes: int
    configuration_parameters: Mapping[str, Any] = field(default_factory=dict)
    verdict: Verdict = Verdict(status=Verification.NOT_VERIFIED)
    measurement: Measurement | None = None
    trace: TraceFacts | None = None
    counters: CounterFacts | None = None
    facts: BuildFacts = BuildFacts()
    roofline_fraction: float | None = None
    roofline_source: str = ""
    reproduce: str = ""
    """The command that reproduces this dispatch."""
    tags: Mapping[str, str] = field(default_factory=dict)
    environment_id: str = ""
    device_ids: tuple[str, ...] = ()
    """The devices that it ran on, which differ even where names and models agree: the driver's
    identifier of a GPU, or ``host/device``. One run never splits a dispatch over devices; empty
    where nothing ran."""

    def __post_init__(self) -> None:
        if (self.measurement is not None) and not self.outcome.may_have_time:
            raise ValueError(f"{self.dispatch}: a {self.outcome} dispatch carries no measurement")
        if self.outcome is not Outcome.OK and not self.reason:
            raise ValueError(f"{self.dispatch}: the outcome {self.outcome} needs a reason")

    def __repr__(self) -> str:
        """One line, as lists of records are printed in interactive sessions."""
        what = f"{self.provider}:{self.dispatch} on {self.device or self.target}"
        time = "" if self.measurement is None else f", {format_ns(self.measurement.median_ns)}"
        return f"<Record {what}: {self.outcome}{time}>"

    @property
    def key(self) -> tuple[str, str, str]:
        """(target, provider, dispatch)."""
        return (self.target, self.provider, self.dispatch)

    @property
    def launches(self) -> str | None:
        """Spacing of the launches; None where gemmetry did not measure it."""
        return None if self.measurement is None or self.is_imported else self.measurement.launches

    @property
    def is_imported(self) -> bool:
        """Whether another benchmark measured it."""
        return self.measurement is not None and self.measurement.method == IMPORTED

    @property
    def median_ns(self) -> float | None:
        """Median duration of one launch; None without a measurement."""
        return None if self.measurement is None else self.measurement.median_ns

    @property
    def gflops(self) -> float | None:
        """10⁹ FLOP/s at the median; None without a measurement."""
        return self.flops / self.median_ns if self.median_ns else None

    @property
    def flops_per_j(self) -> float | None:
        """FLOP for each J; None where the energy was not measured."""
        energy = None if self.measurement is None else self.measurement.energy
        joules = None if energy is None else energy.energy_j
        return self.flops / joules if joules else None

    @property
    def bandwidth_gb_per_s(self) -> float | None:
        """Compulsory bytes over the median time, in 10⁹ bytes/s."""
        return self.bytes / self.median_ns if self.median_ns else None


_LIMITS = ("device_memory_bytes", "power_limits_w")
"""Fields of an environment that were not always recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Machine, software and device of a run: what makes two results comparable. Stored once per
    experiment and referenced by its id."""

    hostname: str = ""
    operating_system: str = ""
    python: str = ""
    cpu: str = ""
    cpu_count: int = 0
    """Processors this process may use."""
    memory_bytes: int = 0
    devices: tuple[str, ...] = ()
    device_ids: tuple[str, ...] = ()
    """The driver's identifiers of the GPUs: two cards of one model differ by a few percent."""
    device_memory_bytes: tuple[int | None, ...] = ()
    """Memory of each GPU; None where the driver does not report it."""
    power_limits_w: tuple[float | None, ...] = ()
    """The power limit set for each GPU; None where the driver does not report it."""
    driver: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Name -> version of gemmetry and of every provider library installed."""
    git_revision: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables known to change speed (thread counts, NCCL_*, TRITON_* ...)."""

    @property
    def id(self) -> str:
        """Short hash over all fields; equal ids mean comparable results. Limits that are not known
        do not count, so that environments stored before they were read keep their ids."""
        known = {name: one for name, one in asdict(self).items() if one or name not in _LIMITS}
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:12]

    def agrees_with(self, other: Environment) -> bool:
        """Whether the only differences are packages and limits of GPUs that just one of the two
        lists."""
        both = self.packages.keys() & other.packages.keys()
        unknown = [name for name in _LIMITS if not (getattr(self, name) and getattr(other, name))]
        mine, theirs = asdict(self), asdict(other)
        for fields in (mine, theirs):
            fields["packages"] = {name: fields["packages"][name] for name in both}
            fields |= dict.fromkeys(unknown)
        return mine == theirs

    def differences(self, other: Environment) -> list[str]:
        """One readable line for each field that differs, and for each differing key of a
        mapping."""
        mine, theirs = flat_fields(asdict(self)), flat_fields(asdict(other))
        return [
            f"{name}: {shown(mine.get(name))} vs {shown(theirs.get(name))}"
            for name in sorted(mine.keys() | theirs.keys())
            if mine.get(name) != theirs.get(name)
        ]


def flat_fields(fields: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The fields after `prefix`, with each entry of a mapping as a field of its own:
    ``packages.torch``; lists as tuples."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            found |= flat_fields(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = tuple(value) if isinstance(value, list) else value
    return found


def shown(value: Any) -> str:
    """A field's value in a message."""
    if value in (None, "", ()):
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultSet:
    """One experiment's results, loaded; a report is a pure function of these."""

    title: str
    records: Sequence[Record]
    environments: Mapping[str, Environment] = field(default_factory=dict)
    samples: Callable[[Record], Sequence[float]] = lambda _record: ()
    """Raw samples of a record in ns per launch, in the order they were taken."""
    rounds: Callable[[Record], Mapping[int, Sequence[float]]] = lambda _record: {}
    """Samples by turn, i.e. by interleaved round: dispatches that share a turn were sampled in it
    one after the other. Empty where turns were not stored."""
    command: str = ""
    """The command line that created the experiment."""
    path: str = ""
    created: str = ""
    """ISO 8601, UTC."""
    document: Mapping[str, Any] = field(default_factory=dict)
    """The plan's document."""
    planned: int | None = None
    """Number of dispatches of the plan; None where there is none, as after a merge."""
    remarks: tuple[str, ...] = ()
    """Missing or damaged parts, in sentences that every report repeats."""

    @property
    def created_second(self) -> str:
        """`created` for readers: its fraction of a second only distinguishes experiments."""
        return re.sub(r"\.\d+", "", self.created)


@dataclass(frozen=True, slots=True)
class PlanReady:
    """The plan is stored: `total` dispatches, of which `kept` are done from an earlier run."""

    total: int
    kept: int
    samples_kept: int
    experiment: str


@dataclass(frozen=True, slots=True)
class StageProgress:
    """`done` of `total` dispatches of the current batch have completed `stage`."""

    stage: Stage
    done: int
    total: int
    current: str = ""
    left_s: float | None = None
    """Estimate of the time that the batch takes from now on, in seconds; None: not known."""


@dataclass(frozen=True, slots=True)
class Doing:
    """The run begins something that may take long; `text` says what: ``verifying torch:matmul_…``.
    It ends with the next event."""

    text: str


@dataclass(frozen=True, slots=True)
class DispatchFinished:
    """A dispatch has its outcome; the record is durable when this is sent."""

    record: Record


@dataclass(frozen=True, slots=True)
class Message:
    """A message to display; `level` is info or warning."""

    text: str
    level: str = "info"


Event: TypeAlias = PlanReady | StageProgress | Doing | DispatchFinished | Message
Listener: TypeAlias = Callable[[Event], None]


def ignore_events(_event: Event) -> None:
    """A listener for callers that need no progress reports."""
