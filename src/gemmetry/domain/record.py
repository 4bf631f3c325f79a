"""The record of a dispatch: the one row that store, reports and the JSON contract share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gemmetry.domain.outcome import Outcome, Stage, Verification
from gemmetry.domain.traits import Trait
from gemmetry.domain.units import format_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFacts:
    """What building a dispatch told; None where the provider cannot know."""

    registers: int | None = None
    """Per thread."""
    spill_bytes: int | None = None
    """Local memory per thread that the register allocator had to use."""
    shared_memory_bytes: int | None = None
    """Static plus dynamic, per block."""
    matrix_instruction: str | None = None
    """The instruction of the product found in the machine code: a matrix instruction, e.g.
    ``wgmma``, on a CPU the commonest multiply-add with its kind of register, e.g.
    ``vfmadd231ps zmm``; "none" if none was."""
    compiled_for: str | None = None
    """Architecture the code was compiled for where it is not the target's own."""
    default_configuration: str | None = None
    """What the compiler itself chose, where the configuration left it the choice."""
    compile_ns: int | None = None
    source_path: str | None = None
    """Generated source, relative to the experiment folder (as all paths here)."""
    binary_path: str | None = None
    assembly_path: str | None = None
    tool_output_path: str | None = None
    """What the provider's tools (a compiler, an assembler) printed about this dispatch."""
    compile_command: str | None = None
    run_command: str | None = None
    """The provider's own tool doing the same measurement, for people to check ours. ``{seed}`` and
    ``{distribution}`` in it stand for the run's own, which the engine puts in."""
    declared: tuple[Trait, ...] = ()
    """What the provider declares of the arithmetic; verification judges by it."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What verification found; ratios are errors divided by the bound (1.0 = on the bound)."""

    status: Verification
    checks: Mapping[str, str] = field(default_factory=dict)
    """Check -> "passed", "failed: why" or "not applicable: why"."""
    max_error_ratio: float | None = None
    relative_frobenius_error: float | None = None
    signed_bias: float | None = None
    """Mean of (result − reference) / bound scale; far from zero where rounding truncates."""
    accuracy_class: str | None = None
    zero_share: float | None = None
    """Share of zeros among the inputs as they were quantised."""
    first_bad: str | None = None
    """Index, value and expectation of the first element outside its bound."""
    reason: str = ""
    error_map: tuple[str, ...] = ()
    """The result drawn in characters, one a tile, where elements were wrong: ``.`` right, ``1`` to
    ``9`` tenths of the tile wrong, ``#`` all of it; the caption first."""
    refused_shapes: int = 0
    """Small shapes that checks tried and the configuration refused."""
    evidence_path: str | None = None
    """Folder with the failing inputs, output and expectation, relative to the experiment."""
    rivals: Mapping[str, bool] = field(default_factory=dict)
    """Check of another harness -> whether it would have let the first result through; asked for
    by the self-test alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """The device during sampling, medians over the rounds; None where it was not told."""

    sm_clock_hz: float | None = None
    memory_clock_hz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    load_average: float | None = None
    """Runnable processes per core, from the host (CPU targets)."""
    others_cpu_share: float | None = None
    """Share of the processors that went to other programs or to the hypervisor (CPU targets)."""
    run_delay_share: float | None = None
    """Time that threads of the dispatch stood ready without a processor, over the sampling time;
    summed over the threads, so that it may exceed 1 (CPU targets)."""
    processors: str = ""
    """Processors that the dispatch was held to, e.g. ``0-3,8`` (CPU targets)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Statistics over the raw samples (which the store keeps), durations per launch."""

    median_ns: float
    ci_low_ns: float | None
    ci_high_ns: float | None
    """95 % interval of the median; None where there are too few samples for one."""
    min_ns: float
    p95_ns: float
    sample_count: int
    launches_per_sample: int = 1
    rounds: int = 1
    processes: int = 1
    """Processes that the rounds were taken in."""
    process_spread: float = 0.0
    """Range of the processes' medians over the median of all samples; 0 where the rounds of the
    slowest are not all slower than those of the fastest. Processes of a single round (a short run,
    a worker that was replaced) do not count."""
    method: str = ""
    """``wall_clock``, ``events``, ``graph`` or ``simulated``."""
    regime: str = "burst"
    stop_reason: str = ""
    """``interval``, ``time_budget`` or ``max_samples``."""
    input_sets: int = 1
    """Rotated copies of the inputs; together they exceed twice the last-level cache."""
    first_launch_ns: float | None = None
    harness_overhead_ns: float | None = None
    """What timing an empty call reports, a sample."""
    effective_samples: float | None = None
    """Independent samples that these are worth, given how alike those of one round are."""
    telemetry: Telemetry = Telemetry()
    marks: tuple[str, ...] = ()
    """What makes this measurement less than trustworthy, each with what to do about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFacts:
    """What was recorded of a dispatch under a profiler."""

    folder: str
    """Of the trace files, relative to the experiment folder (absolute on its way there)."""
    files: tuple[str, ...]
    """Names in it: the Chakra execution trace, then one Kineto trace a repeat."""
    operators: int
    """CPU operators in the Kineto traces together."""
    kernels: int
    """GPU kernels in them together."""
    input_sha256: Mapping[str, str]
    """Role of an input -> SHA-256 over its bytes as they are stored."""
    output_sha256: str
    """Over the bytes that the last launch left."""

    @property
    def repeats(self) -> int:
        """Kineto traces among the files."""
        return len(self.files) - 1


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
    """The end of what the worker printed, where that explains the outcome."""
    distribution: str
    seed: int
    flops: int
    bytes: int
    configuration_parameters: Mapping[str, Any] = field(default_factory=dict)
    verdict: Verdict = Verdict(status=Verification.NOT_VERIFIED)
    measurement: Measurement | None = None
    trace: TraceFacts | None = None
    facts: BuildFacts = BuildFacts()
    roofline_fraction: float | None = None
    roofline_source: str = ""
    reproduce: str = ""
    """The command that does this dispatch again."""
    tags: Mapping[str, str] = field(default_factory=dict)
    environment_id: str = ""

    def __post_init__(self) -> None:
        if (self.measurement is not None) and not self.outcome.may_have_time:
            raise ValueError(f"{self.dispatch}: a {self.outcome} dispatch carries no measurement")
        if self.outcome is not Outcome.OK and not self.reason:
            raise ValueError(f"{self.dispatch}: the outcome {self.outcome} needs a reason")

    def __repr__(self) -> str:
        """One line: lists of records are printed at prompts."""
        what = f"{self.provider}:{self.dispatch} on {self.device or self.target}"
        if self.measurement is None:
            return f"<Record {what}: {self.outcome}>"
        return f"<Record {what}: {self.outcome}, {format_ns(self.measurement.median_ns)}>"

    @property
    def key(self) -> tuple[str, str, str]:
        """(target, provider, dispatch)."""
        return (self.target, self.provider, self.dispatch)

    @property
    def gflops(self) -> float | None:
        """10⁹ FLOP/s at the median; None without a measurement."""
        if self.measurement is None or self.measurement.median_ns <= 0:
            return None
        return self.flops / self.measurement.median_ns

    @property
    def bandwidth_gb_per_s(self) -> float | None:
        """Compulsory bytes over the median time, in 10⁹ bytes/s."""
        if self.measurement is None or self.measurement.median_ns <= 0:
            return None
        return self.bytes / self.measurement.median_ns
