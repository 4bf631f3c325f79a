"""The settings of a run: seeds, budgets and deadlines. They are part of the plan and stored with
it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gemmetry.domain.outcome import Stage

DEFAULT_SEED = 42
"""The seed of the grid tracing document (RANDOM_SEED)."""

USUAL_SAMPLES = 10
"""Default minimum number of samples, as far as the time budget allows."""

MOST_PROCESSES = 12
"""Most worker processes that share the rounds of a dispatch, and the fewest rounds it is given."""

DISTRIBUTIONS = ("offset_uniform", "uniform", "uniform_signed", "normal", "integers", "zeros")
"""Accepted names of the inputs' distribution; numerics/inputs.py defines each per dtype."""


SANITIZERS = ("memcheck", "racecheck", "synccheck", "initcheck")
"""Names of the tools of NVIDIA's compute-sanitizer."""


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
    """Launches of each repeat before the profiler warms up."""
    warmup_steps: int = 3
    """Launches while the profiler warms up and discards its events."""
    active_steps: int = 1
    """Launches that the profiler records."""
    repeats: int = 5
    """Number of such cycles; each writes one trace file."""
    chakra_all_steps: bool = False
    """True: the execution trace holds every launch, as in the grid tracing document. False: it
    holds those that the profiler records in the first repeat."""

    @property
    def steps(self) -> int:
        """Total number of launches."""
        return self.repeats * (self.wait_steps + self.warmup_steps + self.active_steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """All settings of a run except its operations and providers, in SI units."""

    seed: int = DEFAULT_SEED
    distribution: str = "offset_uniform"
    verify: bool = True
    verification_level: str = "standard"
    verification_providers: tuple[str, ...] = ("numpy",)
    """Sources of the reference; the first one available is used. ``device``: the device's own
    float64."""
    judge_rivals: bool = False
    """Also apply the checks of other harnesses, as the self-test does."""
    sanitizers: tuple[str, ...] = ()
    """The :data:`SANITIZERS` to run each verified CUDA dispatch under."""
    measure: bool = True
    regime: str = "burst"
    timing_method: str = "auto"
    """One of :data:`TIMING_METHODS`."""
    interval_width: float | None = None
    """Target relative half-width of the median's 95 % interval; None: 0.005 on a GPU, 0.02 on a
    CPU."""
    time_budget_s: float = 2.0
    """Time budget for sampling one dispatch."""
    warmup_iterations: int = 3
    warmup_s: float = 0.0
    """Duration of continuous load before the first sample, in addition to those iterations."""
    min_samples: int | None = None
    """Minimum number of samples, however long they take; None: :data:`USUAL_SAMPLES`, as far as
    `time_budget_s` allows."""
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
    """A dispatch is skipped if a single trial launch, made because of a high prediction, takes
    longer than this."""
    deadlines_s: Mapping[Stage, float] = field(default_factory=_default_deadlines)
    jobs: int = 0
    """Number of parallel compiles; 0: one per processor."""
    memory_budget_bytes: int = 0
    """Device memory for executables kept loaded at the same time; 0: half of the free memory."""
    threads: int = 0
    """CPU threads per provider; 0: every processor this process may use."""
    force_compile: bool = False
    save_commands: bool = False
    trace: TraceSchedule | None = None
    """How to record each dispatch under a profiler; None: do not record."""
    tags: Mapping[str, str] = field(default_factory=dict)
