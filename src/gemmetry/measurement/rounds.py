"""A round of samples as the engine stores it: durations, timing method and circumstances."""

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
    """Duration that timing an empty call reports, per timed call, in ns."""
    wall_launch_ns: float | None = None
    """Duration of one launch by the host's clock in ns, including submission and waiting for the
    device, where the samples are timed by the device itself."""
    bytes_per_set: int = 0
    last_level_cache_bytes: int = 0
    seconds: float = 0.0
    """Duration of the samples in seconds, which counts against the time budget."""
    elapsed_s: float = 0.0
    """Duration of the whole round, with all that is not counted in `seconds`, by the clock of the
    process that took it."""
    renewal_s: float = 0.0
    """Host time spent on changing the inputs around the samples, in seconds; not part of
    `seconds`."""
    load_s: float = 0.0
    """Duration of the continuous untimed load before this round (sustained regime); not part of
    `seconds`."""
    is_settled: bool | None = None
    """Whether the load ended because clock and speed had settled; None without a load."""
    unsettled_change: float = 0.0
    """Relative range of clock or speed over the last second of a load that did not settle."""
    quiet_wait_s: float = 0.0
    """Time spent before this round waiting for other programs to leave the processors; not part of
    `seconds`."""
    runs_on_s: float = 0.0
    """How long threads of the process stayed busy after launches had returned (CPU)."""
    new_inputs_ratio: float | None = None
    """Ratio between the times of launches on new and on known inputs; None: not checked."""
    capture_failure: str = ""
    """Why launches that should have been timed as graphs could not be captured."""
    turn: int = 0
    """Set by the engine: rounds of one turn were interleaved. 0: not known."""
    waited_s: float = 0.0
    """Set by the engine: how long it waited for the round by its own clock. 0: not known."""
    device_id: str = ""
    """Set by the engine: the device that ran the round, see
    :attr:`gemmetry.domain.record.Record.device_ids`. "": not known."""
    process: int = 0
    """Set by the engine: when the process that ran the round was started, in ns since 1970. 0: not
    known."""
