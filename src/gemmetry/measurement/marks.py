"""What makes a measurement less than trustworthy, each with what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from gemmetry.domain.record import Measurement
from gemmetry.domain.settings import RunSettings
from gemmetry.domain.target import Target
from gemmetry.domain.units import format_bytes, format_ns, format_percent
from gemmetry.measurement.buffers import CACHE_FACTOR
from gemmetry.measurement.sampler import Round
from gemmetry.measurement.stopping import asked_width

BUSY_LOAD_PER_CORE = 1.5
"""Load average per core above which neighbours must be competing: the measured program alone
keeps at most one runnable thread a core."""

OTHERS_SHARE = 0.1
"""Share of the processors that other programs may take unmarked; a machine that does nothing else
has services that take a percent or two."""

OVERHEAD_SHARE = 0.01
"""Share of a sample that the harness may take unmarked."""

MIN_SAMPLES_FOR_INTERVAL = 6
"""With fewer, no pair of order statistics holds the median with 95 % (2·0.5⁵ = 6.3 %)."""

_MODE_GAP = 0.1
_MODE_SHARE = 0.2
_MIN_SAMPLES_FOR_MODES = 20

_SETTINGS_OF_THE_USER = ("applications_clocks_setting", "display_clock_setting")
"""Reasons for a lower clock that somebody asked for; reported, but no fault."""

_THROTTLE_ADVICE = {
    "sw_power_cap": "the power limit sets the clock: use --regime sustained, and compare results "
    "at like clocks",
    "sw_thermal_slowdown": "let the device cool down and rerun",
    "hw_thermal_slowdown": "let the device cool down and rerun; check its cooling",
    "hw_power_brake_slowdown": "the host's power supply asked for it: check the machine",
    "hw_slowdown": "check the device's cooling and power supply",
}


def find_marks(
    measurement: Measurement,
    samples: npt.NDArray[np.float64],
    rounds: Sequence[Round],
    target: Target,
    settings: RunSettings,
) -> tuple[str, ...]:
    """All marks of a measurement, the gravest first.

    Args:
        samples: ns per launch, in the order they were taken.
        rounds: for how the samples were taken, and telemetry that the record has no field for.
    """
    last = rounds[-1]
    disturbed = list(_load(measurement, rounds))
    return (
        *_throttling(measurement),
        *_precision(measurement, target, settings),
        *(disturbed or _modes(samples)),  # neighbours explain a second mode
        *_overhead(measurement, last),
        *_warm_cache(last, settings),
    )


def _throttling(measurement: Measurement) -> Iterator[str]:
    telemetry = measurement.telemetry
    clock = "" if telemetry.sm_clock_hz is None else f" at {telemetry.sm_clock_hz / 1e6:.0f} MHz"
    for reason in telemetry.throttle_reasons:
        if reason not in _SETTINGS_OF_THE_USER:
            advice = _THROTTLE_ADVICE.get(reason, "rerun when the device reports no such reason")
            yield f"throttled: {reason}{clock}; {advice}"


def _precision(measurement: Measurement, target: Target, settings: RunSettings) -> Iterator[str]:
    count = measurement.sample_count
    if count < MIN_SAMPLES_FOR_INTERVAL:
        yield (
            f"few samples: {count} cannot bound the median with 95 %; raise --time-budget"
            if settings.repetitions is None
            else f"few samples: {count} cannot bound the median with 95 %; raise "
            "--benchmark-repetitions"
        )
        return
    if settings.repetitions is not None and settings.interval_width is None:
        return  # an exact number of samples was asked for, and no width
    width = (measurement.ci_high_ns - measurement.ci_low_ns) / 2 / max(measurement.median_ns, 1e-9)
    asked = asked_width(settings, target)
    if width > asked:
        yield (
            f"noisy: interval ±{format_percent(width)} is wider than the asked "
            f"±{format_percent(asked)}; rerun on a quiet machine or raise --time-budget"
        )


def _modes(samples: npt.NDArray[np.float64]) -> Iterator[str]:
    """Two clusters: a gap of 10 % of the median with at least a fifth of the samples each side."""
    count = samples.size
    if count < _MIN_SAMPLES_FOR_MODES:
        return
    ordered = np.sort(samples)
    edge = int(np.ceil(count * _MODE_SHARE))
    gaps = np.diff(ordered)[edge - 1 : count - edge]
    split = edge + int(np.argmax(gaps))
    if gaps.max() <= _MODE_GAP * float(np.median(ordered)):
        return
    low, high = float(np.median(ordered[:split])), float(np.median(ordered[split:]))
    yield (
        f"two modes: {format_ns(low)} ({format_percent(split / count)}) and {format_ns(high)} "
        f"({format_percent(1 - split / count)}); the median hides one, so look at the samples "
        "with gemmetry show"
    )


def _load(measurement: Measurement, rounds: Sequence[Round]) -> Iterator[str]:
    shares = [item.telemetry.get("others_cpu_share") for item in rounds]
    told = [share for share in shares if isinstance(share, float)]
    share = float(np.median(told)) if told else 0.0
    if share > OTHERS_SHARE:
        yield (
            f"busy: other programs took {format_percent(share)} of the processors while measuring; "
            "stop them and rerun, or give fewer --threads"
        )
        return
    load = measurement.telemetry.load_average
    if load is not None and load > BUSY_LOAD_PER_CORE:
        yield (
            f"load average {load:.1f} per core while measuring; "
            "stop other programs and rerun, or give fewer --threads"
        )


def _overhead(measurement: Measurement, last: Round) -> Iterator[str]:
    if last.overhead_ns is None:
        return
    share = last.overhead_ns / max(measurement.median_ns * last.launches_per_sample, 1e-9)
    if share > OVERHEAD_SHARE:
        yield (
            f"harness: timing an empty call takes {format_ns(last.overhead_ns)}, "
            f"{format_percent(share)} of a sample; raise --batch-size"
        )


def _warm_cache(last: Round, settings: RunSettings) -> Iterator[str]:
    total = last.input_sets * last.bytes_per_set
    if settings.cold_cache and total < CACHE_FACTOR * last.last_level_cache_bytes:
        yield (
            f"warm cache: {last.input_sets} sets of buffers take {format_bytes(total)}, less than "
            f"{CACHE_FACTOR}× the last-level cache of {format_bytes(last.last_level_cache_bytes)}; "
            "compare only with results of the same size"
        )
