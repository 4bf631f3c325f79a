"""When enough samples are taken, and how many to take next."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gemmetry.domain.settings import USUAL_SAMPLES, RunSettings
from gemmetry.domain.target import Target, TargetKind
from gemmetry.measurement.rounds import Round
from gemmetry.statistics.intervals import half_width, rounds_interval

GPU_INTERVAL_WIDTH = 0.005
"""Asked relative half-width of the median's interval on a GPU, where nothing says otherwise."""

CPU_INTERVAL_WIDTH = 0.02
"""The same on a CPU (and the pretend device), whose clock and neighbours vary more."""

MIN_ROUNDS = 12
"""Rounds over which samples are spread at least, so that the candidates of a comparison take turns
however few samples suffice. A round is one independent observation; the sign test can show a
difference of 12 pairs at p = 2·2⁻¹² = 0.0005, so still among a hundred comparisons at 5 %. The
pretend device does not drift and needs one."""

ROUND_S = 0.005
GPU_ROUND_S = 0.01
"""Samples of a round take about so long: taking turns costs some milliseconds (untimed launches,
telemetry, poisoned outputs), on a GPU some tens. None of that counts against the time budget. Where
changing the inputs takes longer than a round would, rounds are as long as that takes, as far as
:data:`MIN_ROUNDS` of them fit into the budget."""

MOST_ROUNDS = 60
"""Rounds that a dispatch takes about at most. Many short rounds tell more than few long ones,
because samples of one round share the state of the machine."""

GPU_PROCESSES = 3
"""Processes that share the rounds of a dispatch on a GPU, where nothing says otherwise. Times that
are steady within a process differ from one to the next: those of torch's products in bf16 by 0.1 to
1.9 % (standard deviation, on one H200; ``benchmarks/process_times.py``)."""

DISTURBED_ROUNDS = 3 * MIN_ROUNDS
"""Rounds at least where one of them is off by :data:`OFF`, however narrow the interval: among sixty
comparisons the sign test allows no contrary pair of twelve, and seven of 36."""

OFF = 1.5
"""Ratio of a round's median to that of all rounds beyond which something else than the dispatch
decided it."""

_MAX_GROWTH = 2
"""Another set of rounds takes at most this many times the samples there are: estimates from few
are poor."""


def asked_width(settings: RunSettings, target: Target) -> float:
    """Relative half-width of the median's 95 % interval at which sampling ends."""
    if settings.interval_width is not None:
        return settings.interval_width
    return GPU_INTERVAL_WIDTH if target.is_gpu else CPU_INTERVAL_WIDTH


def process_count(settings: RunSettings, target: Target) -> int:
    """Processes that share the rounds of a dispatch."""
    return settings.processes or (GPU_PROCESSES if target.is_gpu else 1)


def rounds_half_width(rounds: Sequence[Round]) -> float:
    """Half of the median's 95 % interval over the median; infinite where there is none."""
    samples = [item.samples_ns for item in rounds]
    if not any(samples):
        return math.inf
    found = half_width(rounds_interval(samples)[0], float(np.median(np.concatenate(samples))))
    return math.inf if found is None else found


class StopPolicy:
    """Stops when the interval is narrow enough, the time is spent, or the samples are too many.

    ``settings.min_samples`` are taken however long they last, where they were asked for.
    ``settings.repetitions`` replaces all of that by an exact number of samples.
    """

    def __init__(self, settings: RunSettings, target: Target) -> None:
        self._settings = settings
        self._width = asked_width(settings, target)
        asked = settings.repetitions or settings.min_samples or 0
        self._round_s = GPU_ROUND_S if target.is_gpu else ROUND_S
        self._promised = min(asked, settings.max_samples)
        self._least = min(asked or USUAL_SAMPLES, settings.max_samples)
        drifts = target.kind is not TargetKind.NULL
        self._rounds, self._most_rounds = (MIN_ROUNDS, MOST_ROUNDS) if drifts else (1, 2)
        self._disturbed_rounds = DISTURBED_ROUNDS if drifts else 1
        self._first_size = max(1, math.ceil(self._least / self._rounds))

    def next_count(
        self, rounds: Sequence[Round], seconds_spent: float, sample_s: float = 0.0
    ) -> int:
        """Size of the next round; 0 ends sampling.

        Args:
            rounds: all rounds so far.
            seconds_spent: what their samples took.
            sample_s: what one sample takes by the warm-up, for the first round, which is as long as
                the others then; 0: not known.
        """
        settings, taken = self._settings, _taken(rounds)
        if settings.repetitions is not None:
            return max(0, min(settings.repetitions - taken, self._first_size))
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
        if width <= self._width and (len(rounds) >= self._disturbed_rounds or _agree(rounds)):
            return 0
        missing = min(self._missing(taken, width), room)
        share = missing / max(1, self._most_rounds - len(rounds))
        return min(max(size, math.ceil(share)), room)

    def _round_size(self, rounds: Sequence[Round], seconds_spent: float, sample_s: float) -> int:
        """Samples of a round that is long enough to be worth taking a turn; fewer where they are
        held up so often that the budget would not hold all rounds."""
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
        """Why sampling ended: ``interval``, ``time_budget`` or ``max_samples``."""
        settings, taken = self._settings, _taken(rounds)
        if settings.repetitions is not None:
            return "max_samples"
        if taken >= self._least and rounds_half_width(rounds) <= self._width:
            return "interval"
        return "max_samples" if taken >= settings.max_samples else "time_budget"

    def _missing(self, taken: int, width: float) -> int:
        """Samples still missing if the width shrinks with the square root of their number."""
        if not math.isfinite(width):
            return taken
        missing = math.ceil(taken * (width / self._width) ** 2) - taken
        return max(self._least, min(missing, _MAX_GROWTH * taken))


def _sample_s(rounds: Sequence[Round]) -> tuple[float, float]:
    """What one sample takes: the median over the rounds, and the mean, which has those that were
    held up in it."""
    scales = [item.launches_per_sample / 1e9 for item in rounds]
    usual = [float(np.median(item.samples_ns)) for item in rounds]
    means = [math.fsum(item.samples_ns) / len(item.samples_ns) for item in rounds]
    usual_s = float(np.median(np.multiply(usual, scales)))
    mean_s = float(np.mean(np.multiply(means, scales)))
    return max(usual_s, 1e-9), max(mean_s, 1e-9)


def _agree(rounds: Sequence[Round]) -> bool:
    """Whether no round is off."""
    medians = np.array([np.median(item.samples_ns) for item in rounds])
    middle = float(np.median(medians))
    return bool((medians <= OFF * middle).all() and (OFF * medians >= middle).all())


def _taken(rounds: Sequence[Round]) -> int:
    return sum(len(item.samples_ns) for item in rounds)
