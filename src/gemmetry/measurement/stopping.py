"""A round of samples as the engine stores it: durations, timing method and circumstances.

Decides when there are enough samples, and how many to take next.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.settings import BACK_TO_BACK, USUAL_SAMPLES, RunSettings
from gemmetry.statistics.comparison import Difference, compare_rounds
from gemmetry.statistics.intervals import half_width, rounds_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round of samples; durations in ns per launch, in the order they were taken."""

    samples_ns: tuple[float, ...]
    method: str
    """``wall_clock``, ``events``, ``graph`` or ``simulated``."""
    telemetry: Mapping[str, float | str | tuple[str, ...]] = field(default_factory=dict)
    """Fields of :class:`gemmetry.domain.record.Telemetry`."""
    launches: str = BACK_TO_BACK
    """``apart`` where a small kernel ran ahead of each launch; its time is not in `samples_ns`."""
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
    """Seconds for which threads of the process stayed busy after launches had returned (CPU)."""
    new_inputs_ratio: float | None = None
    """Ratio between the times of launches on new and on known inputs; None: not checked."""
    capture_failure: str = ""
    """Reason why launches to be timed as graphs could not be captured."""
    turn: int = 0
    """Set by the engine: rounds of one turn were interleaved. 0: not known."""
    waited_s: float = 0.0
    """Set by the engine: how long it waited for the round by its own clock. 0: not known."""
    device_id: str = ""
    """Set by the engine: the device that ran the round, see
    :attr:`gemmetry.domain.record.Record.device_ids`. "": not known."""
    process: int = 0
    """Start of the process that ran the round, in ns since 1970, set by the engine. 0: not
    known."""


GPU_INTERVAL_WIDTH = 0.005
"""Default target for the relative half-width of the median's interval on a GPU."""

CPU_INTERVAL_WIDTH = 0.02
"""Interval width on a CPU (and the simulated device), whose clock and other programs vary more."""

QUICK_GPU_INTERVAL_WIDTH, QUICK_CPU_INTERVAL_WIDTH = 0.03, 0.05
"""Interval widths with ``--quick``: six rounds that differ by 1.3 % (8192³ in bf16 on an H200,
``benchmarks/round_spread.py``) give ±1 to ±2 %."""

MIN_ROUNDS = 12
"""Minimum number of rounds over which samples are spread, so that the candidates of a comparison
take turns however few samples are enough. A round is one independent observation; with 12 pairs the
sign test can show a difference at p = 2·2⁻¹² = 0.0005, which is enough for a hundred comparisons at
5 %. The simulated device does not drift and needs one round."""

QUICK_ROUNDS = 6
"""Minimum rounds with ``--quick``: the fewest rounds whose range is a 95 % interval of their median
(1 - 2·2⁻⁶ = 97 %, David & Nagaraja, *Order Statistics*, section 7.1)."""

ROUND_S = 0.005
GPU_ROUND_S = 0.01
"""Approximate duration of a round's samples: taking turns costs milliseconds (untimed launches,
telemetry, poisoned outputs), on a GPU tens of milliseconds. None of that counts against the time
budget. Where changing the inputs takes longer than that, rounds are extended to that time, as far
as :data:`MIN_ROUNDS` of them fit into the budget."""

MOST_ROUNDS = 60
"""Approximate upper limit of rounds per dispatch. Many short rounds are more informative than a few
long ones, because samples of one round share the state of the machine."""

GPU_PROCESSES = 3
"""Default number of processes that share the rounds of a dispatch on a GPU. Times that are steady
within a process differ from process to process: those of torch's products in bf16 by 0.1 to 1.9 %
(standard deviation, on one H200; ``benchmarks/process_times.py``)."""

DISTURBED_ROUNDS = 3 * MIN_ROUNDS
"""Minimum number of rounds where one is off by :data:`OFF`, however narrow the interval: among
sixty comparisons the sign test allows no contrary pair out of 12, but seven out of 36. With more of
them off, rounds continue until the test allows as many contrary pairs, or up to
:data:`MOST_ROUNDS`."""

OFF = 1.5
"""Ratio of a round's median to the median of all rounds beyond which something other than the
dispatch determined it."""

DELAY_BUDGETS = 3
"""Time that delays take from a dispatch with fewer than :data:`DISTURBED_ROUNDS` rounds does not
count against its time budget, up to this many budgets. With six busy programs on two processors a
thread may wait 270 ms for its turn, and a single sample could exhaust a budget of 300 ms: with four
rounds or fewer no test among fifty comparisons can show a difference, however large."""

OUTCLASSED = 0.05
"""A candidate that is shown to be slower than the fastest of its operation by more than this leaves
the race."""

LOOKS = (6, 8, 10, 12, 15, 19, 24, 30, 38, 48)
"""Numbers of rounds after which candidates of an operation are compared. Each comparison is one of
a family of (candidates × looks), so the true fastest is dropped no more often than one comparison
errs (Bonferroni; Dunn, JASA 56, 1961). The fastest so far is chosen by the same samples, so drops
of others are not bounded in this way."""

OUT_OF_REACH = 1.25
"""On a GPU, sampling ends after :data:`DISTURBED_ROUNDS` where all samples that are left would
leave the interval more than this many times as wide as required, unless a width is given. At
its power limit an H100's clock swings by 4.5 % (standard deviation) within tenths of a second: 60
rounds of torch's 4096³ product in bf16 give ±1.2 %."""

_MAX_GROWTH = 2
"""The next rounds together take at most this many times the existing samples: estimates from few
samples are poor."""


def required_width(settings: RunSettings, target: Target) -> float:
    """The relative half-width of the median's 95 % interval at which sampling ends."""
    if settings.interval_width is not None:
        return settings.interval_width
    if settings.quick:
        return QUICK_GPU_INTERVAL_WIDTH if target.is_gpu else QUICK_CPU_INTERVAL_WIDTH
    return GPU_INTERVAL_WIDTH if target.is_gpu else CPU_INTERVAL_WIDTH


def process_count(settings: RunSettings, target: Target) -> int:
    """Processes that share the rounds of a dispatch."""
    return settings.processes or (GPU_PROCESSES if target.is_gpu and not settings.quick else 1)


def rounds_half_width(rounds: Sequence[Round]) -> float:
    """Half the width of the median's 95 % interval divided by the median; infinite where there is
    no interval."""
    samples = [item.samples_ns for item in rounds]
    if not any(samples):
        return math.inf
    found = half_width(rounds_interval(samples)[0], float(np.median(np.concatenate(samples))))
    return math.inf if found is None else found


def median_of_rounds(rounds: Sequence[Round]) -> float:
    """The median of the rounds' medians, in ns."""
    return statistics.median(statistics.median(one.samples_ns) for one in rounds)


def is_outclassed(rounds: Sequence[Round], best: Sequence[Round], candidates: int) -> bool:
    """Whether a candidate is shown to be slower than the fastest one by more than
    :data:`OUTCLASSED`; false between the :data:`LOOKS`.

    Args:
        rounds: of the candidate, with their turns.
        best: the rounds of the fastest of its operation.
        candidates: number of candidates that are sampled in the same turns.
    """
    if len(rounds) not in LOOKS:
        return False
    sides = ({one.turn: one.samples_ns for one in side} for side in (best, rounds))
    family = max(1, candidates - 1) * len(LOOKS)
    return compare_rounds(*sides, relevant=OUTCLASSED, family=family).verdict is Difference.SLOWER


class StopPolicy:
    """Stops when the interval is narrow enough, the time is used up, or the maximum of samples is
    reached.

    If set, ``settings.min_samples`` are taken however long they take. ``settings.repetitions``
    replaces all of that by an exact number of samples.
    """

    def __init__(self, settings: RunSettings, target: Target) -> None:
        self._settings = settings
        self._width = required_width(settings, target)
        requested = settings.repetitions or settings.min_samples or 0
        self._round_s = GPU_ROUND_S if target.is_gpu else ROUND_S
        self._may_give_up = target.is_gpu and settings.interval_width is None
        self._promised = min(requested, settings.max_samples)
        self._least = min(requested or USUAL_SAMPLES, settings.max_samples)
        drifts = target.kind is not TargetKind.NULL
        usual = QUICK_ROUNDS if settings.quick else MIN_ROUNDS
        self._rounds, self._most_rounds = (usual, MOST_ROUNDS) if drifts else (1, 2)
        self._disturbed_rounds = DISTURBED_ROUNDS * usual // MIN_ROUNDS if drifts else 1
        self._first_size = max(1, math.ceil(self._least / self._rounds))

    def next_count(
        self, rounds: Sequence[Round], seconds_spent: float, sample_s: float = 0.0
    ) -> int:
        """Size of the next round; 0 ends sampling.

        Args:
            rounds: all rounds so far.
            seconds_spent: duration of their samples.
            sample_s: duration of one sample according to the warm-up, so that the first round is as
                long as the others; 0: not known.
        """
        settings, taken = self._settings, _taken(rounds)
        if settings.repetitions is not None:
            return max(0, min(settings.repetitions - taken, self._first_size))
        seconds_spent = max(0.0, seconds_spent - self._delays_s(rounds, sample_s))
        if taken == 0 and sample_s <= 0:
            return self._first_size
        owed = max(0, self._promised - taken)
        if taken >= settings.max_samples:
            return 0
        if seconds_spent >= settings.time_budget_s:
            return min(owed, self._first_size)
        if taken:
            sample_s = max(seconds_spent, 1e-9) / taken
        affordable = max(int((settings.time_budget_s - seconds_spent) / sample_s), taken == 0)
        room = max(owed, min(affordable, settings.max_samples - taken))
        size = self._round_size(rounds, seconds_spent, sample_s)
        if taken < self._least or len(rounds) < self._rounds:
            left = max(1, self._rounds - len(rounds))
            return min(max(min(size, room // left), self._first_size), room)
        width = rounds_half_width(rounds)
        if width <= self._width and self._are_enough(rounds):
            return 0
        if self._is_out_of_reach(rounds, width, seconds_spent):
            return 0
        missing = min(self._missing(taken, width), room)
        share = missing / max(1, self._most_rounds - len(rounds))
        return min(max(size, math.ceil(share)), room)

    def _is_out_of_reach(self, rounds: Sequence[Round], width: float, seconds_spent: float) -> bool:
        """Whether all samples that time and settings allow leave the interval far too wide."""
        settings, taken = self._settings, _taken(rounds)
        affordable = taken * settings.time_budget_s / max(seconds_spent, 1e-9)
        most = max(taken, min(affordable, settings.max_samples))
        return (
            self._may_give_up
            and len(rounds) >= self._disturbed_rounds
            and taken >= self._promised
            and width * math.sqrt(taken / most) > OUT_OF_REACH * self._width
        )

    def _are_enough(self, rounds: Sequence[Round]) -> bool:
        """Whether as many contrary pairs as there are rounds that are off would still let the sign
        test show what :data:`MIN_ROUNDS` pairs without any show."""
        medians = np.array([np.median(item.samples_ns) for item in rounds])
        middle, count = float(np.median(medians)), len(rounds)
        off = int(((medians > OFF * middle) | (OFF * medians < middle)).sum())
        if off == 0 or count >= self._most_rounds:
            return True
        contrary = sum(math.comb(count, number) for number in range(off + 1))
        return count >= self._disturbed_rounds and contrary <= 2 ** (count - self._rounds)

    def _delays_s(self, rounds: Sequence[Round], sample_s: float) -> float:
        """Time that delays have taken and that does not count: what rounds took in excess of
        :data:`OFF` times the usual duration of their samples."""
        if not rounds or len(rounds) >= self._disturbed_rounds:
            return 0.0
        usual_s, _ = _sample_s(rounds)
        longest_s = OFF * min(usual_s, sample_s or usual_s)
        lost_s = (
            math.fsum(item.samples_ns) * item.launches_per_sample / 1e9
            - longest_s * len(item.samples_ns)
            for item in rounds
        )
        most_s = DELAY_BUDGETS * self._settings.time_budget_s
        return min(math.fsum(max(0.0, lost) for lost in lost_s), most_s)

    def _round_size(self, rounds: Sequence[Round], seconds_spent: float, sample_s: float) -> int:
        """Number of samples that makes a round long enough to be worth a turn; fewer where delays
        are so frequent that not all rounds would fit into the budget."""
        budget_s = self._settings.time_budget_s
        length_s, most_rounds, usual_s, mean_s = self._round_s, self._most_rounds, sample_s, 0.0
        if rounds:
            usual_s, mean_s = _sample_s(rounds)
            renewal_s = float(np.median([item.renewal_s for item in rounds]))
            longest_s = budget_s / self._rounds
            if renewal_s > length_s and longest_s > length_s:
                length_s = min(renewal_s, longest_s)
                most_rounds = min(max(int(budget_s / length_s), self._rounds), most_rounds)
        most = max(self._first_size, self._settings.max_samples // most_rounds)
        share_s = (budget_s - seconds_spent) / max(1, most_rounds - len(rounds))
        size = min(length_s / usual_s, max(length_s, share_s) / max(mean_s, usual_s))
        return min(max(int(size), self._first_size), most)

    def reason(self, rounds: Sequence[Round], seconds_spent: float) -> str:
        """Reason why sampling ended: ``interval``, ``time_budget``, ``max_samples`` or
        ``out_of_reach``."""
        settings, taken = self._settings, _taken(rounds)
        if settings.repetitions is not None:
            return "max_samples"
        width = rounds_half_width(rounds)
        if taken >= self._least and width <= self._width:
            return "interval"
        if taken >= settings.max_samples:
            return "max_samples"
        seconds_spent = max(0.0, seconds_spent - self._delays_s(rounds, 0.0))
        if seconds_spent < settings.time_budget_s and self._is_out_of_reach(
            rounds, width, seconds_spent
        ):
            return "out_of_reach"
        return "time_budget"

    def left_s(self, rounds: Sequence[Round], seconds_spent: float, sample_s: float) -> float:
        """Estimate of the duration of the samples that will still be taken, in seconds."""
        settings, taken = self._settings, _taken(rounds)
        each_s = seconds_spent / taken if taken else sample_s
        if settings.repetitions is not None:
            return max(0, settings.repetitions - taken) * each_s
        most_s = max(0.0, settings.time_budget_s - seconds_spent)
        most_s = min(most_s, (settings.max_samples - taken) * each_s)
        if len(rounds) < self._rounds:
            return most_s
        width = rounds_half_width(rounds)
        if self._is_out_of_reach(rounds, width, seconds_spent):
            return 0.0
        return min(most_s, self._missing(taken, width) * each_s)

    def _missing(self, taken: int, width: float) -> int:
        """Number of samples still needed if the width shrinks with the square root of their
        number."""
        if not math.isfinite(width):
            return taken
        missing = math.ceil(taken * (width / self._width) ** 2) - taken
        return max(self._least, min(missing, _MAX_GROWTH * taken))


def _sample_s(rounds: Sequence[Round]) -> tuple[float, float]:
    """Duration of one sample: the median over the rounds, and the mean, which includes delayed
    samples."""
    scales = [item.launches_per_sample / 1e9 for item in rounds]
    usual = [float(np.median(item.samples_ns)) for item in rounds]
    means = [math.fsum(item.samples_ns) / len(item.samples_ns) for item in rounds]
    usual_s = float(np.median(np.multiply(usual, scales)))
    mean_s = float(np.mean(np.multiply(means, scales)))
    return max(usual_s, 1e-9), max(mean_s, 1e-9)


def _taken(rounds: Sequence[Round]) -> int:
    return sum(len(item.samples_ns) for item in rounds)
