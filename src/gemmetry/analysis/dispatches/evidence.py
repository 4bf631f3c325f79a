"""The evidence for a verdict about two measured dispatches, and the verdicts on several pairs
together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gemmetry.analysis.dispatches.marks import LENGTHENED, mark_kind
from gemmetry.domain.record import Measurement, Record, ResultSet
from gemmetry.statistics.comparison import (
    Comparison,
    Difference,
    compare_medians,
    compare_rounds,
    is_testable,
    widened,
)
from gemmetry.statistics.quantiles import quantile

DEFAULT_THRESHOLD = 0.02
"""Relative difference between two runs that counts as none. The interval shows the uncertainty of a
median within its run, but runs of one binary differ by about this much because of memory layout and
temperature (Mytkowicz et al., "Producing Wrong Data Without Doing Anything Obviously Wrong!",
ASPLOS 2009, report layout effects of that order and above)."""

INTERLEAVED_GPU = 0.005
"""The same between dispatches of a GPU that were sampled in turns, which differ only in the
addresses of their buffers (docs/measurement.md, "Proof")."""

ADDRESSES_NS = 60.0
"""The least such difference in ns: the addresses of small matrices make a launch of 6 µs up to 51
ns slower, equally in every round (40 pairs of equal dispatches of 1024³ in bf16 on an H200)."""

INTERLEAVED_CPU = 0.02
"""The same on a CPU, where addresses decide which data share a cache set."""

_DEVICE_METHODS = {"graph", "events"}
_GAP_OF_EVENTS_NS = 2_000.0
"""Events show a launch longer than graphs do by the gap between launches: 1.2 µs for launches of
6 µs and of 31 µs (torch.mm on an H200)."""
_GAP_OF_WALL_CLOCK_NS = 100_000.0
"""A wall clock also measures the submission and the wait for the device: some tens of µs."""

_FASTEST_PART = 0.1

Rounds = Mapping[int, Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonEvidence:
    """The samples of two dispatches, in ns per launch, and how to compare them."""

    before: Record
    after: Record
    rounds: tuple[Rounds, Rounds] | None
    """By turn; None where rounds are not known, or are not used (a simulated device does not
    drift)."""
    samples: tuple[Sequence[float], Sequence[float]]
    relevant: float
    """Relative differences up to this count as none."""
    note: str = ""

    def is_testable(self, confidence: float) -> bool:
        """Whether the comparison could show a difference on its own."""
        first, second = self.rounds or self.samples
        return is_testable(len(first), len(second), confidence, by_rounds=self.rounds is not None)

    def compare(self, confidence: float, family: int, divisor: float | None = None) -> Comparison:
        """The comparison as one of `family` that are judged together (:class:`Comparison`)."""
        if self.rounds is not None:
            found = compare_rounds(*self.rounds, confidence=confidence, relevant=self.relevant,
                                   family=family, divisor=divisor)  # fmt: skip
        else:
            found = compare_medians(*self.samples, confidence=confidence, relevant=self.relevant,
                                    family=family, divisor=divisor)  # fmt: skip
        found = replace(found, note="; ".join(filter(None, (self.note, found.note))))
        if _is_disturbed(self.before) or _is_disturbed(self.after):
            found = _with_the_fastest(found, *self.samples)
        return _with_the_medians(found, self.before.measurement, self.after.measurement)


def default_threshold(record: Record, *, is_interleaved: bool) -> float:
    """Relative difference that counts as none by default."""
    if not is_interleaved:
        return DEFAULT_THRESHOLD
    if record.target == "cpu" or record.measurement is None:
        return INTERLEAVED_CPU
    return max(INTERLEAVED_GPU, ADDRESSES_NS / max(record.measurement.median_ns, 1.0))


def evidence_of(
    first: ResultSet,
    before: Record,
    second: ResultSet,
    after: Record,
    *,
    threshold: float | None = None,
) -> ComparisonEvidence | None:
    """The stored data of two measured dispatches: their rounds, in pairs where they were
    interleaved, or their samples where rounds are not known; None where a side has no samples."""
    old, new = first.rounds(before), second.rounds(after)
    is_interleaved = not old.keys().isdisjoint(new.keys())
    if threshold is None:
        usual = default_threshold(after, is_interleaved=is_interleaved)
        # The spread of one dispatch between processes may also appear between two dispatches.
        threshold = max(usual, _process_spread(before), _process_spread(after))
    gap, note = _method_gap(before, after)
    samples = first.samples(before) or _joined(old), second.samples(after) or _joined(new)
    if not all(samples):
        return None
    is_simulated = {before.measurement and before.measurement.method,
                    after.measurement and after.measurement.method} == {"simulated"}  # fmt: skip
    return ComparisonEvidence(
        before=before,
        after=after,
        rounds=(old, new) if old and new and not is_simulated else None,
        samples=samples,
        relevant=max(threshold, gap),
        note=note,
    )


MOST_TOGETHER = 100
"""Comparisons up to which all intervals hold together. With more, intervals that all hold become so
wide that they decide nothing, and the rate of false verdicts is bounded instead."""


def judge_together(
    found: Sequence[ComparisonEvidence], confidence: float = 0.95
) -> list[Comparison]:
    """The comparisons, each with an interval and the verdict that is read from it. Comparisons that
    could not show a difference even alone do not count.

    The intervals of up to :data:`MOST_TOGETHER` hold jointly with `confidence`. Of more, the
    expected share of false ones among those that claim a difference is at most 1 - `confidence`,
    and so is the share among those that claim none (:func:`_judge_by_rate`).
    """
    family = max(1, sum(one.is_testable(confidence) for one in found))
    if family <= MOST_TOGETHER:
        return [one.compare(confidence, family) for one in found]
    return _judge_by_rate(found, confidence, family)


def _judge_by_rate(
    found: Sequence[ComparisonEvidence], confidence: float, family: int
) -> list[Comparison]:
    """Verdicts with a bounded rate of false ones (Benjamini & Hochberg, JRSS B 57, 1995), read from
    the intervals that belong to it: with an error of R / m of the family's for R of m that are
    selected, so that their false coverage has the same bound (Benjamini & Yekutieli, JASA 100,
    2005). R is the largest number of comparisons that intervals of that level decide.

    Differences and their absence are selected separately: thousands of the one must not make the
    other cheap. What is in neither selection has the interval of a difference, which does not
    decide it.
    """
    alone = [one.compare(confidence, family, 1.0) for one in found]

    def selected(*verdicts: Difference) -> tuple[float, dict[int, Comparison]]:
        """The divisor of the probability of error, and the comparisons that it decides so."""
        chosen = {n: one for n, one in enumerate(alone) if one.verdict in verdicts}
        divisor = 1.0
        while chosen and len(chosen) < family / divisor * (1 - 1e-9):
            divisor = family / len(chosen)
            narrowed = {n: found[n].compare(confidence, family, divisor) for n in chosen}
            chosen = {n: one for n, one in narrowed.items() if one.verdict in verdicts}
        return (divisor if chosen else float(family)), chosen

    divisor, different = selected(Difference.SLOWER, Difference.FASTER)
    _, same = selected(Difference.NONE_SHOWN)
    return [
        different.get(n) or same.get(n) or one.compare(confidence, family, divisor)
        for n, one in enumerate(found)
    ]


def _joined(rounds: Rounds) -> Sequence[float]:
    return [value for samples in rounds.values() for value in samples]


def _process_spread(record: Record) -> float:
    return record.measurement.process_spread if record.measurement else 0.0


def _is_disturbed(record: Record) -> bool:
    marks = record.measurement.marks if record.measurement else ()
    return any(mark_kind(mark) in LENGTHENED for mark in marks)


def _with_the_fastest(
    found: Comparison, before: Sequence[float], after: Sequence[float]
) -> Comparison:
    """The comparison with an interval that holds the ratio of the fastest samples as well.

    Other programs can only make samples longer, and can do so in every round: two threads of one
    library share a processor as long as another program uses the other one. The fastest tenth is
    what the kernels take without other programs.
    """
    ratio = quantile(after, _FASTEST_PART) / quantile(before, _FASTEST_PART)
    why = f"disturbed, and the ratio of the fastest samples is {ratio:.3g}"
    return widened(found, ratio, why)


def _with_the_medians(
    found: Comparison, before: Measurement | None, after: Measurement | None
) -> Comparison:
    """Undecided where the rounds taken in turns disagree with the two medians, which are printed
    next to the verdict: no difference is shown although the intervals of the medians are further
    apart than the difference that counts as none, or the shorter median is the slower one."""
    if found.interval is None or before is None or after is None:
        return found
    opposite = {Difference.SLOWER: 1.0, Difference.FASTER: -1.0}.get(found.verdict, 0.0)
    if opposite * math.log(after.median_ns / before.median_ns) < -math.log1p(found.relevant):
        ratio = after.median_ns / before.median_ns
        return widened(found, ratio, f"the medians differ the other way (ratio {ratio:.3g})")
    if found.verdict is not Difference.NONE_SHOWN:
        return found
    low, high = sorted((before, after), key=lambda m: m.median_ns)
    if low.ci_high_ns is None or high.ci_low_ns is None:
        return found
    if high.ci_low_ns <= (1 + found.relevant) * low.ci_high_ns:
        return found
    ratio = after.median_ns / before.median_ns
    why = f"the medians differ (ratio {ratio:.3g}), the rounds that were compared do not"
    found = widened(found, ratio, why)
    if found.verdict is Difference.NONE_SHOWN:
        note = "; ".join(filter(None, (found.note, why)))
        found = replace(found, verdict=Difference.UNDECIDED, p_value=None, note=note)
    return found


def _method_gap(before: Record, after: Record) -> tuple[float, str]:
    """Relative difference that two timing methods may cause for one launch, and the note about
    it."""
    if before.measurement is None or after.measurement is None:
        return 0.0, ""
    methods = {before.measurement.method, after.measurement.method}
    if len(methods) == 1:
        return 0.0, ""
    gap_ns = _GAP_OF_EVENTS_NS if methods <= _DEVICE_METHODS else _GAP_OF_WALL_CLOCK_NS
    shortest = min(before.measurement.median_ns, after.measurement.median_ns)
    note = f"timed by {before.measurement.method} and by {after.measurement.method}"
    return gap_ns / max(shortest, 1.0), note
