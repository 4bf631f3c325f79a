"""Rounds of samples -> the Measurement that is stored."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

import numpy as np

from gemmetry.domain.record import Measurement, Telemetry
from gemmetry.domain.settings import RunSettings
from gemmetry.domain.target import Target
from gemmetry.measurement import marks
from gemmetry.measurement.rounds import Round
from gemmetry.statistics.intervals import rounds_interval

FEWEST_ROUNDS_OF_A_PROCESS = 2
"""A single round does not show whether a process is steady; the interval over rounds already counts
such rounds as independent."""

_NUMBERS = (
    "sm_clock_hz",
    "memory_clock_hz",
    "power_w",
    "temperature_c",
    "load_average",
    "others_cpu_share",
    "run_delay_share",
)


def summarize(
    rounds: Sequence[Round],
    *,
    stop_reason: str,
    regime: str,
    target: Target,
    settings: RunSettings,
) -> Measurement:
    """Statistics over all samples of all rounds.

    Args:
        rounds: at least one round with at least one sample.
        stop_reason: from ``StopPolicy.reason``.

    Raises:
        ValueError: no samples.
    """
    samples = np.array([value for item in rounds for value in item.samples_ns], dtype=np.float64)
    if samples.size == 0:
        raise ValueError("a measurement needs at least one sample")
    median = float(np.median(samples))
    processes = _medians_by_process(rounds)
    interval, effective = rounds_interval([item.samples_ns for item in rounds])
    fastest, slowest = _differing(processes)
    if interval is not None and fastest < slowest:
        # The rounds of one process carry no information about the medians of other processes.
        interval = min(interval[0], fastest), max(interval[1], slowest)
    last = rounds[-1]
    measurement = Measurement(
        median_ns=median,
        ci_low_ns=interval and interval[0],
        ci_high_ns=interval and interval[1],
        min_ns=float(samples.min()),
        p95_ns=float(np.quantile(samples, 0.95)),
        sample_count=int(samples.size),
        launches_per_sample=last.launches_per_sample,
        rounds=len(rounds),
        processes=len(processes),
        process_spread=(slowest - fastest) / median if median > 0 else 0.0,
        method=last.method,
        regime=regime,
        stop_reason=stop_reason,
        input_sets=last.input_sets,
        first_launch_ns=rounds[0].first_launch_ns,
        harness_overhead_ns=last.overhead_ns,
        effective_samples=effective,
        telemetry=_combine_telemetry(rounds),
    )
    found = marks.find_marks(measurement, samples, rounds, target, settings)
    return dataclasses.replace(measurement, marks=found)


def _medians_by_process(rounds: Sequence[Round]) -> list[list[float]]:
    """The medians of each process's rounds, in ns. Rounds are short, and numpy's median of a few
    numbers takes ten times as long as Python's."""
    found: dict[int, list[float]] = {}
    for item in rounds:
        if item.samples_ns:
            found.setdefault(item.process, []).append(float(statistics.median(item.samples_ns)))
    return list(found.values())


def _differing(processes: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Medians of the fastest and the slowest process, in ns, where all rounds of the slowest are
    above those of the fastest; else zeros, because the difference may come from the rounds alone.
    Processes with fewer than :data:`FEWEST_ROUNDS_OF_A_PROCESS` rounds are ignored."""
    known = [medians for medians in processes if len(medians) >= FEWEST_ROUNDS_OF_A_PROCESS]
    ordered = sorted(known, key=np.median)
    if not ordered or max(ordered[0]) >= min(ordered[-1]):
        return 0.0, 0.0
    return float(np.median(ordered[0])), float(np.median(ordered[-1]))


def _combine_telemetry(rounds: Sequence[Round]) -> Telemetry:
    """Medians of the telemetry over the rounds, with the throttle reasons of all rounds."""
    numbers: dict[str, float] = {}
    for name in _NUMBERS:
        values = [item.telemetry[name] for item in rounds if name in item.telemetry]
        floats = [float(value) for value in values if isinstance(value, (int, float))]
        if floats:
            numbers[name] = statistics.median(floats)
    reasons: list[str] = []
    for item in rounds:
        reported = item.telemetry.get("throttle_reasons", ())
        reasons.extend(reported if isinstance(reported, tuple) else (str(reported),))
    return Telemetry(
        throttle_reasons=tuple(sorted(set(reasons))),
        processors=str(rounds[-1].telemetry.get("processors", "")),
        **numbers,
    )
