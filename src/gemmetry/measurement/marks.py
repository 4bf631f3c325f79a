"""Reasons not to trust a measurement fully, each with a remedy.

Rounds of samples -> the Measurement that is stored.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Iterator, Sequence

import numpy as np

from gemmetry.domain.dispatch import Target
from gemmetry.domain.record import Measurement, Telemetry
from gemmetry.domain.settings import RunSettings
from gemmetry.domain.tables import grouped
from gemmetry.domain.units import format_bytes, format_half_width, format_ns, format_percent
from gemmetry.measurement.energy import EnergyTaken, summarize_energy
from gemmetry.measurement.launches import CACHE_FACTOR, REMEMBERED_RATIO, RUN_DELAY_SHARE
from gemmetry.measurement.stopping import Round, required_width, rounds_half_width
from gemmetry.statistics.intervals import minimum_samples, rounds_interval

BUSY_LOAD_PER_CORE = 1.5
"""Load average per core above which other programs must be competing: the measured program alone
keeps at most one runnable thread per core."""

OTHERS_SHARE = 0.1
"""Share of the processors that other programs may use unmarked; on an otherwise idle machine
services use a percent or two."""

OVERHEAD_SHARE = 0.01
"""Largest unmarked share of the harness in a sample."""

CLOCK_FALL = 0.03
"""Largest unmarked relative drop of the clock from the first to the last round: one or two steps of
15 MHz. Short benchmarks run at 15 to 25 % of boost."""

DRIFT_SHARE = 0.03
"""Largest unmarked relative change of the median from the first third of the rounds to the last;
see :func:`_drift`."""

STALLED_RATIO = 3
"""Ratio of median to shortest sample above which something other than the kernel delayed most
launches: the work is the same each time."""

HOST_WORK_NS = 1e6
"""Host time per launch, in addition to the device's, that is too long for submission alone, which
takes microseconds to tens of microseconds through Python."""

RUNS_ON_S = 0.05
"""Seconds for which threads may stay busy after a launch: threads that spin while waiting stop
earlier."""

NOISY_ROUNDS = 0.25
"""Largest unmarked share of disturbed rounds: fewer do not affect the median over rounds."""

WIDE = 0.5
"""Relative half-width above which an interval is uninformative, whatever width was requested or
other dispatches have: the ends of ±50 % differ by a factor of three."""

_MIN_ROUNDS_A_THIRD = 4
"""The ranges of four and four rounds of equal distribution are disjoint in 2·4!·4!/8! = 3 % of
cases."""

_MODE_GAP = 0.1
_MODE_SHARE = 0.2
_MIN_SAMPLES_FOR_MODES = 20

_SETTINGS_OF_THE_USER = ("applications_clocks_setting", "display_clock_setting")
"""Reasons for a lower clock that were requested; reported, but not a fault."""

_THROTTLE_ADVICE = {
    "sw_power_cap": "the power limit sets the clock: use --regime sustained, and compare results "
    "at the same clock",
    "sw_thermal_slowdown": "let the device cool down and rerun",
    "hw_thermal_slowdown": "let the device cool down and rerun; check its cooling",
    "hw_power_brake_slowdown": "the host's power supply requested it: check the machine",
    "hw_slowdown": "check the device's cooling and power supply",
}

_MORE_SAMPLES = {
    "max_samples": "raise --max-samples",
    "outclassed": "give --no-race",
    "out_of_reach": "set --interval-width, with which sampling goes on",
}
"""What lets a dispatch go on, by the reason why its sampling ended."""


def find_marks(
    measurement: Measurement, rounds: Sequence[Round], target: Target, settings: RunSettings
) -> tuple[str, ...]:
    """All marks of a measurement, the most serious first. The `rounds` show how the samples were
    taken, and hold telemetry for which the record has no field."""
    last = rounds[-1]
    disturbed = list(_disturbance(measurement, rounds))
    return (
        *_unseen_work(measurement, last),
        *_throttling(measurement),
        *_moving_clock(rounds, settings),
        *_precision(measurement, rounds, target, settings),
        *disturbed,
        *_modes(rounds),
        *(() if disturbed else _stalls(measurement, last)),
        *_drift(rounds),
        *_circumstances(measurement, last, target, settings),
    )


def _unseen_work(measurement: Measurement, last: Round) -> Iterator[str]:
    if (last.new_inputs_ratio or 0.0) > REMEMBERED_RATIO:
        yield (
            f"remembers: a launch on new inputs takes {last.new_inputs_ratio:.1f} "
            "times as long; the time is that of looking up a result, not of computing it: keep "
            "no results between launches"
        )
    if last.runs_on_s > RUNS_ON_S:
        yield (
            f"runs on: threads of the process worked for {format_ns(last.runs_on_s * 1e9)} after "
            "launches had returned, which the time does not include; wait for them in the "
            "kernel, or "
            "have idle threads sleep (OMP_WAIT_POLICY=passive)"
        )
    host_ns = (last.wall_launch_ns or 0.0) - measurement.median_ns
    if host_ns > max(HOST_WORK_NS, measurement.median_ns / 2):
        yield (
            f"host work: a launch takes {format_ns(last.wall_launch_ns)} by the host's clock and "
            f"{format_ns(measurement.median_ns)} on the device; if the kernel computes on the "
            "host, this time does not include it"
        )


def _throttling(measurement: Measurement) -> Iterator[str]:
    telemetry = measurement.telemetry
    clock = "" if telemetry.sm_clock_hz is None else f" at {telemetry.sm_clock_hz / 1e6:.0f} MHz"
    for reason in telemetry.throttle_reasons:
        if reason not in _SETTINGS_OF_THE_USER:
            advice = _THROTTLE_ADVICE.get(reason, "rerun when the device reports no such reason")
            if reason == "sw_power_cap" and measurement.regime == "sustained":
                advice = "the power limit sets the clock: compare results at the same clock"
            yield f"throttled: {reason}{clock}; {advice}"


def _precision(
    measurement: Measurement, rounds: Sequence[Round], target: Target, settings: RunSettings
) -> Iterator[str]:
    if measurement.ci_low_ns is None:
        count = str(measurement.sample_count)
        if measurement.sample_count >= minimum_samples():
            count += f" in {measurement.rounds} rounds that differ"
        more = "--time-budget or --min-samples"
        yield (
            f"few samples: {count} are not enough for a 95 % interval of the median; raise "
            f"{more if settings.repetitions is None else '--benchmark-repetitions'}"
        )
        return
    # Differences between processes have a mark of their own.
    width = rounds_half_width(rounds)
    within = " within processes" if len({one.process for one in rounds}) > 1 else ""
    limited = set(measurement.telemetry.throttle_reasons).difference(_SETTINGS_OF_THE_USER)
    # Where a limit of the device moves the clock, a quiet machine changes nothing.
    remedy = "" if limited else "rerun on a quiet machine or "
    if settings.repetitions is not None and settings.interval_width is None:
        # An exact number of samples was requested, not a width.
        if width > WIDE:
            yield (
                f"noisy: interval {format_half_width(width)}; {remedy}raise --benchmark-repetitions"
            )
        return
    required = required_width(settings, target)
    # A candidate that has left the race is wide by design, but not without a limit.
    if width > (max(required, WIDE) if measurement.stop_reason == "outclassed" else required):
        more = _MORE_SAMPLES.get(measurement.stop_reason, "raise --time-budget")
        yield (
            f"noisy: interval {format_half_width(width)}{within} is wider than the requested "
            f"{format_half_width(required)}; {remedy}{more}"
        )


def _modes(rounds: Sequence[Round]) -> Iterator[str]:
    """Whether samples form two clusters: a gap of 10 % of the median with at least a fifth of the
    samples on each side."""
    ordered = np.sort(np.concatenate([item.samples_ns for item in rounds]))
    count = ordered.size
    if count < _MIN_SAMPLES_FOR_MODES:
        return
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


def _disturbance(measurement: Measurement, rounds: Sequence[Round]) -> Iterator[str]:
    """Competition for the processors: by the time that threads waited, by ticks, else by the load
    average."""
    waited_s = sum(item.quiet_wait_s for item in rounds)
    waited = f" (after {format_ns(waited_s * 1e9)} of waiting for quiet)" if waited_s > 0.1 else ""
    advice = "stop them and rerun, or give fewer --threads"
    telemetry = measurement.telemetry
    share = telemetry.others_cpu_share or 0.0
    delays = _numbers(rounds, "run_delay_share")
    noisy = [delay for delay in delays if delay > RUN_DELAY_SHARE]
    if delays and len(noisy) > len(delays) * NOISY_ROUNDS:
        holder = "other programs" if share > OTHERS_SHARE else "others, or threads of its own,"
        yield (
            f"busy: in {len(noisy)} of {len(delays)} rounds threads waited for a "
            f"processor for {format_percent(float(np.median(noisy)))} of the time, summed over "
            f"threads{waited}, because {holder} occupied the processors; {advice}"
        )
        return
    if share > OTHERS_SHARE:
        yield (
            f"busy: other programs took {format_percent(share)} of the processors while "
            f"measuring{waited}; {advice}"
        )
        return
    load = telemetry.load_average
    if load is not None and load > BUSY_LOAD_PER_CORE and not delays:
        yield f"load average {load:.1f} per core while measuring; {advice}"


def _stalls(measurement: Measurement, last: Round) -> Iterator[str]:
    if last.method != "wall_clock" or not measurement.min_ns:
        return
    ratio = measurement.median_ns / measurement.min_ns
    if ratio > STALLED_RATIO:
        yield (
            f"stalled: the median is {ratio:.1f} times the shortest sample, "
            f"{format_ns(measurement.min_ns)}; something delays most launches"
        )


def _moving_clock(rounds: Sequence[Round], settings: RunSettings) -> Iterator[str]:
    clocks = [clock for clock in _numbers(rounds, "sm_clock_hz") if clock]
    if settings.regime == "burst" and clocks and clocks[-1] < (1 - CLOCK_FALL) * clocks[0]:
        yield (
            f"boost: the clock fell from {clocks[0] / 1e6:.0f} to {clocks[-1] / 1e6:.0f} MHz while "
            "sampling, so that early samples are faster than the sustained speed; use --regime "
            "sustained"
        )
    first = rounds[0]
    if first.is_settled is False:
        yield (
            f"not settled: clock or speed still changed by "
            f"{format_percent(first.unsettled_change)} per second after {first.load_s:.1f} s of "
            "load; rerun on a quiet device, or warm up longer with --warmup-time"
        )


def _drift(rounds: Sequence[Round]) -> Iterator[str]:
    """Change of the median of round medians from the first third to the last, if it exceeds the
    variation between rounds: the ranges of the two thirds must be disjoint."""
    sampled = [item.samples_ns for item in rounds if item.samples_ns]
    third = len(sampled) // 3
    if third < _MIN_ROUNDS_A_THIRD:
        return
    medians = [float(np.median(samples)) for samples in sampled]
    first, last = medians[:third], medians[-third:]
    change = float(np.median(last) / max(np.median(first), 1e-9)) - 1
    if abs(change) > DRIFT_SHARE and (max(first) < min(last) or max(last) < min(first)):
        yield (
            f"drift: the last third of the rounds is {format_percent(abs(change))} "
            f"{'slower' if change > 0 else 'faster'} than the first; warm up longer with "
            "--warmup-time, or use --regime sustained"
        )


def _circumstances(
    measurement: Measurement, last: Round, target: Target, settings: RunSettings
) -> Iterator[str]:
    """Circumstances of the measurement that may differ in another one."""
    if measurement.process_spread > 2 * required_width(settings, target):
        yield (
            f"processes differ: by {format_percent(measurement.process_spread)} among "
            f"{measurement.processes}, each steady in itself, so that another run may differ as "
            "much; use more of them with --processes"
        )
    if last.capture_failure:
        yield (
            f"no graph: {last.capture_failure}; timed by events, which add the gaps between "
            "launches: compare with graphs only where launches are long"
        )
    overhead_ns = last.overhead_ns or 0.0
    share = overhead_ns / max(measurement.median_ns * last.launches_per_sample, 1e-9)
    if share > OVERHEAD_SHARE:
        yield (
            f"harness: timing an empty call takes {format_ns(overhead_ns)}, "
            f"{format_percent(share)} of a sample; raise --batch-size"
        )
    total = last.input_sets * last.bytes_per_set
    if settings.cold_cache and total < CACHE_FACTOR * last.last_level_cache_bytes:
        yield (
            f"warm cache: {last.input_sets} sets of buffers take {format_bytes(total)}, less than "
            f"{CACHE_FACTOR}× the last-level cache of {format_bytes(last.last_level_cache_bytes)}; "
            "compare only with results of the same size"
        )
    if settings.quick:
        yield (
            "quick: few rounds, the fewest processes and checks; measure without --quick before "
            "relying on small differences"
        )


def _numbers(rounds: Sequence[Round], name: str) -> list[float]:
    """Telemetry `name` of each round that reports it."""
    values = (item.telemetry.get(name) for item in rounds)
    return [float(value) for value in values if isinstance(value, (int, float))]


FEWEST_ROUNDS_OF_A_PROCESS = 2
"""A single round does not show whether a process is steady; the interval over rounds already counts
such rounds as independent."""

_TEXTS = ("throttle_reasons", "processors")
"""Fields of the telemetry that are no numbers."""


def summarize(
    rounds: Sequence[Round],
    energy: Sequence[EnergyTaken] = (),
    *,
    stop_reason: str,
    target: Target,
    settings: RunSettings,
) -> Measurement:
    """Statistics over all samples of all rounds.

    Args:
        rounds: at least one round with at least one sample.
        energy: what each process measured.
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
    if interval is not None:
        # The rounds of one process carry no information about the medians of other processes, and
        # those of one moment none about where the device's clock moves meanwhile.
        others = [*_medians_of_parts(rounds), *([fastest, slowest] if fastest < slowest else [])]
        interval = min([interval[0], *others]), max([interval[1], *others])
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
        regime=settings.regime,
        launches=last.launches,
        stop_reason=stop_reason,
        input_sets=last.input_sets,
        first_launch_ns=rounds[0].first_launch_ns,
        harness_overhead_ns=last.overhead_ns,
        effective_samples=effective,
        telemetry=_combine_telemetry(rounds),
        energy=summarize_energy(energy),
    )
    found = find_marks(measurement, rounds, target, settings)
    return dataclasses.replace(measurement, marks=found)


_PARTS = 3
"""The beginning, the middle and the end of sampling."""


def _medians_of_parts(rounds: Sequence[Round]) -> list[float]:
    """Medians of the first, middle and last rounds in ns; [] where they are fewer.

    The clock of a device at its power limit wanders for longer than a round lasts. Rounds that
    follow each other are then alike, and an interval that counts them as independent is too narrow.
    Of independent rounds a third of them hardly ever has its median outside of it.
    """
    taken = [item for item in rounds if item.samples_ns]
    if len(taken) < _PARTS:
        return []
    bounds = [len(taken) * part // _PARTS for part in range(_PARTS + 1)]
    return [
        float(np.median(np.concatenate([one.samples_ns for one in taken[start:end]])))
        for start, end in itertools.pairwise(bounds)
    ]


def _medians_by_process(rounds: Sequence[Round]) -> list[list[float]]:
    """The medians of each process's rounds, in ns. Rounds are short, and numpy's median of a few
    numbers takes ten times as long as Python's."""
    processes = grouped((item for item in rounds if item.samples_ns), lambda item: item.process)
    return [
        [float(statistics.median(item.samples_ns)) for item in taken]
        for taken in processes.values()
    ]


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
    names = (one.name for one in dataclasses.fields(Telemetry) if one.name not in _TEXTS)
    found = {name: _numbers(rounds, name) for name in names}
    numbers = {name: statistics.median(values) for name, values in found.items() if values}
    reasons: list[str] = []
    for item in rounds:
        reported = item.telemetry.get("throttle_reasons", ())
        reasons.extend(reported if isinstance(reported, tuple) else (str(reported),))
    return Telemetry(
        throttle_reasons=tuple(sorted(set(reasons))),
        processors=str(rounds[-1].telemetry.get("processors", "")),
        **numbers,
    )
