"""Is one of two dispatches faster? Ratio with an interval, effect size, verdict."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from gemmetry.statistics.intervals import minimum_samples
from gemmetry.statistics.quantiles import Samples, median, quantile
from gemmetry.statistics.ranks import Shift, holm, rank_sum_shift, sign_shift

RESAMPLES = 2000
"""Bootstrap resamples; the ends of a 95 % interval then vary by about 1/20 of its width between
seeds (Efron & Tibshirani, "An Introduction to the Bootstrap", 1993, section 14.5)."""

_SEED = 20240229
"""Fixed, so that comparing the same samples twice says the same."""

_CHUNK_ELEMENTS = 1 << 21

Rounds = Mapping[int, Samples]
"""Turn -> the samples of one round. Dispatches that share a turn were interleaved in it."""


class Difference(StrEnum):
    """What two samples show, seen from the second one."""

    FASTER = "faster"
    SLOWER = "slower"
    NONE_SHOWN = "no difference shown"


class Pairing(StrEnum):
    """What was taken as one independent observation."""

    ROUNDS = "paired rounds"
    """The ratio within each interleaved round; drift of the machine cancels."""
    UNPAIRED_ROUNDS = "rounds"
    """The median of each round."""
    SAMPLES = "samples"
    """Each sample, where the rounds are not known."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Durations of b compared with those of a."""

    ratio: float
    """Duration of b over that of a: below 1 where b is faster."""
    ratio_low: float
    ratio_high: float
    confidence: float
    effect_size: float
    """Cliff's delta, P(b < a) - P(b > a), from -1 (b always slower) to 1 (b always faster); within
    rounds where these are paired."""
    verdict: Difference
    note: str = ""
    """Why nothing can be shown, or what weakens what is."""
    pairing: Pairing = Pairing.SAMPLES
    observations: int = 0
    """Pairs of rounds, or the smaller side's rounds or samples."""
    relevant: float = 0.0
    """Relative differences up to this count as none."""
    p_value: float | None = None
    """Two-sided, that the difference exceeds `relevant`; None where there is too little to test."""
    adjusted_p_value: float | None = None
    """After Holm, over the family that the comparison was judged in."""
    family: int = 1
    """Comparisons that were judged together."""


def compare_rounds(
    a: Rounds, b: Rounds, *, confidence: float = 0.95, relevant: float = 0.0
) -> Comparison:
    """Compare durations of b with durations of a (same unit, positive), round by round.

    Samples of one round share what the machine did meanwhile, so they are no independent
    observations; a round is. With enough turns in common, the logarithm of the ratio of the two
    medians within each is one observation (``sign_shift``); otherwise each round's median is
    (``rank_sum_shift``). With too few rounds for either nothing is called a difference, and the
    interval is that of samples as if they were independent. What is enough follows from the
    confidence (:func:`minimum_samples`: 6 for 95 %, 7 for 98 %).

    b is ``slower`` or ``faster`` when that it differs by more than `relevant` is shown at the
    level 1 - `confidence`, two-sided.

    Raises:
        ValueError: a side has no samples, or one is not positive and finite.
    """
    left = {turn: _checked(samples, "a") for turn, samples in a.items() if len(samples)}
    right = {turn: _checked(samples, "b") for turn, samples in b.items() if len(samples)}
    needed = minimum_samples(confidence)
    margin = math.log1p(relevant)
    shared = sorted(left.keys() & right.keys())
    logs_a = {turn: math.log(median(samples)) for turn, samples in left.items()}
    logs_b = {turn: math.log(median(samples)) for turn, samples in right.items()}
    if len(shared) >= needed:
        differences = [logs_b[turn] - logs_a[turn] for turn in shared]
        shift = sign_shift(differences, confidence=confidence, margin=margin)
        effect = float(np.mean([cliffs_delta(left[turn], right[turn]) for turn in shared]))
        return _by_shift(shift, confidence, relevant, effect, Pairing.ROUNDS, len(shared))
    all_a, all_b = _together(left, "a"), _together(right, "b")
    fewest = min(len(left), len(right))
    if fewest >= needed:
        shift = rank_sum_shift(
            list(logs_a.values()), list(logs_b.values()), confidence=confidence, margin=margin
        )
        effect = cliffs_delta(all_a, all_b)
        return _by_shift(shift, confidence, relevant, effect, Pairing.UNPAIRED_ROUNDS, fewest)
    found = compare_medians(all_a, all_b, confidence=confidence, relevant=relevant)
    count = f"{fewest} round{'' if fewest == 1 else 's'}"
    return dataclasses.replace(
        found,
        verdict=Difference.NONE_SHOWN,
        p_value=None,
        observations=fewest,
        note=f"{count}: at least {needed} a side are needed; raise --time-budget",
    )


def compare_medians(
    a: Samples, b: Samples, *, confidence: float = 0.95, relevant: float = 0.0
) -> Comparison:
    """Compare durations of b with durations of a (same unit, positive), all samples independent.

    The interval of the ratio of the medians is a percentile bootstrap, the sides independently
    resampled (Efron & Tibshirani 1993, chapter 13), with a fixed seed. b is ``faster`` or
    ``slower`` when the interval lies beyond `relevant`. With fewer samples than an interval of
    this confidence needs (6 for 95 %), nothing is ever called a difference.

    Raises:
        ValueError: a side has no samples, or one is not positive and finite.
    """
    left, right = _checked(a, "a"), _checked(b, "b")
    needed, fewest = minimum_samples(confidence), min(left.size, right.size)
    ratios = _bootstrap_ratios(left, right)
    tail = (1 - confidence) / 2
    comparison = Comparison(
        ratio=median(right) / median(left),
        ratio_low=quantile(ratios, tail),
        ratio_high=quantile(ratios, 1 - tail),
        confidence=confidence,
        effect_size=cliffs_delta(left, right),
        verdict=Difference.NONE_SHOWN,
        observations=fewest,
        relevant=relevant,
    )
    if fewest < needed:
        note = f"{fewest} samples: at least {needed} a side are needed"
        return dataclasses.replace(comparison, note=note)
    not_slower = float((ratios <= 1 + relevant).mean())
    not_faster = float((ratios >= 1 / (1 + relevant)).mean())
    p_value = min(1.0, 2 * min(not_slower, not_faster))
    return _judged(dataclasses.replace(comparison, p_value=p_value), p_value)


def judge_family(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The same comparisons with verdicts that hold for all of them together.

    Their p-values are adjusted by Holm's method, so that the chance of any false alarm among them
    stays below 1 - confidence. Comparisons that have too little to test do not count.
    """
    testable = [item.p_value for item in comparisons if item.p_value is not None]
    adjusted = iter(holm(testable))
    judged = []
    for item in comparisons:
        if item.p_value is not None:
            p_value = next(adjusted)
            before = item.verdict
            item = _judged(item, p_value)
            item = dataclasses.replace(item, adjusted_p_value=p_value, family=len(testable))
            if item.verdict is not before:
                alone = f"shown alone, but not as one of {len(testable)} comparisons"
                note = _joined(item.note, alone)
                item = dataclasses.replace(item, note=note)
        judged.append(item)
    return judged


def cliffs_delta(a: Samples, b: Samples) -> float:
    """P(b < a) - P(b > a) over all pairs (Cliff, Psychological Bulletin 114, 1993)."""
    ordered = np.sort(np.asarray(a, dtype=np.float64))
    values = np.asarray(b, dtype=np.float64)
    below = np.searchsorted(ordered, values, side="left").sum()
    above = ordered.size * values.size - np.searchsorted(ordered, values, side="right").sum()
    return float(above - below) / (ordered.size * values.size)


def _by_shift(
    shift: Shift,
    confidence: float,
    relevant: float,
    effect_size: float,
    pairing: Pairing,
    observations: int,
) -> Comparison:
    p_value = min(1.0, 2 * min(shift.p_greater, shift.p_less))
    comparison = Comparison(
        ratio=math.exp(shift.estimate),
        ratio_low=math.exp(shift.low),
        ratio_high=math.exp(shift.high),
        confidence=confidence,
        effect_size=effect_size,
        verdict=Difference.NONE_SHOWN,
        pairing=pairing,
        observations=observations,
        relevant=relevant,
        p_value=p_value,
    )
    return _judged(comparison, p_value)


def _judged(comparison: Comparison, p_value: float) -> Comparison:
    verdict = Difference.NONE_SHOWN
    note = comparison.note
    if p_value <= 1 - comparison.confidence + 1e-12:
        verdict = Difference.SLOWER if comparison.ratio > 1 else Difference.FASTER
    elif comparison.relevant and not comparison.ratio_low <= 1 <= comparison.ratio_high:
        small = f"differs, but that it does by more than {comparison.relevant:.3g} is not shown"
        note = note if small in note else _joined(note, small)
    return dataclasses.replace(comparison, verdict=verdict, note=note)


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


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


def _bootstrap_ratios(
    left: npt.NDArray[np.float64], right: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    rng = np.random.default_rng(_SEED)
    return _resampled_medians(rng, right) / _resampled_medians(rng, left)


def _resampled_medians(
    rng: np.random.Generator, samples: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    # Ranks instead of the samples themselves: numpy sorts short rows of 32-bit integers five times
    # faster than it takes medians of floats.
    size = samples.size
    order = np.argsort(samples)
    ordered, ranks = samples[order], np.empty(size, np.uint32)
    ranks[order] = np.arange(size, dtype=np.uint32)
    medians = np.empty(RESAMPLES)
    step = max(1, _CHUNK_ELEMENTS // size)
    for start in range(0, RESAMPLES, step):
        count = min(step, RESAMPLES - start)
        drawn = ranks[rng.integers(0, size, (count, size))]
        drawn.sort(axis=1)
        middle = ordered[drawn[:, (size - 1) // 2]] + ordered[drawn[:, size // 2]]
        medians[start : start + count] = middle / 2
    return medians
