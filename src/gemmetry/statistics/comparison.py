"""Whether one of two dispatches is faster: ratio, interval, and the verdict read from the interval.

Whether one of two settings is faster, when each was run a few times: what varies between runs of
one setting (placement, clocks, neighbours) is common to all samples of a run, so that only runs
count as observations. Two or three runs per setting say little about their own spread, but all
settings of a sweep together say enough: the spread is estimated from all of them, as in an analysis
of variance.

Two groups of durations of any sizes compared by ranks, also in strata.

The one engine of comparisons: pairs of results are judged together, and what is printed with a
verdict is the interval that decided it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gemmetry.domain.units import format_percent, plural
from gemmetry.statistics.intervals import (
    Interval,
    Samples,
    Shift,
    check_confidence,
    median,
    minimum_a_side,
    minimum_samples,
    quantile,
    rank_sum_shift,
    rounds_interval,
    sign_shift,
    stratified_shift,
)  # fmt: skip
from gemmetry.statistics.runs import student_quantile

_REACH = 8.0
"""Standard deviations of the rank of a resampled median beyond which it is left out: 1e-15."""

GROSS = 5.0
"""A difference of more than this many relevant ones must be excluded before "no difference shown"
is the verdict. Two dispatches on a CPU that were each measured to ±2 %, as sampling there stops,
give intervals of ±3 % alone and ±5 % among 60: those of equal ones exclude 5 · 2 % in all but some
of 10,000 cases (``tests/statistics/test_verdicts.py``)."""

SHARE_OF_ROUNDS = 0.9
"""Share of the probability of error allotted to the first comparison of rounds, so that six pairs
of rounds still show a difference at 95 %. The rest is for two others, which decide where that one
does not: they mostly find gross differences on a busy machine, for which little is enough."""

SHARE_OF_MEDIANS = 0.05
"""For the intervals of the two medians, which samples that are off in many rounds do not move."""

SHARE_OF_RANKS = 1 - SHARE_OF_ROUNDS - SHARE_OF_MEDIANS
"""For the ranks of rounds whose signs do not decide. Where every fourth round of two dispatches is
off by factors, signs need many pairs to outvote the contrary ones; a round that is off costs ranks
less than that."""

Rounds = Mapping[int, Samples]
"""Maps each turn to the samples of one round. Dispatches that share a turn were interleaved in
it."""


_Checked = Mapping[int, npt.NDArray[np.float64]]


class Difference(StrEnum):
    """Conclusion from two samples about the second compared with the first."""

    FASTER = "faster"
    SLOWER = "slower"
    NONE_SHOWN = "no difference shown"
    UNDECIDED = "undecided"
    """Too little was measured to decide."""


class Pairing(StrEnum):
    """Unit that counts as one independent observation."""

    ROUNDS = "paired rounds"
    """The ratio within each interleaved round; drift of the machine cancels."""
    UNPAIRED_ROUNDS = "rounds"
    """The median of each round."""
    MEDIANS = "medians"
    """The medians of both sides with the intervals of their own rounds, used where comparing rounds
    with rounds is undecided."""
    RUNS = "runs"
    """Each run; for few runs of each of many settings."""
    SAMPLES = "samples"
    """Each sample; used where the rounds are not known."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Durations of b compared with those of a."""

    ratio: float
    """Duration of b over that of a: below 1 where b is faster."""
    interval: Interval | None
    """Interval of the ratio, from which the verdict is read; all intervals of the family hold
    simultaneously with `confidence`. None where too little was measured."""
    confidence: float
    effect_size: float
    """Cliff's delta, P(b < a) - P(b > a), from -1 (b always slower) to 1 (b always faster); within
    rounds where these are paired."""
    verdict: Difference
    note: str = ""
    """Reason why the comparison is undecided, or what weakens its result."""
    pairing: Pairing = Pairing.SAMPLES
    observations: int = 0
    """Number of pairs of rounds, or of the smaller side's rounds or samples."""
    relevant: float = 0.0
    """Relative differences up to this count as none."""
    p_value: float | None = None
    """Two-sided p-value for a difference larger than `relevant`. None where there is too little
    data, where the interval was widened to include a figure outside the test, and for intervals of
    medians."""
    family: int = 1
    """Number of comparisons judged together."""
    divisor: float = 1.0
    """What the probability of error of the family is divided by for each of them: their number,
    where all intervals hold together; less, where the rate of false ones among those that claim
    something is bounded."""

    @property
    def ratio_low(self) -> float | None:
        """Lower end of the interval."""
        return None if self.interval is None else self.interval[0]

    @property
    def ratio_high(self) -> float | None:
        """Upper end of the interval."""
        return None if self.interval is None else self.interval[1]

    @property
    def adjusted_p_value(self) -> float | None:
        """The p-value after the correction over the family; at most 1 - `confidence` where a
        difference is shown."""
        return None if self.p_value is None else min(1.0, self.divisor * self.p_value)


def verdict_of(interval: Interval | None, relevant: float) -> Difference:
    """The verdict of an interval of a ratio: the first that applies of

    * slower, faster: the interval lies beyond the relevant difference;
    * undecided: there is no interval, or it reaches beyond :data:`GROSS` relevant differences, so
      that neither a difference is shown nor a gross one excluded;
    * no difference shown: a difference that counts as none is in the interval, and a gross one is
      not. That is an equivalence test (Schuirmann, Journal of Pharmacokinetics and
      Biopharmaceutics 15, 1987) whose margin is :data:`GROSS` times as wide as that of the test
      for a difference: with one margin for both, equal dispatches would be undecided until their
      intervals are much narrower than what counts as none.
    """
    if interval is None:
        return Difference.UNDECIDED
    low, high = interval
    if low > 1 + relevant:
        return Difference.SLOWER
    if high < 1 / (1 + relevant):
        return Difference.FASTER
    gross = 1 + GROSS * relevant
    return Difference.NONE_SHOWN if 1 / gross <= low <= high <= gross else Difference.UNDECIDED


def compare_rounds(
    a: Rounds, b: Rounds, *, confidence: float = 0.95, relevant: float = 0.0, family: int = 1,
    divisor: float | None = None,
) -> Comparison:  # fmt: skip
    """Compare durations of b with durations of a (same unit, positive), round by round.

    Samples of one round share the state of the machine, so they are not independent observations;
    rounds are. With enough turns in common, the logarithm of the ratio of the two medians within
    each is one observation (``sign_shift``); otherwise each round's median is (``rank_sum_shift``).
    How many are enough follows from the confidence (:func:`minimum_samples` pairs, else
    :func:`minimum_a_side` rounds a side: 6 and 4 for 95 %). With too few rounds for either there is
    no interval, and the comparison is undecided.

    Where these leave the comparison undecided, the medians may decide it: the quotients of opposite
    ends of the two intervals that :func:`rounds_interval` returns bound the ratio of the medians
    (Bonferroni). Where signs leave it undecided, the ranks of the same rounds are the last to
    decide. The three share the probability of error (:data:`SHARE_OF_ROUNDS`).

    Args:
        confidence: of all intervals of the family together: each has 1 - (1 - confidence) / family
            (Bonferroni; Dunn, "Multiple Comparisons among Means", JASA 56, 1961).
        relevant: relative differences up to this count as none; see :func:`verdict_of`.
        family: number of comparisons judged together (those that are :func:`is_testable`).
        divisor: see :attr:`Comparison.divisor`; None: `family`.

    Raises:
        ValueError: a side has no samples, or one is not positive and finite.
    """
    divisor = float(family) if divisor is None else divisor
    left = {turn: _checked(samples, "a") for turn, samples in a.items() if len(samples)}
    right = {turn: _checked(samples, "b") for turn, samples in b.items() if len(samples)}
    each = _of_each(confidence, divisor, SHARE_OF_ROUNDS)
    needed, shared = minimum_a_side(each), sorted(left.keys() & right.keys())
    if len(shared) >= needed:
        left, right = {t: left[t] for t in shared}, {t: right[t] for t in shared}
    all_a, all_b = _together(left, "a"), _together(right, "b")
    fewest = min(len(left), len(right))
    known = {"relevant": relevant, "family": family, "divisor": divisor}
    bare = _undecided(all_a, all_b, fewest, Pairing.UNPAIRED_ROUNDS, confidence, **known)
    logs_a, logs_b = ([math.log(median(s)) for s in side.values()] for side in (left, right))
    if len(shared) >= minimum_samples(each):
        effect = float(np.mean([cliffs_delta(left[turn], right[turn]) for turn in shared]))
        signs = dataclasses.replace(bare, effect_size=effect, pairing=Pairing.ROUNDS)
        margin = math.log1p(relevant)
        shift = sign_shift(np.subtract(logs_b, logs_a), confidence=each, margin=margin)
        found = _by_shift(signs, shift, SHARE_OF_ROUNDS)
    elif fewest >= needed:
        found = _by_ranks(bare, logs_a, logs_b, SHARE_OF_ROUNDS)
    else:
        found = dataclasses.replace(bare, note=_too_few(fewest, "round", needed, family))
    if found.verdict is not Difference.UNDECIDED:
        return found
    others = [_by_medians(bare, left, right)]
    if found.pairing is Pairing.ROUNDS:
        others.append(_by_ranks(bare, logs_a, logs_b, SHARE_OF_RANKS))
    return next((one for one in others if one.verdict is not Difference.UNDECIDED), found)


def _undecided(
    a: Samples, b: Samples, count: int, pairing: Pairing, confidence: float, **known: Any
) -> Comparison:
    """Result for two sides before any test."""
    ratio, effect = median(b) / median(a), cliffs_delta(a, b)
    known |= {"pairing": pairing, "observations": count}
    return Comparison(ratio, None, confidence, effect, Difference.UNDECIDED, **known)


def _by_shift(bare: Comparison, shift: Shift, share: float) -> Comparison:
    """The comparison by a shift of logarithms that was tested with `share` of the probability of
    error."""
    if shift.interval is None:
        return bare
    low, high = shift.interval
    p_value = min(1.0, 2 * min(shift.p_greater, shift.p_less) / share)
    found = dataclasses.replace(bare, ratio=math.exp(shift.estimate))
    return _judged(found, (math.exp(low), math.exp(high)), p_value)


def _by_ranks(bare: Comparison, a: Samples, b: Samples, share: float) -> Comparison:
    """The comparison by the ranks of the logarithms of rounds."""
    each = _of_each(bare.confidence, bare.divisor, share)
    shift = rank_sum_shift(a, b, confidence=each, margin=math.log1p(bare.relevant))
    return _by_shift(bare, shift, share)


def _by_medians(bare: Comparison, left: _Checked, right: _Checked) -> Comparison:
    """The comparison by the intervals of the two medians."""
    if bare.observations < minimum_a_side(bare.confidence):
        return bare
    each = _of_each(bare.confidence, bare.divisor, SHARE_OF_MEDIANS / 2)
    first, _ = rounds_interval(list(left.values()), each)
    second, _ = rounds_interval(list(right.values()), each)
    if first is None or second is None:
        return bare
    interval = second[0] / first[1], second[1] / first[0]
    verdict = verdict_of(interval, bare.relevant)
    return dataclasses.replace(bare, interval=interval, verdict=verdict, pairing=Pairing.MEDIANS)


def compare_medians(
    a: Samples, b: Samples, *, confidence: float = 0.95, relevant: float = 0.0, family: int = 1,
    divisor: float | None = None,
) -> Comparison:  # fmt: skip
    """Compare durations of b with durations of a (same unit, positive) as independent samples.

    The interval of the ratio of the medians is a percentile bootstrap with the two sides resampled
    independently (Efron & Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13), whose
    distribution is computed instead of drawn (:func:`_median_chances`). The arguments are those of
    :func:`compare_rounds`. With fewer samples a side than the median of either needs for an
    interval of 95 % (6), or than can show a difference in the family (:func:`minimum_a_side`),
    there is no interval, and the comparison is undecided.

    Raises:
        ValueError: a side has no samples, or one is not positive and finite.
    """
    divisor = float(family) if divisor is None else divisor
    left, right = _checked(a, "a"), _checked(b, "b")
    each = _of_each(confidence, divisor)
    fewest, needed = min(left.size, right.size), _samples_needed(confidence, divisor)
    known = {"relevant": relevant, "family": family, "divisor": divisor}
    comparison = _undecided(left, right, fewest, Pairing.SAMPLES, confidence, **known)
    if fewest < needed:
        note = _too_few(fewest, "sample", needed, family)
        return dataclasses.replace(comparison, note=note)
    ratios, chances = _ratios_of_medians(left, right)
    below, above = np.cumsum(chances), np.cumsum(chances[::-1])
    tail = (1 - each) / 2 * (1 + 1e-9)
    low = min(int(np.searchsorted(below, tail, side="right")), ratios.size - 1)
    high = max(ratios.size - 1 - int(np.searchsorted(above, tail, side="right")), 0)
    interval = float(ratios[min(low, high)]), float(ratios[max(low, high)])
    # The interval is the inverse of this test.
    last = int(np.searchsorted(ratios, 1 + relevant, side="right"))
    not_slower = below[last - 1] if last else 0.0
    first = int(np.searchsorted(ratios, 1 / (1 + relevant), side="left"))
    not_faster = above[ratios.size - 1 - first] if first < ratios.size else 0.0
    least = 2 / math.comb(left.size + right.size, left.size)
    p_value = min(1.0, max(2 * float(min(not_slower, not_faster)), least))
    return _judged(comparison, interval, p_value)


def is_testable(first: int, second: int, confidence: float = 0.95, *, by_rounds: bool) -> bool:
    """Whether this many rounds or samples per side could show a difference in a single comparison.
    Comparisons that could not are left out of the family, as chance cannot give them a result."""
    needed = minimum_a_side(confidence) if by_rounds else _samples_needed(confidence, 1)
    return min(first, second) >= needed


def widened(comparison: Comparison, ratio: float, note: str) -> Comparison:
    """The comparison with its interval widened to include `ratio`, a figure outside the test; with
    `note` where that changes the verdict."""
    if comparison.interval is None:
        return comparison
    low, high = comparison.interval
    found = dataclasses.replace(comparison, interval=(min(low, ratio), max(high, ratio)))
    verdict = verdict_of(found.interval, comparison.relevant)
    if verdict is comparison.verdict:
        return found
    notes = "; ".join(filter(None, (comparison.note, note)))
    return dataclasses.replace(found, verdict=verdict, p_value=None, note=notes)


FASTEST_PART = 0.1
"""Share of the samples that show what a kernel takes while no other program runs."""


def widened_by_fastest(comparison: Comparison, a: Samples, b: Samples) -> Comparison:
    """The comparison, widened by the ratio of the fastest tenths of the samples
    (:data:`FASTEST_PART`).

    Other programs can only make samples longer, and can do so in every round: two threads of one
    library share a processor as long as another program uses the other one."""
    ratio = quantile(b, FASTEST_PART) / quantile(a, FASTEST_PART)
    why = f"disturbed, and the ratio of the fastest samples is {ratio:.3g}"
    return widened(comparison, ratio, why)


def _judged(comparison: Comparison, interval: Interval, p_value: float) -> Comparison:
    relevant, notes = comparison.relevant, []
    verdict = verdict_of(interval, relevant)
    if verdict in (Difference.NONE_SHOWN, Difference.UNDECIDED):
        if p_value <= 1 - comparison.confidence + 1e-12:
            family = comparison.family
            notes.append(f"a difference is shown by itself, but not as one of {family} comparisons")
        else:
            notes += filter(None, [_near_miss(interval, relevant)])
    if verdict is Difference.UNDECIDED and relevant:
        gross = f"the interval does not exclude a difference of {format_percent(GROSS * relevant)}"
        notes.append(f"{gross}: measure more rounds, on a quieter machine")
    return dataclasses.replace(
        comparison, interval=interval, verdict=verdict, p_value=p_value, note="; ".join(notes)
    )


def _of_each(confidence: float, divisor: float, share: float = 1.0) -> float:
    """The confidence of each interval of a family (:attr:`Comparison.divisor`); `share` is the part
    of the probability of error available to it."""
    check_confidence(confidence)
    return 1 - (1 - confidence) * share / divisor if divisor > 1 or share < 1 else confidence


def _samples_needed(confidence: float, divisor: float) -> int:
    return max(minimum_samples(confidence), minimum_a_side(_of_each(confidence, divisor)))


def _too_few(count: int, what: str, needed: int, family: int) -> str:
    among = f" among {family} comparisons" if family > 1 else ""
    return (
        f"{plural(count, what)} a side: at least {needed} are needed{among}; "
        "raise --time-budget, --min-samples or --benchmark-repetitions"
    )


def cliffs_delta(a: Samples, b: Samples) -> float:
    """P(b < a) - P(b > a) over all pairs (Cliff, Psychological Bulletin 114, 1993)."""
    ordered = np.sort(np.asarray(a, dtype=np.float64))
    values = np.asarray(b, dtype=np.float64)
    below = np.searchsorted(ordered, values, side="left").sum()
    above = ordered.size * values.size - np.searchsorted(ordered, values, side="right").sum()
    return float(above - below) / (ordered.size * values.size)


def _together(rounds: _Checked, name: str) -> Samples:
    if not rounds:
        raise ValueError(f"{name} has no samples to compare")
    return np.concatenate(list(rounds.values()))


def _checked(samples: Samples, name: str) -> npt.NDArray[np.float64]:
    values = np.asarray(samples, dtype=np.float64)
    if values.size == 0:
        raise ValueError(f"{name} has no samples to compare")
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise ValueError(f"{name} has durations that are not positive and finite")
    return values


def _ratios_of_medians(
    left: npt.NDArray[np.float64], right: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Ratios of resampled medians, `right` to `left`, ascending, with their probabilities."""
    sides = []
    for samples in (left, right):
        first, chances = _median_chances(samples.size)
        sides.append((np.sort(samples)[first : first + chances.size], chances))
    (below, weights), (above, others) = sides
    ratios = np.divide.outer(above, below).ravel()
    order = np.argsort(ratios)
    return ratios[order], np.multiply.outer(others, weights).ravel()[order]


@lru_cache(maxsize=256)
def _median_chances(count: int) -> tuple[int, npt.NDArray[np.float64]]:
    """Probability that the median of a resample of `count` values is the first, second ... smallest
    of these; the number of those before the first that is at all likely is returned as well.

    The m-th smallest of a resample is at most the i-th smallest value if at least m of `count`
    draws are among the first i: a binomial sum (Efron & Tibshirani 1993, problem 6.9). Of an even
    number of values, either of the two in the middle counts, each half the time.
    """
    reach = math.ceil(_REACH * math.sqrt(count) / 2) + 2
    first, last = max(0, count // 2 - reach), min(count, (count + 1) // 2 + reach)
    shares = np.arange(first, last + 1) / count
    with np.errstate(divide="ignore"):
        logs = np.log(shares), np.log1p(-shares)
    total = np.zeros(shares.size)
    for middle in {(count + 1) // 2, count // 2 + 1}:
        draws = np.arange(middle, min(count, middle + 2 * reach) + 1)
        ways = [math.lgamma(k + 1) + math.lgamma(count - k + 1) for k in draws.tolist()]
        choose = math.lgamma(count + 1) - np.array(ways)
        with np.errstate(invalid="ignore"):
            exponents = choose + np.outer(logs[0], draws) + np.outer(logs[1], count - draws)
        # With a share of 1 all draws are among the first, where 0 times infinity is not a number.
        sums = np.nan_to_num(np.exp(exponents), nan=0.0).sum(axis=1)
        sums[shares == 1] = 1.0
        total += np.clip(sums, 0, 1) / (1 if count % 2 else 2)
    return first, np.maximum(np.diff(total), 0.0)


LEAST_PAIRS = 2
"""Pairs for an interval of their mean."""


@dataclass(frozen=True, slots=True)
class RunSpread:
    """Spread of log durations between runs of one setting."""

    deviation: float
    """Standard deviation, pooled over all settings."""
    degrees: int
    """Degrees of freedom: runs less settings; 0: no setting was run twice."""


def run_spread(groups: Sequence[Sequence[float]]) -> RunSpread:
    """The pooled spread of `groups`, one per setting, with a duration (positive) per run."""
    squares, degrees = 0.0, 0
    for group in groups:
        logs = [math.log(value) for value in group]
        mean = sum(logs) / len(logs) if logs else 0.0
        squares += sum((one - mean) ** 2 for one in logs)
        degrees += max(0, len(logs) - 1)
    return RunSpread(math.sqrt(squares / degrees) if degrees else 0.0, degrees)


def _near_miss(interval: Interval | None, relevant: float) -> str:
    """Why an interval that begins or ends between 1 and the relevant difference shows no
    difference; "" for other intervals."""
    low, high = interval or (1.0, 1.0)
    if 1 < low <= 1 + relevant or 1 / (1 + relevant) <= high < 1:
        return f"differs, but not demonstrably by more than {format_percent(relevant)}"
    return ""


def compare_runs(
    a: Sequence[float],
    b: Sequence[float],
    spread: RunSpread,
    *,
    confidence: float = 0.95,
    relevant: float = 0.0,
    family: int = 1,
) -> Comparison:
    """Compare the runs of setting b with those of setting a (durations in the same unit).

    The ratio is that of the geometric means, its interval Student's for two means with a common
    variance (Montgomery, "Design and Analysis of Experiments", 8th ed. 2013, section 3.5). It
    assumes that the logarithms vary equally and normally in all settings. Without a repeated
    setting there is no interval, and the comparison is undecided.

    Args:
        confidence: of all intervals of the family together (Bonferroni).
        relevant: relative differences up to this count as none (:func:`verdict_of`).
        family: number of comparisons judged together.

    Raises:
        ValueError: a side has no runs.
    """
    check_confidence(confidence)
    if not a or not b:
        raise ValueError("a setting without runs cannot be compared")
    shift = sum(map(math.log, b)) / len(b) - sum(map(math.log, a)) / len(a)
    reach, note = None, ""
    if spread.degrees:
        tail = (1 - confidence) / family / 2
        reach = student_quantile(1 - tail, spread.degrees) * spread.deviation
        reach *= math.sqrt(1 / len(a) + 1 / len(b))
    else:
        note = "no point was run twice, so the spread between runs is not known; repeat the runs"
    found = _by_reach(shift, reach, cliffs_delta(a, b), min(len(a), len(b)), confidence, relevant)
    if found.interval is not None and found.verdict is Difference.UNDECIDED:
        near = _near_miss(found.interval, relevant)
        why = near or "runs of one point differ too much for a verdict"
        note = f"{why}; repeat {'the runs' if near else 'them'} more often"
    return dataclasses.replace(found, note=note, family=family)


WIDEST = math.log(1e6)
"""Intervals of logarithms reach no further: with few runs and many comparisons, Student's quantile
can exceed what a floating-point number holds, and a factor of a million says nothing."""


def ratio_interval(shift: float, low: float, high: float) -> tuple[float, float]:
    """The interval of a ratio, of its logarithm `shift` and the ends of that of the logarithm."""
    return math.exp(max(low, shift - WIDEST)), math.exp(min(high, shift + WIDEST))


def _by_reach(
    shift: float,
    reach: float | None,
    effect: float,
    observations: int,
    confidence: float,
    relevant: float,
) -> Comparison:
    """The comparison of runs whose logarithms differ by `shift` on average, known to ± `reach`."""
    interval = None if reach is None else ratio_interval(shift, shift - reach, shift + reach)
    ratio, verdict = math.exp(shift), verdict_of(interval, relevant)
    known: dict[str, Any] = {"observations": observations, "relevant": relevant}
    return Comparison(ratio, interval, confidence, effect, verdict, pairing=Pairing.RUNS, **known)


def compare_pairs(
    a: Sequence[float], b: Sequence[float], *, confidence: float = 0.95, relevant: float = 0.0
) -> Comparison:
    """Compare b with a over pairs (durations of one setting each): the geometric mean of the
    ratios, with Student's interval of their mean logarithm. With fewer than :data:`LEAST_PAIRS`
    there is no interval.

    Args:
        relevant: relative differences up to this count as none (:func:`verdict_of`).

    Raises:
        ValueError: no pairs, or sides of different lengths.
    """
    check_confidence(confidence)
    if not a or len(a) != len(b):
        raise ValueError("pairs need as many durations on both sides, and at least one")
    logs = [math.log(right / left) for left, right in zip(a, b, strict=True)]
    shift, count = sum(logs) / len(logs), len(logs)
    reach, note = None, f"{plural(count, 'pair')}: at least {LEAST_PAIRS} are needed"
    if count >= LEAST_PAIRS:
        deviation = math.sqrt(sum((one - shift) ** 2 for one in logs) / (count - 1))
        reach = student_quantile((1 + confidence) / 2, count - 1) * deviation / math.sqrt(count)
        note = ""
    effect = sum((one < 0) - (one > 0) for one in logs) / count
    found = _by_reach(shift, reach, effect, count, confidence, relevant)
    if found.verdict is Difference.UNDECIDED:
        note = note or _near_miss(found.interval, relevant)
    return dataclasses.replace(found, note=note)


MOST_OF_A_GROUP = 300
"""Larger groups are represented by this many of their quantiles, evenly spaced: all pairs of 300
with 300 are compared, and the normal approximation applies long before."""


def compare_groups(
    strata: Sequence[tuple[Samples, Samples]],
    *,
    confidence: float = 0.95,
    relevant: float = 0.0,
    family: int = 1,
) -> Comparison:
    """Compare durations of b with durations of a (same unit, positive) within strata, as
    independent samples.

    The interval is that of the shift between the logarithms
    (:func:`~gemmetry.statistics.intervals.stratified_shift`). The ratio of one stratum is that of
    its medians, and the interval is widened to it where it lies outside, which happens if the
    groups differ in shape; that of several is the median of the ratios of all pairs within strata,
    as medians over strata of different levels mean nothing. Groups of any sizes can show a
    difference as far as their orders are rare enough: 3 against 21 can.

    Args:
        strata: a and b of each; those without samples on a side do not count.
        confidence: of all intervals of the family together (Bonferroni).
        relevant: relative differences up to this count as none (:func:`verdict_of`).
        family: number of comparisons judged together.

    Raises:
        ValueError: no stratum has samples on both sides, or one is not positive.
    """
    both = [(_checked(a, "a"), _checked(b, "b")) for a, b in strata if len(a) and len(b)]
    logs = [(np.log(_thinned(a)), np.log(_thinned(b))) for a, b in both]
    estimate, found = stratified_shift(logs, 1 - (1 - confidence) / family)
    ratio = math.exp(estimate)
    if len(both) == 1:
        ratio = median(both[0][1]) / median(both[0][0])
    interval = None
    if found is not None:
        interval = min(math.exp(found[0]), ratio), max(math.exp(found[1]), ratio)
    weights = [len(a) * len(b) for a, b in both]
    effect = np.average([cliffs_delta(a, b) for a, b in both], weights=weights)
    count = min(sum(len(a) for a, _ in both), sum(len(b) for _, b in both))
    known: dict[str, Any] = {"observations": count, "relevant": relevant, "family": family}
    verdict = verdict_of(interval, relevant)
    return Comparison(ratio, interval, confidence, float(effect), verdict, **known)


def _thinned(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    if values.size <= MOST_OF_A_GROUP:
        return values
    shares = (np.arange(MOST_OF_A_GROUP) + 0.5) / MOST_OF_A_GROUP
    return np.quantile(values, shares)


class Pair(Protocol):
    """Two results and how to compare them."""

    def is_testable(self, confidence: float) -> bool:
        """Whether the comparison could show a difference on its own."""

    def compare(self, confidence: float, family: int, divisor: float | None = None) -> Comparison:
        """The comparison as one of `family` that are judged together (:class:`Comparison`)."""


MOST_TOGETHER = 100
"""Comparisons up to which all intervals hold together. With more, intervals that all hold become so
wide that they decide nothing, and the rate of false verdicts is bounded instead."""


def compare(pairs: Sequence[Pair], confidence: float = 0.95) -> list[Comparison]:
    """The comparisons, each with an interval and the verdict that is read from it. Comparisons that
    could not show a difference even alone do not count.

    The intervals of up to :data:`MOST_TOGETHER` hold jointly with `confidence`. Of more, the
    expected share of false ones among those that claim a difference is at most 1 - `confidence`,
    and so is the share among those that claim none (:func:`_judge_by_rate`).
    """
    family = max(1, sum(one.is_testable(confidence) for one in pairs))
    if family <= MOST_TOGETHER:
        return [one.compare(confidence, family) for one in pairs]
    return _judge_by_rate(pairs, confidence, family)


def _judge_by_rate(pairs: Sequence[Pair], confidence: float, family: int) -> list[Comparison]:
    """Verdicts with a bounded rate of false ones (Benjamini & Hochberg, JRSS B 57, 1995), read from
    the intervals that belong to it: with an error of R / m of the family's for R of m that are
    selected, so that their false coverage has the same bound (Benjamini & Yekutieli, JASA 100,
    2005). R is the largest number of comparisons that intervals of that level decide.

    Differences and their absence are selected separately: thousands of the one must not make the
    other cheap. What is in neither selection has the interval of a difference, which does not
    decide it.
    """
    alone = [one.compare(confidence, family, 1.0) for one in pairs]

    def selected(*verdicts: Difference) -> tuple[float, dict[int, Comparison]]:
        """The divisor of the probability of error, and the comparisons that it decides so."""
        chosen = {n: one for n, one in enumerate(alone) if one.verdict in verdicts}
        divisor = 1.0
        while chosen and len(chosen) < family / divisor * (1 - 1e-9):
            divisor = family / len(chosen)
            narrowed = {n: pairs[n].compare(confidence, family, divisor) for n in chosen}
            chosen = {n: one for n, one in narrowed.items() if one.verdict in verdicts}
        return (divisor if chosen else float(family)), chosen

    divisor, different = selected(Difference.SLOWER, Difference.FASTER)
    _, same = selected(Difference.NONE_SHOWN)
    return [
        different.get(n) or same.get(n) or one.compare(confidence, family, divisor)
        for n, one in enumerate(pairs)
    ]
