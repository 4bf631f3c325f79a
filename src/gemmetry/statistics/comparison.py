"""Tests by signs and ranks, which assume no shape of the distribution, with shifts and intervals.

Null distributions are exact, that of ranks up to :data:`EXACT_UP_TO` values (counted by
convolution), with a normal approximation beyond.

Whether one of two dispatches is faster: ratio, interval, and the verdict read from the
interval.

Whether one of two settings is faster, when each was run a few times.

What varies between runs of one setting (placement, clocks, neighbours) is common to all samples of
a run, so that only runs count as observations. Two or three runs per setting say little about their
own spread, but all settings of a sweep together say enough: the spread is estimated from all of
them, as in an analysis of variance.

A history has one run each night of many dispatches, and asks whether the latest few differ from
those before. Five runs of one dispatch say little about their spread, and nothing about how often a
run is far off; the runs of all dispatches do. :func:`latest_steps` is Student's test with a
variance shrunk towards that of all series (Smyth, "Linear Models and Empirical Bayes Methods for
Assessing Differential Expression in Microarray Experiments", Statistical Applications in Genetics
and Molecular Biology 3, 2004), whose tail is that of the same statistic of earlier runs.

Two groups of durations of any sizes compared by ranks, also in strata.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from gemmetry.domain.units import counted, format_percent
from gemmetry.statistics.intervals import (
    Interval,
    Samples,
    check_confidence,
    median,
    median_interval,
    minimum_samples,
    rounds_interval,
)

EXACT_UP_TO = 60
"""Number of values, over both sides, up to which null distributions are computed exactly; the
normal approximation is then right to three decimals at 95 %, and cautious further out, because its
tails are longer."""

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Shift:
    """A shift between two sides: estimate, interval, and the test whose inverse is the interval.
    The p-values are exact for values without ties; ties count against a difference."""

    estimate: float
    interval: Interval | None
    """None where there are too few values for the confidence."""
    p_greater: float
    """Probability of signs or ranks this high or higher if the shift were at most the margin; at
    most (1 - confidence) / 2 exactly where the interval lies above the margin."""
    p_less: float
    """Probability of signs or ranks this low or lower if the shift were at least minus the
    margin."""


def sign_shift(differences: Samples, *, confidence: float, margin: float = 0.0) -> Shift:
    """Shift of paired differences: the sign test with the median of the differences.

    The interval lies between two of the differences and is the inverse of the test (Hollander,
    Wolfe & Chicken, "Nonparametric Statistical Methods", 3rd ed. 2014, sections 3.4-3.6). The only
    assumption is that without a shift either side is larger with the same probability, which holds
    for pairs whose two sides run in random order. Wilcoxon's signed ranks would need fewer pairs
    where the differences are normally distributed, and more where some of them are far off, as
    ratios of rounds are when the clock frequency changes in between: of 24 rounds of an 8192³
    product on an H200 at its power limit the sign test finds a difference in 80 % of cases in which
    signed ranks find it in 68 %.

    Args:
        differences: b - a of each pair.
        confidence: of the interval; :func:`minimum_samples` pairs are needed for it.
        margin: shifts up to this size, in either direction, count as none (>= 0).

    Raises:
        ValueError: no differences.
    """
    values = _ranks_checked(differences)
    return Shift(
        estimate=float(np.median(values)),
        interval=median_interval(values, confidence),
        p_greater=_sign_p(values.size, int((values <= margin).sum())),
        p_less=_sign_p(values.size, int((values >= -margin).sum())),
    )


def rank_sum_shift(a: Samples, b: Samples, *, confidence: float, margin: float = 0.0) -> Shift:
    """Shift from a to b, unpaired: Mann and Whitney's rank-sum test with the Hodges-Lehmann
    estimate, the median of all differences between the sides (Hollander, Wolfe & Chicken 2014,
    sections 4.1-4.3). The arguments are those of :func:`sign_shift`; an interval needs
    :func:`minimum_a_side` values per side.

    Raises:
        ValueError: a side has no values.
    """
    left, right = _ranks_checked(a), _ranks_checked(b)
    sizes = left.size, right.size
    gaps = np.sort(np.subtract.outer(right, left).ravel())
    interval = None
    if min(sizes) >= minimum_a_side(confidence):
        rank = _interval_rank(*sizes, confidence)
        interval = float(gaps[rank - 1]), float(gaps[gaps.size - rank])
    return Shift(
        estimate=float(np.median(gaps)),
        interval=interval,
        p_greater=_rank_sum_p(*sizes, int((gaps <= margin).sum())),
        p_less=_rank_sum_p(*sizes, int((gaps >= -margin).sum())),
    )


def stratified_shift(
    strata: Sequence[tuple[Samples, Samples]], confidence: float
) -> tuple[float, Interval | None]:
    """Shift from a to b where only the values of one stratum can be compared: the median of the
    differences within strata, and its interval.

    The interval is the inverse of the rank-sum test whose statistic is the sum over the strata
    (van Elteren, "On the Combination of Independent Two Sample Tests of Wilcoxon", 1960, with equal
    weights). Sides may have any sizes; the interval is None where even the most extreme order of
    all strata is too likely for the confidence without a shift.

    Args:
        strata: a and b of each; those without values on a side do not count.

    Raises:
        ValueError: no stratum has values on both sides.
    """
    check_confidence(confidence)
    both = [(_ranks_checked(a), _ranks_checked(b)) for a, b in strata if len(a) and len(b)]
    if not both:
        raise ValueError("no stratum has values on both sides")
    gaps = np.sort(np.concatenate([np.subtract.outer(b, a).ravel() for a, b in both]))
    sizes = [(a.size, b.size) for a, b in both]
    rank = _stratified_rank(sizes, (1 - confidence) / 2)
    interval = None
    if rank and can_shift(sizes, confidence):
        interval = float(gaps[rank - 1]), float(gaps[gaps.size - rank])
    return float(np.median(gaps)), interval


def can_shift(sizes: Sequence[tuple[int, int]], confidence: float = 0.95) -> bool:
    """Whether strata of these sizes can show a shift: of the C(first + second, first) orders of
    each, equally likely without one, the extreme ones together have to be rare enough."""
    check_confidence(confidence)
    orders = math.prod(math.comb(first + second, first) for first, second in sizes)
    # Without rounding: numbers of orders are soon larger than any float.
    return orders >= math.ceil(2 / (1 - confidence) * (1 - 1e-12))


def _stratified_rank(sizes: Sequence[tuple[int, int]], tail: float) -> int:
    """How many of the ordered gaps may be cut off at each end, plus one; 0: none may."""
    if sum(map(sum, sizes)) <= EXACT_UP_TO:
        chances = np.ones(1)
        for first, second in sizes:
            chances = np.convolve(chances, _gap_chances(first, second))
        return int(np.searchsorted(np.cumsum(chances), tail * (1 + 1e-12), side="right"))
    middle = sum(_gaps_below(*size)[0] for size in sizes)
    spread = math.sqrt(sum(_gaps_below(*size)[1] ** 2 for size in sizes))
    return max(0, math.floor(middle + NormalDist().inv_cdf(tail) * spread))


def minimum_a_side(confidence: float = 0.95) -> int:
    """The least n for which n values against n can show a shift: of the C(2n, n) orders that are
    equally likely without one, two are the extreme ones (4 for 95 %, 8 for 99.95 %)."""
    check_confidence(confidence)
    tail, count = (1 - confidence) / 2, 1
    while 1 / math.comb(2 * count, count) > tail:
        count += 1
    return count


@lru_cache(maxsize=1024)
def rank_sum_chances(first: int, second: int) -> Values:
    """Probability that at most 0, 1, 2 ... of all gaps between `first` values and `second` others
    are below 0 if there is no shift: the exact distribution function of Mann and Whitney's U."""
    return np.minimum(1.0, np.cumsum(_gap_chances(first, second)))


def _sign_p(total: int, against: int) -> float:
    """P(at most `against` of `total` differences are not beyond the margin) if there is no
    shift."""
    return float(sum(math.comb(total, count) for count in range(against + 1)) / 2**total)


def _rank_sum_p(first: int, second: int, against: int) -> float:
    """P(at most `against` of all gaps between the sides are not beyond the margin) if there is no
    shift."""
    if first + second <= EXACT_UP_TO:
        return float(min(1.0, _gap_chances(first, second)[: against + 1].sum()))
    middle, spread = _gaps_below(first, second)
    return NormalDist().cdf((against + 1 - middle) / spread)


def _interval_rank(first: int, second: int, confidence: float) -> int:
    """How many of the ordered gaps may be cut off at each end, plus one."""
    tail = (1 - confidence) / 2
    if first + second <= EXACT_UP_TO:
        chances = np.cumsum(_gap_chances(first, second))
        return max(1, int(np.searchsorted(chances, tail * (1 + 1e-12), side="right")))
    middle, spread = _gaps_below(first, second)
    return max(1, math.floor(middle + NormalDist().inv_cdf(tail) * spread))


def _gaps_below(first: int, second: int) -> tuple[float, float]:
    """Mean and standard deviation of the number of gaps below 0 if there is no shift."""
    return first * second / 2, math.sqrt(first * second * (first + second + 1) / 12)


@lru_cache(maxsize=256)
def _gap_chances(first: int, second: int) -> Values:
    """Probability of each number of gaps below 0 (Mann and Whitney's U, 0 to first·second) if there
    is no shift: that of each sum of `second` ranks, less the smallest such sum."""
    total = first + second
    counts = np.zeros((second + 1, total * (total + 1) // 2 + 1))
    counts[0, 0] = 1.0
    for rank in range(1, total + 1):
        counts[1:, rank:] += counts[:-1, :-rank].copy()
    least = second * (second + 1) // 2
    found = counts[second, least : least + first * second + 1]
    return np.asarray(found / found.sum())


def _ranks_checked(samples: Samples) -> Values:
    values = np.asarray(samples, dtype=np.float64)
    if values.size == 0:
        raise ValueError("a side has nothing to compare")
    return values


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


class Difference(StrEnum):
    """What two samples show about the second compared with the first."""

    FASTER = "faster"
    SLOWER = "slower"
    NONE_SHOWN = "no difference shown"
    UNDECIDED = "undecided"
    """Too little was measured to decide."""


class Pairing(StrEnum):
    """What counts as one independent observation."""

    ROUNDS = "paired rounds"
    """The ratio within each interleaved round; drift of the machine cancels."""
    UNPAIRED_ROUNDS = "rounds"
    """The median of each round."""
    MEDIANS = "medians"
    """The medians of both sides with the intervals of their own rounds, used where comparing rounds
    with rounds is undecided."""
    RUNS = "runs"
    """Each run; of few runs of each of many settings (:mod:`.runs`)."""
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
    """Why the comparison is undecided, or what weakens its result."""
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
    bare = Comparison(
        ratio=median(all_b) / median(all_a),
        interval=None,
        confidence=confidence,
        effect_size=cliffs_delta(all_a, all_b),
        verdict=Difference.UNDECIDED,
        pairing=Pairing.UNPAIRED_ROUNDS,
        observations=fewest,
        relevant=relevant,
        family=family,
        divisor=divisor,
    )
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


def _by_medians(
    bare: Comparison,
    left: Mapping[int, npt.NDArray[np.float64]],
    right: Mapping[int, npt.NDArray[np.float64]],
) -> Comparison:
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
    comparison = Comparison(
        ratio=median(right) / median(left),
        interval=None,
        confidence=confidence,
        effect_size=cliffs_delta(left, right),
        verdict=Difference.UNDECIDED,
        observations=fewest,
        relevant=relevant,
        family=family,
        divisor=divisor,
    )
    if fewest < needed:
        note = _too_few(fewest, "sample", needed, family)
        return dataclasses.replace(comparison, note=note)
    ratios, chances = _ratios_of_medians(left, right)
    below = np.cumsum(chances)
    above = np.cumsum(chances[::-1])
    tail = (1 - each) / 2 * (1 + 1e-9)
    low = int(np.searchsorted(below, tail, side="right"))
    high = ratios.size - 1 - int(np.searchsorted(above, tail, side="right"))
    low, high = min(low, ratios.size - 1), max(high, 0)
    interval = float(ratios[min(low, high)]), float(ratios[max(low, high)])
    # The interval is the inverse of this test.
    not_slower = (
        below[np.searchsorted(ratios, 1 + relevant, side="right") - 1]
        if (ratios[0] <= 1 + relevant)
        else 0.0
    )
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
    interval = min(low, ratio), max(high, ratio)
    verdict = verdict_of(interval, comparison.relevant)
    if verdict is comparison.verdict:
        return dataclasses.replace(comparison, interval=interval)
    return dataclasses.replace(
        comparison,
        interval=interval,
        verdict=verdict,
        p_value=None,
        note="; ".join(filter(None, (comparison.note, note))),
    )


def _judged(comparison: Comparison, interval: Interval, p_value: float) -> Comparison:
    verdict, notes = verdict_of(interval, comparison.relevant), []
    if verdict in (Difference.NONE_SHOWN, Difference.UNDECIDED):
        if p_value <= 1 - comparison.confidence + 1e-12:
            family = comparison.family
            notes.append(f"a difference is shown by itself, but not as one of {family} comparisons")
        elif comparison.relevant and not interval[0] <= 1 <= interval[1]:
            notes.append(f"differs, but not demonstrably by more than {comparison.relevant:.3g}")
    if verdict is Difference.UNDECIDED and comparison.relevant:
        notes.append(
            f"the interval does not exclude a difference of "
            f"{format_percent(GROSS * comparison.relevant)}: measure more rounds, on a quieter "
            "machine"
        )
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
        f"{counted(count, what)} a side: at least {needed} are needed{among}; "
        "raise --time-budget, --min-samples or --benchmark-repetitions"
    )


def cliffs_delta(a: Samples, b: Samples) -> float:
    """P(b < a) - P(b > a) over all pairs (Cliff, Psychological Bulletin 114, 1993)."""
    ordered = np.sort(np.asarray(a, dtype=np.float64))
    values = np.asarray(b, dtype=np.float64)
    below = np.searchsorted(ordered, values, side="left").sum()
    above = ordered.size * values.size - np.searchsorted(ordered, values, side="right").sum()
    return float(above - below) / (ordered.size * values.size)


def _together(rounds: Mapping[int, npt.NDArray[np.float64]], name: str) -> Samples:
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
        choose = math.lgamma(count + 1) - np.array(
            [math.lgamma(k + 1) + math.lgamma(count - k + 1) for k in draws.tolist()]
        )
        with np.errstate(invalid="ignore"):
            exponents = choose + np.outer(logs[0], draws) + np.outer(logs[1], count - draws)
        # With a share of 1 all draws are among the first, where 0 times infinity is not a number.
        sums = np.nan_to_num(np.exp(exponents), nan=0.0).sum(axis=1)
        sums[shares == 1] = 1.0
        total += np.clip(sums, 0, 1) / (1 if count % 2 else 2)
    return first, np.maximum(np.diff(total), 0.0)


STEPS = (1, 2, 3, 4, 5, 6, 7, 9, 12, 16, 20)
"""Numbers of latest runs that are compared with the runs before them."""

LEAST_BEFORE = 3
"""Runs before a step."""

_TAIL = 0.1
"""Share of the earlier statistics to which a tail is fitted."""

_LEAST_IN_TAIL = 12
"""Statistics in that tail; of fewer, no tail can be estimated, and noise is taken to be normal."""

_SMALLEST = 1e-18
"""Least variance of logarithms: steps of 1e-9 are the resolution of a median in ns."""

LEAST_PAIRS = 2
"""Pairs for an interval of their mean."""

_MOST_DEGREES = 1e6
_TRUST = 0.1
"""Chance of more dispersed variances at which the worth of the common one is read, so that few
series are trusted little."""


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
    interval, note = None, ""
    if spread.degrees:
        tail = (1 - confidence) / family / 2
        reach = student_quantile(1 - tail, spread.degrees) * spread.deviation
        reach *= math.sqrt(1 / len(a) + 1 / len(b))
        interval = math.exp(shift - reach), math.exp(shift + reach)
    else:
        note = "no point was run twice, so the spread between runs is not known; repeat the runs"
    verdict = verdict_of(interval, relevant)
    if interval is not None and verdict is Difference.UNDECIDED:
        note = "runs of one point differ too much for a verdict; repeat them more often"
    return Comparison(
        ratio=math.exp(shift),
        interval=interval,
        confidence=confidence,
        effect_size=cliffs_delta(a, b),
        verdict=verdict,
        note=note,
        pairing=Pairing.RUNS,
        observations=min(len(a), len(b)),
        relevant=relevant,
        family=family,
    )


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
    interval = None
    if count >= LEAST_PAIRS:
        deviation = math.sqrt(sum((one - shift) ** 2 for one in logs) / (count - 1))
        reach = student_quantile((1 + confidence) / 2, count - 1) * deviation / math.sqrt(count)
        interval = math.exp(shift - reach), math.exp(shift + reach)
    return Comparison(
        ratio=math.exp(shift),
        interval=interval,
        confidence=confidence,
        effect_size=sum((one < 0) - (one > 0) for one in logs) / count,
        verdict=verdict_of(interval, relevant),
        note="" if interval else f"{counted(count, 'pair')}: at least {LEAST_PAIRS} are needed",
        pairing=Pairing.RUNS,
        observations=count,
        relevant=relevant,
    )


def student_quantile(share: float, degrees: int) -> float:
    """The value below which `share` (0.5 to 1) of Student's distribution lies, to 12 digits, by
    bisection.

    Raises:
        ValueError: a share outside [0.5, 1), or no degrees of freedom.
    """
    if not 0.5 <= share < 1 or degrees < 1:
        raise ValueError(f"no quantile of {share} with {degrees} degrees of freedom")
    low, high = 0.0, 1.0
    while _student_below(high, degrees) < share:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if _student_below(middle, degrees) < share:
            low = middle
        else:
            high = middle
    return high


def _student_below(value: float, degrees: int) -> float:
    """Share of Student's distribution below `value` >= 0 (Abramowitz & Stegun 26.7.3 and 26.7.4:
    finite sums for whole degrees of freedom)."""
    angle = math.atan2(value, math.sqrt(degrees))
    cosine, sine = math.cos(angle), math.sin(angle)
    total, term = 0.0, cosine if degrees % 2 else 1.0
    for k in range(degrees % 2, degrees - 1, 2):
        total += term
        term *= cosine**2 * (k + 1) / (k + 2)
    inside = 2 * (angle + sine * total) / math.pi if degrees % 2 else sine * total
    return 0.5 + inside / 2


@dataclass(frozen=True, slots=True)
class NoiseTail:
    """How often the scores of unchanged runs are extreme: normally, or as observed."""

    threshold: float = math.inf
    """The score that a share of :data:`_TAIL` exceeds; infinite: normal noise is assumed."""
    scale: float = 1.0
    shape: float = 0.0
    """Of the generalised Pareto distribution of what is beyond it (Pickands, Annals of Statistics
    3, 1975); 0: an exponential tail."""

    def p_value(self, score: float) -> float:
        """Two-sided p-value of a score, at least that of a normal one."""
        size = abs(score)
        normal = 2 * NormalDist().cdf(-size)
        if size <= self.threshold:
            return normal
        excess = (size - self.threshold) / self.scale
        tail = (
            math.exp(-excess) if not self.shape else (1 + self.shape * excess) ** (-1 / self.shape)
        )
        return max(normal, _TAIL * tail)

    def score(self, p_value: float) -> float:
        """The least score (above 0) with at most this two-sided p-value."""
        normal = -NormalDist().inv_cdf(max(p_value, 1e-300) / 2)
        if math.isinf(self.threshold) or p_value >= _TAIL:
            return normal
        share = _TAIL / max(p_value, 1e-300)
        excess = math.log(share) if not self.shape else (share**self.shape - 1) / self.shape
        return max(normal, self.threshold + self.scale * excess)


@dataclass(frozen=True, slots=True)
class RunNoise:
    """The noise of single runs (logarithms), as all series of one kind show it together."""

    variance: float = 0.0
    """Common to all series."""
    degrees: float = 0.0
    """Degrees of freedom that it is worth next to a series' own; 0: nothing is known in common."""
    tail: NoiseTail = NoiseTail()

    def shrunk(self, variance: float, degrees: float) -> tuple[float, float]:
        """A series' own variance shrunk towards the common one, and its degrees of freedom."""
        total = min(self.degrees + degrees, _MOST_DEGREES)
        if not total:
            return 0.0, 0.0
        common = self.degrees / (self.degrees + degrees)
        return max(common * self.variance + (1 - common) * variance, _SMALLEST), total

    def interval(self, before: Values, after: Values, confidence: float) -> Interval | None:
        """Interval for the mean of `after` less that of `before`; None where nothing is known of
        the spread, or fewer than :data:`LEAST_BEFORE` runs are before."""
        own = before.size + after.size - 2
        if before.size < LEAST_BEFORE or not after.size:
            return None
        squares = sum(float(((side - side.mean()) ** 2).sum()) for side in (before, after))
        variance, degrees = self.shrunk(squares / own, own)
        reach = student_of_score(self.tail.score(1 - confidence), degrees)
        reach *= math.sqrt(variance * (1 / before.size + 1 / after.size))
        shift = float(after.mean() - before.mean())
        return shift - reach, shift + reach

    def power(
        self, shift: float, variance: float, before: int, after: int, *, p_value: float,
        margin: float, confidence: float,
    ) -> float:  # fmt: skip
        """Probability that a step of `shift` (logarithm) has a p-value of at most `p_value` and an
        interval with `confidence` beyond `margin` (normal approximation of the noncentral t
        distribution; Johnson & Welch, Biometrika 31, 1940)."""
        variance, degrees = self.shrunk(variance, before + after - 2)
        unit = math.sqrt(variance * (1 / before + 1 / after))
        needed = max(
            student_of_score(self.tail.score(p_value), degrees),
            student_of_score(self.tail.score(1 - confidence), degrees) + margin / unit,
        )
        centre = needed * (1 - 1 / (4 * degrees))
        return NormalDist().cdf(
            (abs(shift) / unit - centre) / math.sqrt(1 + needed**2 / (2 * degrees))
        )


@dataclass(frozen=True, slots=True)
class LatestStep:
    """The most significant step at the end of one series."""

    p_value: float
    """Over all of :data:`STEPS` together; 1: none was tested."""
    after: int
    """Runs after the step; 0: none was tested."""


def latest_steps(series: Sequence[Values], inflations: Sequence[float]) -> list[LatestStep]:
    """Compare the latest 1, 2, 3 ... runs of each of `series` (logarithms of one kind of times)
    with the runs before them.

    The statistic is Student's for two means, with a variance shrunk towards that of all series. Its
    p-value is that of a normal score, and at least what the same statistic of windows of as many
    earlier runs shows: these contain how often runs are far off, and how much neighbours resemble
    each other. Where all series together have too few earlier runs for that, noise is taken to be
    normal. The newest run and most of the latest ones have to differ by half the step, so that one
    run that was far off is no step once the level has returned.

    Args:
        series: values in the order of time, without gaps.
        inflations: of each, the factor by which the variance of means is larger than that of
            independent runs.
    """
    sizes: dict[int, list[int]] = {}
    for number, values in enumerate(series):
        sizes.setdefault(values.size, []).append(number)
    blocks = {size: np.array([series[n] for n in members]) for size, members in sizes.items()}
    found = [LatestStep(1.0, 0)] * len(series)
    tests = {size: sum(size - after >= LEAST_BEFORE for after in STEPS) for size in sizes}
    for after in STEPS:
        ready = {size: rows for size, rows in blocks.items() if size - after >= LEAST_BEFORE}
        if not ready:
            break
        noise, scores = _noise_of(ready, sizes, inflations, after)
        for size, own in scores.items():
            for number, score in zip(sizes[size], own.tolist(), strict=True):
                p_value = min(1.0, tests[size] * noise.tail.p_value(score))
                if p_value < found[number].p_value:
                    found[number] = LatestStep(p_value, after)
    return found


def run_noise(series: Sequence[Values]) -> RunNoise:
    """The noise of runs around the levels of `series`, each of which has one level."""
    sizes: dict[int, list[int]] = {}
    for number, values in enumerate(series):
        if values.size > LEAST_BEFORE:
            sizes.setdefault(values.size, []).append(number)
    blocks = {size: np.array([series[n] for n in members]) for size, members in sizes.items()}
    return _noise_of(blocks, sizes, [1.0] * len(series), 1)[0]


def _noise_of(
    blocks: Mapping[int, Values], members: Mapping[int, Sequence[int]],
    inflations: Sequence[float], after: int,
) -> tuple[RunNoise, dict[int, Values]]:  # fmt: skip
    """Noise over all `blocks`, each the series of one length, and scores of their latest runs."""
    sides = {size: _latest_sides(rows, after) for size, rows in blocks.items()}
    variances = [(shown[1], size - 2.0) for size, shown in sides.items()]
    common = _common_variance(variances)
    earlier, scores = [], {}
    for size, rows in blocks.items():
        root = np.sqrt([inflations[number] for number in members[size]])
        gaps, own, consistent = sides[size]
        scores[size] = np.where(
            consistent, _scores(common, gaps, own, after, size - after) / root, 0.0
        )
        if size - 2 * after >= LEAST_BEFORE:
            gaps, own = _window_sides(rows[:, : size - after], after)
            shown = _scores(common, gaps, own, after, size - 2 * after) / root[:, None]
            earlier.append(np.abs(shown).ravel())
    tail = _tail_of(np.concatenate(earlier)) if earlier else NoiseTail()
    return RunNoise(common.variance, common.degrees, tail), scores


def _latest_sides(rows: Values, after: int) -> tuple[Values, Values, npt.NDArray[np.bool_]]:
    """Of each row: by how much the mean of the latest runs is larger, the variance within both
    sides, and whether the newest and most of the latest differ by half of that."""
    old, new = rows[:, :-after], rows[:, -after:]
    means = old.mean(axis=1, keepdims=True), new.mean(axis=1, keepdims=True)
    squares = ((old - means[0]) ** 2).sum(axis=1) + ((new - means[1]) ** 2).sum(axis=1)
    gaps = means[1] - means[0]
    beyond = (new - means[0]) * np.sign(gaps) >= np.abs(gaps) / 2
    consistent = beyond[:, -1] & (2 * beyond.sum(axis=1) > after)
    return gaps[:, 0], squares / (rows.shape[1] - 2), consistent


def _window_sides(rows: Values, width: int) -> tuple[Values, Values]:
    """Of each row and each window of `width` runs in it: by how much the mean of the window is
    larger than that of all other runs, and the variance within both."""
    size = rows.shape[1]
    centred = rows - rows.mean(axis=1, keepdims=True)
    sums, squares = (
        np.concatenate([np.zeros((rows.shape[0], 1)), one.cumsum(axis=1)], axis=1)
        for one in (centred, centred**2)
    )
    inside = sums[:, width:] - sums[:, :-width]
    outside, others = sums[:, -1:] - inside, size - width
    within = squares[:, -1:] - inside**2 / width - outside**2 / others
    return inside / width - outside / others, np.maximum(within, 0) / (size - 2)


def _scores(common: RunNoise, gaps: Values, variances: Values, after: int, before: int) -> Values:
    """Normal scores of Student's statistics with shrunk variances."""
    own = after + before - 2
    total = min(common.degrees + own, _MOST_DEGREES)
    share = common.degrees / (common.degrees + own)
    shrunk = np.maximum(share * common.variance + (1 - share) * variances, _SMALLEST)
    statistics = gaps / np.sqrt(shrunk * (1 / after + 1 / before))
    return np.asarray(np.sign(gaps) * _wallace(total) * np.sqrt(
        total * np.log1p(statistics**2 / total)
    ))  # fmt: skip


def _wallace(degrees: float) -> float:
    """The factor of Wallace's normal approximation of Student's distribution (Annals of
    Mathematical Statistics 30, 1959): z = (8 d + 1) / (8 d + 3) sqrt(d log(1 + t² / d))."""
    return (8 * degrees + 1) / (8 * degrees + 3)


def student_of_score(score: float, degrees: float) -> float:
    """The value of Student's distribution that is as extreme as a normal `score` (Wallace)."""
    exponent = (score / _wallace(degrees)) ** 2 / degrees
    return math.copysign(math.sqrt(degrees * math.expm1(min(exponent, 700.0))), score)


def _tail_of(scores: Values) -> NoiseTail:
    """The tail of the sizes of `scores`: a generalised Pareto distribution by probability-weighted
    moments (Hosking & Wallis, Technometrics 29, 1987), no shorter than exponential."""
    count = int(_TAIL * scores.size)
    if count < _LEAST_IN_TAIL:
        return NoiseTail()
    ordered = np.sort(scores)
    threshold = float(ordered[-count - 1])
    excess = ordered[-count:] - threshold
    mean = float(excess.mean())
    weighted = float((excess * (np.arange(count, 0, -1) - 0.65) / count).mean())
    if mean <= 0:
        return NoiseTail()
    shape = max(0.0, 2 - mean / max(mean - 2 * weighted, 1e-12))
    return NoiseTail(threshold, mean * (1 - min(shape, 0.9)), min(shape, 0.9))


def _common_variance(variances: Sequence[tuple[Values, float]]) -> RunNoise:
    """The variance that all series have in common and how much it is worth, by the moments of the
    logarithms of their own (Smyth 2004, section 6.2).

    Args:
        variances: arrays of variances, each with their degrees of freedom.
    """
    parts, expected, total = [], 0.0, 0.0
    for own, degrees in variances:
        known = own[own > _SMALLEST]
        parts.append(np.log(known) - _digamma(degrees / 2) + math.log(degrees / 2))
        expected += known.size * _trigamma(degrees / 2)
        total += known.size * degrees
    logs = np.concatenate(parts) if parts else np.empty(0)
    count = logs.size
    if count < 2:
        return RunNoise()
    lowest = (
        1 - 2 / (9 * (count - 1)) + NormalDist().inv_cdf(_TRUST) * math.sqrt(2 / (9 * (count - 1)))
    )
    # Wilson & Hilferty's quantile of chi-square gives the upper limit of the dispersion.
    dispersion = float(logs.var(ddof=1)) / max(lowest, 0.05) ** 3 - expected / count
    degrees = 2 * _trigamma_inverse(dispersion) if dispersion > 0 else math.inf
    degrees = min(degrees, total, _MOST_DEGREES)
    mean = float(logs.mean()) + _digamma(degrees / 2) - math.log(degrees / 2)
    return RunNoise(math.exp(mean), degrees)


def _digamma(value: float) -> float:
    """Abramowitz & Stegun 6.3.5 and 6.3.18."""
    shift = 0.0
    while value < 8:
        shift -= 1 / value
        value += 1
    square = 1 / value**2
    return (
        shift
        + math.log(value)
        - 0.5 / value
        - square * (1 / 12 - square * (1 / 120 - square / 252))
    )


def _trigamma(value: float) -> float:
    """Abramowitz & Stegun 6.4.6 and 6.4.12."""
    shift = 0.0
    while value < 8:
        shift += 1 / value**2
        value += 1
    square = 1 / value**2
    return (
        shift + 1 / value + square / 2 + square / value * (1 / 6 - square * (1 / 30 - square / 42))
    )


def _trigamma_inverse(value: float) -> float:
    """The positive number whose trigamma is `value`, by bisection of its logarithm."""
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _trigamma(math.exp(middle)) > value else (low, middle)
    return math.exp((low + high) / 2)


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
    (:func:`~gemmetry.statistics.comparison.stratified_shift`). The ratio of one stratum is that of
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
    both = [(_groups_checked(a), _groups_checked(b)) for a, b in strata if len(a) and len(b)]
    logs = [(np.log(_thinned(a)), np.log(_thinned(b))) for a, b in both]
    estimate, found = stratified_shift(logs, 1 - (1 - confidence) / family)
    ratio = math.exp(estimate)
    if len(both) == 1:
        ratio = median(both[0][1]) / median(both[0][0])
    interval = None
    if found is not None:
        low, high = map(math.exp, found)
        interval = min(low, ratio), max(high, ratio)
    weights = [len(a) * len(b) for a, b in both]
    effect = np.average([cliffs_delta(a, b) for a, b in both], weights=weights)
    return Comparison(
        ratio=ratio,
        interval=interval,
        confidence=confidence,
        effect_size=float(effect),
        verdict=verdict_of(interval, relevant),
        observations=min(sum(len(a) for a, _ in both), sum(len(b) for _, b in both)),
        relevant=relevant,
        family=family,
    )


def _groups_checked(samples: Samples) -> npt.NDArray[np.float64]:
    values = np.asarray(samples, np.float64)
    if not (values > 0).all():
        raise ValueError("durations to compare are positive")
    return values


def _thinned(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    if values.size <= MOST_OF_A_GROUP:
        return values
    shares = (np.arange(MOST_OF_A_GROUP) + 0.5) / MOST_OF_A_GROUP
    return np.quantile(values, shares)
