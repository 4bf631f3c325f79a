"""Short texts for people: operations, dtypes, configurations, marks; and the sentences that open a
report: who is fastest, and what limits confidence in the run. All plain text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from operator import itemgetter

from gemmetry.dispatches.analysis import (
    DISTURBED,
    MeanSpeedup,
    RunMarks,
    Speedups,
    baseline_label,
    default_baseline,
    find_run_marks,
    relative_half_width,
)
from gemmetry.dispatches.comparison import Leader, find_leader, judged_speedups
from gemmetry.domain.errors import Outcome, Verification, alternatives
from gemmetry.domain.operation import (
    Conv2dShape,
    Operation,
    OperationKind,
    Scaling,
    Signature,
    default_accumulator,
)
from gemmetry.domain.record import Measurement, Record, ResultSet, Verdict
from gemmetry.domain.tables import grouped
from gemmetry.domain.units import format_half_width, plural
from gemmetry.results.texts import elide, first_line, printable
from gemmetry.statistics.comparison import Difference

NOT_RUN = (Outcome.UNSUPPORTED, Outcome.SKIPPED)

VERIFICATION_MARKS = {
    Verification.PASSED: "✓",
    Verification.WARNED: "~",
    Verification.FAILED: "✗",
    Verification.NOT_VERIFIED: "?",
}
VERIFICATION_LEGEND = "✓ verified   ~ warned   ✗ wrong   ? not verified"

DIFFERENCE_SIGNS = {
    Difference.NONE_SHOWN: ("≈", "no difference from the baseline shown"),
    Difference.UNDECIDED: ("≷", "undecided: too little was measured to know which is faster"),
}
"""The sign after a speed that was not shown to differ from the baseline's, and its meaning."""

_LONGEST_REASON = 400
"""Characters. A wrong result's error, place, value and expected value take up to 300."""


def reason_line(record: Record) -> str:
    """The first line of the record's reason, without the dispatch's name in front of it."""
    names = (f"{record.provider}:{record.dispatch}", record.dispatch, record.operation)
    text = record.reason.lstrip()
    for name in names:
        text = text.removeprefix(f"{name}: ")
    return first_line(text, _LONGEST_REASON)


def difference_sign(difference: Difference | None) -> str:
    """The sign after a speed relative to the baseline; "" where a difference is shown."""
    return DIFFERENCE_SIGNS[difference][0] if difference in DIFFERENCE_SIGNS else ""


def difference_legend(differences: Iterable[Difference]) -> list[tuple[str, str]]:
    """Every sign that `differences` have, with its meaning."""
    found = set(differences)
    return [entry for one, entry in DIFFERENCE_SIGNS.items() if one in found]


def failed_checks(verdict: Verdict) -> dict[str, str]:
    """Failed checks -> reason, without the check that the verdict's reason names."""
    return {
        check: printable(text.partition(": ")[2])
        for check, text in verdict.checks.items()
        if text.startswith("failed") and not verdict.reason.startswith(f"{check}: ")
    }


def ran_and_failed(record: Record) -> bool:
    """Whether the record is neither ok nor unsupported or skipped."""
    return record.outcome not in (Outcome.OK, *NOT_RUN)


UNAPPLIED = "not applicable"

_OF_THE_OPERATION = tuple(f"{UNAPPLIED}: {why}" for why in (
    "the operation ", "the inputs ", "these formats ", "sums of ", "no exact sums ",
    "algorithms like ", "there is nothing ", "integers have ",
))  # fmt: skip
"""Beginnings of reasons that lie in the operation itself, so that the check applies nowhere."""


def noted_checks(records: Iterable[Record], outcome: str) -> dict[str, int]:
    """Checks with this outcome (``incomplete``, ``property``, or :data:`UNAPPLIED`: those that the
    provider, the device or the machine made impossible) -> the number of dispatches, largest
    first."""
    counts = Counter(
        check
        for record in records
        for check, text in record.verdict.checks.items()
        if text.partition(": ")[0] == outcome and not text.startswith(_OF_THE_OPERATION)
    )
    return dict(counts.most_common())


def shape_label(operation: Operation) -> str:
    """``3456×1024×2048`` (M×N×K; batched: B×M×N×K); convolutions: image, filter, stride, pad."""
    shape = operation.shape
    if isinstance(shape, Conv2dShape):
        image = f"{shape.n}×{shape.h}×{shape.w}×{shape.c}"
        extra = "" if shape[7:9] == (1, 1) else f" stride {shape.stride_h}×{shape.stride_w}"
        extra += "" if shape[9:11] == (0, 0) else f" pad {shape.pad_h}×{shape.pad_w}"
        return f"{image} ∗ {shape.r}×{shape.s}×{shape.f}{extra}"
    batch = [shape.batch] if operation.kind is OperationKind.BATCH_MATMUL else []
    return "×".join(map(str, (*batch, shape.m, shape.n, shape.k)))


def dtype_label(signature: Signature) -> str:
    """``f32``, ``bf16→f32``, ``e4m3×e5m2→bf16``; the accumulator where it is not the usual one."""
    s = signature
    text = s.lhs.name if s.lhs is s.rhs else f"{s.lhs}×{s.rhs}"
    if s.result is not s.lhs or s.lhs is not s.rhs:
        text += f"→{s.result}"
    if s.accumulator is not default_accumulator(s.lhs, s.rhs, s.result):
        text += f" acc {s.accumulator}"
    return text


def modifiers_label(signature: Signature) -> str:
    """Split-k, scaling, alpha, beta and epilogue, where they differ from the plain product."""
    s = signature
    scaling = "" if s.scaling is Scaling.NONE else f"scale per {s.scaling}"
    parts = (
        f"{s.split_k_slices} slices" if s.split_k_slices > 1 else "",
        scaling if s.blocks is None else f"blocks {s.blocks}",
        "" if s.alpha == 1 else f"alpha {s.alpha:g}",
        "" if s.beta == 0 else f"beta {s.beta:g}",
        "+".join(s.epilogue),
    )
    return ", ".join(filter(None, parts))


def operation_label(operation: Operation) -> str:
    """Label that distinguishes operations of the same dtypes: kind unless it is a plain product,
    shape, layouts unless row-major, and modifiers."""
    s = operation.signature
    lead = {OperationKind.BATCH_MATMUL: "batch", OperationKind.CONV2D: "conv"}.get(s.kind, "")
    layouts = "" if s.layout_pair in ("tt", "nhwc_hwcf") else s.layout_pair
    parts = (lead, shape_label(operation), layouts, modifiers_label(s))
    return " ".join(part for part in parts if part)


def operation_title(operation: Operation) -> str:
    """One line with everything about an operation: ``matmul 257×129×65  f32 tt  bias+relu``."""
    s = operation.signature
    shape, dtypes = shape_label(operation), dtype_label(s)
    return f"{s.kind} {shape}  {dtypes} {s.layout_pair}  {modifiers_label(s)}".rstrip()


def half_width_label(measurement: Measurement) -> str:
    """``±0.5%``, or ``n/a`` where there are too few samples for an interval."""
    value = relative_half_width(measurement)
    if value is None:
        return "n/a"
    if value >= 1:  # The interval of a time, which is never negative, says nothing.
        return ">100%"
    percent = value * 100
    # One decimal would turn 9.95 and more into 10.0, which is a character longer than 10 and 99.
    return f"±{percent:.0f}%" if percent >= 9.95 else f"±{percent:.1f}%"


def format_ratio(value: float | None) -> str:
    """``1.42×``."""
    if value is None:
        return "–"
    return f"{value:.0f}×" if value >= 100 else f"{value:.2f}×"


def means_label(means: Iterable[tuple[str, MeanSpeedup]], marked: str) -> str:
    """``torch 1.42× (3), iree 0.80× (2, 1 based on rows marked !)``, where `marked` says on what
    the ratios of the latter rest."""
    return ", ".join(
        f"{name} {format_ratio(mean.ratio)} ({mean.problems}"
        + (f", {mean.marked} based on {marked})" if mean.marked else ")")
        for name, mean in means
    )


def outcome_counts(records: Sequence[Record]) -> dict[Outcome, int]:
    """The number of records with each outcome, in the order of the enum, without those of none."""
    counts = Counter(record.outcome for record in records)
    return {outcome: counts[outcome] for outcome in Outcome if counts[outcome]}


def shorten_configurations(
    names: Sequence[str], width: int, *, most: int | None = None
) -> dict[str, str]:
    """Each name -> a text of at most `width` characters, different for different names.

    A longer name first loses the tokens (between ``_``) that all configurations of its family
    (tile_config_…) share; if more than `most` characters (default: `width`) remain, it loses its
    middle.
    """
    most = most or width
    unique = list(dict.fromkeys(names))
    families = grouped((name.split("_") for name in unique), itemgetter(0))
    shortened = {}
    for name in unique:
        text, parts = name, name.split("_")
        if len(name) > width:
            lead, tail = _shared_ends(families[parts[0]])
            text = "_".join(parts[lead : len(parts) - tail])
        shortened[name] = elide(printable(text), most)
    if len(set(shortened.values())) == len(unique):
        return shortened
    return {
        name: f"#{index} {elide(printable(name), most - len(str(index)) - 2)}"
        for index, name in enumerate(unique, start=1)
    }


def _shared_ends(names: list[list[str]]) -> tuple[int, int]:
    """Numbers of tokens that all names share at either end; each name keeps at least one."""
    if len(names) == 1:
        return (2, 0) if names[0][:2] == ["tile", "config"] and len(names[0]) > 2 else (0, 0)
    shortest = min(map(len, names))
    lead = _alike(parts[: shortest - 1] for parts in names)
    return lead, _alike(parts[::-1][: shortest - lead - 1] for parts in names)


def _alike(names: Iterable[Sequence[str]]) -> int:
    """Number of leading tokens that the names share."""
    return sum(1 for _ in takewhile(lambda found: len(set(found)) == 1, zip(*names, strict=True)))


@dataclass(frozen=True)
class Overview:
    """Results with what every report states about them as a whole."""

    results: ResultSet
    requested: str | None = None
    """The baseline; None: a vendor library, if one was measured along with others."""

    @cached_property
    def marks(self) -> RunMarks:
        """The marks that rows share, and those that stand out."""
        return find_run_marks(self.results.records)

    @cached_property
    def baseline(self) -> str:
        """The provider, or provider:configuration, to which speeds are relative; "" if none."""
        return self.requested or default_baseline(self.results.records) or ""

    @property
    def baseline_label(self) -> str:
        """The baseline as texts name it."""
        return baseline_label(self.results.records, self.baseline) if self.baseline else ""

    @cached_property
    def relative(self) -> Speedups | None:
        """Speeds relative to the baseline.

        Raises:
            UnknownNameError: no record is of the baseline.
        """
        return judged_speedups(self.results, self.baseline) if self.baseline else None

    @cached_property
    def verdict(self) -> str:
        """The sentence that opens every report."""
        leader = find_leader(self.results, self.marks)
        return verdict_line(self.results.records, leader, self.marks)

    @property
    def run_states(self) -> list[str]:
        """Missing data, and what the rows of each device have in common."""
        return run_state_lines(self.marks, self.results.remarks)

    @cached_property
    def kinds(self) -> dict[str, int]:
        """Kind of mark -> number of rows on which one stands out."""
        return self.marks.counts(self.results.records)

    @property
    def less_trustworthy(self) -> str:
        """Number of rows with marks of their own, and their kinds; "" if none has."""
        if not self.kinds:
            return ""
        count = sum(bool(self.marks.of(record)) for record in self.results.records)
        kinds = ", ".join(f"{number} {printable(kind)}" for kind, number in self.kinds.items())
        return f"! {count} less trustworthy: {kinds}"


def verdict_line(records: Sequence[Record], leader: Leader | None, marks: RunMarks) -> str:
    """One sentence: who is fastest on how many operations, on how many of them that is confirmed,
    the geometric mean, and how far to trust it; "" if nothing was measured."""
    providers = sorted({record.provider for record in records if record.measurement is not None})
    if not providers:
        return ""
    if leader is not None:
        return printable("; ".join([_lead(leader), *_cautions(leader, marks)])) + "."
    failed = sum(map(ran_and_failed, records))
    lost = f"; {plural(failed, 'dispatch', 'dispatches')} failed" if failed else ""
    alone = f"only {providers[0]} was measured, with one configuration per operation"
    if len(providers) > 1:
        alone = f"no operation was measured with two of {', '.join(providers)}"
    return printable(f"Nothing to compare: {alone}{lost}.")


def _lead(leader: Leader) -> str:
    all_of_them = f" that can be compared (of {leader.operations + leader.alone})"
    count_note = all_of_them if leader.alone else ""
    ratio = f"at {format_ratio(leader.ratio)} the speed of the best alternative"
    unshown = "but too little was measured to decide"
    unshown = unshown if leader.undecided else "but no difference is shown"
    if leader.operations == 1:
        only = f"the only operation{count_note}"
        if leader.shown:
            return f"{leader.name} is fastest on {only}, {ratio}"
        return f"{leader.name} has the shortest time on {only}, {ratio}, {unshown}"
    mean = f"{ratio} by geometric mean"
    count = f"{leader.fastest} of {leader.operations} operations{count_note}"
    shortest = f"{leader.name} has the shortest time on {count}"
    if leader.ratio < 1:
        kind = "configuration" if leader.is_configuration else "provider"
        return f"No single {kind} leads: {shortest}, no other on more, but {mean}"
    if not leader.shown:
        return f"{shortest}, {mean}, {unshown} on {leader.undecided or 'any'}"
    every = leader.shown == leader.fastest
    shown = "all confirmed" if every else f"confirmed on {leader.shown}"
    shown += f", {leader.undecided} undecided" if leader.undecided else ""
    return f"{leader.name} is fastest on {count} ({shown}), {mean}"


def _cautions(leader: Leader, marks: RunMarks) -> list[str]:
    cautions = []
    if leader.unverified:
        none = leader.unverified == leader.operations
        cautions.append(f"{'none' if none else 'not all'} of its results were verified")
    if leader.imported:
        every = leader.imported == leader.operations
        cautions.append(f"{'' if every else 'some of '}the best alternatives were imported, and "
                        "not verified here")  # fmt: skip
    if leader.marked:
        one = leader.marked == 1
        every = leader.marked == leader.operations
        of_them = f"{'all' if every else leader.marked} of the {leader.operations} operations"
        of_them = "this" if leader.operations == 1 else of_them
        cautions.append(f"{of_them} {'is' if one else 'are'} based on rows marked !")
    common = list(dict.fromkeys(kind for state in marks.states.values() for kind in state.common))
    if common:
        advice = _QUIET if DISTURBED.intersection(common) else "gemmetry show explains them"
        if "throttled" in common and "busy" not in common:
            advice = _LIMITED
        cautions.append(f"most rows are marked {alternatives(common)}: {advice}")
    else:  # The usual relative half width on the device with the widest intervals.
        usual = [width for state in marks.states.values()
                 if (width := state.usual_half_width) is not None]  # fmt: skip
        cautions += [f"the usual 95 % interval is {format_half_width(max(usual))}"] if usual else []
    return cautions


_QUIET = "repeat it on a quiet machine before relying on it"

_LIMITED = ("the device's limits set its clock, also on a quiet machine; compare ratios of one "
            "run, or lock the clocks below the limit")  # fmt: skip


def run_state_lines(marks: RunMarks, remarks: Sequence[str] = ()) -> list[str]:
    """The `remarks` on what is missing, and one line for each device whose rows share marks, with
    these marks and the usual interval."""
    lines = [printable(remark) for remark in remarks]
    for (target, device), state in marks.states.items():
        if not state.common:
            continue
        (first, count), *others = state.common.items()
        kinds = "".join(f", {number} {kind}" for kind, number in others)
        place = f" on {device or target}" if len(marks.states) > 1 else ""
        width = state.usual_half_width
        usual = "" if width is None else f"; usual interval {format_half_width(width)}"
        lines.append(printable(
            f"The run as a whole{place}: {count} of {state.measured} rows {first}{kinds}{usual}; "
            "! marks rows that stand out from this"
        ))  # fmt: skip
    return lines
