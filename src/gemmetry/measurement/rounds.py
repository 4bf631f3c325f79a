"""A round of samples as the engine stores it: what was timed, how, and what went on around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round of samples; durations in ns per launch, in the order they were taken."""

    samples_ns: tuple[float, ...]
    method: str
    """``wall_clock``, ``events``, ``graph`` or ``simulated``."""
    telemetry: Mapping[str, float | str | tuple[str, ...]] = field(default_factory=dict)
    """Fields of :class:`gemmetry.domain.record.Telemetry`."""
    launches_per_sample: int = 1
    input_sets: int = 1
    first_launch_ns: float | None = None
    overhead_ns: float | None = None
    """What timing an empty call reports, per timed call."""
    wall_launch_ns: float | None = None
    """One launch by the host's clock, submission and waiting for the device included, where the
    device itself is the clock of the samples."""
    bytes_per_set: int = 0
    last_level_cache_bytes: int = 0
    seconds: float = 0.0
    """What the samples took: counts against the time budget."""
    renewal_s: float = 0.0
    """Host time that changing the inputs took around the samples; not part of `seconds`."""
    load_s: float = 0.0
    """Continuous untimed load before this round (sustained regime); not part of `seconds`."""
    is_settled: bool | None = None
    """Whether the load ended because clock and speed had settled; None without one."""
    unsettled_change: float = 0.0
    """Relative range of clock or speed over the last second of a load that did not settle."""
    quiet_wait_s: float = 0.0
    """Spent before this round waiting for others to leave the processors; not in `seconds`."""
    runs_on_s: float = 0.0
    """Threads of the process worked on for so long after launches had returned (CPU)."""
    new_inputs_ratio: float | None = None
    """Times as long as on known inputs that a launch on new ones takes; None: not looked at."""
    capture_failure: str = ""
    """Why launches that should be timed as graphs could not be captured."""
    turn: int = 0
    """Of the engine: rounds of one turn were interleaved. 0: not known."""
    process: int = 0
    """Of the engine: when the process that took it was started, in ns since 1970. 0: not known."""
