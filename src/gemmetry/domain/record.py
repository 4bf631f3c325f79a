"""The record of a dispatch: the one row that store, reports and the JSON contract share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gemmetry.domain.outcome import Outcome, Stage, Verification


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
    """The matrix instruction found in the machine code, e.g. ``wgmma``; "none" if none was."""
    compiled_for: str | None = None
    """Architecture the code was compiled for where it is not the target's own."""
    default_configuration: str | None = None
    """What the compiler itself chose, where the configuration left it the choice."""
    compile_ns: int | None = None
    source_path: str | None = None
    """Generated source, relative to the experiment folder (as all paths here)."""
    binary_path: str | None = None
    assembly_path: str | None = None
    compile_command: str | None = None
    run_command: str | None = None
    """The provider's own tool doing the same measurement, for people to check ours."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Statistics over the raw samples (which the store keeps), durations per launch."""

    median_ns: float
    ci_low_ns: float
    ci_high_ns: float
    """95 % interval of the median."""
    min_ns: float
    p95_ns: float
    sample_count: int
    launches_per_sample: int = 1
    rounds: int = 1
    method: str = ""
    """``wall_clock``, ``events``, ``graph`` or ``simulated``."""
    regime: str = "burst"
    stop_reason: str = ""
    """``interval``, ``time_budget`` or ``max_samples``."""
    input_sets: int = 1
    """Rotated copies of the inputs; together they exceed twice the last-level cache."""
    first_launch_ns: float | None = None
    telemetry: Telemetry = Telemetry()
    marks: tuple[str, ...] = ()
    """What makes this measurement less than trustworthy, each with what to do about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
