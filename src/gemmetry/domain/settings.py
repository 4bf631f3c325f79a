"""How a run is done: seeds, budgets and deadlines. Part of the plan, so stored with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gemmetry.domain.outcome import Stage

DEFAULT_SEED = 42
"""The seed of the grid tracing document (RANDOM_SEED)."""

USUAL_SAMPLES = 10
"""Least number of samples where the time budget holds so many and nothing else was asked for."""

MOST_PROCESSES = 12
"""That share the rounds of a dispatch: the fewest rounds that one takes."""

DISTRIBUTIONS = ("offset_uniform", "uniform", "uniform_signed", "normal", "integers", "zeros")
"""Names accepted for the inputs' distribution; numerics/inputs.py defines each per dtype."""


SANITIZERS = ("memcheck", "racecheck", "synccheck", "initcheck")
"""Tools of NVIDIA's compute-sanitizer."""


TIMING_METHODS = ("auto", "graph", "events")
"""How a device with streams is timed: by replays of captured graphs, by events around launches, or
(auto) graphs for launches that are too short for events."""


def _default_deadlines() -> dict[Stage, float]:
    return {
        Stage.GENERATE: 60.0,
        Stage.COMPILE: 300.0,
        Stage.BUILD: 120.0,
        Stage.VERIFY: 120.0,
        Stage.MEASURE: 120.0,
        Stage.TRACE: 120.0,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSchedule:
    """When a profiler records; the defaults are the grid tracing document's."""

    wait_steps: int = 1
    """Launches of each repeat before the profiler gets ready."""
    warmup_steps: int = 3
    """Launches while it is ready but keeps nothing."""
    active_steps: int = 1
    """Launches that it records."""
    repeats: int = 5
    """Times that all this is done; each gives a trace file."""
    chakra_all_steps: bool = False
    """The execution trace holds every launch, as the grid tracing document's does; else those that
    the profiler records in the first repeat."""

    @property
    def steps(self) -> int:
        """Launches in all."""
        return self.repeats * (self.wait_steps + self.warmup_steps + self.active_steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Everything about a run that is neither an operation nor a provider; SI units."""

    seed: int = DEFAULT_SEED
    distribution: str = "offset_uniform"
    verify: bool = True
    verification_level: str = "standard"
    verification_providers: tuple[str, ...] = ("numpy",)
    """Who computes the reference; the first that can. ``device``: the device's own float64."""
    judge_rivals: bool = False
    """Ask also what the checks of other harnesses would have said (the self-test does)."""
    sanitizers: tuple[str, ...] = ()
    """Those of :data:`SANITIZERS` to run each verified CUDA dispatch under."""
    measure: bool = True
    regime: str = "burst"
    timing_method: str = "auto"
    """One of :data:`TIMING_METHODS`."""
    interval_width: float | None = None
    """Asked relative half-width of the median's 95 % interval; None: 0.005 GPU, 0.02 CPU."""
    time_budget_s: float = 2.0
    """Sampling time of one dispatch."""
    warmup_iterations: int = 3
    warmup_s: float = 0.0
    """Continuous load before the first sample, beside those iterations."""
    min_samples: int | None = None
    """Samples that are taken however long they last; None: :data:`USUAL_SAMPLES`, as far as
    `time_budget_s` goes."""
    max_samples: int = 1000
    repetitions: int | None = None
    """Exact number of samples instead of the adaptive stop (--benchmark-repetitions)."""
    launches_per_sample: int | None = None
    """Launches timed as one sample (--batch-size); None: chosen so that a sample is long enough
    for the clock."""
    processes: int = 0
    """Worker processes that share the rounds of a dispatch; 0: 3 on a GPU, 1 elsewhere."""
    cold_cache: bool = True
    max_seconds_per_launch: float = 10.0
    """A dispatch of which one launch takes longer is skipped, where a prediction had one tried."""
    deadlines_s: Mapping[Stage, float] = field(default_factory=_default_deadlines)
    jobs: int = 0
    """Parallel compiles; 0: one per processor."""
    memory_budget_bytes: int = 0
    """Of a device, for executables kept warm side by side; 0: half of what is free."""
    threads: int = 0
    """CPU threads of a provider; 0: every processor this process may use."""
    force_compile: bool = False
    save_commands: bool = False
    trace: TraceSchedule | None = None
    """Record each dispatch under a profiler; None: do not."""
    tags: Mapping[str, str] = field(default_factory=dict)
