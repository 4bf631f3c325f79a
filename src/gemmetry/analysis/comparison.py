"""Experiments against each other: one row a dispatch, with an interval and a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gemmetry.analysis.baseline import geometric_mean
from gemmetry.domain.errors import RequestError
from gemmetry.domain.outcome import Outcome
from gemmetry.domain.record import Record
from gemmetry.domain.resultset import ResultSet
from gemmetry.statistics.comparison import (
    Comparison,
    Difference,
    compare_medians,
    compare_rounds,
    judge_family,
)
from gemmetry.statistics.quantiles import quantile

DEFAULT_THRESHOLD = 0.02
"""Relative difference between two runs that counts as none: the interval tells how sure a median is
within its run, and runs of one binary differ by about this much from each other through memory
layout and temperature (Mytkowicz et al., "Producing Wrong Data Without Doing Anything Obviously
Wrong!", ASPLOS 2009, report layout effects of that order and above)."""

INTERLEAVED_GPU = 0.005
"""The same between dispatches of a GPU that were sampled in turns: what is left are the addresses
of their buffers (docs/measurement.md, "Proof")."""

ADDRESSES_NS = 60.0
"""The least of it: the addresses of small matrices make a launch of 6 µs up to 51 ns slower, in
every round alike (40 pairs of equal dispatches of 1024³ in bf16 on an H200)."""

INTERLEAVED_CPU = 0.02
"""The same on a CPU, where addresses decide what shares a cache set."""

_DEVICE_METHODS = {"graph", "events"}
_GAP_OF_EVENTS_NS = 2_000.0
"""Events show a launch longer than graphs do by the gap between launches: 1.2 µs for launches of
6 µs and of 31 µs (torch.mm on an H200)."""
_GAP_OF_WALL_CLOCK_NS = 100_000.0
"""A wall clock also times the submission and the waiting for the device: some tens of µs."""

_DISTURBED = ("busy", "load average", "stalled", "two modes")
"""Marks of samples that something else than the kernel made longer, or may have."""
_FASTEST_PART = 0.1

JoinKey = tuple[str, str, str, str]
"""(target, device, provider, dispatch); the device only where an experiment used several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One dispatch of a candidate against the same of the first experiment."""

    before: Record
    after: Record
    comparison: Comparison | None = None
    """Candidate over first, by rounds where they are known; None where a side has no samples."""
    note: str = ""
    """Why there is no comparison, or what weakens it."""
    is_regression: bool = False

    @property
    def ratio(self) -> float | None:
        """Candidate's median duration over the first one's; below 1 is faster."""
        if self.comparison is not None:
            return self.comparison.ratio
        if self.before.measurement is None or self.after.measurement is None:
            return None
        return self.after.measurement.median_ns / self.before.measurement.median_ns

    @property
    def verdict(self) -> str:
        """faster, slower, no difference shown, or what became of a side that has no time."""
        if self.comparison is not None:
            return str(self.comparison.verdict)
        if self.after.outcome is not self.before.outcome:
            return f"{self.before.outcome} → {self.after.outcome}"
        if self.ratio is not None:
            return "no samples"
        return "not measured" if self.after.outcome is Outcome.OK else str(self.after.outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateComparison:
    """One candidate against the first experiment."""

    label: str
    title: str
    changes: tuple[Change, ...]
    """One for each dispatch that both have, in the order of the first experiment."""
    only_first: tuple[JoinKey, ...]
    """Dispatches that the candidate lacks."""
    only_candidate: tuple[JoinKey, ...]
    environment_differences: tuple[str, ...]
    input_differences: tuple[str, ...]
    """Distributions and seeds that differ, where the caller allowed that."""

    @property
    def geometric_mean(self) -> float | None:
        """Of the ratios of duration of all dispatches that both measured; below 1 is faster."""
        return geometric_mean(c.ratio for c in self.changes if c.ratio is not None)

    @property
    def regressions(self) -> list[Change]:
        return [change for change in self.changes if change.is_regression]

    def counted(self, verdict: Difference) -> int:
        """How many changes have that verdict."""
        return sum(c.comparison is not None and c.comparison.verdict is verdict
                   for c in self.changes)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExperimentComparison:
    """Every candidate against the first experiment."""

    title: str
    candidates: tuple[CandidateComparison, ...]
    threshold: float
    confidence: float

    @property
    def has_regression(self) -> bool:
        """True if any candidate is slower by more than the threshold, or lost a dispatch that
        was ok; continuous integration fails on it."""
        return any(candidate.regressions for candidate in self.candidates)

    def __repr__(self) -> str:
        told = (
            f"{one.title}: "
            + ", ".join(f"{one.counted(verdict)} {verdict}" for verdict in Difference)
            for one in self.candidates
        )
        return f"<ExperimentComparison with {self.title}: {'; '.join(told)}>"


def compare(
    result_sets: Sequence[ResultSet],
    *,
    allow_different_inputs: bool = False,
    threshold: float | None = None,
    confidence: float = 0.95,
) -> ExperimentComparison:
    """Compare experiments, the first being what the others are held against.

    Dispatches are joined on (target, provider, name). Relative differences up to `threshold` count
    as none (None: :func:`default_threshold`). All comparisons of one candidate are judged together
    (Holm), so that the chance of a single false verdict among them stays below 1 - `confidence`. A
    change is a regression if it is shown to be slower, or if a dispatch that was ok no longer is.

    Raises:
        RequestError: fewer than two experiments, none with a dispatch of the first, or inputs of
            different distributions (data changes speed) that were not allowed.
    """
    if len(result_sets) < 2:
        raise RequestError("nothing to compare with", hint="Give two experiments or more.")
    first = result_sets[0]
    candidates = tuple(
        _compare(first, candidate, chr(ord("B") + index), allow_different_inputs,
                 threshold, confidence)
        for index, candidate in enumerate(result_sets[1:])
    )  # fmt: skip
    return ExperimentComparison(
        title=_title(first),
        candidates=candidates,
        threshold=DEFAULT_THRESHOLD if threshold is None else threshold,
        confidence=confidence,
    )


def default_threshold(record: Record, *, is_interleaved: bool) -> float:
    """Relative difference that counts as none where nothing is asked for."""
    if not is_interleaved:
        return DEFAULT_THRESHOLD
    if record.target == "cpu" or record.measurement is None:
        return INTERLEAVED_CPU
    return max(INTERLEAVED_GPU, ADDRESSES_NS / max(record.measurement.median_ns, 1.0))


def compare_records(
    first: ResultSet,
    before: Record,
    second: ResultSet,
    after: Record,
    *,
    threshold: float | None = None,
    confidence: float = 0.95,
) -> Comparison | None:
    """Two measured dispatches by their stored rounds, in pairs where they were interleaved, or by
    their samples where rounds are not known; None where a side has no samples."""
    old, new = first.rounds(before), second.rounds(after)
    is_interleaved = not old.keys().isdisjoint(new.keys())
    if threshold is None:
        usual = default_threshold(after, is_interleaved=is_interleaved)
        # What one dispatch shows from process to process, another may show against it.
        threshold = max(usual, _process_spread(before), _process_spread(after))
    gap, note = _method_gap(before, after)
    relevant = max(threshold, gap)
    is_simulated = {before.measurement and before.measurement.method,
                    after.measurement and after.measurement.method} == {"simulated"}  # fmt: skip
    if old and new and not is_simulated:  # a pretend device does not drift
        found = compare_rounds(old, new, confidence=confidence, relevant=relevant)
    else:
        samples_before, samples_after = first.samples(before), second.samples(after)
        if not samples_before or not samples_after:
            return None
        found = compare_medians(
            samples_before, samples_after, confidence=confidence, relevant=relevant
        )
    found = replace(found, note="; ".join(filter(None, (note, found.note))))
    if found.verdict is Difference.NONE_SHOWN:
        return found
    if not (_is_disturbed(before) or _is_disturbed(after)):
        return found
    return _confirmed(found, first.samples(before), second.samples(after))


def _process_spread(record: Record) -> float:
    return record.measurement.process_spread if record.measurement else 0.0


def _is_disturbed(record: Record) -> bool:
    marks = record.measurement.marks if record.measurement else ()
    return any(mark.startswith(_DISTURBED) for mark in marks)


def _confirmed(found: Comparison, before: Sequence[float], after: Sequence[float]) -> Comparison:
    """The comparison, without its verdict where the fastest samples do not show it as well.

    Other programs can only make samples longer, and can do so in every round: two threads of one
    library share a processor as long as somebody has the other. The fastest tenth is what the
    kernels take without them.
    """
    ratio = quantile(after, _FASTEST_PART) / quantile(before, _FASTEST_PART)
    limit = 1 + found.relevant
    if ratio > limit if found.verdict is Difference.SLOWER else ratio < 1 / limit:
        return found
    told = f"disturbed, and the fastest samples do not show it (ratio {ratio:.3g})"
    return replace(
        found,
        verdict=Difference.NONE_SHOWN,
        p_value=None,
        note="; ".join(filter(None, (found.note, told))),
    )


def _method_gap(before: Record, after: Record) -> tuple[float, str]:
    """Relative difference that two timing methods may make of one launch, and what to say."""
    if before.measurement is None or after.measurement is None:
        return 0.0, ""
    methods = {before.measurement.method, after.measurement.method}
    if len(methods) == 1:
        return 0.0, ""
    gap_ns = _GAP_OF_EVENTS_NS if methods <= _DEVICE_METHODS else _GAP_OF_WALL_CLOCK_NS
    shortest = min(before.measurement.median_ns, after.measurement.median_ns)
    note = f"timed by {before.measurement.method} and by {after.measurement.method}"
    return gap_ns / max(shortest, 1.0), note


def _compare(
    first: ResultSet,
    candidate: ResultSet,
    label: str,
    allow_different_inputs: bool,
    threshold: float | None,
    confidence: float,
) -> CandidateComparison:
    by_device = _uses_several_devices(first) or _uses_several_devices(candidate)
    before = _by_key(first, by_device)
    after = _by_key(candidate, by_device)
    shared = [key for key in before if key in after]
    if not shared:
        raise RequestError(
            f"{_title(first)} and {_title(candidate)} have no dispatch in common",
            hint="Dispatches are joined on target, provider and name; compare experiments that "
            "ran some of the same.",
        )
    pairs = [(before[key], after[key]) for key in shared]
    input_differences = _input_differences(pairs)
    _refuse_different_inputs(first, candidate, pairs, allow_different_inputs)
    return CandidateComparison(
        label=label,
        title=_title(candidate),
        changes=judge_changes(
            change_between(first, before, candidate, after, threshold, confidence)
            for before, after in pairs
        ),
        only_first=tuple(key for key in before if key not in after),
        only_candidate=tuple(key for key in after if key not in before),
        environment_differences=tuple(_environment_differences(first, candidate, pairs)),
        input_differences=tuple(input_differences),
    )


def change_between(
    first: ResultSet,
    before: Record,
    second: ResultSet,
    after: Record,
    threshold: float | None = None,
    confidence: float = 0.95,
) -> Change:
    """What became of one dispatch, judged by itself."""
    if before.measurement is None or after.measurement is None:
        lost = before.outcome is Outcome.OK and after.outcome is not Outcome.OK
        note = after.reason if lost else ""
        return Change(before=before, after=after, note=note, is_regression=lost)
    comparison = compare_records(
        first, before, second, after, threshold=threshold, confidence=confidence
    )
    if comparison is None:
        note = "raw samples are missing, so no interval is known"
        return Change(before=before, after=after, note=note)
    return Change(before=before, after=after, comparison=comparison)


def judge_changes(changes: Iterable[Change]) -> tuple[Change, ...]:
    """The changes with verdicts that hold for all of them together."""
    changes = list(changes)
    judged = iter(judge_family([c.comparison for c in changes if c.comparison is not None]))
    found = []
    for change in changes:
        if change.comparison is not None:
            comparison = next(judged)
            change = replace(
                change,
                comparison=comparison,
                note=comparison.note,
                is_regression=comparison.verdict is Difference.SLOWER,
            )
        found.append(change)
    return tuple(found)


def _by_key(result_set: ResultSet, by_device: bool) -> dict[JoinKey, Record]:
    """Records by what joins them; of a dispatch done in two environments the later one counts."""
    return {
        (record.target, record.device if by_device else "", record.provider, record.dispatch):
            record
        for record in result_set.records
    }  # fmt: skip


def _uses_several_devices(result_set: ResultSet) -> bool:
    devices: dict[str, set[str]] = {}
    for record in result_set.records:
        devices.setdefault(record.target, set()).add(record.device)
    return any(len(names) > 1 for names in devices.values())


def _refuse_different_inputs(
    first: ResultSet,
    candidate: ResultSet,
    pairs: Iterable[tuple[Record, Record]],
    allowed: bool,
) -> None:
    different = next(
        ((before, after) for before, after in pairs if before.distribution != after.distribution),
        None,
    )
    if different is None or allowed:
        return
    before, after = different
    raise RequestError(
        f"{_title(first)} ran on {before.distribution} inputs and {_title(candidate)} on "
        f"{after.distribution}: data changes speed, so the difference would not be the code's",
        hint="Measure both with one --distribution, or compare all the same with "
        "--across-distributions.",
    )


def _input_differences(pairs: Iterable[tuple[Record, Record]]) -> list[str]:
    found: dict[str, None] = {}
    for before, after in pairs:
        if before.distribution != after.distribution:
            found[f"distribution: {before.distribution} vs {after.distribution}"] = None
        if before.seed != after.seed:
            found[f"seed: {before.seed} vs {after.seed}"] = None
    return list(found)


def _environment_differences(
    first: ResultSet, candidate: ResultSet, pairs: Iterable[tuple[Record, Record]]
) -> list[str]:
    """One line a differing field, over every pair of environments that joined records ran in."""
    found: dict[str, None] = {}
    for old, new in {(b.environment_id, a.environment_id): None for b, a in pairs}:
        mine, theirs = first.environments.get(old), candidate.environments.get(new)
        if old == new:
            continue
        if mine is None or theirs is None:
            found["the environment of one side is not stored"] = None
        else:
            found.update(dict.fromkeys(mine.differences(theirs)))
    return list(found)


def _title(result_set: ResultSet) -> str:
    return result_set.path or result_set.title
