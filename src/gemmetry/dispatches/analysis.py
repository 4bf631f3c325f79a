"""Marks that distinguish a measurement from its neighbours, and marks that describe the whole run.

A mark that nearly every row of a run carries describes the machine and not the row. Records keep
all of their marks; this module decides which of them a report shows in the row and which it states
once.

Best dispatches, and speeds of providers relative to one of them.

The evidence for a verdict about two measured dispatches, and the verdicts on several pairs
together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from gemmetry.domain.errors import RequestError, UnknownNameError
from gemmetry.domain.record import Measurement, Record, ResultSet
from gemmetry.domain.tables import grouped
from gemmetry.measurement.marks import WIDE
from gemmetry.providers.base import baseline_names
from gemmetry.statistics.comparison import (
    Comparison,
    Difference,
    compare_medians,
    compare_rounds,
    is_testable,
    widened,
    widened_by_fastest,
)
from gemmetry.statistics.intervals import half_width, quantile

LEAST_ROWS = 4
"""Fewest measured rows of a device to compare with each other: fewer show no typical value."""

COMMON_SHARE = 0.5
"""A kind of mark on more than this share of a device's measured rows describes the state of the
run."""

LENGTHENED = frozenset({"busy", "load average", "stalled", "two modes"})
"""Kinds of marks for samples that something other than the kernel made longer, or may have."""

DISTURBED = LENGTHENED | {"noisy"}
"""Kinds that other programs cause. They have one cause in many forms, so rows with any of them are
counted together: where these exceed :data:`COMMON_SHARE`, every such kind on at least
:data:`PART_SHARE` of the rows describes the state of the run."""

PART_SHARE = 0.25
"""A smaller share lies above the upper quartile, by which readings are judged, in any case."""

FENCE = 1.5
"""Interquartile ranges above the upper quartile beyond which a reading is an outlier (Tukey,
"Exploratory Data Analysis", 1977): arbitrarily bad readings in a quarter of the rows do not move
this limit."""

LEAST_RATIO = 2.0
"""It must also be this many times the median, because the quartiles of a steady run are so close
that small differences would lie above the limit."""

_OF_THE_KERNEL = ("remembers", "runs on", "host work")
"""Kinds that call the row's time into question whatever the marks of its neighbours."""

_LOAD = "load average"


def mark_kind(mark: str) -> str:
    """The kind of a mark: the text before its colon; ``load average`` has none."""
    return _LOAD if mark.startswith(_LOAD) else mark.partition(":")[0]


def relative_half_width(measurement: Measurement) -> float | None:
    """Half the width of the median's interval divided by the median, which sampling narrows and
    which the mark ``noisy`` reports; None without an interval."""
    low, high = measurement.ci_low_ns, measurement.ci_high_ns
    return half_width(None if low is None or high is None else (low, high), measurement.median_ns)


_READINGS: Mapping[str, Callable[[Measurement], float | None]] = {
    "noisy": relative_half_width,
    "busy": lambda m: max(m.telemetry.run_delay_share or 0.0, m.telemetry.others_cpu_share or 0.0),
    _LOAD: lambda m: m.telemetry.load_average,
    "stalled": lambda m: m.median_ns / m.min_ns if m.min_ns else None,
    "processes differ": lambda m: m.process_spread,
}
"""Kind -> how strong the mark is, by a reading of the measurement; marks of kinds without a reading
are all alike."""

_LIMITS = {"noisy": WIDE}
"""Kind -> the reading above which a row keeps its mark however bad its neighbours are: where many
rows have wide intervals, no limit would separate the widest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """Marks that most measurements of one device have in common."""

    measured: int
    common: Mapping[str, int]
    """Kind of mark -> number of measured rows that have it, the most frequent first."""
    usual_half_width: float | None
    """Median over the rows; None where no interval is known."""
    fences: Mapping[str, float] = field(default_factory=dict)
    """Kind -> the reading above which a row stands out from its neighbours nevertheless."""


@dataclass(frozen=True, slots=True)
class RunMarks:
    """The marks of a run, divided into those that are common and those that stand out."""

    states: Mapping[tuple[str, str], RunState]
    """(target, device) -> what its measured rows have in common, if anything."""

    def of(self, record: Record) -> tuple[str, ...]:
        """The record's marks that distinguish it from its neighbours."""
        m = record.measurement
        if m is None:
            return ()
        state = self.states.get((record.target, record.device))
        return tuple(mark for mark in m.marks if _stands_out(m, mark_kind(mark), state))

    @property
    def has_common(self) -> bool:
        """Whether the rows of any device share marks."""
        return any(state.common for state in self.states.values())

    def counts(self, records: Iterable[Record]) -> dict[str, int]:
        """Kind -> number of `records` on which such a mark stands out, the most frequent first."""
        return _counted({mark_kind(mark) for mark in self.of(record)} for record in records)


def find_run_marks(records: Iterable[Record]) -> RunMarks:
    """Divide the marks of `records`, separately for each device."""
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for record in records:
        if record.measurement is not None:
            groups.setdefault((record.target, record.device), []).append(record.measurement)
    return RunMarks({place: _state(group) for place, group in groups.items()})


def _state(measured: list[Measurement]) -> RunState:
    kinds, rows = [{mark_kind(mark) for mark in m.marks} for m in measured], len(measured)
    is_disturbed = sum(bool(found & DISTURBED) for found in kinds) > COMMON_SHARE * rows
    common = {
        kind: count
        for kind, count in _counted(kinds).items()
        if rows >= LEAST_ROWS and kind not in _OF_THE_KERNEL
        and (count >= PART_SHARE * rows if is_disturbed and kind in DISTURBED
             else count > COMMON_SHARE * rows)
    }  # fmt: skip
    widths = _known(relative_half_width, measured)
    fences = {
        kind: _fence(readings)
        for kind in common
        if kind in _READINGS and (readings := _known(_READINGS[kind], measured))
    }
    usual = quantile(widths, 0.5) if widths else None
    return RunState(measured=rows, common=common, usual_half_width=usual, fences=fences)


def _stands_out(measurement: Measurement, kind: str, state: RunState | None) -> bool:
    if state is None or kind not in state.common:
        return True
    if kind not in state.fences:
        return False
    reading = _READINGS[kind](measurement)
    limit = min(state.fences[kind], _LIMITS.get(kind, math.inf))
    return reading is not None and reading > limit


def _fence(readings: list[float]) -> float:
    low, middle, high = (quantile(readings, share) for share in (0.25, 0.5, 0.75))
    return max(high + FENCE * (high - low), LEAST_RATIO * middle)


def _known(
    reading: Callable[[Measurement], float | None], measured: Iterable[Measurement]
) -> list[float]:
    return [value for m in measured if (value := reading(m)) is not None]


def _counted(kinds: Iterable[Iterable[str]]) -> dict[str, int]:
    counts = Counter(kind for found in kinds for kind in found)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


Problem = tuple[str, str, str, str]
"""(target, device, operation, distribution): only dispatches of one problem are compared with
each other, because two devices of a kind differ and the distribution of the inputs changes the
speed."""


RecordId = tuple[Problem, str, str, str]


def record_id(record: Record) -> RecordId:
    """Unique also among merged experiments, where two environments hold the same dispatch."""
    return (problem_of(record), record.provider, record.dispatch, record.environment_id)


def problem_of(record: Record) -> Problem:
    """The problem that the record's dispatch computes."""
    return (record.target, record.device, record.operation, record.distribution)


def group_by_problem(records: Iterable[Record]) -> dict[Problem, list[Record]]:
    """Records of each problem, problems in the order in which they appear."""
    return grouped(records, problem_of)


def fastest(records: Iterable[Record]) -> Record | None:
    """The record with the shortest median; None if none was measured."""
    return min((r for r in records if r.median_ns is not None), key=rank, default=None)


def grouped_by_speed(records: Iterable[Record]) -> list[Record]:
    """The records grouped by problem, the fastest of each first and those without a time last."""
    return [
        record for group in group_by_problem(records).values() for record in sorted(group, key=rank)
    ]


def rank(record: Record) -> float:
    """The sort key of dispatches of a problem: the median, or infinity without one."""
    return math.inf if record.median_ns is None else record.median_ns


def fastest_per_provider(records: Iterable[Record]) -> dict[str, Record]:
    """The fastest measured record of each provider; meant for the records of one problem."""
    groups = grouped(records, lambda record: record.provider)
    return {name: best for name, group in groups.items() if (best := fastest(group)) is not None}


def geometric_mean(values: Iterable[float]) -> float | None:
    """exp(mean(log x)); None without values. The mean of ratios that is the same
    whichever side is the baseline (Fleming and Wallace, CACM 29(3), 1986)."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanSpeedup:
    """Geometric mean of the ratios of the best dispatches, over the `problems` problems that both
    sides computed."""

    ratio: float
    problems: int
    marked: int = 0
    """Problems where one of the two measurements carries marks that the rest of the run does not
    (:mod:`gemmetry.dispatches.analysis`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedups:
    """Speed relative to the baseline (its best dispatch of the same problem); above 1 is faster."""

    baseline: str
    """A provider, or ``provider:configuration``."""
    ratios: Mapping[RecordId, float]
    """Record -> baseline's median / record's median."""
    means: Mapping[str, MeanSpeedup]
    """Provider -> mean over the problems that it and the baseline computed. A provider that is the
    baseline is left out; the provider of a configuration that is the baseline is included."""

    verdicts: Mapping[RecordId, Difference]
    """Record -> whether it was shown to differ from the baseline."""

    def difference(self, record: Record) -> Difference | None:
        """The verdict on the record compared with the baseline; None if they were not compared."""
        return self.verdicts.get(record_id(record))

    def of(self, record: Record) -> float | None:
        """The record's ratio; None if it or the baseline has no measurement."""
        return self.ratios.get(record_id(record))


def default_baseline(records: Iterable[Record]) -> str | None:
    """The provider to compare with when none is named: a vendor library if one was measured,
    otherwise None. It is also None where only one provider was measured."""
    measured = {record.provider for record in records if record.measurement is not None}
    if len(measured) < 2:
        return None
    return next(iter(baseline_names(measured)), None)


def is_of_baseline(record: Record, baseline: str) -> bool:
    """True if the record is of the provider `baseline`, or of its ``provider:configuration``."""
    provider, colon, configuration = baseline.partition(":")
    return record.provider == provider and (not colon or record.configuration == configuration)


def baseline_label(records: Iterable[Record], baseline: str) -> str:
    """The baseline as texts name it: ``cublaslt:best (best of 8)`` where its provider timed so many
    algorithms to choose one, which a reader has to know of a baseline."""
    own = [record for record in records if ":" in baseline and is_of_baseline(record, baseline)]
    tried = {number for one in own if (number := one.facts.algorithms_tried) is not None}
    if not tried:
        return baseline
    return f"{baseline} (best of {'' if len(tried) == 1 else 'up to '}{max(tried)})"


def check_baseline(records: Iterable[Record], baseline: str) -> None:
    """Refuse a baseline to which none of `records` belongs.

    Raises:
        UnknownNameError: no record is of that provider or configuration.
        RequestError: its provider has a name with a colon.
    """
    records = list(records)
    if any(is_of_baseline(record, baseline) for record in records):
        return
    provider, colon, configuration = baseline.partition(":")
    providers = {record.provider for record in records}
    for name in providers:
        if ":" in name and (baseline == name or baseline.startswith(f"{name}:")):
            raise RequestError(
                f"the provider {name!r} cannot be a baseline: a colon in its name looks like "
                "the one before a configuration",
                hint="Rename it where its results were made, and measure or import them again.",
            )
    if not colon or provider not in providers:
        raise UnknownNameError("baseline provider", provider, providers)
    known = {record.configuration for record in records if record.provider == provider}
    raise UnknownNameError(f"baseline configuration of {provider}", configuration, known)


def speedups(
    records: Sequence[Record], baseline: str, verdicts: Mapping[RecordId, Difference]
) -> Speedups:
    """Every measured record's speed relative to the provider `baseline`, or relative to the
    configuration of ``provider:configuration``; `verdicts` are those on them."""
    ratios: dict[RecordId, float] = {}
    bests: dict[str, list[float]] = {}
    marked: Counter[str] = Counter()
    marks = find_run_marks(records)
    for group in group_by_problem(records).values():
        base = fastest(record for record in group if is_of_baseline(record, baseline))
        if base is None or not base.median_ns:
            continue
        ratios |= {record_id(r): base.median_ns / r.median_ns for r in group if r.median_ns}
        for provider, record in fastest_per_provider(group).items():
            if provider != baseline and record.median_ns:
                bests.setdefault(provider, []).append(base.median_ns / record.median_ns)
                marked[provider] += bool(marks.of(record) or marks.of(base))
    means = {
        provider: MeanSpeedup(ratio=mean, problems=len(values), marked=marked[provider])
        for provider, values in bests.items()
        if (mean := geometric_mean(values)) is not None
    }
    return Speedups(baseline=baseline, ratios=ratios, means=means, verdicts=verdicts)


DEFAULT_THRESHOLD = 0.02
"""Relative difference between two runs that counts as none. The interval shows the uncertainty of a
median within its run, but runs of one binary differ by about this much because of memory layout and
temperature (Mytkowicz et al., "Producing Wrong Data Without Doing Anything Obviously Wrong!",
ASPLOS 2009, report layout effects of that order and above)."""

INTERLEAVED_GPU = 0.005
"""Threshold between interleaved dispatches of a GPU, which differ only in the addresses of their
buffers (docs/measurement.md, "Proof")."""

ADDRESSES_NS = 60.0
"""The least such difference in ns: the addresses of small matrices make a launch of 6 µs up to 51
ns slower, equally in every round (40 pairs of equal dispatches of 1024³ in bf16 on an H200)."""

INTERLEAVED_CPU = 0.02
"""Threshold between interleaved dispatches of a CPU: addresses decide which data share a cache
set."""

_DEVICE_METHODS = {"graph", "events"}
_GAP_OF_EVENTS_NS = 2_000.0
"""Events show a launch longer than graphs do by the gap between launches: 1.2 µs for launches of
6 µs and of 31 µs (torch.mm on an H200)."""
_GAP_OF_WALL_CLOCK_NS = 100_000.0
"""A wall clock also measures the submission and the wait for the device: some tens of µs."""

Rounds = Mapping[int, Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonEvidence:
    """The samples of two dispatches, in ns per launch, and how to compare them."""

    before: Record
    after: Record
    rounds: tuple[Rounds, Rounds] | None
    """Rounds by turn; None where rounds are not known, or are not used (a simulated device does not
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
        how: dict[str, Any] = {"confidence": confidence, "relevant": self.relevant,
                               "family": family, "divisor": divisor}  # fmt: skip
        found = (compare_rounds(*self.rounds, **how) if self.rounds is not None
                 else compare_medians(*self.samples, **how))  # fmt: skip
        found = replace(found, note="; ".join(filter(None, (self.note, found.note))))
        sides = self.before.measurement, self.after.measurement
        if any(mark_kind(mark) in LENGTHENED for side in sides if side for mark in side.marks):
            found = widened_by_fastest(found, *self.samples)
        return _with_the_medians(found, *sides)


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
    if threshold is None:
        usual = default_threshold(after, is_interleaved=not old.keys().isdisjoint(new.keys()))
        # The spread of one dispatch between processes may also appear between two dispatches.
        sides = [one.measurement for one in (before, after) if one.measurement is not None]
        threshold = max([usual, *(side.process_spread for side in sides)])
    gap, note = _method_gap(before, after)
    samples = (first.samples(before) or list(chain.from_iterable(old.values())),
               second.samples(after) or list(chain.from_iterable(new.values())))  # fmt: skip
    if not all(samples):
        return None
    is_simulated = {before.measurement and before.measurement.method,
                    after.measurement and after.measurement.method} == {"simulated"}  # fmt: skip
    rounds = (old, new) if old and new and not is_simulated else None
    return ComparisonEvidence(before=before, after=after, rounds=rounds, samples=samples,
                              relevant=max(threshold, gap), note=note)  # fmt: skip


def _with_the_medians(
    found: Comparison, before: Measurement | None, after: Measurement | None
) -> Comparison:
    """Undecided where the rounds taken in turns disagree with the two medians, which are printed
    next to the verdict: no difference is shown although the intervals of the medians are further
    apart than the difference that counts as none, or the shorter median is the slower one."""
    if found.interval is None or before is None or after is None:
        return found
    ratio = after.median_ns / before.median_ns
    opposite = {Difference.SLOWER: 1.0, Difference.FASTER: -1.0}.get(found.verdict, 0.0)
    if opposite * math.log(ratio) < -math.log1p(found.relevant):
        return widened(found, ratio, f"the medians differ the other way (ratio {ratio:.3g})")
    low, high = sorted((before, after), key=lambda m: m.median_ns)
    is_shown = found.verdict is not Difference.NONE_SHOWN
    if is_shown or low.ci_high_ns is None or high.ci_low_ns is None:
        return found
    if high.ci_low_ns <= (1 + found.relevant) * low.ci_high_ns:
        return found
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
